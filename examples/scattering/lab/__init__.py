"""What this laboratory brings: scattering features, and DP-SGD on inputs that noisy statistics normalise."""
