"""Data sets: raw files that are checked by their bytes, and the splits that rows are trained on."""
