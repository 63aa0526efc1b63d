"""DP-SGD (Abadi et al. 2016) with normalisation layers (Davody et al. 2020)."""
