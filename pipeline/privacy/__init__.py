"""Differential privacy: gradients, clipping, mechanisms, accounting. Knows no data set and no model."""
