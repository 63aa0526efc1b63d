"""DP-SGD (Abadi et al. 2016), with the normalisation layers of Davody et al. 2020.

Each step takes a Poisson sample of expected size B from the N training examples, clips every example's
gradient to C, sums, adds N(0, z^2 C^2), divides by B and descends. What an example's gradient is, where batch
norm is in the network, is said in `pipeline.methods.statistics`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from pipeline.methods.base import Guarantee, State, Task, as_input
from pipeline.methods.statistics import STATISTICS, NoStatistics
from pipeline.privacy.accounting import noise_for
from pipeline.privacy.gradients import Clipper, Tensors
from pipeline.privacy.mechanisms import PoissonGaussian
from pipeline.settings import DpsgdSettings

CURVES = (
    "the history's training losses, gradient norms and clipped shares, computed on private data without noise"
)


class Dpsgd:
    """DP-SGD over R replicas that share batch size, steps and whether they are private."""

    def __init__(self, task: Task, settings: Sequence[DpsgdSettings], normalization: str):
        """One of ``settings`` a replica, in the task's order."""
        first = settings[0]
        self.task = task
        self.settings = tuple(settings)
        self.examples = len(task.labels)
        self.steps = first.steps(self.examples)
        self.batch = first.batch
        self.rate = first.batch / self.examples
        self.statistics = STATISTICS.get(normalization, NoStatistics)(task, first)

    @cached_property
    def mechanism(self) -> PoissonGaussian | None:
        """The mechanism with every replica's noise calibrated; None where nothing is private.

        Raises:
            UserError: a target epsilon can't be reached.
        """
        if not self.settings[0].private:
            return None
        noise = [
            noise_for(own.epsilon, own.delta, self.rate, self.steps, own.accountant) for own in self.settings
        ]
        return PoissonGaussian(self.rate, tuple(own.clip for own in self.settings), tuple(noise))

    @cached_property
    def clipper(self) -> Clipper:
        """How clipped sums are computed; made once, as the fast way runs an example to know its layers."""
        return self.statistics.clipper()

    def init(self) -> State:
        """Initial parameters, and no momentum."""
        parameters = self.task.parameters
        return {
            "parameters": parameters,
            "momentum": {name: torch.zeros_like(value) for name, value in parameters.items()},
        }

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """One step of every replica; metrics are of its private sample."""
        parameters = state["parameters"]
        samples = self.task.streams.poisson(step, self.examples, self.rate)
        if self.mechanism is None:
            sums, metrics = self._plain(parameters, samples)
        else:
            sums, metrics = self._clipped(self.mechanism, parameters, samples)
            released = self.mechanism.release(sums, self.task.streams, step)
            sums = self._over_replicas(self.statistics.back)(parameters, released)
        decay = [own.momentum for own in self.settings]
        rates = [own.learning_rate * self._schedule(own, step) for own in self.settings]
        momentum = {
            # divided by the expected batch size: how many there really were is private
            name: _each(value, decay) * state["momentum"][name] + value / self.batch
            for name, value in sums.items()
        }
        parameters = {
            name: value - _each(value, rates) * momentum[name] for name, value in parameters.items()
        }
        return {"parameters": parameters, "momentum": momentum}, metrics

    def predict(self, state: State, inputs: Tensor) -> Tensor:
        """(R, B) classes by the test protocol of the network's normalisation."""
        logits = self._over_replicas(self.statistics.logits, in_dims=(0, None))
        return logits(state["parameters"], as_input(inputs)).argmax(-1)

    def guarantee(self, replica: int, steps: int) -> Guarantee:
        """What ``steps`` steps of a replica spend."""
        if self.mechanism is None:
            return Guarantee(None, None, None, None, None)
        own = self.settings[replica]
        return Guarantee(
            event=self.mechanism.event(replica, steps),
            noise_multiplier=self.mechanism.noise_multipliers[replica],
            rate=self.rate,
            delta=own.delta,
            claimed_by=own.accountant,
            broken=self.statistics.broken,
            uncounted=[CURVES],
        )

    def _clipped(
        self, mechanism: PoissonGaussian, parameters: Tensors, samples: list[np.ndarray]
    ) -> tuple[Tensors, Tensors]:
        """Sums of clipped gradients, and what the samples looked like."""
        tensors = {**parameters, **self._over_replicas(self.statistics.given)(parameters)}
        clips = mechanism.clip_bounds(next(iter(parameters.values())))
        clipped_sum = self._over_replicas(self.clipper)
        sums = {name: torch.zeros_like(value) for name, value in tensors.items()}
        totals = clips.new_zeros(3, len(clips))
        for inputs, labels, mask in self._pieces(samples):
            part = clipped_sum(tensors, inputs, labels, mask, clips)
            sums = {name: value + part.sums[name] for name, value in sums.items()}
            over = (part.norms > clips[:, None]).float()
            totals += torch.stack([(value * mask).sum(1) for value in (part.losses, part.norms, over)])
        means = totals / _counts(samples).to(totals)
        return sums, dict(zip(("train_loss", "gradient_norm", "clipped_share"), means, strict=True))

    def _plain(self, parameters: Tensors, samples: list[np.ndarray]) -> tuple[Tensors, Tensors]:
        """Sums of gradients, unclipped: training without privacy."""

        def total(tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            loss = (self.statistics.losses(tensors, inputs, labels, mask) * mask).sum()
            return loss, loss

        gradient_sum = self._over_replicas(grad(total, has_aux=True))
        sums = {name: torch.zeros_like(value) for name, value in parameters.items()}
        loss = torch.zeros(len(samples), device=self.task.labels.device)
        for piece in self._pieces(samples):
            part, value = gradient_sum(parameters, *piece)
            sums = {name: total + part[name] for name, total in sums.items()}
            loss = loss + value
        return sums, {"train_loss": loss / _counts(samples).to(loss)}

    def _over_replicas(self, function: Callable[..., Any], in_dims: Any = 0) -> Callable[..., Any]:
        return vmap(function, in_dims=in_dims, chunk_size=self.task.execution.replicas_at_once)

    def _pieces(self, samples: list[np.ndarray]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Samples padded to the longest, as (R, L, ...) inputs, (R, L) labels and masks, L at a time."""
        longest = max(1, max(len(sample) for sample in samples))
        at_once = self.task.execution.examples_at_once(len(samples)) if self.statistics.divisible else longest
        pieces = math.ceil(longest / at_once)
        size = math.ceil(longest / pieces)
        index = torch.zeros(len(samples), pieces * size, dtype=torch.long)
        mask = torch.zeros(index.shape)
        for row, sample in enumerate(samples):
            index[row, : len(sample)] = torch.from_numpy(sample)
            mask[row, : len(sample)] = 1
        device = self.task.inputs.device
        for part, present in zip(
            index.to(device).split(size, 1), mask.to(device).split(size, 1), strict=True
        ):
            yield as_input(self.task.inputs[part]), self.task.labels[part], present

    def _schedule(self, own: DpsgdSettings, step: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * step / self.steps)) if own.schedule == "cosine" else 1.0


def _each(like: Tensor, values: Sequence[float]) -> Tensor:
    """One number a replica, shaped to multiply ``like`` (R, ...)."""
    return torch.tensor(values).to(like).reshape(-1, *(1,) * (like.dim() - 1))


def _counts(samples: list[np.ndarray]) -> Tensor:
    return torch.tensor([max(1, len(sample)) for sample in samples])
