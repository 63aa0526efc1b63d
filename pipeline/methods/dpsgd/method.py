"""DP-SGD (Abadi et al. 2016), with the normalisation layers of Davody et al. 2020.

Each step takes a Poisson sample of expected size B from the N training examples, or an allocated batch. It
clips the gradient of every example to C, sums, adds N(0, z^2 C^2), divides by B, and descends by SGD or Adam.
`pipeline.methods.dpsgd.statistics` defines an example's gradient in networks with batch norm.
"""

from collections.abc import Callable, Mapping
from functools import cached_property

from torch import Tensor

from dprepro.clipping.clippers import ClipperFactory
from dprepro.clipping.functional import Tensors
from dprepro.clipping.gradients import ClippedSum, Clipper
from dprepro.clipping.limits import ClipLimits
from dprepro.pipeline.methods.base import State, Task, gradient
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings
from dprepro.pipeline.methods.dpsgd.statistics import STATISTICS
from dprepro.pipeline.methods.optimizers import Adam, Optimizer, Sgd, decayed
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.samples import Sample


class Dpsgd(PrivateSteps):
    """DP-SGD, or plain SGD on Poisson samples if the settings are not private."""

    settings: DpsgdSettings

    def __init__(self, task: Task, settings: DpsgdSettings, normalization: str):
        """Take the task, the training's settings and the normalisation of the task's network."""
        super().__init__(task, settings, normalization)
        self.statistics = STATISTICS[normalization](task, settings)
        self.optimizer: Optimizer = Adam() if settings.optimizer == "adam" else Sgd(settings.momentum)

    @property
    def clipper(self) -> Callable[..., ClippedSum]:
        """Clipper for the source of batch norm's statistics; without privacy, a function that only sums."""
        return self.of_examples if self.settings.private else self._unclipped

    @cached_property
    def of_examples(self) -> Clipper:
        """Clipper of single examples' gradients for the source of batch norm's statistics."""
        return self.statistics.clipper()

    @property
    def factory(self) -> ClipperFactory:
        """Factory of clippers for the source of batch norm's statistics."""
        return self.statistics.factory

    def init(self) -> State:
        """Initial parameters and the optimizer's state."""
        return self.optimizer.start(self.task.parameters)

    def step(self, state: State, step: int) -> tuple[State, Mapping[str, Tensor]]:
        """Make one step; the metrics are of its private sample."""
        parameters, bounds, rate = state["parameters"], self.clip_limits, self.rate(step)
        tensors = self.network(parameters, 0) if self.settings.private else parameters
        batch = self.clipped_sums(tensors, self.sample(step), bounds, step)
        sums = self.released(batch.sums, bounds, step)
        if self.settings.private and self.statistics.names:
            sums = self.statistics.parameter_gradients(parameters, sums)
        # divided by the expected batch size, because the true size is private
        gradients = {name: value / self.settings.batch for name, value in sums.items()}
        shrunk = decayed(parameters, rate, self.settings.weight_decay)
        return self.optimizer.update({**state, "parameters": shrunk}, gradients, rate, step), batch.metrics()

    def network(self, model: Tensors, draw: int) -> Tensors:
        """Parameters, and the statistics of `public_bn` for these parameters."""
        return {**model, **self.statistics.input_statistics(model)} if self.statistics.names else model

    def outputs(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """(B, K) outputs at test time, with batch norm's statistics from their source."""
        return self.statistics.logits(tensors, inputs)

    def bounds(self, limit: float) -> ClipLimits:
        """Bounds of parameters and statistics as one part, clipped to ``limit``."""
        tensors = len(self.task.parameters) + len(self.statistics.names)
        return ClipLimits.whole(self.task.numbers([limit])[0], tensors)

    def pass_size(self, sample: Sample) -> int:
        """Number of examples in one forward pass: the whole sample if its examples share statistics."""
        return super().pass_size(sample) if self.statistics.divisible else len(sample.chosen)

    def _unclipped(
        self, parameters: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, bounds: ClipLimits
    ) -> ClippedSum:
        """Sums of gradients by one ordinary backward pass: training without privacy."""

        def total(tensors: Tensors, inputs: Tensor) -> tuple[Tensor, Tensor]:
            losses = self.statistics.losses(tensors, inputs, labels, mask)
            return (losses * mask).sum(), losses

        sums, losses = gradient(total, self.task.net, parameters, inputs)
        return ClippedSum(sums, losses.new_zeros(len(losses), 0), losses)
