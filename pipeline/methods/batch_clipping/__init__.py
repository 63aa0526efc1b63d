"""Batch Clipping and Adaptive Layerwise Clipping (Nguyen et al. 2023)."""
