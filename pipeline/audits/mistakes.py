"""Which classic mistake a DP-SGD training looks like, by tests on what its steps release.

Each test is of a training as it should be (per-example clipping, Poisson samples, independent noise of one
scale), so that its p-value is the chance of being wrong about a right training. They are hints: a mistake
may go unseen, and several may look alike. What is released is in units of its own noise, so that no scale,
such as that of a mean, has to be known. Where it is also known which examples were in each batch, mistakes of
samplers are told apart from others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import stats

CLEAR = 10.0  # standard errors that the crowd's mean is from 0, where its dispersion is looked at
TOLERANCE = 0.05  # of a noise multiplier: sampling rates are rounded to whole batches
FEW = 0.2  # share of steps with another divisor, where it is that of last batches
LIKE = 0.01  # p-value above which batches' sizes are taken for those of Poisson samples
TRUE_SIZE = "sums divided by the true batch size before noise is added"
OR_THE_RATE = ", or the sampling rate is another"


@dataclass(frozen=True)
class Mistake:
    """A mistake that a training looks like, with the chance that a right training does so too."""

    name: str  # generator, clipping, divisor, noise, rate, sampler, weights or padding
    looks_like: str
    p: float


def recognise(
    crowd: np.ndarray,
    blanks: np.ndarray,
    examples: int,
    rate: float,
    noise_multiplier: float,
    batches: Sequence[np.ndarray] | None = None,
) -> list[Mistake]:
    """Every test's answer, whatever its p-value; tests that another mistake spoils are left out below 1e-4.

    Args:
        crowd: (T, 2) releases, over their step's noise as W directions without examples have it, in the
            directions of the shorter and of the longer examples, of which there are as many; all of them are
            longer than the clipping bound.
        blanks: (S, W) releases in directions that no example has, of T or more steps.
        examples: N, that the crowd has.
        rate: claimed chance of an example to be in a batch.
        noise_multiplier: claimed.
        batches: positions of the examples in each of the crowd's batches; None: not known.
    """
    if not blanks.std(1).min() > 0:
        return [Mistake("noise", "there are steps without noise", 0.0)]
    answers = [_generator(blanks), _clipping(crowd), _divisor(blanks)]
    reused, unclipped = answers[0].p < 1e-4, answers[1].p < 1e-4
    sizes = None
    if batches is not None:
        sizes = np.array([len(np.unique(batch)) for batch in batches])
        answers += of_batches(batches, examples)
        if sum(map(len, batches)) > sizes.sum():
            return answers
    if unclipped:
        return answers
    total = crowd.sum(1) * noise_multiplier
    return answers + _of_sums(total, blanks.shape[1], reused, examples, rate, noise_multiplier, sizes)


def _of_sums(
    total: np.ndarray,
    directions: int,
    reused: bool,
    examples: int,
    rate: float,
    noise_multiplier: float,
    sizes: np.ndarray | None,
) -> list[Mistake]:
    """Whether sums are as large, and vary as much, as those of Poisson samples.

    Args:
        total: (T,) what the crowd released, in clipping bounds if the noise is as claimed.
        directions: W, in which a step's noise is measured.
        reused: whether noise comes again.
        examples: N.
        rate: claimed.
        noise_multiplier: claimed.
        sizes: (T,) of the batches; None: not known.
    """
    steps, expected = len(total), examples * rate
    batch = expected if sizes is None else sizes.mean()
    coins = batch * (1 - batch / examples)
    # whatever a step's measured noise is off by, moves all that it released together
    of_scale = batch**2 / (2 * (directions - 1))
    # noise that comes again in every step isn't averaged
    error = sqrt((coins + (2 * noise_multiplier**2 + of_scale) * (steps if reused else 1)) / steps)
    measured = noise_multiplier * expected / max(total.mean(), error)
    p = 2 * float(stats.norm.sf(abs(total.mean() - expected) / error))
    if abs(measured / noise_multiplier - 1) < TOLERANCE:
        p = 1.0
    spread = float(total.std(ddof=1))
    if abs(batch / expected - 1) > TOLERANCE:
        answers = [Mistake("rate", f"the sampling rate is {batch / examples:.3g}, claimed {rate:.3g}", p)]
    else:
        text = _noise(total.mean(), spread / sqrt(steps), measured, noise_multiplier, expected)
        answers = [Mistake("noise", text if sizes is None else text.removesuffix(OR_THE_RATE), p)]
    if total.mean() <= CLEAR * spread / sqrt(steps) or reused:
        return answers
    scale = total.mean() / batch
    of_noise = 2 * (noise_multiplier / scale) ** 2 + of_scale
    p, varies = _dispersion(total / scale, coins + of_noise)
    text = f"sums have a variance of {varies - of_noise:.3g} examples, those of Poisson samples {coins:.3g}"
    if sizes is None:
        answers.append(Mistake("sampler", f"{text}: a sampler that isn't Poisson, or {TRUE_SIZE}", p))
    elif _dispersion(sizes, coins)[0] > LIKE:
        answers.append(Mistake("divisor", f"{text}, though batches are such: {TRUE_SIZE}", p))
    return answers


def of_batches(batches: Sequence[np.ndarray], examples: int) -> list[Mistake]:
    """What the batches tell: whether they are Poisson samples, with the same chance for all examples.

    Args:
        batches: positions of the examples in each batch.
        examples: N.
    """
    rows = np.array([len(batch) for batch in batches])
    distinct = [np.unique(batch) for batch in batches]
    sizes = np.array([len(batch) for batch in distinct])
    share = sizes.mean() / examples
    if not 0 < share < 1:
        return []
    coins = examples * share * (1 - share)
    if copies := (rows - sizes).mean():
        padded = _dispersion(sizes, coins)[0] > LIKE
        text = f"batches have {copies:.3g} copies of their examples, in the mean over steps"
        padding = Mistake("padding", f"{text}, and would be Poisson samples without: padding counts", 0.0)
        again = Mistake("sampler", f"{text}: a sampler that draws with replacement, and isn't Poisson", 0.0)
        answers = [padding if padded else again]
    else:
        p, spread = _dispersion(rows, coins)
        text = f"batch sizes have a variance of {spread:.3g}, those of Poisson samples {coins:.3g}"
        answers = [Mistake("sampler", f"{text}: a sampler that isn't Poisson", p)]
    counts = np.bincount(np.concatenate(distinct), minlength=examples)
    scale = counts.mean() * (1 - share)
    uneven, freedom = float(np.square(counts - counts.mean()).sum()) / scale, examples - 1
    # A chi-square statistic, but more skewed the fewer counts are above one. A pair of batches that has one
    # more example in common moves it by 2 / scale, of which half is taken off, as such jumps take
    away = (uneven - 1 / scale - freedom) / (2 * freedom) ** 0.5
    p = float(stats.pearson3.sf(away, (8 / freedom) ** 0.5 * (1 + 0.5 / counts.mean())))
    text = (
        f"some examples are in up to {counts.max()} of {len(batches)} batches, where {counts.mean():.3g} is "
        "the mean: a weighted sampler, or padding with the same examples"
    )
    return [*answers, Mistake("weights", text, p)]


def _dispersion(sizes: np.ndarray, variance: float) -> tuple[float, float]:
    """(p-value of so far another variance than ``variance``, the variance of ``sizes``)."""
    freedom, spread = len(sizes) - 1, float(sizes.var(ddof=1))
    ratio = freedom * spread / variance
    return 2 * float(min(stats.chi2.cdf(ratio, freedom), stats.chi2.sf(ratio, freedom))), spread


def _generator(blanks: np.ndarray) -> Mistake:
    """The largest correlation between the noise of two steps, for all pairs at once."""
    apart = blanks - blanks.mean(1, keepdims=True)
    apart /= np.sqrt(np.square(apart).sum(1, keepdims=True))
    alike = np.abs(np.triu(apart @ apart.T, 1))
    first, second = np.unravel_index(alike.argmax(), alike.shape)
    freedom, largest = blanks.shape[1] - 2, min(float(alike.max()), 1 - 1e-12)
    p = 2 * float(stats.t.sf(largest * sqrt(freedom / (1 - largest**2)), freedom))
    text = f"noise of steps {first} and {second} correlates by {largest:.2f}: a generator that is reused"
    return Mistake("generator", text, min(1.0, p * len(blanks) * (len(blanks) - 1) / 2))


def _clipping(crowd: np.ndarray) -> Mistake:
    """Whether longer examples weigh more than shorter ones."""
    answer = stats.ttest_rel(crowd[:, 1], crowd[:, 0], alternative="greater")
    text = "longer gradients move releases further: clipping after averaging, or none"
    return Mistake("clipping", text, float(answer.pvalue))


def _divisor(blanks: np.ndarray) -> Mistake:
    """Whether the noise is of one scale in all steps (Bartlett)."""
    scales = blanks.std(1)
    off = float((np.abs(scales / np.median(scales) - 1) > TOLERANCE).mean())
    text = "sums and noise are divided by the true batch size" if off > FEW else "the last batch's divisor"
    return Mistake(
        "divisor",
        f"the noise's scale differs from the usual in {off:.0%} of the steps: {text}",
        float(stats.bartlett(*blanks).pvalue),
    )


def _noise(total: float, error: float, measured: float, claimed: float, batch: float) -> str:
    """In words; ``total`` is what the crowd released, in clipping bounds if the noise is as claimed."""
    text = f"the noise multiplier looks like {measured:.3g}, claimed {claimed:.3g}"
    if abs(measured * batch / claimed - 1) < FEW:
        return f"{text}: noise on the sum calibrated to the mean, less by the batch size {batch:.4g}"
    if abs(total - 1) < 3 * error and total + 3 * error < batch / 2:
        return (
            f"{text}: noise on the mean calibrated to the sum, more by the batch size {batch:.4g}, or a mean "
            "that is clipped as a whole"
        )
    return text + OR_THE_RATE
