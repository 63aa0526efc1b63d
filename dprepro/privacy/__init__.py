"""Differential privacy: gradients, clipping, mechanisms, accounting. Imports no data set and no method."""
