"""Training: the loop over replicas, checkpoints, records of runs, and searches."""
