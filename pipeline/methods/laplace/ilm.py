"""The identical Laplace mechanism (Phan et al. 2017, appendix C): every feature has the same noise."""

from pipeline.methods.laplace.perturbed import Perturbed


class Ilm(Perturbed):
    """All beta_j are 1, and no relevances are looked at."""
