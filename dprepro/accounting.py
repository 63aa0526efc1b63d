"""What DP-SGD spends."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.ledgers.accounts import spending_of
from pipeline.ledgers.ledger import make_ledger
from pipeline.params.problems import problem_lines
from pipeline.privacy import accounting
from pipeline.privacy.account_settings import AccountSettings

Sampling = Literal["poisson", "fixed", "shuffled"]


@dataclass(frozen=True)
class Spent:
    """What settings spend at a delta."""

    at_most: float | None  # the least proven upper bound; None: nothing is proven
    proven_by: str | None  # the accountant whose bound that is, such as 'pld'
    at_least: float | None  # what is spent on the worst pair of neighbours that is known; no safety
    by: dict[str, float]  # epsilon by every accountant that has one
    neighbouring: str  # what the neighbours differ in
    delta: float
    steps: int


def epsilon(
    *,
    examples: int,
    batch: int,
    noise_multiplier: float,
    delta: float,
    epochs: float | None = None,
    steps: int | None = None,
    sampling: Sampling = "poisson",
) -> Spent:
    """Epsilon of DP-SGD (Abadi et al. 2016) with these settings.

    Args:
        examples: N, private examples to train on.
        batch: examples of a step; of Poisson samples, expected.
        noise_multiplier: standard deviation of a step's noise over the clipping bound.
        delta: of the guarantee; it should be below 1/N.
        epochs: passes over the examples; or ``steps``.
        steps: steps of the training; or ``epochs``.
        sampling: 'poisson', each example joins by a coin of its own; 'fixed', so many different ones;
            'shuffled', one after the other.

    Raises:
        UserError: a value is not allowed; the line says which, and what is.
    """
    own = _settings(
        examples=examples, batch=batch, epochs=epochs, steps=steps, delta=delta, sampling=sampling,
        noise_multiplier=noise_multiplier,
    )  # fmt: skip
    ledger = make_ledger(spending_of(own), own.total_steps, delta, None)
    return Spent(
        at_most=ledger.accounted,
        proven_by=ledger.accountant,
        at_least=ledger.shown,
        by={one.accountant: one.epsilon for one in ledger.opinions if one.epsilon is not None},
        neighbouring=ledger.neighbouring or "",
        delta=delta,
        steps=own.total_steps,
    )


def noise_multiplier(
    epsilon: float,
    *,
    examples: int,
    batch: int,
    delta: float,
    epochs: float | None = None,
    steps: int | None = None,
) -> float:
    """The noise multiplier with which Poisson samples spend at most ``epsilon``.

    It is found by privacy loss distributions, the tightest proven bound. The other arguments are those of
    `epsilon`.

    Raises:
        UserError: a value is not allowed; the line says which, and what is.
    """
    if not epsilon > 0:
        raise UserError(f"epsilon: {epsilon:g}; allowed: above 0")
    own = _settings(
        examples=examples, batch=batch, epochs=epochs, steps=steps, delta=delta, sampling="poisson",
        noise_multiplier=1.0,
    )  # fmt: skip
    return accounting.noise_for(epsilon, delta, batch / examples, own.total_steps, "pld")


def _settings(**said: Any) -> AccountSettings:
    try:
        return AccountSettings(claimed_by="rdp", **said)
    except ValidationError as problem:
        raise UserError("\n".join(problem_lines(problem))) from problem
