"""General Batch Clipping with layerwise clipping (Nguyen et al. 2023, Eq. 6 and sections 3.2 and 3.3).

A batch of m examples is divided into k = m / s mini-sets of s examples. Each mini-set gives one gradient, and
layer h of it is clipped to C_h. The k clipped gradients are summed, N(0, (2 C_h sigma)^2) is added, and the
sum is divided by k. With s = m this is Batch Clipping (BC, Eq. 3). With s = 1 it is Individual Clipping (IC,
Eq. 2), which is DP-SGD.

A mini-set's gradient depends on its own examples alone, so batch norm may use their statistics. All other
inputs are public. Layerwise bounds C_h are measured on the public examples D_pub at the start of each epoch.
The statistics of batch norm at test time are those of D_pub too, unless they are running averages.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.clipping.clippers import renews_state
from dprepro.clipping.functional import Tensors, fresh_state, functional_call
from dprepro.clipping.gradients import ClippedSum, clipped
from dprepro.clipping.limits import ClipLimits
from dprepro.clipping.normalization import BatchStatistics, initial_statistics, measured, measuring
from dprepro.fields import Isolation
from dprepro.pipeline.methods.augment import Transforms
from dprepro.pipeline.methods.base import State, Task, gradient
from dprepro.pipeline.methods.batch_clipping.settings import RUNNING, BatchClippingSettings
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.samples import Sample, independent_sample, padded

TINY = 1e-12
AVERAGING = 0.1  # share of a step's statistics in running averages
KINDS: dict[type[nn.Module], str] = {
    nn.Conv2d: "conv",
    nn.Linear: "linear",
    BatchStatistics: "norm",
    nn.GroupNorm: "norm",
}


class BatchClipping(PrivateSteps):
    """General Batch Clipping."""

    settings: BatchClippingSettings

    def __init__(self, task: Task, settings: BatchClippingSettings, normalization: str):
        """Take the task, the training's settings and the normalisation of the task's network."""
        super().__init__(task, settings, normalization)
        self.batch_norm = normalization == "batch_bn"
        self.running = RUNNING in self.broken
        self.uniform_count = 3 if self.settings.augment == "crop_flip" else 0
        self.names = list(task.parameters)
        self.views = Transforms(task.public, self.settings.side)
        self.layers = layer_names(task.net, self.names)
        # whether mini-sets are single examples without batch norm, for which there is a fast way
        self.single = self.settings.set_size == 1 and not self.batch_norm

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
        if not self.settings.private or self.single:
            return False
        return renews_state(self.task.net, self.views.plain(self.task.public[:1]))

    @property
    def isolation(self) -> Isolation | None:  # type: ignore[override]
        """Reason why mini-sets don't mix."""
        if self.single or self.mechanism is None or self.broken:
            return super().isolation
        return "one_at_a_time"

    def init(self) -> State:
        """Initial parameters, and running averages of statistics if the settings ask for them."""
        _ = self.resets  # raises for some networks
        running = initial_statistics(self.task.net) if self.running else {}
        return {"parameters": self.task.parameters, "running": running}

    def sample(self, step: int) -> Sample:
        """Mini-sets of a step; a sample of examples if the clipper clips single examples."""
        streams, settings = self.task.streams, self.settings
        if settings.add_or_remove:
            return padded(independent_sample(streams, settings, step, self.examples), streams.device)
        draw = {"fixed": streams.fixed, "replacement": streams.replaced, "shuffled": streams.shuffled}
        chosen = draw[settings.sampling](step, self.examples, settings.batch)
        sets = chosen.unflatten(0, (settings.sets, settings.set_size))
        return Sample(sets[:, 0] if self.single else sets, torch.ones(len(sets), device=sets.device))

    def step(self, state: State, step: int) -> tuple[State, Mapping[str, Tensor]]:
        """Make one step; its metrics describe the private batch and the public examples."""
        if step == 0 or self._epoch(step) > self._epoch(step - 1):
            state = {**state, **self.new_bounds(state, step)}
        bounds = ClipLimits(*(state["bounds"][name] for name in ClipLimits._fields))
        sums, statistics, metrics = self.sums(state, self.sample(step), bounds, step)
        sums = self.released(sums, bounds, step)
        # a public constant, because the true number of mini-sets of a Poisson sample is private
        count, rate = self.settings.sets, self.rate(step)
        parameters = {name: value - rate * sums[name] / count for name, value in state["parameters"].items()}
        running = {
            name: value + AVERAGING * (statistics[name] - value) for name, value in state["running"].items()
        }
        state = {**state, "parameters": parameters, "running": running}
        if self.settings.note_norms:
            columns = zip(self.layers, state["norms"]["layers"], strict=True)
            metrics = {**metrics, **{f"layer_norm/{name}": column for name, column in columns}}
        return state, metrics

    def network(self, model: Tensors, draw: int) -> Tensors:
        """Parameters, and batch norm's statistics: measured on the public examples, or running averages."""
        return model if self.running else self._with_statistics(model)

    def test_inputs(self, stored: Tensor) -> Tensor:
        """Images without augmentation, scaled by public statistics."""
        return self.views.plain(stored)

    def train_inputs(self, stored: Tensor, uniforms: Tensor | None) -> Tensor:
        """Random crops of images by ``uniforms`` (..., 3); as `test_inputs` if ``uniforms`` is None."""
        return self.views.plain(stored) if uniforms is None else self.views.augmented(stored, uniforms)

    def resumable(self, steps_done: int) -> bool:
        """Return False inside a shuffled or allocated epoch: a resumed run would draw its batches anew."""
        if self.settings.sampling != "shuffled":
            return super().resumable(steps_done)
        return steps_done % (self.examples // self.settings.batch) == 0

    def sums(
        self, state: State, sample: Sample, bounds: ClipLimits, step: int
    ) -> tuple[Tensors, Tensors, Mapping[str, Tensor]]:
        """Sums of clipped gradients, mean statistics of the mini-sets, and metrics of the batch."""
        batch = self.clipped_sums(state["parameters"], sample, bounds, step)
        count = batch.mask.sum().clamp_min(1)
        statistics = {name: batch.sums[name] / count for name in state["running"]}
        return {name: batch.sums[name] for name in self.names}, statistics, batch.metrics()

    def new_bounds(self, state: State, step: int) -> State:
        """Clipping bounds in the epoch that begins with ``step``, and `public_norms` if they are computed."""
        norms = self.public_norms(state) if self.settings.layerwise or self.settings.note_norms else None
        clip = torch.inf if self.settings.clipping == "none" else self.settings.clip_at(step, self.steps)
        if not self.settings.layerwise or norms is None:
            bounds = self.bounds(clip)
        else:
            bounds = layer_bounds(None if self.settings.clipping == "zhang" else clip, norms)
        noted = {} if norms is None else {"norms": {"layers": norms}}
        return {"bounds": bounds._asdict(), **noted}

    def public_norms(self, state: State) -> Tensor:
        """(T,) norms e_h of the gradients of T tensors, averaged over the public examples."""
        # the fixed statistics of batch norm come after the parameters
        tensors = self._with_statistics(state["parameters"])
        pieces = (values.split(self.task.execution.physical) for values in self.public)
        norms = [self._norms(tensors, *piece) for piece in zip(*pieces, strict=True)]
        return torch.cat(norms)[:, : len(self.names)].mean(0)

    def _norms(self, tensors: Tensors, inputs: Tensor, labels: Tensor) -> Tensor:
        """(P, T) norms of the gradients of P examples before clipping, one norm per tensor."""
        # each tensor is a separate part
        ones = next(iter(tensors.values())).new_ones(len(tensors))
        separate = ClipLimits(ones.diag(), ones)
        return self.of_examples(tensors, inputs, labels, torch.ones_like(labels).float(), separate).norms

    def _epoch(self, step: int) -> int:
        return self.settings.epoch_at(step, self.steps)

    def _with_statistics(self, parameters: Tensors) -> Tensors:
        """Parameters, and batch norm's statistics on the public examples for these parameters."""
        if not self.batch_norm:
            return parameters
        return {**parameters, **measured(self.task.net, parameters, self.public[0])}

    def _of_mini_sets(
        self,
        resets: bool,
        parameters: Tensors,
        inputs: Tensor,
        labels: Tensor,
        mask: Tensor,
        bounds: ClipLimits,
    ) -> ClippedSum:
        """Clipped sum over K mini-sets, and the sums of the mini-sets' statistics.

        ``inputs`` (K, S, ...) and ``labels`` (K, S) are of K sets of S examples; sets whose ``mask`` (K,) is
        0 add nothing. ``resets`` is as in `mini_set_gradient`.
        """
        of_set = partial(mini_set_gradient, self.task.net, parameters, resets)
        gradients, measures = zip(*map(of_set, inputs, labels), strict=True)
        losses, statistics = zip(*measures, strict=True)
        values = {name: torch.stack([each[name] for each in gradients]) for name in parameters}
        clipped_sets = clipped(values, torch.stack(losses), mask, bounds)
        summed = {
            name: (torch.stack([each[name] for each in statistics]) * mask[:, None]).sum(0)
            for name in statistics[0]
        }
        return clipped_sets._replace(sums={**clipped_sets.sums, **summed})


def mini_set_gradient(
    net: nn.Module, parameters: Tensors, resets: bool, inputs: Tensor, labels: Tensor
) -> tuple[Tensors, tuple[Tensor, Tensors]]:
    """Gradient of one mini-set of S examples, normalised by the mini-set's own batch statistics.

    Args:
        net: the network.
        parameters: its parameters.
        resets: whether the network's state is renewed first, and the changed state discarded.
        inputs: (S, ...).
        labels: (S,).

    Returns:
        Gradient g(w; S) before clipping in the shapes of the parameters; mean loss () of the examples, and
        statistics of the batch-norm layers.
    """

    def loss(tensors: Tensors, inputs: Tensor) -> tuple[Tensor, tuple[Tensor, Tensors]]:
        renewed = fresh_state(net) if resets else nullcontext()
        # copies, as in `OneByOne`: a network may change its weights in place
        copies = {name: value.clone() for name, value in tensors.items()}
        with renewed, measuring(net) as statistics:
            mean = F.cross_entropy(functional_call(net, copies, (inputs,)), labels)
        return mean, (mean, statistics)

    return gradient(loss, net, parameters, inputs)


def layer_bounds(clip: float | None, norms: Tensor) -> ClipLimits:
    """Bounds of T trained tensors, each clipped as a layer (sections 3.2 and 3.3).

    Args:
        clip: master clipping constant C of adaptive layerwise clipping, which clips a layer to C e_h / max e;
            None: layers are clipped to e_h (Zhang et al.).
        norms: (T,) e_h, measured on public examples alone, so the bounds are public.
    """
    limits = norms if clip is None else clip * norms / norms.amax().clamp_min(TINY)
    return ClipLimits(torch.eye(len(norms), device=norms.device), limits)


def layer_names(net: nn.Module, tensors: list[str]) -> list[str]:
    """Names of ``tensors``, each with the kind of its module, such as 'conv/0.weight'."""
    modules = dict(net.named_modules())
    owners = [name.rpartition(".")[0] for name in tensors]
    kinds = [
        "shortcut" if "shortcut" in owner else KINDS.get(type(modules[owner]), "other") for owner in owners
    ]
    return [f"{kind}/{name}" for kind, name in zip(kinds, tensors, strict=True)]
