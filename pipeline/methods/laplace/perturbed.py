"""Training on noisy data instead of with noisy gradients (Phan et al. 2017, Algorithm 1).

Laplace noise is added to the inputs of the first affine layer and to the coefficients of the loss. `ilm` and
`adlm` divide the noise on inputs among the features differently. The variant decides the scale of the noise,
and whether examples share it; see `pipeline.methods.laplace.settings.IlmSettings`.

In the variants 'paper' and 'sound' every example has independent noise, drawn once. Training then reads only
this release of the private data, so it spends nothing more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.clipping.gradients import Tensors
from dprepro.clipping.normalization import measuring
from dprepro.noise.mechanisms import release_laplace
from dprepro.pipeline.methods.base import Method, State, Task, as_input, gradient, over_replicas
from dprepro.pipeline.methods.laplace.settings import IlmSettings
from dprepro.pipeline.methods.laplace.split_network import split_network
from dprepro.pipeline.methods.optimizers import Adam, Optimizer, Sgd
from dprepro.pipeline.methods.spending import NetworkSizes

SECOND = 1 / 8  # phi^(2) of the logistic loss (Eqs. 24 and 25), for any label
TINY = 1e-6  # smallest divisor when a unit is scaled by its extremes, which are equal in a dead unit


@dataclass(frozen=True)
class NoisyExamples:
    """Noisy examples of R replicas for training.

    ``inputs`` are (R, B, ...). ``first`` and ``second`` (R, B, M) are the coefficients of `polynomial`, for M
    classes; a constant ``second`` is (R, 1, 1). ``units`` (R, |h_k|) is noise on the |h_k| states of the last
    hidden layer. The variant 'code' has it instead of noise on the coefficients; in other variants it is 0.
    """

    inputs: Tensor
    first: Tensor
    second: Tensor
    units: Tensor


class Perturbed(Method):
    """Training with noisy inputs and a noisy loss over R replicas that share batch size and optimizer."""

    settings: tuple[IlmSettings, ...]
    first: IlmSettings
    noise_drawn_once = True  # so that a resumed run spends no more

    def __init__(self, task: Task, settings: Sequence[IlmSettings], normalization: str):
        """``settings`` has one entry per replica, in the task's order."""
        super().__init__(task, settings, normalization)
        self.variant, self.limit, self.batch = self.first.variant, self.first.limit, self.first.batch
        self.optimizer: Optimizer = Adam() if self.first.optimizer == "adam" else Sgd()
        self.parts = split_network(task.net, as_input(task.inputs[:1]))
        self.features = task.inputs[0].numel()  # d
        # a batch can't be divided, because the extremes of a unit are taken over the whole batch
        self.execution = task.execution.holding(self.batch)

    def init(self) -> State:
        """Initial parameters and the optimizer's state."""
        return self.optimizer.start(self.task.parameters)

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """Make one step of every replica; the variants 'paper' and 'sound' read only released data."""
        chosen = self.task.streams.shuffled(step, self.examples, self.batch)
        batch = (
            self._shared_noise_batch(chosen, step) if self.variant == "code" else self._released_batch(chosen)
        )
        gradients, losses = over_replicas(
            gradient(self._loss, self.task.net, self.task.execution), self.execution
        )(state["parameters"], batch.inputs, batch.first, batch.second, batch.units, self.bias_factors)
        return self.optimizer.update(state, gradients, self.rates(step), step), {"train_loss": losses}

    def model(self, state: State) -> Tensors:
        """Parameters, bias factor, batch norm's statistics, and extremes that bound the last hidden layer.

        Statistics and extremes are measured on the first B training examples, for use at test time. The
        inputs of these examples are noisy, as in training. The variant 'code' uses exact inputs, because its
        noise is new at each step.
        """
        if self.variant == "code":
            clean = as_input(self.task.inputs[: self.batch])
            inputs = clean.expand(self.task.replicas, *clean.shape)
        else:
            inputs = self.release.inputs[:, : self.batch]
        measured = over_replicas(self._measure_extremes, self.execution)
        return {
            **state["parameters"],
            **measured(state["parameters"], inputs, self.bias_factors),
            "bias_factor": self.bias_factors,
        }

    @classmethod
    def network_sizes(cls, net: nn.Module, inputs: Tensor) -> NetworkSizes:
        """Sizes for the noise of inputs and loss; the network is run on the first of ``inputs``.

        Raises:
            UserError: the network is not a plain sequence from an affine layer to a linear output.
        """
        parts = split_network(net, as_input(inputs[:1]))
        return replace(
            super().network_sizes(net, inputs),
            features=inputs[0].numel(),
            maps=parts.maps,
            neurons=parts.neurons,
            units=parts.units,
            classes=parts.classes,
        )

    @property
    def _network(self) -> NetworkSizes:
        assert self.sizes.network is not None, "measured by `sizes`"
        return self.sizes.network

    @cached_property
    def ratios(self) -> Tensor:
        """Ratios (R, d): shares of the d features in epsilon_2, times d, by replica; 1 except in `Adlm`."""
        return torch.ones(self.task.replicas, self.features, device=self.task.execution.device)

    @cached_property
    def identical(self) -> Tensor:
        """(R,) scales b of the replicas' noise on inputs if all features have the same scale; 0: no noise."""
        return self.task.numbers(settings.input_scale(self._network) for settings in self.settings)

    @cached_property
    def input_scales(self) -> Tensor:
        """(R, d) scales b of the replicas' noise on the d features of an example."""
        return self.identical[:, None] / self.ratios

    @cached_property
    def loss_scales(self) -> Tensor:
        """(R,) scales b of the replicas' noise on each coefficient of the loss; 0: no noise."""
        return self.task.numbers(settings.loss_scale(self._network) for settings in self.settings)

    @cached_property
    def bias_factors(self) -> Tensor:
        """(R,) factors of the first bias by replica: 1, plus noise in 'paper' (Algorithm 1, line 14)."""
        bias = torch.ones(1, 1, device=self.identical.device)
        if self.variant != "paper":
            return bias[0].expand(self.task.replicas)
        return release_laplace(bias, self.identical[:, None], self.task.streams, 0, "bias")[:, 0, 0]

    @cached_property
    def release(self) -> NoisyExamples:
        """All N examples with their noise, drawn once (lines 12, 13, 18 and 19)."""
        task = self.task
        exact = as_input(task.inputs).flatten(1)
        inputs = release_laplace(exact, self.input_scales, task.streams, 0, "inputs")
        if self.limit is not None:
            inputs.clamp_(-self.limit, self.limit)
        first = 0.5 - F.one_hot(task.labels, self.parts.classes).float()
        second = self._second
        if self.variant == "paper":
            # 1/8 contains no data, but has noise in the paper; noise on phi^(0) would change no gradient
            second = self._noisy_coefficients(torch.full_like(first, SECOND), "second")
        return NoisyExamples(
            inputs.unflatten(2, task.inputs.shape[1:]),
            self._noisy_coefficients(first, "first"),
            second,
            torch.zeros(task.replicas, self.parts.units, device=inputs.device),
        )

    @property
    def _second(self) -> Tensor:
        return torch.full((self.task.replicas, 1, 1), SECOND, device=self.task.execution.device)

    def _noisy_coefficients(self, exact: Tensor, purpose: str) -> Tensor:
        """(R, N, M) coefficients with R replicas' noise, from ``exact`` (N, M): N examples, M classes."""
        scales = self.loss_scales[:, None].expand(-1, self.parts.classes)
        return release_laplace(exact, scales, self.task.streams, 0, purpose)

    def _released_batch(self, chosen: Tensor) -> NoisyExamples:
        """Released examples at positions ``chosen`` (R, B), B for each of R replicas."""
        rows = torch.arange(len(chosen), device=chosen.device)[:, None]
        data = self.release
        second = data.second if data.second.shape[1] == 1 else data.second[rows, chosen]
        return NoisyExamples(data.inputs[rows, chosen], data.first[rows, chosen], second, data.units)

    def _shared_noise_batch(self, chosen: Tensor, step: int) -> NoisyExamples:
        """Batch with the noise of the authors' code: one tensor for all examples, new at each step."""
        task = self.task
        noise = self._noise(self.input_scales, step, "inputs")
        inputs = as_input(task.inputs[chosen]) + noise.reshape(-1, 1, *task.inputs.shape[1:])
        if self.limit is not None:
            inputs = inputs.clamp(-self.limit, self.limit)
        targets = F.one_hot(task.labels[chosen], self.parts.classes).float()
        units = self._noise(self.loss_scales[:, None].expand(-1, self.parts.units), step, "units")
        return NoisyExamples(inputs, 0.5 - targets, self._second, units)

    def _noise(self, scales: Tensor, step: int, purpose: str) -> Tensor:
        """(R, d) noise of the given ``scales`` (R, d) for R replicas."""
        return release_laplace(torch.zeros_like(scales[:1]), scales, self.task.streams, step, purpose)[:, 0]

    # functions of one replica

    def _bound_hidden(self, hidden: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """States with ``low`` mapped to 0, ``high`` to 1 (section III-B); in 'code', clamped to [0, 1]."""
        if self.variant == "code":
            return hidden.clamp(0, 1)
        return (hidden - low) / (high - low).clamp_min(TINY)

    def _loss(
        self,
        parameters: Tensors,
        inputs: Tensor,
        first: Tensor,
        second: Tensor,
        units: Tensor,
        bias_factor: Tensor,
    ) -> tuple[Tensor, Tensor]:
        with measuring(self.parts.features):
            hidden = self.parts.hidden(parameters, inputs, bias_factor)
        bounded = self._bound_hidden(hidden, hidden.amin(0), hidden.amax(0)) + units
        loss = polynomial(self.parts.outputs(parameters, bounded), first, second).mean()
        return loss, loss

    def _measure_extremes(self, parameters: Tensors, inputs: Tensor, bias_factor: Tensor) -> Tensors:
        with measuring(self.parts.features, inputs.new_ones(len(inputs))) as statistics:
            hidden = self.parts.hidden(parameters, inputs, bias_factor)
        return {**statistics, "low": hidden.amin(0), "high": hidden.amax(0)}

    def outputs(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """(B, M) outputs of one replica for M classes; ``tensors`` include all tensors of `model`."""
        tensors = dict(tensors)
        low, high, bias_factor = tensors.pop("low"), tensors.pop("high"), tensors.pop("bias_factor")
        hidden = self.parts.hidden(tensors, inputs, bias_factor)
        return self.parts.outputs(tensors, self._bound_hidden(hidden, low, high))


def polynomial(outputs: Tensor, first: Tensor, second: Tensor | float = SECOND) -> Tensor:
    """(B,) loss: sum of phi^(0) + phi^(1) z + phi^(2) z^2 over the M outputs z, with phi^(0) = log 2.

    ``outputs``, ``first`` (phi^(1)) and ``second`` (phi^(2)) are (B, M). phi^(1) is 1/2 - y for one-hot
    labels y; no other coefficient depends on labels.
    """
    return (math.log(2) + first * outputs + second * outputs.square()).sum(-1)
