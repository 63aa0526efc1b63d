"""Approximate mu of Gaussian DP of many small steps, by central limit theorems; no bounds."""

from math import exp, expm1, hypot, isfinite, sqrt

from scipy.special import ndtr

from dprepro.accountants.records import SampledGaussian


def clt_mu(spending: SampledGaussian, steps: int) -> float | None:
    """Mu of Gaussian DP by the central limit theorem that papers state for this sampling.

    Batches have m of N examples, T is the number of steps, and z the noise multiplier. ``fixed`` and
    ``replacement``: sqrt(2) c h(z) with c = (m / N) sqrt(T), Corollary 5.4 of Dong, Roth and Su 2022 and
    Appendix B.1 of Nguyen et al. 2023. ``poisson``: (m / N) sqrt(T (e^(1/z^2) - 1)), Bu et al. 2020; also
    ``allocation``, whose likelihood ratios have the same variance. ``shuffled``: sqrt(epochs) / z, which is
    exact if the order is known. The squared mu of a first release and of the steps are added (Dong, Roth and
    Su 2022, Corollary 3.3).

    Args:
        spending: sampling, noise and sizes of one step.
        steps: number of steps.

    Returns:
        mu; None if it overflows.
    """
    noise, share = spending.noise_multiplier, spending.rate * sqrt(steps)
    try:
        if spending.sampling == "shuffled":
            mu = sqrt(spending.epochs(steps)) / noise
        elif spending.sampling in ("poisson", "allocation"):
            mu = share * sqrt(expm1(noise**-2))
        else:
            mu = sqrt(2) * share * h(noise)
    except OverflowError:
        return None
    if spending.first_release is not None:
        mu = hypot(mu, 1 / spending.first_release)
    return mu if isfinite(mu) else None


def h(noise: float) -> float:
    """Factor h(z) in Corollary 5.4 of Dong, Roth and Su 2022.

    It is sqrt(e^(1/z^2) Phi(3 / (2 z)) + 3 Phi(-1 / (2 z)) - 2), with Phi the standard normal distribution
    function. Appendix B.1 of Nguyen et al. 2023 has the same formula: its example has Phi(3 sqrt(62)) for
    z = .5 / sqrt(62).

    Args:
        noise: noise multiplier z.

    Returns:
        h(z).

    Raises:
        OverflowError: the noise is so small that the result overflows.
    """
    square = exp(noise**-2) * ndtr(1.5 / noise) + 3 * ndtr(-0.5 / noise) - 2
    return sqrt(max(0.0, float(square)))
