"""Plan of a private training at one epsilon (Sander et al. 2022, section 3).

At a fixed epsilon and number of steps, a smaller batch has a smaller noise multiplier. Below a multiplier of
about 2, the 'privacy wall', epsilon rises steeply, so batches behind the wall need too much noise to learn.
A larger batch in front of the wall costs more and is hardly more accurate. So the smallest batch in front of
the wall is best (section 3.4).
"""

from math import log, sqrt
from typing import Annotated

from pydantic import Field

from dprepro.accountants.bounds import bounds_of
from dprepro.accountants.calibration import noise_for
from dprepro.accountants.rdp import WALL, signal_to_noise, tan_epsilon, tan_eta
from dprepro.accountants.records import SampledGaussian, rounded_up
from dprepro.checking import checked
from dprepro.errors import UserError
from dprepro.fields import Delta, Strict

# A batch also counts as behind the wall if its TAN (total amount of noise) is more than so many times the
# smallest TAN at this epsilon. The paper's `WALL` is for an epsilon of about 8; at smaller ones it is higher.
OVERCHARGED = 1.2
AROUND = 5  # batch sizes, powers of two, on either side of the wall
EPSILONS = (0.05, 1000.0)  # smallest epsilon that is fast to compute, and largest that means anything
MOST_EXAMPLES = 10**12  # above, the search for noise doesn't end
MOST_COMPUTE = 1e24  # `MOST_EXAMPLES` squared
MOST_STEPS = 1_000_000  # above, privacy loss distributions take minutes
DIGITS = 4  # significant digits of the noise, which is rounded up so that epsilon is not exceeded

Examples = Annotated[int, Field(ge=1, le=MOST_EXAMPLES)]


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
    copies: int  # K, augmented copies of an example
    choices: tuple[Choice, ...]
    recommended: Choice  # smallest batch in front of the wall; if there is none, the largest
    simulation: Cost | None  # None: the recommended batch is as small as the simulation's


@checked
def suggest_budget(
    examples: Examples,
    delta: Delta,
    epsilon: Annotated[float, Field(ge=EPSILONS[0], le=EPSILONS[1])],
    *,
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None,
    compute: Annotated[float, Field(ge=1, le=MOST_COMPUTE)] | None = None,
    copies: Examples = 1,
    simulate: Examples = 256,
) -> SuggestedBudget:
    """Plan with batch sizes and their noise for ``epsilon`` at ``delta`` with ``examples`` private examples.

    The noise is that of Renyi DP, as in the paper. Batch sizes are left out whose noise can't be calibrated.

    Either ``steps`` is the number of steps, or ``compute`` is the number of per-example gradients, including
    those of an example's ``copies`` augmented copies. ``simulate`` is the batch size of the simulation.

    Raises:
        UserError: a value is not allowed, values contradict each other, or no batch size has such a noise.
    """
    if delta >= 1 / examples:
        raise UserError(f"delta: {delta:g} means nothing; allowed: below 1/{examples}, {1 / examples:.3g}")
    if (steps is None) == (compute is None):
        raise UserError("steps, compute: both are lengths of the training; needed: one of them")

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
    costs, problems = [], list[UserError]()
    for batch in shown:
        rate, steps_of_batch = batch / examples, length(batch)
        try:
            noise = noise_for(epsilon, delta, rate, steps_of_batch, "rdp")
        except UserError as problem:
            problems.append(problem)
        else:
            sigma = float(rounded_up(noise, DIGITS))
            costs.append(_cost(examples, batch, steps_of_batch, delta, sigma, copies))
    if not costs:
        raise problems[0]
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
        smaller = best.sigma * simulate / best.batch
        simulation = _cost(examples, simulate, best.steps, delta, smaller, copies)
    return SuggestedBudget(
        examples=examples,
        delta=delta,
        epsilon=epsilon,
        copies=copies,
        choices=tuple(choices),
        recommended=best,
        simulation=simulation,
    )


def _cost(examples: int, batch: int, steps: int, delta: float, sigma: float, copies: int) -> Cost:
    spending = SampledGaussian(sampling="poisson", noise_multiplier=sigma, examples=examples, batch=batch)
    eta, bounds = signal_to_noise(spending, steps), bounds_of(spending, steps, delta)[0]
    return Cost(
        batch=batch,
        sigma=sigma,
        steps=steps,
        rate=batch / examples,
        eta=eta,
        epsilon_tan=tan_epsilon(eta, delta),
        epsilon_rdp=bounds["rdp"].epsilon,
        epsilon_pld=bounds["pld"].epsilon,
        processed=batch * steps * copies,
    )
