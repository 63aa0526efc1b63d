"""Guarantee of a training, statements about it, and the sizes that decide it besides the settings.

Recorded statements have only a key and values. `pipeline/reporting/words.yaml` has the words for each key, so
improved words also reach old records. Imports no torch.
"""

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from dprepro.accountants.laplace import Releases
from dprepro.accountants.records import SampledGaussian
from dprepro.fields import Strict


class Statement(Strict):
    """Key of a statement, and values for its words."""

    key: str
    values: dict[str, str | int | float] = Field(default_factory=dict)


def statement(key: str, **values: str | int | float) -> Statement:
    """Statement ``key`` with values for its words."""
    return Statement(key=key, values=values)


CURVES = statement("curves")  # training curves in the history, which have no noise
NOISELESS = statement("no_noise")
# keys of statements on the preparation of data and networks (`pipeline.training.not_covered.data_uses`)
RELEVANCES = frozenset({"informed_relevance", "public_relevance"})
DATA_USES = RELEVANCES | {
    *("vocabulary", "public_vectors", "feature_range", "own_public", "other_public", "public_start"),
    *("public_network", "test_relevance"),
}


@dataclass(frozen=True)
class NetworkSizes:
    """Sizes of a network. `Method.network_sizes` measures those that a method's settings use."""

    tensors: int  # number of trained tensors
    features: int = 0  # number of features of one input
    maps: int = 0  # number of feature maps of the first affine layer, or of its units if it is linear
    neurons: int = 0  # number of outputs of the first affine layer
    units: int = 0  # number of units of the last hidden layer
    classes: int = 0


@dataclass(frozen=True, eq=False)
class RelevanceSizes:
    """Facts about the data's relevances that a training's spending depends on."""

    examples: int  # number of examples in the average
    informed: bool  # whether the network that gave the relevances has seen private examples
    span: float = 1.0  # largest average relevance minus the smallest
    ratios: np.ndarray | None = None  # (d,) float32 `AdlmSettings.ratios` of released relevances


@dataclass(frozen=True)
class Sizes:
    """Sizes of a training that its spending depends on, besides its settings."""

    examples: int  # N: private training examples
    network: NetworkSizes | None = None  # if the settings use it (`MethodSettings.uses_network`)
    relevances: RelevanceSizes | None = None
    group: int | None = None  # as in `SampledGaussian`


@dataclass(frozen=True)
class Guarantee:
    """Spending of a training, and statements about it."""

    spending: SampledGaussian | Releases | None  # None: no private mechanism at all
    delta: float | None
    claimed_by: str | None  # accountant of the claimed epsilon
    broken: tuple[Statement, ...] = ()  # reasons why no epsilon holds
    not_covered: tuple[Statement, ...] = ()  # uses of private data that the spending leaves out
    # what is protected, and from whom; None: a whole training example
    protects: Statement | None = None

    def epsilon_after(self, steps: int) -> float | None:
        """Upper bound on epsilon after ``steps`` steps, fast to compute; None if no epsilon holds."""
        if self.broken or self.spending is None:
            return None
        if isinstance(self.spending, Releases):
            return self.spending.epsilon  # all of it is spent before the first step
        from dprepro.accountants.bounds import spent_epsilon

        assert self.delta is not None, "goes with the spending"
        return spent_epsilon(self.spending, steps, self.delta)
