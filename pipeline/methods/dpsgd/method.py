"""DP-SGD (Abadi et al. 2016), with the normalisation layers of Davody et al. 2020.

Each step takes a Poisson sample of expected size B from the N training examples, clips every example's
gradient to C, sums, adds N(0, z^2 C^2), divides by B and descends by SGD, or by Adam. What an example's
gradient is, where batch norm is in the network, is said in `pipeline.methods.dpsgd.statistics`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

from torch import Tensor

from pipeline.methods.base import State, Task, gradient, over_replicas
from pipeline.methods.dpsgd.settings import DpsgdSettings
from pipeline.methods.dpsgd.statistics import STATISTICS
from pipeline.methods.optimizers import Adam, Optimizer, Sgd, decayed
from pipeline.methods.private_steps import PrivateSteps
from pipeline.methods.samples import Sample
from pipeline.privacy.clippers import ClipperFactory
from pipeline.privacy.gradients import Bounds, ClippedSum, Clipper, Tensors


class Dpsgd(PrivateSteps):
    """DP-SGD over R replicas that share batch size, steps and whether they are private."""

    settings: tuple[DpsgdSettings, ...]
    first: DpsgdSettings

    def __init__(self, task: Task, settings: Sequence[DpsgdSettings], normalization: str):
        """One of ``settings`` a replica, in the task's order."""
        super().__init__(task, settings, normalization)
        self.batch = self.first.batch
        self.statistics = STATISTICS[normalization](task, self.first)
        # of each tensor inside the clipped vector
        self.weights = task.numbers([*(1.0 for _ in task.parameters), *self.statistics.weights.values()])
        self.optimizer: Optimizer = Adam()
        if self.first.optimizer == "sgd":
            self.optimizer = Sgd(task.numbers(setting.momentum for setting in settings))

    @property
    def clipper(self) -> Callable[..., ClippedSum]:
        """By the normalisation's statistics; of a training that is not private nothing is clipped."""
        return self.of_examples if self.first.private else self._unclipped

    @cached_property
    def of_examples(self) -> Clipper:
        """Clipped sums of examples' gradients, as the normalisation's statistics say what these are."""
        return self.statistics.clipper()

    @property
    def factory(self) -> ClipperFactory:
        """As the normalisation's statistics have it."""
        return self.statistics.factory

    def init(self) -> State:
        """Initial parameters and the optimiser's state."""
        return self.optimizer.start(self.task.parameters)

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """One step of every replica; metrics are of its private sample."""
        parameters = state["parameters"]
        tensors = self.network(parameters, 0) if self.first.private else parameters
        bounds = self.bounds(self.clips)
        batch = self.clipped_sums(tensors, self.sample(step), bounds, step)
        sums = batch.sums
        if self.first.private:
            released = self.released(sums, bounds, step)
            sums = over_replicas(self.statistics.parameter_gradients, self.task.execution)(
                parameters, released
            )
        # by the expected batch size: how many there really were is private
        gradients = {name: value / self.batch for name, value in sums.items()}
        rates = self.rates(step)
        shrunk = decayed(parameters, rates, [setting.weight_decay for setting in self.settings])
        next_state = self.optimizer.update({**state, "parameters": shrunk}, gradients, rates, step)
        return next_state, batch.metrics()

    def network(self, model: Tensors, draw: int) -> Tensors:
        """The parameters and the statistics that normalise with them."""
        return {**model, **over_replicas(self.statistics.input_statistics, self.task.execution)(model)}

    def outputs(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """(B, K) by the test protocol of the network's normalisation."""
        return self.statistics.logits(tensors, inputs)

    def bounds(self, limits: Tensor) -> Bounds:
        """(R, ...) the parameters and the statistics as one part, clipped to ``limits`` (R,)."""
        rows = (len(limits), len(self.weights))
        return Bounds(limits.new_ones(*rows, 1), limits[:, None], self.weights.expand(rows))

    def pass_size(self, sample: Sample) -> int:
        """All of a sample where its examples share statistics."""
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
