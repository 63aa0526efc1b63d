"""Training: the loop over steps, checkpoints, records of rows, and searches."""
