"""Settings of accounts: `settings` and `levels` under `accounts` in params.yaml."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from dprepro.fields import Count, Positive, Strict
from dprepro.privacy.parameters import Delta, Sampling
from dprepro.privacy.sampled_gaussian import batches_of_epoch

# largest number of steps: for closed forms, and for several sets of draws with replacement
MOST_STEPS, MOST_OF_SETS = 10**12, 10**6


class AccountSettings(Strict):
    """Settings of a private training that its accounting needs."""

    # the default setting that names levels
    axis: ClassVar[str] = "noise_multiplier"

    sampling: Sampling = "poisson"
    examples: Count  # N
    batch: Count  # m; 'poisson': expected batch size
    epochs: Positive | None = None  # passes over the examples; either `epochs` or `steps` is given
    steps: Count | None = None
    # standard deviation of the noise divided by the distance that one example moves a part; limited, so that
    # floats don't overflow
    noise_multiplier: Annotated[float, Field(ge=1e-9, le=1e9)]
    parts: Count = 1  # L: parts of the gradient, clipped and noised separately
    participations: Count = 1  # 'allocation' only: batches of an epoch that each example is in
    # k: clipped vectors of a step; 'replacement' only, where an example may be in several of them
    sets: Count | None = None
    delta: Delta = 1e-5  # as claimed, even if it is above 1/N and so means little
    claimed_by: Literal["clt", "rdp"] = "clt"  # accountant of the paper
    # 'rdp' only: order alpha at which the Renyi divergence of all steps is reported
    order: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _means_something(self) -> "AccountSettings":
        if self.batch > self.examples:
            raise ValueError(f"batch: {self.batch} is larger than examples; allowed: 1 to {self.examples}")
        if (self.sets is None) == (self.sampling == "replacement"):
            raise ValueError(f"sets: {self.sets}; it goes with 'sampling: replacement', and only with it")
        if self.sampling == "replacement" and self.examples < 2:
            raise ValueError("examples: 1; allowed with 'sampling: replacement': 2 or more")
        if self.participations > 1 and self.sampling != "allocation":
            raise ValueError(
                f"participations: {self.participations}; allowed above 1 with 'sampling: allocation' only"
            )
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("'epochs' and 'steps' are both lengths of the training; needed: one of them")
        if not self.length <= MOST_STEPS:
            raise ValueError(f"{self.length:.3g} steps; allowed: 1 to {MOST_STEPS:.0e}")
        if (self.sets or 1) > 1 and self.length > MOST_OF_SETS:
            raise ValueError(f"{self.length:.3g} steps; allowed with more sets than one: 1 to {MOST_OF_SETS}")
        if self.order is not None and (self.claimed_by, self.sampling) != ("rdp", "poisson"):
            raise ValueError("order: goes with 'claimed_by: rdp' and 'sampling: poisson', and only with them")
        return self

    @property
    def total_steps(self) -> int:
        """Number of steps T: `steps`, or the steps of `epochs` passes."""
        return max(1, round(self.length))

    @property
    def length(self) -> float:
        """`total_steps` before rounding; passes of 'shuffled' and 'allocation' have whole batches only."""
        whole = self.sampling in ("shuffled", "allocation")
        batches = batches_of_epoch(self.examples, self.batch, self.participations)
        of, by = (batches, self.participations) if whole else (self.examples, self.batch)
        # multiplied first, so that a whole number of steps is exact
        return self.steps or (self.epochs or 0.0) * of / by
