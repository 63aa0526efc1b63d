"""DP-SGD on inputs normalised by noisy statistics."""
