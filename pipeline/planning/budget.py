"""Plan of a private training at one epsilon (Sander et al. 2022, section 3).

At a fixed epsilon and number of steps, a smaller batch has a smaller noise multiplier. Below a multiplier of
about 2, the 'privacy wall', epsilon rises steeply, so batches behind the wall need too much noise to learn.
A larger batch in front of the wall costs more and is hardly more accurate. So the smallest batch in front of
the wall is best (section 3.4).
"""

from math import ceil, exp, floor, inf, log, log10, sqrt
from typing import NamedTuple, get_args

from scipy.optimize import brentq

from dprepro.accountants.bounds import bounds_of
from dprepro.accountants.calibration import Accountant
from dprepro.accountants.rdp import WALL, renyi_epsilon, signal_to_noise, tan_epsilon, tan_eta
from dprepro.accountants.records import SampledGaussian
from dprepro.errors import UserError
from dprepro.fields import LEAST_DELTA, Strict

# A batch also counts as behind the wall if its TAN (total amount of noise) is more than so many times the
# smallest TAN at this epsilon. The paper's `WALL` is for an epsilon of about 8; at smaller ones it is higher.
OVERCHARGED = 1.2
AROUND = 5  # batch sizes, powers of two, on either side of the wall
EPSILONS = (0.05, 1000.0)  # smallest epsilon that is fast to compute, and largest that means anything
MOST_EXAMPLES = 10**12  # above, the search for noise doesn't end
MOST_COMPUTE = 1e24  # `MOST_EXAMPLES` squared
MOST_STEPS = 1_000_000  # above, privacy loss distributions take minutes
LEAST_NOISE, MOST_NOISE = 1e-2, 1e6
FIRST_STRIDE = 0.1  # of the search for noise, in its natural logarithm
PRECISION = 1e-4  # of the natural logarithm of the noise
DIGITS = 4  # significant digits of the noise, which is rounded up so that epsilon is not exceeded


class Cost(Strict):
    """Batch size with its noise, epsilon and cost."""

    batch: int  # B, the expected size of a Poisson sample
    sigma: float  # noise multiplier
    steps: int  # S
    rate: float  # q = B / N
    eta: float  # signal-to-noise ratio of one example, 1 / TAN
    epsilon_tan: float  # Eq. 4: epsilon without the wall
    epsilon_rdp: float | None
    epsilon_pld: float | None  # None: not computed
    processed: int  # per-example gradients in total: B S K


class Choice(Cost):
    """Batch size and noise for the requested epsilon."""

    noise: float  # TAN divided by the smallest TAN of all choices; at equal S, the ratio of their sigma / B
    behind_wall: bool  # sigma is below `WALL`, or `noise` is above `OVERCHARGED`


class SuggestedBudget(Strict):
    """Choices in order of batch size, the recommended choice, and its cheap simulation for tuning."""

    examples: int  # N
    delta: float
    epsilon: float
    accountant: Accountant
    copies: int  # K, augmented copies of an example
    wall: float  # `WALL`
    overcharged: float  # `OVERCHARGED`
    choices: tuple[Choice, ...]
    recommended: Choice  # smallest batch in front of the wall; if there is none, the largest
    simulation: Cost | None  # None: the recommended batch is as small as the simulation's


def suggest_budget(
    examples: int,
    delta: float,
    epsilon: float,
    *,
    steps: int | None = None,
    compute: float | None = None,
    copies: int = 1,
    accountant: Accountant = "rdp",
    simulate: int = 256,
) -> SuggestedBudget:
    """Plan with batch sizes and their noise for ``epsilon`` at ``delta`` with ``examples`` private examples.

    Either ``steps`` is the number of steps, or ``compute`` is the number of per-example gradients, including
    those of an example's ``copies`` augmented copies. ``simulate`` is the batch size of the simulation.

    Raises:
        UserError: a value is not allowed, or values contradict each other.
    """
    _check(examples, delta, epsilon, steps, compute, copies, simulate)

    def length(batch: int) -> int:
        return steps or int((compute or 0) / (batch * copies))

    eta = tan_eta(epsilon, delta)
    # noise multiplier by batch size, if there were no wall
    guesses = {
        batch: batch / examples * sqrt(length(batch) / 2) / eta
        for batch in (2**power for power in range(examples.bit_length()))
        if 1 <= length(batch) <= MOST_STEPS
    }
    if not guesses:
        longest = MOST_STEPS * copies << (examples.bit_length() - 1)
        raise UserError(f"compute: {compute:g}; allowed: {copies}, which is one step, to {longest:.3g}")
    batches = list(guesses)
    nearest = batches.index(min(batches, key=lambda batch: abs(log(guesses[batch] / WALL))))
    shown = batches[max(0, nearest - AROUND) : nearest + AROUND + 1]
    noise = {
        batch: _noise(_Training(examples, batch, length(batch), delta), epsilon, accountant, guesses[batch])
        for batch in shown
    }
    costs = [_cost(_Training(examples, batch, length(batch), delta), noise[batch], copies) for batch in shown]
    most = max(cost.eta for cost in costs)
    choices = [
        Choice(
            **cost.model_dump(),
            noise=most / cost.eta,
            behind_wall=cost.sigma < WALL or most / cost.eta > OVERCHARGED,
        )
        for cost in costs
    ]
    best = next((choice for choice in choices if not choice.behind_wall), choices[-1])
    simulation = None
    if simulate < best.batch:
        smaller = _Training(examples, simulate, best.steps, delta)
        simulation = _cost(smaller, best.sigma * simulate / best.batch, copies)
    return SuggestedBudget(
        examples=examples,
        delta=delta,
        epsilon=epsilon,
        accountant=accountant,
        copies=copies,
        wall=WALL,
        overcharged=OVERCHARGED,
        choices=tuple(choices),
        recommended=best,
        simulation=simulation,
    )


class _Training(NamedTuple):
    """Sizes of a training, without its noise."""

    examples: int
    batch: int
    steps: int
    delta: float

    def spending(self, sigma: float) -> SampledGaussian:
        return SampledGaussian(
            sampling="poisson", noise_multiplier=sigma, examples=self.examples, batch=self.batch
        )

    def epsilon(self, accountant: Accountant, sigma: float) -> float | None:
        if accountant == "rdp":
            return renyi_epsilon(self.spending(sigma), self.steps, self.delta)
        return bounds_of(self.spending(sigma), self.steps, self.delta)[0][accountant].epsilon


def _noise(training: _Training, epsilon: float, accountant: Accountant, guess: float) -> float:
    """Noise multiplier at which ``training`` has ``epsilon``, rounded up to `DIGITS`.

    The search begins at ``guess``.

    Raises:
        UserError: no multiplier between `LEAST_NOISE` and `MOST_NOISE` has this epsilon.
    """
    if accountant == "pld":  # slow, so it begins at the result by 'rdp', which is a few percent higher
        guess = _noise(training, epsilon, "rdp", guess)

    def above(logarithm: float) -> float:
        spent = training.epsilon(accountant, exp(logarithm))
        # bounds, because the logarithms of 0 and infinity are not finite
        return log(min(max(inf if spent is None else spent, 1e-9), 1e9) / epsilon)

    near = far = log(max(guess, LEAST_NOISE))
    up, stride = above(near) > 0, FIRST_STRIDE
    while (above(far) > 0) == up:
        near, far, stride = far, far + (stride if up else -stride), 2 * stride
        if not log(LEAST_NOISE) < far < log(MOST_NOISE):
            over = f"over {training.steps} steps of {training.batch} examples"
            raise UserError(
                f"epsilon: {epsilon:g} at delta {training.delta:g} can't be kept {over}; allowed: more"
                if up
                else f"epsilon: {epsilon:g} takes next to no noise {over}; allowed: less"
            )
    root = brentq(above, *sorted((near, far)), xtol=PRECISION)
    unit = 10.0 ** (floor(log10(exp(root))) + 1 - DIGITS)
    return float(f"{ceil(exp(root + PRECISION) / unit) * unit:.{DIGITS}g}")


def _cost(training: _Training, sigma: float, copies: int) -> Cost:
    eta = signal_to_noise(training.spending(sigma), training.steps)
    bounds = {name: training.epsilon(name, sigma) for name in get_args(Accountant)}
    return Cost(
        batch=training.batch,
        sigma=sigma,
        steps=training.steps,
        rate=training.batch / training.examples,
        eta=eta,
        epsilon_tan=tan_epsilon(eta, training.delta),
        epsilon_rdp=bounds["rdp"],
        epsilon_pld=bounds["pld"],
        processed=training.batch * training.steps * copies,
    )


def _check(
    examples: int,
    delta: float,
    epsilon: float,
    steps: int | None,
    compute: float | None,
    copies: int,
    simulate: int,
) -> None:
    ranges: dict[str, tuple[float | None, float, float]] = {
        "examples": (examples, 1, MOST_EXAMPLES),
        "copies": (copies, 1, MOST_EXAMPLES),
        "simulate": (simulate, 1, MOST_EXAMPLES),
        "steps": (steps, 1, MOST_STEPS),
        "compute": (compute, 1, MOST_COMPUTE),
        "epsilon": (epsilon, *EPSILONS),
    }
    for name, (value, least, most) in ranges.items():
        if value is not None and not least <= value <= most:
            raise UserError(f"{name}: {value:g}; allowed: {least:g} to {most:g}")
    if not LEAST_DELTA <= delta < 1 / examples:
        raise UserError(
            f"delta: {delta:g} means nothing; allowed: {LEAST_DELTA:g} to below 1/{examples}, "
            f"{1 / examples:.3g}"
        )
    if (steps is None) == (compute is None):
        raise UserError("steps, compute: both are lengths of the training; needed: one of them")
