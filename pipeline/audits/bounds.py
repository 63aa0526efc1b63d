"""From what an attacker got right to an epsilon that is shown: lower bounds at a significance alpha.

Each fixes its threshold or its number of guesses before it looks at the scores that it counts: `split` takes
them from one half of the trials and counts in the other.

* `by_errors`: of two ways to err, counted in independent trials (Clopper and Pearson 1934). Assumes nothing
  of the mechanism; n trials show ln(n / 3) or so at most.
* `by_coordinates`: of errors on single coordinates of releases whose coordinates are independent.
* `by_gaussian`: the same errors, by the trade-off curve of a Gaussian mechanism (Nasr et al. 2023). Holds for
  mechanisms that are Gaussian, or hardly other.
* `by_one_run`: guesses of which canaries were in a single run (Steinke, Nasr and Jagielski 2023). Assumes
  nothing.
* `by_one_run_curve`: the same guesses by the trade-off curve of a Gaussian mechanism (Mahloujifar, Melis and
  Chaudhuri 2024).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from pipeline.privacy.gaussian import gaussian_epsilon

LARGEST = 60.0  # epsilon or mu: no audit that counts comes near
LARGEST_MU = 1e6  # of what has next to no noise
PRECISION = 1e-4
THRESHOLDS = 200  # that are looked at
ALPHA = 0.05  # by which they are compared
# shares of the canaries that are guessed of, each a test of its own
SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Errors:
    """Errors of an attacker in independent trials."""

    false_alarms: int  # of trials without the record, those called with
    without: int
    misses: int  # of trials with it, those called without
    within: int

    def upper(self, alpha: float) -> tuple[float, float]:
        """Upper ends of both error rates that hold together at significance ``alpha``."""
        return (
            clopper_pearson(self.false_alarms, self.without, alpha / 2),
            clopper_pearson(self.misses, self.within, alpha / 2),
        )


def clopper_pearson(count: int, trials: int, alpha: float) -> float:
    """The upper end of a rate, of which ``count`` of ``trials`` were seen, at significance ``alpha``."""
    return 1.0 if count >= trials else float(beta.ppf(1 - alpha, count + 1, trials - count))


def split(without: np.ndarray, within: np.ndarray) -> tuple[Errors, Errors]:
    """Errors of two thresholds, found on the even trials and counted on the odd.

    ``without`` (N,) and ``within`` (M,): scores, larger where the record is there. The first threshold has
    the fewest errors of both kinds among the even trials; by the second they show the largest epsilon.
    """
    scores = np.sort(np.concatenate([without[::2], within[::2]]))
    candidates = scores[np.linspace(0, len(scores) - 1, min(len(scores), THRESHOLDS)).astype(int)]
    learnt = [errors_at(without[::2], within[::2], errors) for errors in candidates]
    wrong = [errors.false_alarms / errors.without + errors.misses / errors.within for errors in learnt]
    telling = [by_errors(errors, ALPHA, 0.0) for errors in learnt]
    best, most = candidates[int(np.argmin(wrong))], candidates[int(np.argmax(telling))]
    return errors_at(without[1::2], within[1::2], best), errors_at(without[1::2], within[1::2], most)


def errors_at(without: np.ndarray, within: np.ndarray, threshold: float) -> Errors:
    """Errors of an attacker who says of scores above a threshold that the record is there."""
    return Errors(
        int((without > threshold).sum()), len(without), int((within <= threshold).sum()), len(within)
    )


def by_errors(errors: Errors, alpha: float, delta: float) -> float:
    """Epsilon that the errors show: the larger of ln((1 - delta - FNR) / FPR) and its mirror image."""
    alarms, misses = errors.upper(alpha)
    shown = [
        log((1 - delta - kept) / other)
        for kept, other in ((misses, alarms), (alarms, misses))
        if kept < 1 - delta
    ]
    return max(0.0, *shown, 0.0)


def by_thresholds(without: np.ndarray, within: np.ndarray, alpha: float, delta: float) -> float:
    """Epsilon that the errors of either threshold of `split` show, each a test of its own."""
    thresholds = split(without, within)
    return max(by_errors(errors, alpha / len(thresholds), delta) for errors in thresholds)


def by_coordinates(errors: Errors, coordinates: int, alpha: float, delta: float) -> float:
    """Epsilon that a release of up to so many coordinates shows, whose noise is independent and alike.

    ``errors`` are those of single coordinates; the attacker says with of a release where he says it of one.
    """
    alarms, misses = errors.upper(alpha)
    counts = np.arange(1, coordinates + 1)
    quiet = np.exp(counts * np.log1p(-alarms)) - delta if alarms < 1 else np.zeros(1)
    shown = np.log(quiet[quiet > 0]) - counts[: len(quiet)][quiet > 0] * log(misses)
    return float(max(0.0, *shown, 0.0))


def by_gaussian(errors: Errors, alpha: float, delta: float) -> float:
    """Epsilon at ``delta`` of the least mu of Gaussian DP that allows the errors."""
    alarms, misses = errors.upper(alpha)
    mu = float(ndtri(1 - alarms) - ndtri(misses)) if 0 < alarms < 1 and 0 < misses < 1 else 0.0
    return of_mu(mu, delta)


def by_one_run(
    without: np.ndarray, within: np.ndarray, alpha: float, delta: float, shares: Sequence[float] = SHARES
) -> float:
    """Epsilon that guesses on canaries show, each of which was in by a fair coin of its own."""
    return max(
        one_run(correct, guesses, len(without) + len(within), alpha / len(shares), delta)
        for correct, guesses in _guesses(without, within, shares)
    )


def one_run(correct: int, guesses: int, canaries: int, alpha: float, delta: float) -> float:
    """The largest epsilon that ``correct`` of so many ``guesses`` on ``canaries`` reject: Theorem 5.2."""

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
    """Epsilon at ``delta`` of the largest mu of Gaussian DP that the guesses reject."""
    return max(
        of_mu(one_run_mu(correct, guesses, len(without) + len(within), alpha / len(shares)), delta)
        for correct, guesses in _guesses(without, within, shares)
    )


def one_run_mu(correct: int, guesses: int, canaries: int, alpha: float) -> float:
    """The largest mu of Gaussian DP that ``correct`` of so many ``guesses`` on ``canaries`` reject."""

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
    """(correct, guesses) of the surest shares of the canaries, half of them called in and half out."""
    scores = np.concatenate([without, within])
    truth = np.concatenate([np.zeros(len(without), bool), np.ones(len(within), bool)])
    # of scores alike, and there are many where nothing is released, none shall know its place
    order = np.lexsort((np.random.default_rng(0).random(len(scores)), scores))
    sides = [max(1, int(share * len(scores) / 2)) for share in shares]
    return [
        (int((~truth[order[:side]]).sum() + truth[order[len(order) - side :]].sum()), 2 * side)
        for side in sides
    ]


def of_mu(mu: float, delta: float) -> float:
    """Epsilon at ``delta`` of Gaussian DP, also of a ``mu`` that isn't finite."""
    return gaussian_epsilon(min(mu, LARGEST_MU), delta) if mu > 0 else 0.0


def _largest(rejected: Callable[[float], bool]) -> float:
    """The largest number up to `LARGEST` that is rejected, as are those below; 0 where none is."""
    if not rejected(0.0):
        return 0.0
    low, high = 0.0, LARGEST
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low
