"""Training: the loop over replicas, its checkpoints, what a run leaves, and searches."""
