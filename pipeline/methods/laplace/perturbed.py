"""Training on noisy data instead of with noisy gradients (Phan et al. 2017, Algorithm 1).

Laplace noise is added to the inputs of the first affine layer and to the coefficients of the loss. `ilm` and
`adlm` divide the noise on inputs among the features differently. The variant decides the scale of the noise,
and whether examples share it; see `pipeline.methods.laplace.settings.IlmSettings`.

In the variants 'paper' and 'sound' every example has independent noise, drawn once. Training then reads only
this release of the private data, so it spends nothing more.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.clipping.functional import Tensors
from dprepro.clipping.normalization import measuring
from dprepro.noise.mechanisms import release_laplace
from dprepro.pipeline.methods.base import Method, State, Task, as_input, gradient
from dprepro.pipeline.methods.laplace.settings import IlmSettings
from dprepro.pipeline.methods.laplace.split_network import split_network
from dprepro.pipeline.methods.optimizers import Adam, Optimizer, Sgd
from dprepro.pipeline.methods.spending import NetworkSizes

SECOND = 1 / 8  # phi^(2) of the logistic loss (Eqs. 24 and 25), for any label
TINY = 1e-6  # smallest divisor when a unit is scaled by its extremes, which are equal in a dead unit


@dataclass(frozen=True)
class NoisyExamples:
    """Noisy examples for training.

    ``inputs`` are (B, ...). ``first`` and ``second`` (B, M) are the coefficients of `polynomial`, for M
    classes; a constant ``second`` is (1, 1). ``units`` (|h_k|,) is noise on the |h_k| states of the last
    hidden layer. The variant 'code' has it instead of noise on the coefficients; in other variants it is 0.
    """

    inputs: Tensor
    first: Tensor
    second: Tensor
    units: Tensor


class Perturbed(Method):
    """Training with noisy inputs and a noisy loss."""

    settings: IlmSettings
    noise_drawn_once = True  # so that a resumed run spends no more

    def __init__(self, task: Task, settings: IlmSettings, normalization: str):
        """Take the task, the training's settings and the normalisation of the task's network."""
        super().__init__(task, settings, normalization)
        self.variant, self.limit, self.batch = settings.variant, settings.limit, settings.batch
        self.optimizer: Optimizer = Adam() if settings.optimizer == "adam" else Sgd()
        self.parts = split_network(task.net, as_input(task.inputs[:1]))
        self.features = task.inputs[0].numel()  # d

    def init(self) -> State:
        """Initial parameters and the optimizer's state."""
        return self.optimizer.start(self.task.parameters)

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """Make one step; the variants 'paper' and 'sound' read only released data."""
        chosen = self.task.streams.shuffled(step, self.examples, self.batch)
        batch = (
            self._shared_noise_batch(chosen, step) if self.variant == "code" else self._released_batch(chosen)
        )
        # the whole batch at once, because the extremes of a unit are taken over it
        noisy = (batch.inputs, batch.first, batch.second, batch.units, self.bias_factor)
        gradients, loss = gradient(self._loss, self.task.net, state["parameters"], *noisy)
        return self.optimizer.update(state, gradients, self.rate(step), step), {"train_loss": loss}

    def model(self, state: State) -> Tensors:
        """Parameters, bias factor, batch norm's statistics, and extremes that bound the last hidden layer.

        Statistics and extremes are measured on the first B training examples, for use at test time. The
        inputs of these examples are noisy, as in training. The variant 'code' uses exact inputs, because its
        noise is new at each step.
        """
        if self.variant == "code":
            inputs = as_input(self.task.inputs[: self.batch])
        else:
            inputs = self.release.inputs[: self.batch]
        parameters, present = state["parameters"], inputs.new_ones(len(inputs))
        with measuring(self.parts.features, present) as statistics:
            hidden = self.parts.hidden(parameters, inputs, self.bias_factor)
        extremes = {"low": hidden.amin(0), "high": hidden.amax(0)}
        return {**parameters, **statistics, **extremes, "bias_factor": self.bias_factor}

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
        """Ratios (d,): shares of the d features in epsilon_2, times d; 1 except in `Adlm`."""
        return torch.ones(self.features, device=self.task.execution.device)

    @cached_property
    def identical(self) -> Tensor:
        """Scale b () of the noise on inputs if all features have the same scale; 0: no noise."""
        return self.task.numbers([self.settings.input_scale(self._network)])[0]

    @cached_property
    def input_scales(self) -> Tensor:
        """(d,) scales b of the noise on the d features of an example."""
        return self.identical / self.ratios

    @cached_property
    def loss_scale(self) -> Tensor:
        """Scale b () of the noise on each coefficient of the loss; 0: no noise."""
        return self.task.numbers([self.settings.loss_scale(self._network)])[0]

    @cached_property
    def bias_factor(self) -> Tensor:
        """Factor () of the first bias: 1, plus noise in 'paper' (Algorithm 1, line 14)."""
        bias = torch.ones(1, 1, device=self.identical.device)
        if self.variant != "paper":
            return bias[0, 0]
        return release_laplace(bias, self.identical[None], self.task.streams, 0, "bias")[0, 0]

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
            inputs.unflatten(1, task.inputs.shape[1:]),
            self._noisy_coefficients(first, "first"),
            second,
            torch.zeros(self.parts.units, device=inputs.device),
        )

    @property
    def _second(self) -> Tensor:
        return torch.full((1, 1), SECOND, device=self.task.execution.device)

    def _noisy_coefficients(self, exact: Tensor, purpose: str) -> Tensor:
        """(N, M) coefficients with noise, from ``exact`` (N, M): N examples, M classes."""
        scales = self.loss_scale.expand(self.parts.classes)
        return release_laplace(exact, scales, self.task.streams, 0, purpose)

    def _released_batch(self, chosen: Tensor) -> NoisyExamples:
        """Released examples at positions ``chosen`` (B,)."""
        data = self.release
        second = data.second if len(data.second) == 1 else data.second[chosen]
        return NoisyExamples(data.inputs[chosen], data.first[chosen], second, data.units)

    def _shared_noise_batch(self, chosen: Tensor, step: int) -> NoisyExamples:
        """Batch with the noise of the authors' code: one tensor for all examples, new at each step."""
        task = self.task
        noise = self._noise(self.input_scales, step, "inputs")
        inputs = as_input(task.inputs[chosen]) + noise.reshape(1, *task.inputs.shape[1:])
        if self.limit is not None:
            inputs = inputs.clamp(-self.limit, self.limit)
        targets = F.one_hot(task.labels[chosen], self.parts.classes).float()
        units = self._noise(self.loss_scale.expand(self.parts.units), step, "units")
        return NoisyExamples(inputs, 0.5 - targets, self._second, units)

    def _noise(self, scales: Tensor, step: int, purpose: str) -> Tensor:
        """(d,) noise of the given ``scales`` (d,)."""
        return release_laplace(torch.zeros_like(scales[None]), scales, self.task.streams, step, purpose)[0]

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

    def outputs(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """(B, M) outputs for M classes; ``tensors`` include all tensors of `model`."""
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
