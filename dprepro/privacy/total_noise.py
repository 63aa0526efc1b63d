"""Total amount of noise, TAN = 1 / eta (Sander et al. 2022, section 3), for Poisson samples.

With much noise, epsilon depends on eta (`signal_to_noise`) alone. This is an approximation and no bound:
below a noise multiplier of about `WALL`, the paper's 'privacy wall', Renyi divergences are far larger.
"""

from math import log, sqrt

from dprepro.privacy.sampled_gaussian import SampledGaussian

WALL = 2.0  # section 3.2


def signal_to_noise(spending: SampledGaussian, steps: int) -> float:
    """Ratio eta = (q / z) sqrt(S / 2) for sampling rate q, noise multiplier z, S steps (Definition 3.1)."""
    return spending.rate / spending.noise_multiplier * sqrt(steps / 2)


def tan_divergence(eta: float, order: float) -> float:
    """Renyi divergence alpha eta^2 at order alpha with much noise (section 3.2); eta: `signal_to_noise`."""
    return order * eta**2


def tan_epsilon(eta: float, delta: float) -> float:
    """Epsilon by Eq. 4, the minimum of Eq. 3 over all orders; eta: `signal_to_noise`."""
    return eta**2 + 2 * eta * sqrt(log(1 / delta))


def tan_eta(epsilon: float, delta: float) -> float:
    """`signal_to_noise` eta at which `tan_epsilon` is ``epsilon``."""
    root = sqrt(log(1 / delta))
    # sqrt(root^2 + epsilon) - root, without the loss of digits at a small epsilon
    return epsilon / (sqrt(root**2 + epsilon) + root)
