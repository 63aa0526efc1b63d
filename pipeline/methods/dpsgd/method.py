"""DP-SGD (Abadi et al. 2016), with the normalisation layers of Davody et al. 2020.

Each step takes a Poisson sample of expected size B from the N training examples, clips every example's
gradient to C, sums, adds N(0, z^2 C^2), divides by B and descends. What an example's gradient is, where batch
norm is in the network, is said in `pipeline.methods.dpsgd.statistics`.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pipeline.methods.base import CURVES, Guarantee, Predict, State, Task, as_input, gradient, over_replicas
from pipeline.methods.dpsgd.settings import DpsgdSettings
from pipeline.methods.dpsgd.statistics import STATISTICS
from pipeline.methods.optimizers import sgd, sgd_start
from pipeline.methods.samples import clipped_sums, padded
from pipeline.privacy.accounting import noise_for
from pipeline.privacy.gradients import Bounds, Clipper, Tensors
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.spending import Spending, relation_of, sensitivity
from pipeline.privacy.statements import statement

PLAIN = statement("no_clipping_no_noise")


class Dpsgd:
    """DP-SGD over R replicas that share batch size, steps and whether they are private."""

    test_draws = 1
    noise_drawn_once = False

    def __init__(self, task: Task, settings: Sequence[DpsgdSettings], normalization: str):
        """One of ``settings`` a replica, in the task's order."""
        first = settings[0]
        self.task = task
        self.settings = tuple(settings)
        self.examples = len(task.labels)
        self.steps = first.total_steps(self.examples)
        self.batch = first.batch
        self.rate = first.batch / self.examples
        self.statistics = STATISTICS[normalization](task, first)
        self.clips = task.numbers(own.clip for own in settings)
        # of each tensor inside the clipped vector
        self.weights = task.numbers([*(1.0 for _ in task.parameters), *self.statistics.weights.values()])
        self.decay = task.numbers(own.momentum for own in settings)

    @cached_property
    def mechanism(self) -> GaussianMechanism | None:
        """The mechanism with every replica's noise calibrated; None where nothing is private.

        Raises:
            UserError: a target epsilon can't be reached.
        """
        if not self.settings[0].private:
            return None
        noise = [
            noise_for(own.epsilon, own.delta, self.rate, self.steps, own.accountant) for own in self.settings
        ]
        return GaussianMechanism(
            tuple(
                Spending(
                    sampling="poisson",
                    noise_multiplier=multiplier,
                    examples=self.examples,
                    batch=self.batch,
                )
                for multiplier in noise
            ),
            distance=sensitivity(relation_of("poisson")),
        )

    @cached_property
    def clipper(self) -> Clipper:
        """How clipped sums are computed; made once, as the fast way runs an example to know its layers."""
        return self.statistics.clipper()

    def init(self) -> State:
        """Initial parameters, no momentum, and running averages where the normalisation keeps any."""
        parameters, replicas = self.task.parameters, self.task.replicas
        return {
            "parameters": parameters,
            **sgd_start(parameters),
            "running": {
                name: value.expand(replicas, *value.shape)
                for name, value in self.statistics.running().items()
            },
        }

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """One step of every replica; metrics are of its private sample."""
        parameters, running = state["parameters"], state["running"]
        samples = self.task.streams.poisson(step, self.examples, self.rate)
        if self.mechanism is None:
            sums, metrics = self._plain(parameters, samples)
        else:
            tensors, bounds = self.network(self.model(state), 0), self.bounds(self.clips)
            batch = clipped_sums(self.clipper, tensors, self._batches(samples), bounds, self.task.execution)
            metrics = batch.metrics(self.clips)
            released = self.mechanism.release(
                batch.sums, self.bounds(self.clips * self.statistics.lengthening), self.task.streams, step
            )
            sums = over_replicas(self.statistics.back, self.task.execution)(parameters, released)
            running = over_replicas(self.statistics.track, self.task.execution)(running, released, self.clips)
        rates = self.task.numbers(own.rate_at(step, self.steps) for own in self.settings)
        # by the expected batch size: how many there really were is private
        gradients = {name: value / self.batch for name, value in sums.items()}
        descended = sgd(state, gradients, rates, step, self.decay, torch.zeros_like(self.decay))
        return {**descended, "running": running}, metrics

    def model(self, state: State) -> Tensors:
        """The parameters and the running averages."""
        return {**state["parameters"], **state["running"]}

    def network(self, model: Tensors, draw: int) -> Tensors:
        """The parameters and the statistics that normalise with them."""
        return {**model, **over_replicas(self.statistics.given, self.task.execution)(model)}

    def predict(self, network: Tensors, inputs: Tensor) -> Tensor:
        """(R, B) classes by the test protocol of the network's normalisation."""
        logits = over_replicas(self.statistics.logits, self.task.execution, shared=1)
        return logits(network, as_input(inputs)).argmax(-1)

    def variants(self, model: Tensors) -> dict[str, Predict]:
        """None."""
        return {}

    def resumable(self, done: int) -> bool:
        """Always: each step draws a fresh sample."""
        return True

    def guarantee(self, replica: int) -> Guarantee:
        """What a replica's steps spend."""
        if self.mechanism is None:
            return Guarantee(None, None, None, broken=(PLAIN,))
        own = self.settings[replica]
        return Guarantee(
            spending=self.mechanism.spendings[replica],
            delta=own.delta,
            claimed_by=own.accountant,
            broken=self.statistics.broken,
            not_covered=(CURVES,),
        )

    def bounds(self, limits: Tensor) -> Bounds:
        """(R, ...) the parameters and the statistics as one part, clipped to ``limits`` (R,)."""
        rows = (len(limits), len(self.weights))
        return Bounds(limits.new_ones(*rows, 1), limits[:, None], self.weights.expand(rows))

    def _plain(self, parameters: Tensors, samples: list[np.ndarray]) -> tuple[Tensors, Tensors]:
        """Sums of gradients, unclipped: training without privacy."""

        def total(tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            loss = (self.statistics.losses(tensors, inputs, labels, mask) * mask).sum()
            return loss, loss

        gradient_sum = over_replicas(gradient(total, self.task.net, self.task.execution), self.task.execution)
        sums = {name: torch.zeros_like(value) for name, value in parameters.items()}
        loss = torch.zeros(len(samples), device=self.task.labels.device)
        for batch in self._batches(samples):
            part, value = gradient_sum(parameters, *batch)
            sums = {name: total + part[name] for name, total in sums.items()}
            loss = loss + value
        return sums, {"train_loss": loss / loss.new_tensor([max(1, len(sample)) for sample in samples])}

    def _batches(self, samples: list[np.ndarray]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Samples as (R, L, ...) inputs, (R, L) labels and masks, L at a time."""
        task = self.task
        longest = max(1, *(len(sample) for sample in samples))
        at_once = task.execution.examples_at_once(len(samples)) if self.statistics.divisible else longest
        for piece in padded(samples, at_once, task.execution.device):
            yield as_input(task.inputs[piece.chosen]), task.labels[piece.chosen], piece.mask
