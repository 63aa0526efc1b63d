"""Lower bounds on epsilon from an attacker's results, at significance alpha.

Thresholds are chosen without the counted scores: `split` chooses them on one half of the trials and counts
errors on the other half. The numbers of guesses are fixed.

* `by_errors`: both error rates of independent trials (Clopper and Pearson 1934). Assumes nothing about the
  mechanism; the bound from n trials is at most about ln(n / 3).
* `by_coordinates`: error rates of single coordinates, for releases with independent coordinates.
* `by_gaussian`: compares the error rates of `by_errors` with the trade-off curve of a Gaussian mechanism
  (Nasr et al. 2023). Holds for mechanisms that are Gaussian, or almost.
* `by_one_run`: guesses on the canaries in a single run (Steinke, Nasr and Jagielski 2023). Assumes nothing.
* `by_one_run_curve`: compares the guesses of `by_one_run` with the trade-off curve of a Gaussian mechanism
  (Mahloujifar, Melis and Chaudhuri 2024).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from math import exp, log
from typing import Annotated, Self

import numpy as np
from pydantic import Field, SkipValidation
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.checking import checked, floats
from dprepro.errors import UserError
from dprepro.fields import Share

LARGEST = 60.0  # largest epsilon or mu, far above any audit that counts trials
LARGEST_MU = 1e6  # mu of a mechanism with almost no noise
PRECISION = 1e-4
THRESHOLDS = 200  # largest number of candidates
ALPHA = 0.05  # significance at which candidates are compared
# bounds that assume nothing of the mechanism
ASSUMING_NOTHING = frozenset({"errors", "one_run", "labels", "coordinates"})
# shares of the canaries on which the attacker guesses; each share is a separate test
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FEWEST = 4  # scores on each side: half of them choose the threshold, and half are counted

BoundFunction = Callable[[float], float]  # from a significance to a lower bound on epsilon
Confidence = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True)
class AuditedEpsilon:
    """Lower bounds on epsilon at a confidence. They prove no privacy."""

    epsilon_lower: float  # without assumptions on the mechanism
    if_gaussian: float  # for mechanisms with the trade-off curve of a Gaussian; 0 if delta is 0
    confidence: float

    @classmethod
    def of(cls, found: Mapping[str, float], confidence: float) -> Self:
        """Largest bounds, without assumptions and for Gaussian mechanisms, of those ``found`` by name."""
        gaussian = [found[name] for name in found.keys() - ASSUMING_NOTHING]
        return cls(largest(found, ASSUMING_NOTHING), max(gaussian, default=0.0), confidence)


@checked
def audit(
    without: SkipValidation[Sequence[float] | np.ndarray],
    within: SkipValidation[Sequence[float] | np.ndarray],
    *,
    delta: Share,
    confidence: Confidence = 0.95,
) -> AuditedEpsilon:
    """Lower bound on epsilon at ``delta`` from an attacker's scores, by Clopper and Pearson's intervals.

    The threshold is chosen on every second score and errors are counted on the others, so the choice costs no
    confidence.

    Args:
        without: (N,) scores of independent trainings without the record.
        within: (M,) scores of independent trainings with the record; larger for a good attacker.
        delta: delta of the audited guarantee.
        confidence: confidence of each bound.

    Returns:
        A lower bound without assumptions on the mechanism, and one for Gaussian mechanisms.

    Raises:
        UserError: there are too few scores, a score isn't a finite number, or ``delta`` or ``confidence``
            isn't a probability.
    """
    scores = {"without": floats("without", without), "within": floats("within", within)}
    for name, values in scores.items():
        if values.ndim != 1 or len(values) < FEWEST or not np.isfinite(values).all():
            raise UserError(
                f"{name}: of shape {values.shape}; needed: at least {FEWEST} finite numbers in a row"
            )
    names = ("errors", "gaussian")
    found = lower_bounds(scores["without"], scores["within"], names, 1 - confidence, delta)
    return AuditedEpsilon.of(found, confidence)


def lower_bounds(
    without: np.ndarray,
    within: np.ndarray,
    names: Sequence[str],
    alpha: float,
    delta: float,
    shares: Sequence[float] = SHARES,
) -> dict[str, float]:
    """Lower bounds on epsilon from scores.

    Args:
        without: (N,) scores without the record.
        within: (M,) scores with the record; larger for a good attacker.
        names: bounds to compute. 'one_run' and 'one_run_curve': for canaries that fair coins included.
            'errors' and 'gaussian': for independent trials.
        alpha: significance of each bound.
        delta: delta of the guarantee.
        shares: shares of the canaries on which the attacker guesses.

    Returns:
        Bounds by name. At delta 0 none assumes a Gaussian mechanism.
    """
    bounds: dict[str, Callable[[], float]] = {
        "one_run": lambda: by_one_run(without, within, alpha, delta, shares),
        "errors": lambda: by_thresholds(without, within, alpha, delta),
        "one_run_curve": lambda: by_one_run_curve(without, within, alpha, delta, shares),
        "gaussian": lambda: by_gaussian(split(without, within)[0], alpha, delta),
    }
    return {name: bounds[name]() for name in names if delta > 0 or name in ASSUMING_NOTHING}


def bound_of(without: np.ndarray, within: np.ndarray, name: str, delta: float) -> BoundFunction:
    """Lower bound from scores as a function of the significance; the ``name`` is one of `lower_bounds`."""
    return lambda alpha: lower_bounds(without, within, [name], alpha, delta)[name]


def joint_bounds(bounds: Mapping[str, BoundFunction], alpha: float) -> dict[str, float]:
    """Lower bounds by name that hold together at ``alpha``: each has an equal share of it."""
    return {name: bound(alpha / len(bounds)) for name, bound in bounds.items()}


def largest(found: Mapping[str, float], names: Set[str] | None = None) -> float:
    """Largest of the bounds in ``found``, or of those with ``names``."""
    return max(bound for name, bound in found.items() if names is None or name in names)


@dataclass(frozen=True)
class ErrorCounts:
    """Errors of an attacker in independent trials."""

    false_alarms: int  # trials without the record in which the guess was "with the record"
    without: int  # trials without the record
    misses: int  # trials with the record in which the guess was "without the record"
    within: int  # trials with the record

    def upper(self, alpha: float) -> tuple[float, float]:
        """Upper limits of the false-alarm rate and the miss rate, which hold together at level ``alpha``."""
        return (
            clopper_pearson(self.false_alarms, self.without, alpha / 2),
            clopper_pearson(self.misses, self.within, alpha / 2),
        )


def clopper_pearson(count: int, trials: int, alpha: float) -> float:
    """Upper confidence limit of a rate after ``count`` events in ``trials``, at significance ``alpha``."""
    return 1.0 if count >= trials else float(beta.ppf(1 - alpha, count + 1, trials - count))


def split(without: np.ndarray, within: np.ndarray) -> tuple[ErrorCounts, ErrorCounts]:
    """Errors of two thresholds: even trials choose the thresholds, and odd trials count the errors.

    ``without`` (N,) and ``within`` (M,) are scores, larger with the record. On the even trials, the first
    threshold has the fewest errors and the second shows the largest epsilon.
    """
    scores = np.sort(np.concatenate([without[::2], within[::2]]))
    candidates = scores[np.linspace(0, len(scores) - 1, min(len(scores), THRESHOLDS)).astype(int)]
    learnt = [errors_at(without[::2], within[::2], errors) for errors in candidates]
    wrong = [errors.false_alarms / errors.without + errors.misses / errors.within for errors in learnt]
    telling = [by_errors(errors, ALPHA, 0.0) for errors in learnt]
    best, most = candidates[int(np.argmin(wrong))], candidates[int(np.argmax(telling))]
    return errors_at(without[1::2], within[1::2], best), errors_at(without[1::2], within[1::2], most)


def errors_at(without: np.ndarray, within: np.ndarray, threshold: float) -> ErrorCounts:
    """Errors of an attacker who guesses "with the record" if the score is above ``threshold``.

    A score of NaN, as of a training that diverged, counts as the guess "without the record".
    """
    alarms, hits = int((without > threshold).sum()), int((within > threshold).sum())
    return ErrorCounts(alarms, len(without), len(within) - hits, len(within))


def by_errors(errors: ErrorCounts, alpha: float, delta: float) -> float:
    """Lower bound on epsilon from the upper limits FPR and FNR of both error rates.

    The larger of ln((1 - delta - FNR) / FPR) and ln((1 - delta - FPR) / FNR), and at least 0.
    """
    alarms, misses = errors.upper(alpha)
    shown = [
        log((1 - delta - kept) / other)
        for kept, other in ((misses, alarms), (alarms, misses))
        if kept < 1 - delta
    ]
    return max(0.0, *shown, 0.0)


def by_thresholds(without: np.ndarray, within: np.ndarray, alpha: float, delta: float) -> float:
    """Largest lower bound on epsilon by the thresholds of `split`; each threshold is a separate test."""
    thresholds = split(without, within)
    return max(by_errors(errors, alpha / len(thresholds), delta) for errors in thresholds)


def by_coordinates(errors: ErrorCounts, coordinates: int, alpha: float, delta: float) -> float:
    """Lower bound on epsilon of a release with independent, equal noise on its ``coordinates`` coordinates.

    ``errors`` count single coordinates. The attacker looks at one or more coordinates of a release, and
    guesses "with the record" if that is the guess for any of them.
    """
    alarms, misses = errors.upper(alpha)
    counts = np.arange(1, coordinates + 1)
    quiet = np.exp(counts * np.log1p(-alarms)) - delta if alarms < 1 else np.zeros(1)
    shown = np.log(quiet[quiet > 0]) - counts[: len(quiet)][quiet > 0] * log(misses)
    return float(max(0.0, *shown, 0.0))


def by_gaussian(errors: ErrorCounts, alpha: float, delta: float) -> float:
    """Lower bound on epsilon at ``delta``, from the smallest mu of Gaussian DP that allows the errors."""
    alarms, misses = errors.upper(alpha)
    mu = float(ndtri(1 - alarms) - ndtri(misses)) if 0 < alarms < 1 and 0 < misses < 1 else 0.0
    return epsilon_of_mu(mu, delta)


def by_one_run(
    without: np.ndarray, within: np.ndarray, alpha: float, delta: float, shares: Sequence[float] = SHARES
) -> float:
    """Lower bound on epsilon from guesses on canaries that fair coins included or left out.

    ``without`` and ``within`` are scores of left-out and of included canaries. For each of ``shares``, the
    attacker guesses on this share of the canaries; each share is a separate test.
    """
    return max(
        one_run(correct, guesses, len(without) + len(within), alpha / len(shares), delta)
        for correct, guesses in _guesses(without, within, shares)
    )


def one_run(correct: int, guesses: int, canaries: int, alpha: float, delta: float) -> float:
    """Largest epsilon rejected if ``correct`` of ``guesses`` guesses are right (Steinke et al., Thm. 5.2)."""

    def rejected(epsilon: float) -> bool:
        right = 1 / (1 + exp(-epsilon))
        tail = float(binom.sf(correct - 1, guesses, right))
        if delta > 0 and correct > 0:
            # P[v > Bin >= v - i] for i = 1 .. v
            below = binom.sf(np.arange(correct - 1, -1, -1) - 1, guesses, right) - tail
            tail += 2 * canaries * delta * float((below / np.arange(1, correct + 1)).max())
        return tail <= alpha

    return _largest(rejected)


def by_one_run_curve(
    without: np.ndarray, within: np.ndarray, alpha: float, delta: float, shares: Sequence[float] = SHARES
) -> float:
    """Lower bound on epsilon of a Gaussian mechanism: the largest mu that guesses reject, as epsilon.

    Guesses and arguments are as in `by_one_run`.
    """
    return max(
        epsilon_of_mu(one_run_mu(correct, guesses, len(without) + len(within), alpha / len(shares)), delta)
        for correct, guesses in _guesses(without, within, shares)
    )


def one_run_mu(correct: int, guesses: int, canaries: int, alpha: float) -> float:
    """Largest mu of Gaussian DP that is rejected if ``correct`` of ``guesses`` guesses are right."""

    def rejected(mu: float) -> bool:
        first, other = alpha * correct / canaries, alpha * (guesses - correct) / canaries
        for place in range(correct - 1, -1, -1):
            # the inverse of 1 - f: Phi(Phi^-1(x) - mu)
            larger = max(other, float(ndtr(ndtri(first) - mu)))
            first = min(1.0, first + place / (guesses - place) * (larger - other)) if place < guesses else 1.0
            other = larger
        return first + other > guesses / canaries

    return _largest(rejected)


def _guesses(without: np.ndarray, within: np.ndarray, shares: Sequence[float]) -> list[tuple[int, int]]:
    """Numbers of correct and of all guesses, for each share of the canaries in ``shares``.

    Half of the guesses are "out", on the lowest scores. The other half are "in", on the highest scores.
    """
    scores = np.concatenate([without, within])
    truth = np.concatenate([np.zeros(len(without), bool), np.ones(len(within), bool)])
    # equal scores get a random order, without information; there are many if nothing is released
    order = np.lexsort((np.random.default_rng(0).random(len(scores)), scores))
    sides = [max(1, int(share * len(scores) / 2)) for share in shares]
    return [
        (int((~truth[order[:side]]).sum() + truth[order[len(order) - side :]].sum()), 2 * side)
        for side in sides
    ]


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Epsilon at ``delta`` of Gaussian DP, also for an infinite ``mu``."""
    return gaussian_epsilon(min(mu, LARGEST_MU), delta) if mu > 0 else 0.0


def _largest(rejected: Callable[[float], bool]) -> float:
    """Largest x, at most `LARGEST`, such that x and all smaller numbers are rejected; 0 without any."""
    if not rejected(0.0):
        return 0.0
    low, high = 0.0, LARGEST
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low
