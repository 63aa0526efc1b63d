"""Reproduction of a fault of gdpnum 0.1.2 and riskcal 1.5.1, which `docs/upstream-report.md` reports.

Imports nothing of this project: ``pip install gdpnum==0.1.2 riskcal==1.5.1 dp-accounting==0.6.0``, then
``python benchmarks/add_distribution.py``.
"""

from typing import Any

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from gdpnum import PLDConverter
from riskcal.analysis import get_beta_from_pld
from scipy.optimize import brentq
from scipy.stats import norm

NOISE, RATE, STEPS, DELTA = 1.18877474901233, 1024 / 55000, 1074, 1e-5


def masses(pmf: Any) -> tuple[np.ndarray, np.ndarray]:
    """Finite privacy losses and their probability masses.

    Args:
        pmf: probability mass function of dp-accounting.

    Returns:
        (K,) losses and (K,) masses.
    """
    dense = pmf.to_dense_pmf()
    return (dense._lower_loss + np.arange(dense.size)) * dense._discretization, np.asarray(dense._probs)


def true_positive_rate(pld: Any, false_positive_rate: float) -> float:
    """Upper bound on an attack's true-positive rate, by the lines of many (epsilon, delta).

    Args:
        pld: privacy loss distribution of dp-accounting.
        false_positive_rate: false-positive rate of the attack.

    Returns:
        The largest true-positive rate that the lines allow, in both directions.
    """
    epsilons = np.linspace(0, 12, 2401)
    deltas = np.array([pld.get_delta_for_epsilon(epsilon) for epsilon in epsilons])
    lines = np.maximum(
        1 - deltas - np.exp(epsilons) * false_positive_rate,
        np.exp(-epsilons) * (1 - deltas - false_positive_rate),
    )
    return float(1 - lines.max())


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP at an epsilon (Dong, Roth and Su 2022, Corollary 2.13).

    Args:
        mu: parameter of Gaussian DP.
        epsilon: epsilon of the guarantee.

    Returns:
        Delta.
    """
    return float(norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def main() -> None:
    """Print, for three grids, the excess of mass and the results of both packages."""
    for interval in (1e-3, 1e-4, 2e-5):  # the last takes minutes
        step = from_gaussian_mechanism(NOISE, sampling_prob=RATE, value_discretization_interval=interval)
        pld = step.self_compose(STEPS)
        excess = masses(step._pmf_add)[1].sum() + step._pmf_add._infinity_mass - 1
        total = masses(pld._pmf_add)[1].sum() + pld._pmf_add._infinity_mass - 1
        losses, removed = masses(pld._pmf_remove)
        dual = float((np.exp(-losses) * removed).sum())
        epsilon = pld.get_epsilon_for_delta(DELTA)
        floor = brentq(lambda mu, at=epsilon: gaussian_delta(mu, at) - DELTA, 1e-3, 10)
        mu = PLDConverter(pld).get_mu()
        print(f"interval {interval:g}")
        print(f"  excess mass of 'add': {excess:.2g} a step, {total:.2g} in all; of the dual: {dual - 1:.2g}")
        print(f"  mu: gdpnum {mu:.5f}; no dominating mu is below {floor:.5f} (epsilon {epsilon:.5f})")
        for rate in (0.01, 0.001):
            shown = (1 - float(PLDConverter(pld).get_beta(rate)), 1 - float(get_beta_from_pld(pld, rate)))
            bound = true_positive_rate(pld, rate)
            print(f"  TPR at {rate:g}: gdpnum {shown[0]:.6f}, riskcal {shown[1]:.6f}, bound {bound:.6f}")


if __name__ == "__main__":
    main()
