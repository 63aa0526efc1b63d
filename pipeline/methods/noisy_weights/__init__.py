"""Training under noisy weights (Davody et al. 2020, section 2)."""
