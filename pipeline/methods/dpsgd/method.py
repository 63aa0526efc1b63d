"""DP-SGD (Abadi et al. 2016), with the normalisation layers of Davody et al. 2020.

Each step takes a Poisson sample of expected size B from the N training examples, or an allocated batch. It
clips the gradient of every example to C, sums, adds N(0, z^2 C^2), divides by B, and descends by SGD or Adam.
`pipeline.methods.dpsgd.statistics` defines an example's gradient in networks with batch norm.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from torch import Tensor

from dprepro.clipping.clippers import ClipperFactory
from dprepro.clipping.gradients import Bounds, ClippedSum, Clipper, Tensors
from dprepro.pipeline.methods.base import State, Task, gradient, over_replicas
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings
from dprepro.pipeline.methods.dpsgd.statistics import STATISTICS
from dprepro.pipeline.methods.optimizers import Adam, Optimizer, Sgd, decayed
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.samples import Sample


class Dpsgd(PrivateSteps):
    """DP-SGD over R replicas that share batch size and steps, and are all private or all not private."""

    settings: tuple[DpsgdSettings, ...]
    first: DpsgdSettings

    def __init__(self, task: Task, settings: Sequence[DpsgdSettings], normalization: str):
        """``settings`` has one entry per replica, in the task's order."""
        super().__init__(task, settings, normalization)
        self.batch = self.first.batch
        self.statistics = STATISTICS[normalization](task, self.first)
        # weights of the tensors in the clipped vector
        self.weights = task.numbers([*(1.0 for _ in task.parameters), *self.statistics.weights.values()])
        self.optimizer: Optimizer = Adam() if self.first.optimizer == "adam" else Sgd.of(task, settings)

    @property
    def clipper(self) -> Callable[..., ClippedSum]:
        """Clipper for the source of batch norm's statistics; without privacy, a function that only sums."""
        return self.of_examples if self.first.private else self._unclipped

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
        """Make one step of every replica; metrics are of its private sample."""
        parameters, bounds = state["parameters"], self.whole
        tensors = self.network(parameters, 0) if self.first.private else parameters
        batch = self.clipped_sums(tensors, self.sample(step), bounds, step)
        sums = self.released(batch.sums, bounds, step)
        if self.first.private and self.statistics.weights:
            sums = over_replicas(self.statistics.parameter_gradients, self.task.execution)(parameters, sums)
        # divided by the expected batch size, because the true size is private
        gradients = {name: value / self.batch for name, value in sums.items()}
        rates = self.rates(step)
        shrunk = decayed(parameters, rates, [setting.weight_decay for setting in self.settings])
        next_state = self.optimizer.update({**state, "parameters": shrunk}, gradients, rates, step)
        return next_state, batch.metrics()

    def network(self, model: Tensors, draw: int) -> Tensors:
        """Parameters, and the statistics of `public_bn` for these parameters."""
        if not self.statistics.weights:
            return model
        return {**model, **over_replicas(self.statistics.input_statistics, self.task.execution)(model)}

    def outputs(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """(B, K) outputs at test time, with batch norm's statistics from their source."""
        return self.statistics.logits(tensors, inputs)

    def bounds(self, limits: Tensor) -> Bounds:
        """Bounds (R, ...) of each replica's parameters and statistics as one part, clipped to ``limits``."""
        rows = (len(limits), len(self.weights))
        return Bounds(limits.new_ones(*rows, 1), limits[:, None], self.weights.expand(rows))

    def pass_size(self, sample: Sample) -> int:
        """Number of examples in one forward pass: the whole sample if its examples share statistics."""
        return super().pass_size(sample) if self.statistics.divisible else sample.chosen.shape[1]

    def _unclipped(
        self, parameters: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, bounds: Bounds
    ) -> ClippedSum:
        """Sums of gradients by one ordinary backward pass: training without privacy."""

        def total(tensors: Tensors, inputs: Tensor) -> tuple[Tensor, Tensor]:
            losses = self.statistics.losses(tensors, inputs, labels, mask)
            return (losses * mask).sum(), losses

        sums, losses = gradient(total, self.task.net, self.task.execution)(parameters, inputs)
        return ClippedSum(sums, losses.new_zeros(len(losses), 0), losses)
