"""Models: one file each, with a `build` function."""
