"""Settings of training with noise on the weights."""

from typing import Any, ClassVar, Literal

from dprepro.fields import Count, NotNegative, Positive
from dprepro.pipeline.methods.settings import EpochSettings
from dprepro.pipeline.methods.spending import Statement, statement


class NoisyWeightsSettings(EpochSettings):
    """Training with Gaussian noise on the weights (Davody et al. 2020, section 2). Not private."""

    method: ClassVar[str] = "noisy_weights"
    trained_by: ClassVar[str] = "method.NoisyWeights"
    version: ClassVar[int] = 1
    normalizations: ClassVar[tuple[str, ...]] = ("none", "layer", "group", "response", "running_bn")
    axis: ClassVar[str] = "sigma"
    title: ClassVar[str] = "noisy weights (Davody et al.)"
    # gradients are neither clipped nor noised
    noiseless: ClassVar[Statement] = statement("noisy_weights")
    retired: ClassVar[dict[str, Any]] = {"scale": 1, "averaging": 0.1}
    suggested_defaults: ClassVar[dict[str, Any]] = {"epochs": 8, "learning_rate": 0.01, "schedule": "cosine"}

    sigma: NotNegative  # standard deviation of every weight
    augment: Literal["none", "crop_flip"] = "none"  # of training images
    # Statistics of running_bn at test time. 'running': the running averages, as in the paper. 'draw':
    # measured on training examples with the weights of the tested draw.
    statistics: Literal["running", "draw"] = "running"
    draws: Count = 10  # noise draws at test time; their accuracies are averaged
    # lambdas of the paper's scale invariance, for further tests of the trained network: factors of every
    # matrix and of the bias in the same layer
    scales: tuple[Positive, ...] = ()
