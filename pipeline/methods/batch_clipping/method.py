"""General Batch Clipping with layerwise clipping (Nguyen et al. 2023, Eq. 6 and sections 3.2 and 3.3).

A batch of m examples is divided into k = m / s mini-sets of s examples. Each mini-set gives one gradient, and
layer h of it is clipped to C_h. The k clipped gradients are summed, N(0, (2 C_h sigma)^2) is added, and the
sum is divided by k. With s = m this is Batch Clipping (BC, Eq. 3). With s = 1 it is Individual Clipping (IC,
Eq. 2), which is DP-SGD.

A mini-set's gradient depends on its own examples alone, so batch norm may use their statistics. All other
inputs are public. Layerwise bounds C_h are measured on the public examples D_pub at the start of each epoch.
The statistics of batch norm at test time are those of D_pub too, unless they are running averages.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from dprepro.clipping.clippers import Trial, renews_state
from dprepro.clipping.gradients import Bounds, ClippedSum, Clipper, Tensors, clipped
from dprepro.clipping.normalization import BatchStatistics, initial_statistics, measured
from dprepro.fields import Isolation
from dprepro.pipeline.methods.augment import Transforms
from dprepro.pipeline.methods.base import State, Task, over_replicas, per_replica
from dprepro.pipeline.methods.batch_clipping import mini_sets
from dprepro.pipeline.methods.batch_clipping.settings import RUNNING, BatchClippingSettings
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.samples import Sample
from dprepro.pipeline.methods.statements import Statement

TINY = 1e-12
KINDS: dict[type[nn.Module], str] = {
    nn.Conv2d: "conv",
    nn.Linear: "linear",
    BatchStatistics: "norm",
    nn.GroupNorm: "norm",
}


class BatchClipping(PrivateSteps):
    """General Batch Clipping over R replicas; noise, clipping constants and learning rates may differ."""

    settings: tuple[BatchClippingSettings, ...]
    first: BatchClippingSettings

    def __init__(self, task: Task, settings: Sequence[BatchClippingSettings], normalization: str):
        """``settings`` has one entry per replica, in the task's order."""
        super().__init__(task, settings, normalization)
        self.batch_norm = normalization == "batch_bn"
        self.running = RUNNING in self.broken
        self.draws = 3 if self.first.augment == "crop_flip" else 0
        self.names = list(task.parameters)
        self.views = Transforms(task.public, self.first.side)
        self.layers = layer_names(task.net, self.names)
        self.averaging = task.numbers(setting.averaging for setting in settings)
        # whether mini-sets are single examples without batch norm, for which there is a fast way
        self.single = self.first.set_size == 1 and not self.batch_norm

    @cached_property
    def public(self) -> tuple[Tensor, Tensor]:
        """Network inputs of the public examples D_pub without augmentation, and their labels."""
        return self.views.plain(self.task.public), self.task.public_labels

    @property
    def clipper(self) -> Callable[..., ClippedSum]:
        """Clipper of single examples, as in DP-SGD, or of the mean gradients of mini-sets."""
        return self.of_examples if self.single else partial(self._of_mini_sets, self.resets)

    @cached_property
    def resets(self) -> bool:
        """Return whether the network's state is renewed before each mini-set.

        Raises:
            UserError: the network keeps state of a mini-set that can't be renewed.
        """
        if not self.first.private or self.single:
            return False
        return renews_state(self.task.net, self.views.plain(self.task.public[:1]))

    @property
    def isolation(self) -> Isolation | None:  # type: ignore[override]
        """Reason why mini-sets don't mix; 'tried' if only tests show that padding has no effect on a set."""
        if self.single or self.mechanism is None or self.broken:
            return super().isolation
        if self.first.add_or_remove:
            return "tried"
        return "one_at_a_time" if self.task.execution.replicas_at_once == 1 else "by_construction"

    @property
    def unproven(self) -> tuple[Statement, ...]:
        """Statement of `PrivateSteps.unproven` if mini-sets are single examples; otherwise empty."""
        return super().unproven if self.single else ()

    def init(self) -> State:
        """Initial parameters, and running averages of statistics if the settings ask for them."""
        if self.first.private and not self.single:
            # examples of a set may mix. But sets of random size are padded to the longest set, and in a
            # network that mixes examples, the padding would have an effect
            if self.first.add_or_remove:
                Trial.of(self.task.net, self.views.plain(self.task.public[:1]))
            _ = self.resets  # raises for some networks
        parameters, replicas = self.task.parameters, self.task.replicas
        running = initial_statistics(self.task.net) if self.running else {}
        return {
            "parameters": parameters,
            "running": {name: value.expand(replicas, -1) for name, value in running.items()},
        }

    def sample(self, step: int) -> Sample:
        """Mini-sets of a step; a sample of examples if the clipper clips single examples."""
        sets = mini_sets.draw_mini_sets(self.task.streams, self.first, step, self.examples)
        return Sample(sets.chosen[..., 0], sets.mask[..., 0]) if self.single else sets

    def step(self, state: State, step: int) -> tuple[State, Mapping[str, Tensor]]:
        """Make one step of every replica; its metrics describe the private batch and the public examples."""
        rates = self.rates(step)
        if step == 0 or self._epoch(step) > self._epoch(step - 1):
            state = {**state, **self.new_bounds(state, step)}
        bounds = Bounds(*(state["bounds"][name] for name in Bounds._fields))
        sums, statistics, metrics = self.sums(state, self.sample(step), bounds, step)
        sums = self.released(sums, bounds, step)
        # a public constant, because the true number of mini-sets of a Poisson sample is private
        count = self.first.sets
        parameters = {
            name: value - per_replica(value, rates) * sums[name] / count
            for name, value in state["parameters"].items()
        }
        running = {
            name: value + per_replica(value, self.averaging) * (statistics[name] - value)
            for name, value in state["running"].items()
        }
        state = {**state, "parameters": parameters, "running": running}
        if self.first.note_norms:
            columns = zip(self.layers, state["norms"]["layers"].T, strict=True)
            metrics = {**metrics, **{f"layer_norm/{name}": column for name, column in columns}}
        return state, metrics

    def network(self, model: Tensors, draw: int) -> Tensors:
        """Parameters, and batch norm's statistics: measured on the public examples, or running averages."""
        return model if self.running else self._with_statistics(model)

    def test_inputs(self, stored: Tensor) -> Tensor:
        """Images without augmentation, scaled by public statistics."""
        return self.views.plain(stored)

    def train_inputs(self, stored: Tensor, draws: Tensor | None) -> Tensor:
        """Random crops of images by ``draws`` (..., 3); as `test_inputs` if ``draws`` is None."""
        return self.views.plain(stored) if draws is None else self.views.augmented(stored, draws)

    def augmentation(self, chosen: Tensor, step: int) -> Tensor:
        """Uniform random numbers for the augmentation, in an order that doesn't depend on padding.

        For mini-sets of random size, the numbers are drawn for the first example of every set, then for the
        second of every set, and so on. The length of the longest set depends on the replicas that are trained
        together, and must not change the numbers.
        """
        if not self.first.add_or_remove or self.single:
            return super().augmentation(chosen, step)
        return super().augmentation(chosen.transpose(1, 2), step).transpose(1, 2)

    def resumable(self, steps_done: int) -> bool:
        """Return False inside a shuffled or allocated epoch: a resumed run would draw its batches anew."""
        if self.first.sampling != "shuffled":
            return super().resumable(steps_done)
        return steps_done % (self.examples // self.first.batch) == 0

    def sums(
        self, state: State, sample: Sample, bounds: Bounds, step: int
    ) -> tuple[Tensors, Tensors, Mapping[str, Tensor]]:
        """Sums of clipped gradients, mean statistics of the mini-sets, and metrics of the batch."""
        batch = self.clipped_sums(state["parameters"], sample, bounds, step)
        count = batch.mask.sum(1).clamp_min(1)
        statistics = {
            name: batch.sums[name] / per_replica(batch.sums[name], count) for name in state["running"]
        }
        return {name: batch.sums[name] for name in self.names}, statistics, batch.metrics()

    def new_bounds(self, state: State, step: int) -> State:
        """Clipping bounds in the epoch that begins with ``step``, and `public_norms` if they are computed."""
        norms = self.public_norms(state) if self.first.layerwise or self.first.note_norms else None
        clips = self.task.numbers(
            torch.inf if setting.clipping == "none" else setting.clip_at(step, self.steps)
            for setting in self.settings
        )
        if not self.first.layerwise or norms is None:
            bounds = self.bounds(clips)
        else:
            bounds = layer_bounds(None if self.first.clipping == "zhang" else clips, norms)
        noted = {} if norms is None else {"norms": {"layers": norms}}
        return {"bounds": bounds._asdict(), **noted}

    def public_norms(self, state: State) -> Tensor:
        """(R, T) norms e_h of the gradients of R replicas' T tensors, averaged over the public examples."""
        execution = self.task.execution
        # the fixed statistics of batch norm come after the parameters
        tensors = self._with_statistics(state["parameters"])
        # clipper made outside `over_replicas`, because its tests of the network can't run under `vmap`
        replica_norms = partial(self._norms, self.of_examples)
        pieces = (values.split(execution.examples_at_once(self.task.replicas)) for values in self.public)
        norms = [
            over_replicas(partial(replica_norms, *piece), execution)(tensors)
            for piece in zip(*pieces, strict=True)
        ]
        return torch.cat(norms, 1)[..., : len(self.names)].mean(1)

    @staticmethod
    def _norms(clipper: Clipper, inputs: Tensor, labels: Tensor, tensors: Tensors) -> Tensor:
        """(P, T) norms of the gradients of P examples before clipping, one norm per tensor."""
        # each tensor is a separate part
        ones = next(iter(tensors.values())).new_ones(len(tensors))
        separate = Bounds(ones.diag(), ones, ones)
        return clipper(tensors, inputs, labels, torch.ones_like(labels).float(), separate).norms

    def _epoch(self, step: int) -> int:
        return self.first.epoch_at(step, self.steps)

    def _with_statistics(self, parameters: Tensors) -> Tensors:
        """Parameters, and batch norm's statistics on the public examples for these parameters."""
        if not self.batch_norm:
            return parameters
        measure = partial(measured, self.task.net)
        # one replica at a time, because D_pub is large and can't be divided
        sequential = replace(self.task.execution, replicas_at_once=1)
        return {**parameters, **over_replicas(measure, sequential, shared=1)(parameters, self.public[0])}

    def _of_mini_sets(
        self,
        resets: bool,
        parameters: Tensors,
        inputs: Tensor,
        labels: Tensor,
        mask: Tensor,
        bounds: Bounds,
    ) -> ClippedSum:
        """Clipped sum over K mini-sets of one replica, and the sums of the mini-sets' statistics.

        ``inputs`` (K, S, ...), ``labels`` (K, S) and ``mask`` (K, S) are of K sets of S examples; mask 0
        marks padding. ``resets`` is as in `mini_sets.gradient`.
        """
        execution = self.task.execution
        gradient = partial(mini_sets.gradient, self.task.net, execution, resets)
        # `over_replicas` also maps over the mini-sets of a replica, one by one or together
        set_gradients = over_replicas(gradient, execution, shared=1)(inputs, labels, mask, parameters)
        present = (mask.sum(1) > 0).float()
        clipped_sets = clipped(set_gradients.values, set_gradients.loss, present, bounds)
        statistics = {
            name: (value * present[:, None]).sum(0) for name, value in set_gradients.statistics.items()
        }
        return clipped_sets._replace(sums={**clipped_sets.sums, **statistics})


def layer_bounds(clips: Tensor | None, norms: Tensor) -> Bounds:
    """Bounds (R, ...) of R replicas' T trained tensors, each clipped as a layer (sections 3.2 and 3.3).

    Args:
        clips: (R,) master clipping constants C of adaptive layerwise clipping, which clips a layer to C e_h /
            max e; None: layers are clipped to e_h (Zhang et al.).
        norms: (R, T) e_h, measured on public examples alone, so the bounds are public.
    """
    limits = norms
    if clips is not None:
        limits = clips[:, None] * norms / norms.amax(1, keepdim=True).clamp_min(TINY)
    members = torch.eye(norms.shape[1], device=norms.device)
    return Bounds(members.expand(len(norms), -1, -1), limits, torch.ones_like(norms))


def layer_names(net: nn.Module, tensors: list[str]) -> list[str]:
    """Names of ``tensors``, each with the kind of its module, such as 'conv/0.weight'."""
    modules = dict(net.named_modules())
    owners = [name.rpartition(".")[0] for name in tensors]
    kinds = [
        "shortcut" if "shortcut" in owner else KINDS.get(type(modules[owner]), "other") for owner in owners
    ]
    return [f"{kind}/{name}" for kind, name in zip(kinds, tensors, strict=True)]
