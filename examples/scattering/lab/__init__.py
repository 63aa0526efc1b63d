"""Scattering features, and DP-SGD on inputs normalised by noisy statistics."""
