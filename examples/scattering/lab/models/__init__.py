"""Architectures: one file a model, each with a `build` function."""
