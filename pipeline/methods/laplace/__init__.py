"""The adaptive and the identical Laplace mechanism (Phan et al. 2017)."""
