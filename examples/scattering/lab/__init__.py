"""What this laboratory brings: the scattering transform, and DP-SGD on inputs normalised by noisy statistics."""
