"""Training with noise on the weights (Davody et al. 2020, section 2)."""
