"""What one training spends, in the numbers that every accountant starts from."""

from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SampledWithReplacementDpEvent,
    SelfComposedDpEvent,
)

from pipeline.fields import Count, Positive, Strict
from pipeline.privacy.parameters import Sampling


class Spending(Strict):
    """The Gaussian mechanism on a batch of ``batch`` out of ``examples``, step after step.

    ``noise_multiplier`` is the standard deviation of the noise over the L2 distance that a neighbouring data
    set moves a release by, where the differing example is in the batch; once, where it may be in it several
    times. It covers everything that a step releases: L parts at multiplier sigma each are sigma / sqrt(L).

    How a batch is drawn, and so what neighbours are:

    * ``poisson``: each example is in with probability batch / examples; neighbours add or remove one.
    * ``fixed``: ``batch`` different examples, anew each step; neighbours replace one, as in what follows.
    * ``replacement``: ``batch`` independent draws, put into ``sets`` clipped vectors. An example drawn j
      times moves up to min(j, sets) of them, each by the distance above.
    * ``shuffled``: on through a new order of all examples each epoch, so each example is in one batch of it.
    """

    sampling: Sampling
    noise_multiplier: Positive
    examples: Count  # N
    batch: Count  # m
    sets: Count = 1  # k

    @property
    def rate(self) -> float:
        """m / N."""
        return self.batch / self.examples

    @property
    def neighbouring(self) -> str:
        """The relation that epsilons are for."""
        return "add or remove one" if self.sampling == "poisson" else "replace one"

    def event(self, steps: int) -> DpEvent:
        """What ``steps`` steps spend, in the words of dp-accounting."""
        once = GaussianDpEvent(self.noise_multiplier)
        if self.sampling == "poisson":
            return SelfComposedDpEvent(PoissonSampledDpEvent(self.rate, once), steps)
        if self.sampling == "fixed":
            return SelfComposedDpEvent(
                SampledWithoutReplacementDpEvent(self.examples, self.batch, once), steps
            )
        if self.sampling == "replacement":
            return SelfComposedDpEvent(SampledWithReplacementDpEvent(self.examples, self.batch, once), steps)
        return SelfComposedDpEvent(once, self.epochs(steps))

    def epochs(self, steps: int) -> int:
        """Epochs begun in ``steps`` steps; examples too few for a last batch are left out of an epoch."""
        return -(-steps // (self.examples // self.batch))
