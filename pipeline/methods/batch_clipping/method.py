"""General Batch Clipping with layerwise clipping (Nguyen et al. 2023, Eq. 6 and sections 3.2, 3.3, B.2).

A batch of m examples is cut into k = m / s mini-sets. Each mini-set gives one gradient, whose layers are
clipped each to its own C_h; the k clipped gradients are summed, N(0, (2 C_h sigma)^2) is added, and the sum
is divided by k. s = m is Batch Clipping (BC, Eq. 3), s = 1 is Individual Clipping (IC, Eq. 2): DP-SGD.

Because a mini-set's gradient depends on its own examples alone, batch norm may take its statistics from them.
What else is looked at is public: C_h from D_pub at the start of each epoch, and batch norm at test.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from pipeline.methods.base import State, Task, each, over_replicas
from pipeline.methods.batch_clipping import layer_bounds, mini_sets, sparsify
from pipeline.methods.batch_clipping.settings import BatchClippingSettings
from pipeline.methods.private_steps import PrivateSteps
from pipeline.methods.samples import Sample
from pipeline.methods.transforms import Transforms
from pipeline.models.normalization import initial_statistics, measured
from pipeline.privacy.clippers import Trial, refuse_memory
from pipeline.privacy.gradients import Bounds, ClippedSum, Tensors, clipped
from pipeline.privacy.sampled_gaussian import SampledGaussian, relation_of, sensitivity
from pipeline.privacy.statements import statement

RUNNING = statement("running_averages")


class BatchClipping(PrivateSteps):
    """GBC over R replicas that share everything but noise, clipping constant and step size."""

    settings: tuple[BatchClippingSettings, ...]
    first: BatchClippingSettings

    def __init__(self, task: Task, settings: Sequence[BatchClippingSettings], normalization: str):
        """One of ``settings`` a replica, in the task's order."""
        super().__init__(task, settings, normalization)
        self.batch_norm = normalization == "batch_bn"
        self.running = self.batch_norm and self.first.statistics == "running"
        self.broken = (RUNNING,) if self.running else ()
        self.draws = 3 if self.first.augment == "crop_flip" else 0
        self.names = list(task.parameters)
        self.views = Transforms(task.public, self.first.side)
        self.layers = layer_bounds.layers_of(task.net, self.names, self.first.layers)
        self.members = self.layers.members.to(task.execution.device)
        self.averaging = task.numbers(setting.averaging for setting in settings)
        # whether mini-sets are examples that can be taken the fast way, which knows no batch of one's own
        self.single = self.first.set_size == 1 and not self.batch_norm and not self.first.sparsify

    @cached_property
    def public(self) -> tuple[Tensor, Tensor]:
        """D_pub as the network sees it at test, and its labels."""
        count = self.first.public_examples or len(self.task.public)
        return self.views.plain(self.task.public[:count]), self.task.public_labels[:count]

    @property
    def distance(self) -> float:
        """How far neighbouring data sets move the sum, over the clipping bound."""
        return sensitivity(relation_of(self.first.sampling), shared=self.first.set_size > 1)

    def spending(self, settings: BatchClippingSettings) -> SampledGaussian:
        """What a replica with these settings spends: L parts, each with noise of 2 C_h sigma."""
        parts = layer_bounds.parts_of(settings, len(self.layers.names))
        return SampledGaussian(
            sampling=settings.sampling,
            noise_multiplier=2 * settings.sigma / (self.distance * parts**0.5),
            examples=self.examples,
            batch=settings.batch,
            sets=settings.sets,
        )

    def claimed_by(self, settings: BatchClippingSettings) -> str:
        """The paper's central limit theorem (Section B.1)."""
        return "clt"

    @property
    def clipper(self) -> Callable[..., ClippedSum]:
        """Of mini-sets of one example as in DP-SGD; of others by their own mean gradients."""
        return self.of_examples if self.single else self._of_mini_sets

    def init(self) -> State:
        """Initial parameters; running averages and what sparsification follows, where there are such."""
        if self.first.private and not self.single:
            # the examples of a set may see each other; but the sets of a Poisson sample are padded to the
            # longest, and a network that mixes by itself would see by how much
            refuse = Trial.of if self.first.sampling == "poisson" else refuse_memory
            refuse(self.task.net, self.views.plain(self.task.public[:1]))
        parameters, replicas = self.task.parameters, self.task.replicas
        running = initial_statistics(self.task.net) if self.running else {}
        return {
            "parameters": parameters,
            "running": {name: value.expand(replicas, -1) for name, value in running.items()},
            **(sparsify.begin(parameters) if self.first.sparsify else {}),
        }

    def sample(self, step: int) -> Sample:
        """The mini-sets of a step; those of one example as a sample of examples."""
        sets = mini_sets.draw_mini_sets(self.task.streams, self.first, step, self.examples)
        return Sample(sets.chosen[..., 0], sets.mask[..., 0]) if self.single else sets

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """One round of every replica; metrics are of its private batch, and of D_pub."""
        rates = self.rates(step)
        if step == 0 or self._epoch(step) > self._epoch(step - 1):
            state = {**state, **self.new_bounds(state, rates, step)}
        bounds = Bounds(*(state["bounds"][name] for name in Bounds._fields))
        sums, statistics, metrics = self.sums(state, self.sample(step), bounds, step)
        shares = state["bounds"]["shares"]
        sums = self.released(sums, bounds, step, shares)
        # a public constant: how many mini-sets a Poisson sample really made is private
        count = self.first.sets
        parameters = {
            name: value - each(value, rates) * self._trained(state, name, sums[name]) / count
            for name, value in state["parameters"].items()
        }
        running = {
            name: value + each(value, self.averaging) * (statistics[name] - value)
            for name, value in state["running"].items()
        }
        state = {**state, "parameters": parameters, "running": running}
        if self.first.sparsify:
            noise = torch.zeros_like(bounds.weights)
            if self.mechanism is not None:
                noise = self.mechanism.deviations(bounds, shares) * rates[:, None] / count
            window_ends = (step + 1) % self.first.sparsify == 0
            state = sparsify.follow(state, noise, self.first.sparsify, window_ends)
        if self.first.note_norms:
            columns = zip(self.layers.names, state["norms"]["layers"].T, strict=True)
            metrics |= {f"layer_norm/{name}": column for name, column in columns}
        return state, metrics

    def network(self, model: Tensors, draw: int) -> Tensors:
        """The parameters, and the statistics of batch norm: D_pub's, or the running averages."""
        return model if self.running else self._with_statistics(model)

    def test_inputs(self, stored: Tensor) -> Tensor:
        """Images as they are, without augmentation, scaled by public statistics."""
        return self.views.plain(stored)

    def train_inputs(self, stored: Tensor, draws: Tensor | None) -> Tensor:
        """Images as at test, or random crops of them by ``draws`` (..., 3)."""
        return self.views.plain(stored) if draws is None else self.views.augmented(stored, draws)

    def augmentation(self, chosen: Tensor, step: int) -> Tensor:
        """As of any method; of Poisson mini-sets by the place in a set before the set.

        How long the longest set is depends on which replicas are trained together.
        """
        if self.first.sampling != "poisson" or self.single:
            return super().augmentation(chosen, step)
        return super().augmentation(chosen.transpose(1, 2), step).transpose(1, 2)

    def resumable(self, steps_done: int) -> bool:
        """Not inside a shuffled order: a resumed run draws a new one, and would take examples twice."""
        return self.first.sampling != "shuffled" or steps_done % (self.examples // self.first.batch) == 0

    def sums(
        self, state: State, sample: Sample, bounds: Bounds, step: int
    ) -> tuple[Tensors, Tensors, Tensors]:
        """Sums of clipped gradients, mean statistics of the mini-sets, and metrics of the batch."""
        clipper_arguments = () if self.single else (self.rates(step), state.get("active", {}))
        batch = self.clipped_sums(state["parameters"], sample, bounds, step, *clipper_arguments)
        count = batch.mask.sum(1).clamp_min(1)
        statistics = {name: batch.sums[name] / each(batch.sums[name], count) for name in state["running"]}
        return {name: batch.sums[name] for name in self.names}, statistics, batch.metrics()

    def new_bounds(self, state: State, rates: Tensor, step: int) -> State:
        """What each layer is clipped to in the epoch that begins with ``step``, and the norms behind it."""
        norms = self.public_norms(state, rates) if layer_bounds.needs_norms(self.first) else None
        all_bounds = []
        for replica, setting in enumerate(self.settings):
            clip = setting.clip_at(step, self.steps) if setting.clipping != "none" else torch.inf
            entries = [
                self._trained(state, name, torch.ones_like(value))[replica].sum()
                for name, value in state["parameters"].items()
            ]
            bounds, shares = layer_bounds.bounds(
                setting,
                self.members.new_tensor(clip),
                self.members,
                None if norms is None else norms[replica],
                torch.stack(entries),
            )
            all_bounds.append({**bounds._asdict(), "shares": shares})
        state = {
            "bounds": {name: torch.stack([bounds[name] for bounds in all_bounds]) for name in all_bounds[0]}
        }
        if norms is not None:
            layers = [layer_bounds.expected_norms(replica_norms, self.members) for replica_norms in norms]
            state["norms"] = {"layers": torch.stack(layers)}
        return state

    def public_norms(self, state: State, rates: Tensor) -> Tensor:
        """(R, P, T) norms of each tensor of the gradients of D_pub's examples, or of its mini-sets."""
        execution = self.task.execution
        inputs, labels = self.public
        tensors, size, replica_norms = state["parameters"], 1, partial(self._norms, self._of_mini_sets)
        arguments: tuple[Any, ...] = (rates, state.get("active", {}))
        if self.first.norms == "mini_set":
            size = min(self.first.set_size, len(labels))
            count = len(labels) // size
            inputs = inputs[: count * size].unflatten(0, (count, size))
            labels = labels[: count * size].reshape(count, size)
        else:
            # statistics, which are held fixed here, come behind the parameters
            tensors, arguments = self._with_statistics(tensors), ()
            # made out here, as networks are not tried under `vmap`
            replica_norms = partial(self._norms, self.of_examples)
        at_once = max(1, execution.examples_at_once(self.task.replicas) // size)
        norms = [
            over_replicas(partial(replica_norms, *piece), execution)(tensors, *arguments)
            for piece in zip(inputs.split(at_once), labels.split(at_once), strict=True)
        ]
        return torch.cat(norms, 1)[..., : len(self.names)]

    @staticmethod
    def _norms(
        clipper: Callable[..., ClippedSum], inputs: Tensor, labels: Tensor, tensors: Tensors, *arguments: Any
    ) -> Tensor:
        """(P, T) unclipped norms of each tensor of one replica's gradients of P examples or mini-sets."""
        # each tensor a part of its own
        ones = next(iter(tensors.values())).new_ones(len(tensors))
        separate = Bounds(ones.diag(), ones, ones)
        return clipper(tensors, inputs, labels, torch.ones_like(labels).float(), separate, *arguments).norms

    def _epoch(self, step: int) -> int:
        return self.first.epoch_at(step, self.steps)

    def _trained(self, state: State, name: str, value: Tensor) -> Tensor:
        """``value`` where the entries of a tensor are still trained, else 0."""
        return value * state["active"][name] if self.first.sparsify else value

    def _with_statistics(self, parameters: Tensors) -> Tensors:
        """The parameters, and the statistics that batch norm has on D_pub with them."""
        if not self.batch_norm:
            return parameters
        measure = partial(measured, self.task.net)
        # one replica at a time: D_pub is large, and can't be divided
        sequential = replace(self.task.execution, replicas_at_once=1)
        return {**parameters, **over_replicas(measure, sequential, shared=1)(parameters, self.public[0])}

    def _of_mini_sets(
        self,
        parameters: Tensors,
        inputs: Tensor,
        labels: Tensor,
        mask: Tensor,
        bounds: Bounds,
        rate: Tensor,
        active: Tensors,
    ) -> ClippedSum:
        """Clipped sum over K mini-sets of one replica, and beside it the sums of their statistics.

        Inputs are (K, S, ...), labels and mask (K, S); ``rate`` () is the step size inside a mini-set, and
        ``active`` 1 for the entries of parameters that are still trained, empty where all are.
        """
        execution = self.task.execution
        gradient = partial(mini_sets.gradient, self.task.net, self.first, execution)
        # `over_replicas` takes the mini-sets of a replica one by one or together, as it does replicas
        set_gradients = over_replicas(gradient, execution, shared=2)(inputs, labels, mask, parameters, rate)
        values = {
            name: value * active[name] if active else value for name, value in set_gradients.values.items()
        }
        present = (mask.sum(1) > 0).float()
        clipped_sets = clipped(values, set_gradients.loss, present, bounds)
        statistics = {
            name: (value * present[:, None]).sum(0) for name, value in set_gradients.statistics.items()
        }
        return clipped_sets._replace(sums={**clipped_sets.sums, **statistics})
