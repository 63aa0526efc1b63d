"""Tests for the classic mistakes of DP-SGD, on the releases of a training's steps.

The null hypothesis of each test is a correct training: per-example clipping, Poisson samples, independent
noise of one scale. Results are hints: a mistake may go unseen, and several may look alike. Releases are in
units of their own noise, so the tests are the same for sums and for means. If the examples of each batch are
known too, mistakes of samplers are separated from other mistakes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
from scipy import stats

CLEAR = 10.0  # least mean of the sums, in standard errors, for a test of their variance
TOLERANCE = 0.05  # allowed relative error of a noise multiplier: sampling rates are rounded to whole batches
FEW = 0.2  # largest share of steps with another divisor that incomplete last batches explain
LIKE = 0.01  # p-value above which batch sizes are taken for those of Poisson samples
SILENT = 1e-6  # deviation, relative to that of all weights, below which a weight has no noise
MOST_VALUES = 1_000_000  # largest number of noise values in the test of their distribution
TRUE_SIZE = "sums divided by the true batch size before noise is added"
OR_THE_RATE = ", or the sampling rate is another"


# names of the mistakes that audits find: in a training (`Mistake`), and in one step by `replay` (`Violation`)
MistakeName = Literal[
    "clipping",  # an example moves the sum by more than the clipping bound
    "layers",  # each tensor is clipped to the whole bound
    "sum",  # what an example adds depends on the others: the sum is clipped
    "mixing",  # a layer's outputs for an example depend on others
    "noise",  # none, or of another deviation than declared
    "uneven",  # the noise's deviation differs between entries
    "shared",  # entries or tensors have the same noise
    "reused",  # steps have the same noise
    "seeded",  # another training, or step, with other random numbers has the same noise
    "distribution",  # the noise isn't Gaussian
    "scale",  # the noise's deviation depends on the data
    "divisor",  # it is private, or isn't the declared one
    "exact", "shape", "dtype",  # a released number, shape or type depends on the data and has no noise
    "rate",  # another sampling rate than the claimed one
    "sampler",  # batches aren't Poisson samples, or not those that are claimed
    "weights",  # some examples are drawn more often than others
    "padding",  # copies of examples pad a batch and count as examples
]  # fmt: skip


@dataclass(frozen=True)
class Mistake:
    """Mistake that a training may contain; ``p``: p-value of the hypothesis of a correct training."""

    name: MistakeName
    looks_like: str
    p: float


def recognise(
    crowd: np.ndarray,
    kinds: Sequence[int],
    blanks: Sequence[np.ndarray],
    noise: Sequence[np.ndarray],
    others: int,
    rate: float,
    noise_multiplier: float,
    batches: Sequence[np.ndarray] | None = None,
    epoch: int | None = None,
) -> list[Mistake]:
    """Run all tests, and return their results, whether significant or not.

    A test is left out if it would be spoilt by a mistake that an earlier test found (p < 1e-4). The crowd is
    a run of T steps on examples of three kinds. Gradients of the first two kinds have one nonzero entry, and
    those of the second kind are longer. Gradients of the third kind are also longer, but have many nonzero
    entries. All gradients are longer than the clipping bound.

    Args:
        crowd: (T, 3) releases of the crowd's steps along the direction of each kind, divided by the standard
            deviation of the step's noise, which is measured in W directions without examples.
        kinds: (3,) numbers of examples of each kind, N in all.
        blanks: (S, W) releases of each run in the W directions, divided by the median noise of the run. The
            first is the crowd's run; S differs between runs.
        noise: releases in all directions without examples, of the crowd's run (T, W') and of a run on M other
            examples (T', W''). Releases that are divided by the expected batch size come multiplied by it
            again.
        others: M, the number of examples of the second run.
        rate: claimed sampling probability of an example.
        noise_multiplier: claimed noise multiplier.
        batches: for each of the crowd's batches, the indices of its examples; None: not known.
        epoch: claimed number of batches of an epoch, each example in one of them; None: Poisson samples.
    """
    if not min(run.std(1).min() for run in blanks) > 0:
        return [Mistake("noise", "there are steps without noise", 0.0)]
    examples = sum(kinds)
    text = "longer gradients move releases further: clipping after averaging, or none"
    reused, *seeded = _reused(blanks)
    clipping = Mistake("clipping", text, _further(crowd, kinds, 1))
    divisor = _divisor(np.concatenate(blanks))
    answers = [reused, *seeded, clipping, _layers(crowd, kinds, rate, noise_multiplier), divisor]
    repeats, spoilt = reused.p < 1e-4, clipping.p < 1e-4 or _further(crowd, kinds, 2) < 1e-4
    if not repeats:
        scaled = noise[0] / noise[0].std(1, keepdims=True)
        answers.append(_uneven(scaled))
        if answers[-1].p < 1e-4:
            spoilt = True
        else:
            answers.append(_distribution(scaled))
            if divisor.p > 1e-4:
                answers.append(_size(noise, examples, others))
    sizes = None
    if batches is not None:
        sizes = np.array([len(np.unique(batch)) for batch in batches])
        answers += of_batches(batches, examples) if epoch is None else of_allocation(batches, examples, epoch)
        if sum(map(len, batches)) > sizes.sum():
            return answers
    if spoilt:
        return answers
    return answers + _of_sums(
        crowd, blanks[0].shape[1], repeats, examples, rate, noise_multiplier, sizes, epoch
    )


def _of_sums(
    crowd: np.ndarray,
    directions: int,
    reused: bool,
    examples: int,
    rate: float,
    noise_multiplier: float,
    sizes: np.ndarray | None,
    epoch: int | None,
) -> list[Mistake]:
    """Test whether the mean and the variance of the sums are those of the claimed samples.

    Args:
        crowd: (T, 3) releases, as in `recognise`.
        directions: W, the number of directions in which a step's noise is measured.
        reused: whether noise is reused.
        examples: N, the number of the crowd's examples.
        rate: claimed sampling probability.
        noise_multiplier: claimed noise multiplier.
        sizes: (T,) batch sizes; None: not known.
        epoch: as in `recognise`.
    """
    total, summed = crowd.sum(1) * noise_multiplier, crowd.shape[1]
    steps, expected = len(total), examples * rate
    batch = expected if sizes is None else sizes.mean()
    coins = batch * (1 - batch / examples)
    # an error in a step's measured noise scales all numbers of the step's release together
    of_scale = batch**2 / (2 * (directions - 1))
    # averaging over steps doesn't reduce noise that every step reuses
    error = sqrt((coins + (summed * noise_multiplier**2 + of_scale) * (steps if reused else 1)) / steps)
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
    of_noise = summed * (noise_multiplier / scale) ** 2 + of_scale
    claimed, other = ("Poisson samples", "Poisson") if epoch is None else (("random allocation",) * 2)
    p, varies = _dispersion(total / scale, coins, of_noise, epoch)
    text = f"sums have a variance of {varies - of_noise:.3g} examples, those of {claimed} {coins:.3g}"
    if sizes is None:
        answers.append(Mistake("sampler", f"{text}: a sampler that isn't {other}, or {TRUE_SIZE}", p))
    elif _dispersion(sizes, coins, epoch=epoch)[0] > LIKE:
        answers.append(Mistake("divisor", f"{text}, though batches are such: {TRUE_SIZE}", p))
    return answers


def of_batches(batches: Sequence[np.ndarray], examples: int) -> list[Mistake]:
    """Test whether the batches are Poisson samples with the same probability for all examples.

    Args:
        batches: for each batch, the indices of its examples in the training set.
        examples: number of examples in the training set.
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
    # A chi-square statistic, which is more skewed for small counts. If two batches have one more example in
    # common, it grows by 2 / scale; half of that is the continuity correction
    excess = (uneven - 1 / scale - freedom) / (2 * freedom) ** 0.5
    p = float(stats.pearson3.sf(excess, (8 / freedom) ** 0.5 * (1 + 0.5 / counts.mean())))
    text = (
        f"some examples are in up to {counts.max()} of {len(batches)} batches, where {counts.mean():.3g} is "
        "the mean: a weighted sampler, or padding with the same examples"
    )
    even = float(stats.chi2.cdf(uneven, freedom))
    each = (
        f"examples are in {counts.min()} to {counts.max()} batches each, more alike than in Poisson samples"
    )
    order = Mistake("sampler", f"{each}: an order of the examples, or random allocation", even)
    # whether the test of batch sizes has already found such a sampler
    named = any(answer.name == "sampler" and answer.p < LIKE for answer in answers)
    return [*answers, Mistake("weights", text, p), *([] if named else [order])]


def of_allocation(batches: Sequence[np.ndarray], examples: int, epoch: int) -> list[Mistake]:
    """Test whether the batches are a random allocation (balls and bins).

    Args:
        batches: for each batch, the indices of its examples in the training set.
        examples: number of examples in the training set.
        epoch: number of batches in an epoch; each example should be in one of them.

    Returns:
        One possible mistake per test, with the test's p-value.
    """
    epochs = len(batches) // epoch
    counts = np.zeros((epochs, epoch, examples), dtype=int)
    for number, batch in enumerate(batches[: epochs * epoch]):
        np.add.at(counts[number // epoch, number % epoch], batch, 1)
    joined = counts.sum(1)
    if epochs and not (joined == 1).all():
        text = f"examples are in {joined.min()} to {joined.max()} of an epoch's {epoch} batches"
        return [Mistake("sampler", f"{text}, claimed one: no random allocation", 0.0)]
    sizes = np.array([len(batch) for batch in batches])
    rate = 1 / epoch
    p, spread = _dispersion(sizes, examples * rate * (1 - rate), epoch=epoch)
    text = f"batch sizes have a variance of {spread:.3g}, allocated ones {examples * rate * (1 - rate):.3g}"
    answers = [Mistake("sampler", f"{text}: a sampler that isn't random allocation", p)]
    if epochs > 1:
        again = int((counts[1:] * counts[:-1]).sum())
        trials = (epochs - 1) * examples
        p = float(stats.binomtest(again, trials, rate).pvalue)
        text = (
            f"{again / trials:.0%} of the examples are in the same batch as an epoch before, not {rate:.0%}"
        )
        answers.append(Mistake("sampler", f"{text}: epochs whose batches are alike", p))
    return answers


def _dispersion(
    sums: np.ndarray, coins: float, noise: float = 0.0, epoch: int | None = None
) -> tuple[float, float]:
    """Test the variance of sums of batches.

    The sizes of an epoch's allocated batches add up to the number of examples, so their deviations do not
    depend on each other as those of Poisson samples. The weighted sum of chi-square variables is replaced by
    one with the same mean and variance (Satterthwaite 1946).

    Args:
        sums: (T,) batch sizes, or sums with noise.
        coins: claimed variance of a batch size.
        noise: variance of the noise.
        epoch: as in `recognise`.

    Returns:
        p-value of the test that the variance of ``sums`` is ``coins + noise``; and the variance of ``sums``.
    """
    freedom, spread = float(len(sums) - 1), float(sums.var(ddof=1))
    ratio = freedom * spread / (coins + noise)
    if epoch is not None:
        epochs = len(sums) / epoch
        parts = np.array([len(sums) - epochs, max(0.0, epochs - 1)])
        variances = np.array([coins * epoch / (epoch - 1) + noise, noise])
        mean, square = float(parts @ variances), float(parts @ variances**2)
        ratio, freedom = freedom * spread * mean / square, mean**2 / square
    return 2 * float(min(stats.chi2.cdf(ratio, freedom), stats.chi2.sf(ratio, freedom))), spread


def _reused(blanks: Sequence[np.ndarray]) -> list[Mistake]:
    """Test whether the noise of two steps correlates, within a run and between runs; ``blanks``: `recognise`.

    Between runs, the generator is seeded: it gives the same noise whenever the training runs.
    """
    apart = np.concatenate(blanks)
    apart = apart - apart.mean(1, keepdims=True)
    apart /= np.sqrt(np.square(apart).sum(1, keepdims=True))
    run = np.repeat(np.arange(len(blanks)), [len(each) for each in blanks])
    step = np.concatenate([np.arange(len(each)) for each in blanks])
    alike, freedom = np.abs(np.triu(apart @ apart.T, 1)), apart.shape[1] - 2
    same = run[:, None] == run
    found = []
    for inside in (True, False)[: len(blanks)]:
        pairs = np.where(same == inside, alike, 0.0)
        first, second = np.unravel_index(pairs.argmax(), pairs.shape)
        largest = min(float(pairs.max()), 1 - 1e-12)
        p = 2 * float(stats.t.sf(largest * sqrt(freedom / (1 - largest**2)), freedom))
        p = min(1.0, p * int(np.triu(same == inside, 1).sum()))
        steps = f"of steps {step[first]} and {step[second]}"
        if inside:
            text = f"noise {steps} correlates by {largest:.2f}: a generator that is used again"
            found.append(Mistake("reused", text, p))
        else:
            text = (
                f"noise {steps} of two runs correlates by {largest:.2f}: seeded noise, the same in each run"
            )
            found.append(Mistake("seeded", text, p))
    return found


def _further(crowd: np.ndarray, kinds: Sequence[int], kind: int) -> float:
    """p-value of: ``kind`` (1 or 2) moves releases hardly further than ``kind`` - 1; others: `recognise`.

    Within `TOLERANCE` it may: clipping to C n / (n + c) of a norm n moves releases further the larger n is.
    """
    moved = crowd / np.asarray(kinds)
    less = (1 + TOLERANCE) * moved[:, kind - 1]
    return float(stats.ttest_rel(moved[:, kind], less, alternative="greater").pvalue)


def _layers(crowd: np.ndarray, kinds: Sequence[int], rate: float, noise_multiplier: float) -> Mistake:
    """Test whether gradients with many nonzero entries move releases further than others, and than claimed.

    If the layers share one clipping bound, such gradients may also move releases further than others, but not
    further than claimed. Arguments as in `recognise`.
    """
    moved = crowd[:, 2] * noise_multiplier / (kinds[2] * rate)
    times = crowd[:, 2].mean() / kinds[2] / max(crowd[:, 1].mean() / kinds[1], 1e-12)
    text = (
        f"a gradient of many weights moves releases {times:.2f} times as far as one of a single weight: "
        "each layer is clipped to the whole bound"
    )
    beyond = float(stats.ttest_1samp(moved, 1 + 2 * TOLERANCE, alternative="greater").pvalue)
    return Mistake("layers", text, max(_further(crowd, kinds, 2), beyond))


def _divisor(blanks: np.ndarray) -> Mistake:
    """Bartlett's test whether the noise has the same scale in all steps; ``blanks`` as in `recognise`."""
    scales = blanks.std(1)
    off = float((np.abs(scales / np.median(scales) - 1) > TOLERANCE).mean())
    text = "sums and noise are divided by the true batch size" if off > FEW else "the last batch's divisor"
    return Mistake(
        "divisor",
        f"the noise's scale differs from the usual in {off:.0%} of the steps: {text}",
        float(stats.bartlett(*blanks).pvalue),
    )


def _uneven(noise: np.ndarray) -> Mistake:
    """Test whether ``noise`` (T, W), divided by each step's deviation, has one scale on all W weights."""
    steps, weights = noise.shape
    squares = np.square(noise).sum(0)
    extreme = (
        2 * weights * float(min(stats.chi2.cdf(squares.min(), steps), stats.chi2.sf(squares.max(), steps)))
    )
    # cube roots of chi-square variables are about normal (Wilson and Hilferty 1931)
    roots = (np.cbrt(squares / steps) - 1 + 2 / (9 * steps)) / sqrt(2 / (9 * steps))
    dispersed = float(stats.chi2.sf(np.square(roots).sum(), weights))
    scales = np.sqrt(squares / steps)
    silent = float((scales < SILENT).mean())
    text = (
        f"{100 * silent:.2g} % of the weights get no noise"
        if silent
        else f"noise is {scales.min():.2g} of the usual on some weights, and {scales.max():.2g} on others"
    )
    return Mistake("uneven", text, min(1.0, 2 * min(extreme, dispersed)))


def _distribution(noise: np.ndarray) -> Mistake:
    """Kolmogorov-Smirnov test whether ``noise`` (T, W), in units as in `_uneven`, is Gaussian."""
    values = noise[:, : max(1, MOST_VALUES // len(noise))].ravel()
    text = (
        f"the noise has an excess kurtosis of {stats.kurtosis(values):.2g}, a Gaussian's is 0, a uniform "
        "variable's -1.2, and a Laplace variable's 3"
    )
    return Mistake("distribution", text, float(stats.kstest(values, "norm").pvalue))


def _size(noise: Sequence[np.ndarray], examples: int, others: int) -> Mistake:
    """Test whether the scale of ``noise`` differs between runs on ``examples`` and on ``others`` examples."""
    first, second = (float(run.var()) for run in noise)
    freedoms = [run.size - len(run) for run in noise]
    ratio = second / first
    p = 2 * float(min(stats.f.cdf(ratio, *freedoms[::-1]), stats.f.sf(ratio, *freedoms[::-1])))
    text = (
        f"the noise with {others} examples is {sqrt(ratio):.3g} times that with {examples}: sums and noise "
        "are divided by the number of examples, which is private"
    )
    return Mistake("divisor", text, p)


def _noise(total: float, error: float, measured: float, claimed: float, batch: float) -> str:
    """Message about the ``measured`` and the ``claimed`` noise multiplier.

    ``total`` is the mean sum of the crowd in clipping bounds, and ``error`` its standard error. ``batch`` is
    the expected batch size.
    """
    # a sum that isn't seen gives only a lower limit
    seen = total >= 3 * error
    limit = measured if seen else claimed * batch / (max(total, 0.0) + 3 * error)
    text = f"the noise multiplier looks like {'' if seen else 'at least '}{limit:.3g}, claimed {claimed:.3g}"
    if abs(measured * batch / claimed - 1) < FEW:
        return f"{text}: noise on the sum calibrated to the mean, less by the batch size {batch:.4g}"
    if abs(total - 1) < 3 * error and total + 3 * error < batch / 2:
        return (
            f"{text}: noise on the mean calibrated to the sum, more by the batch size {batch:.4g}, or a mean "
            "that is clipped as a whole"
        )
    return text + OR_THE_RATE
