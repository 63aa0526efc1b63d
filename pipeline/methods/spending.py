"""Guarantee of a training, and the sizes that it depends on besides the settings, without torch."""

from dataclasses import dataclass

import numpy as np

from pipeline.privacy.laplace import Releases
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.privacy.statements import Statement, statement

CURVES = statement("curves")  # training curves of the history, without noise
NOISELESS = statement("no_noise")


@dataclass(frozen=True)
class NetworkSizes:
    """Sizes of a network; a method's class measures those that its settings use (`Method.network_sizes`)."""

    tensors: int  # number of trained tensors
    features: int = 0  # numbers of one input
    maps: int = 0  # feature maps of the first affine layer, or its units
    neurons: int = 0  # outputs of that layer
    units: int = 0  # of the last hidden layer
    classes: int = 0


@dataclass(frozen=True, eq=False)
class RelevanceSizes:
    """Sizes of the data's relevances that a training's spending depends on."""

    examples: int  # in the average
    public: bool  # whether those examples are public
    informed: bool  # whether the network behind them has seen private examples
    span: float = 1.0  # of the average relevances
    mean: np.ndarray | None = None  # (d,) if they are public, without noise
    ratios: np.ndarray | None = None  # (d,) float32 `AdlmSettings.ratios` of released relevances


@dataclass(frozen=True)
class Sizes:
    """Sizes of a training that its spending depends on, besides its settings."""

    examples: int  # N: private training examples
    network: NetworkSizes | None = None  # if the settings use it (`MethodSettings.uses_network`)
    relevances: RelevanceSizes | None = None


@dataclass(frozen=True)
class Guarantee:
    """Spending of one replica's training, and statements about it."""

    spending: SampledGaussian | Releases | None  # None: no private mechanism at all
    delta: float | None
    claimed_by: str | None  # the accountant behind the paper's claim
    broken: tuple[Statement, ...] = ()  # reasons why nothing is spent, or why no epsilon holds
    not_covered: tuple[Statement, ...] = ()  # uses of private data that the spending leaves out
    # protected part, of whom and from whom, if not a whole training example
    protects: Statement | None = None

    def epsilon_after(self, steps: int) -> float | None:
        """Upper bound on epsilon after ``steps`` steps, fast to compute; None if no epsilon holds."""
        if self.broken or self.spending is None:
            return None
        if isinstance(self.spending, Releases):
            return self.spending.epsilon  # before the first step
        from pipeline.privacy.accounting import spent_epsilon  # its import takes seconds

        assert self.delta is not None, "goes with the spending"
        return spent_epsilon(self.spending, steps, self.delta)
