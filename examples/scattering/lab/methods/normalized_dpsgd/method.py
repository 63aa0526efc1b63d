"""DP-SGD on inputs with channels normalised by noisy statistics (Tramèr and Boneh 2021).

Each example has two vectors: the means of its channels, and the means of the squares of its channels. Before
the first step, both vectors are summed over all training examples, and the two sums are released once. In
each sum, the examples' vectors are clipped to a common bound, so one example more or less moves the sum by at
most this bound. The bounds are medians of public examples' norms. In the authors' code they are exact medians
over the private examples, which no epsilon covers. The noise on each sum is ``statistics_noise`` times its
bound. These two Gaussian releases are accounted for as one release with multiplier ``statistics_noise`` /
sqrt(2) (`SampledGaussian.first_release`), and composed with the steps.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from dprepro.accountants.records import SampledGaussian
from dprepro.clipping.functional import Tensors
from dprepro.clipping.gradients import ClippedSum
from dprepro.clipping.limits import ClipLimits
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.pipeline.methods.base import State, Task
from dprepro.pipeline.methods.optimizers import Sgd
from dprepro.pipeline.methods.private_steps import PrivateSteps
from lab.methods.normalized_dpsgd.settings import SUMMED, NormalizedDpsgdSettings

MEAN, VARIANCE = "inputs.mean", "inputs.var"  # names among the model's tensors
BEFORE = -1  # step number of the statistics' noise
EPSILON = 1e-5  # added to variances, as in the authors' code
AT_ONCE = 1000  # examples


class NormalizedDpsgd(PrivateSteps):
    """DP-SGD on inputs that are normalised by noisy statistics."""

    settings: NormalizedDpsgdSettings

    def __init__(self, task: Task, settings: NormalizedDpsgdSettings, normalization: str):
        """Take the task, the training's settings and the normalisation of the task's network."""
        super().__init__(task, settings, normalization)
        self.optimizer = Sgd(settings.momentum)

    @cached_property
    def statistics_mechanism(self) -> GaussianMechanism:
        """Mechanism of both sums, with the noise multiplier of their joint release."""
        assert self.settings.first_release is not None, "asked for where there are statistics"
        spending = SampledGaussian(
            sampling="poisson",
            noise_multiplier=self.settings.first_release,
            examples=self.examples,
            batch=self.examples,
        )
        return GaussianMechanism(spending, self.settings.distance)

    def init(self) -> State:
        """Initial parameters, no momentum, and the statistics, which this function releases."""
        return {**self.optimizer.start(self.task.parameters), "running": self.statistics()}

    def statistics(self) -> Tensors:
        """(C,) means and variances of the training inputs, released with noise."""
        if self.settings.statistics_noise is None:
            return {}
        limits = [norms.median() for norms in map(_norms, _moments(self.test_inputs(self.task.public)))]
        sums = self.clipped_moments(limits)
        bounds = ClipLimits(
            members=torch.eye(len(SUMMED), device=sums[0].device),
            limits=torch.stack(limits),
        )
        summed = dict(zip(SUMMED, sums, strict=True))
        released = self.statistics_mechanism.release(summed, bounds, self.task.streams, BEFORE)
        # the number of examples is taken as public
        mean, square = (released[name].float() / self.examples for name in SUMMED)
        return {MEAN: mean, VARIANCE: (square - mean.square()).clamp_min(0)}

    def clipped_moments(self, limits: Sequence[Tensor]) -> list[Tensor]:
        """(C,) sums of both `_moments` over the training inputs, with examples clipped to the two ``limits``.

        The sums are in double precision until noise is added, so that rounding is far below the effect of one
        example.
        """
        totals: list[Any] = [0.0, 0.0]
        for start in range(0, self.examples, AT_ONCE):
            part = _moments(self.test_inputs(self.task.inputs[start : start + AT_ONCE]))
            for place, (values, limit) in enumerate(zip(part, limits, strict=True)):
                share = (limit / _norms(values).clamp_min(1e-12)).clamp(max=1.0)
                totals[place] = totals[place] + (values * share[:, None]).double().sum(0)
        return totals

    def step(self, state: State, step: int) -> tuple[State, Mapping[str, Tensor]]:
        """Make one step; the metrics are those of the private sample."""
        bounds, statistics = self.clip_limits, state["running"]
        batch = self.clipped_sums(state["parameters"], self.sample(step), bounds, step, statistics)
        released = self.released(batch.sums, bounds, step)
        # by the expected batch size: the true one is private
        gradients = {name: value / self.settings.batch for name, value in released.items()}
        after = self.optimizer.update(state, gradients, self.rate(step), step)
        return {**after, "running": statistics}, batch.metrics()

    @property
    def clipper(self) -> Callable[..., ClippedSum]:
        """Clipper of the network; it first normalises inputs by the statistics (C,)."""
        of_examples = self.of_examples  # made here, because making it runs the network on an example

        def clipped_sum(
            tensors: Tensors,
            inputs: Tensor,
            labels: Tensor,
            mask: Tensor,
            bounds: ClipLimits,
            statistics: Tensors,
        ) -> ClippedSum:
            return of_examples(tensors, normalized(inputs, statistics), labels, mask, bounds)

        return clipped_sum

    def outputs(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """(B, K) outputs of the network for inputs (B, C, H, W), normalised by the statistics."""
        parameters = {name: value for name, value in tensors.items() if name in self.task.parameters}
        return super().outputs(parameters, normalized(inputs, tensors))


def normalized(inputs: Tensor, statistics: Tensors) -> Tensor:
    """``inputs`` (B, C, H, W) minus means, divided by deviations (C,); a channel of variance 0 becomes 0."""
    if MEAN not in statistics:
        return inputs
    mean, variance = statistics[MEAN], statistics[VARIANCE]
    scale = torch.where(variance > 0, torch.rsqrt(variance + EPSILON), 0.0)[:, None, None]
    # in one pass over the inputs
    return torch.addcmul(-mean[:, None, None] * scale, inputs, scale)


def _moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C) means of each channel, and (B, C) means of its squares, for inputs (B, C, H, W)."""
    places = inputs.flatten(2)
    return places.mean(2), places.square().mean(2)


def _norms(values: Tensor) -> Tensor:
    return values.norm(dim=1)
