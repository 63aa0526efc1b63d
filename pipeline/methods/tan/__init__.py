"""TAN: DP-SGD at a given noise, and its scaling laws (Sander et al. 2022)."""
