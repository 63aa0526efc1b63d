"""General Batch Clipping with layerwise clipping (Nguyen et al. 2023, Eq. 6 and sections 3.2, 3.3, B.2).

A batch of m examples is cut into k = m / s mini-sets. Each mini-set gives one gradient, whose layers are
clipped each to its own C_h; the k clipped gradients are summed, N(0, (2 C_h sigma)^2) is added, and the sum
is divided by k. s = m is Batch Clipping (BC, Eq. 3), s = 1 is Individual Clipping (IC, Eq. 2): DP-SGD.

Because a mini-set's gradient depends on its own examples alone, batch norm may take its statistics from them.
What else is looked at is public: C_h from D_pub at the start of each epoch, and batch norm at test.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from pipeline.methods.base import CURVES, Guarantee, Predict, State, Task, each, over_replicas
from pipeline.methods.batch_clipping import layer_bounds, mini_sets, sparsify
from pipeline.methods.batch_clipping.mini_sets import MiniSets
from pipeline.methods.batch_clipping.settings import BatchClippingSettings
from pipeline.methods.transforms import Transforms
from pipeline.models.functional import functional_call
from pipeline.models.normalization import initial_statistics, measured
from pipeline.privacy.clippers import Trial, way_for
from pipeline.privacy.gradients import Bounds, ClippedSum, Clipper, Tensors, clipped
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.spending import Spending, relation_of, sensitivity
from pipeline.privacy.statements import statement

PLAIN = statement("no_noise")
RUNNING = statement("running_averages")


class BatchClipping:
    """GBC over R replicas that share everything but noise, clipping constant and step size."""

    test_draws = 1
    noise_drawn_once = False

    def __init__(self, task: Task, settings: Sequence[BatchClippingSettings], normalization: str):
        """One of ``settings`` a replica, in the task's order."""
        self.task = task
        self.settings = tuple(settings)
        self.first = settings[0]
        self.examples = len(task.labels)
        self.steps = self.first.total_steps(self.examples)
        self.batch_norm = normalization == "batch_bn"
        self.running = self.batch_norm and self.first.statistics == "running"
        self.names = list(task.parameters)
        self.views = Transforms(task.public, self.first.side)
        self.layers = layer_bounds.layers_of(task.net, self.names, self.first.layers)
        self.members = self.layers.members.to(task.execution.device)
        self.shares = task.numbers(own.averaging for own in settings)
        # whether mini-sets are examples that can be taken the fast way, which knows no batch of one's own
        self.single = self.first.set_size == 1 and not self.batch_norm and not self.first.sparsify
        self.distance = sensitivity(relation_of(self.first.sampling), shared=self.first.set_size > 1)

    @cached_property
    def public(self) -> tuple[Tensor, Tensor]:
        """D_pub as the network sees it at test, and its labels."""
        count = self.first.public_examples or len(self.task.public)
        return self.views.plain(self.task.public[:count]), self.task.public_labels[:count]

    @cached_property
    def mechanism(self) -> GaussianMechanism | None:
        """Noise at sigma in the paper's terms; None where there is none."""
        if not self.first.private:
            return None
        parts = layer_bounds.parts_of(self.first, len(self.layers.names))
        spendings = [
            Spending(
                sampling=own.sampling,
                noise_multiplier=2 * own.sigma / (self.distance * parts**0.5),
                examples=self.examples,
                batch=own.batch,
                sets=own.sets,
            )
            for own in self.settings
        ]
        return GaussianMechanism(tuple(spendings), self.distance)

    @cached_property
    def clipper(self) -> Clipper:
        """Clipped sums of single examples' gradients, where those don't see each other."""
        example = self.views.plain(self.task.public[:1])
        how = self.task.execution
        return way_for(self.task.net, example, reference=how.reference, alone=how.alone)(self.task.net)

    def init(self) -> State:
        """Initial parameters; running averages and what sparsification follows, where there are such."""
        if self.first.private and self.first.sampling == "poisson" and not self.single:
            # sets are padded to the longest: a network that mixes by itself would see by how much
            Trial.of(self.task.net, self.views.plain(self.task.public[:1]))
        parameters, replicas = self.task.parameters, self.task.replicas
        running = initial_statistics(self.task.net) if self.running else {}
        return {
            "parameters": parameters,
            "running": {name: value.expand(replicas, -1) for name, value in running.items()},
            **(sparsify.begin(parameters) if self.first.sparsify else {}),
        }

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """One round of every replica; metrics are of its private batch, and of D_pub."""
        rates = self.task.numbers(own.rate_at(step, self.steps) for own in self.settings)
        if step == 0 or self._epoch(step) > self._epoch(step - 1):
            state = {**state, **self.new_bounds(state, rates, step)}
        bounds = Bounds(*(state["bounds"][name] for name in Bounds._fields))
        sets = mini_sets.drawn(self.task.streams, self.first, step, self.examples)
        sums, statistics, metrics = self.clipped_sums(state, sets, bounds, rates, step)
        shares = state["bounds"]["shares"]
        if self.mechanism is not None:
            sums = self.mechanism.release(sums, bounds, self.task.streams, step, shares)
        # a public constant: how many mini-sets a Poisson sample really made is private
        count = self.first.sets
        parameters = {
            name: value - each(value, rates) * self._trained(state, name, sums[name]) / count
            for name, value in state["parameters"].items()
        }
        running = {
            name: value + each(value, self.shares) * (statistics[name] - value)
            for name, value in state["running"].items()
        }
        state = {**state, "parameters": parameters, "running": running}
        if self.first.sparsify:
            noise = torch.zeros_like(bounds.weights)
            if self.mechanism is not None:
                noise = self.mechanism.deviations(bounds, shares) * rates[:, None] / count
            state = sparsify.follow(
                state, noise, self.first.sparsify, ends=(step + 1) % self.first.sparsify == 0
            )
        if self.first.note_norms:
            metrics |= {
                f"layer_norm/{name}": column
                for name, column in zip(self.layers.names, state["norms"]["layers"].T, strict=True)
            }
        return state, metrics

    def model(self, state: State) -> Tensors:
        """The parameters, and the running averages where they are kept."""
        return {**state["parameters"], **state["running"]}

    def network(self, model: Tensors, draw: int) -> Tensors:
        """The parameters, and the statistics of batch norm: D_pub's, or the running averages."""
        return model if self.running else self._with_statistics(model)

    def predict(self, network: Tensors, inputs: Tensor) -> Tensor:
        """(R, B) classes of images as they are, without augmentation."""

        def logits(own: Tensors, seen: Tensor) -> Tensor:
            return functional_call(self.task.net, own, (seen,))

        found = over_replicas(logits, self.task.execution, shared=1)(network, self.views.plain(inputs))
        return found.argmax(-1)

    def variants(self, model: Tensors) -> dict[str, Predict]:
        """None."""
        return {}

    def resumable(self, done: int) -> bool:
        """Not inside a shuffled order: a resumed run draws a new one, and would take examples twice."""
        return self.first.sampling != "shuffled" or done % (self.examples // self.first.batch) == 0

    def guarantee(self, replica: int) -> Guarantee:
        """What a replica's rounds spend."""
        if self.mechanism is None:
            return Guarantee(None, None, None, broken=(PLAIN,))
        return Guarantee(
            spending=self.mechanism.spendings[replica],
            delta=self.settings[replica].delta,
            claimed_by="clt",
            broken=(RUNNING,) if self.running else (),
            not_covered=(CURVES,),
        )

    def _epoch(self, step: int) -> int:
        return self.first.epoch_at(step, self.steps)

    def _trained(self, state: State, name: str, value: Tensor) -> Tensor:
        """``value`` where the entries of a tensor are still trained, else 0."""
        return value * state["active"][name] if self.first.sparsify else value

    def new_bounds(self, state: State, rates: Tensor, step: int) -> State:
        """What each layer is clipped to in the epoch that begins with ``step``, and the norms behind it."""
        parameters = state["parameters"]
        norms = self.public_norms(state, rates) if layer_bounds.needs_norms(self.first) else None
        found = []
        for replica, own in enumerate(self.settings):
            clip = own.clip_at(step, self.steps) if own.clipping != "none" else torch.inf
            entries = [
                self._trained(state, name, torch.ones_like(value))[replica].sum()
                for name, value in parameters.items()
            ]
            bounds, shares = layer_bounds.bounds(
                own,
                self.members.new_tensor(clip),
                self.members,
                None if norms is None else norms[replica],
                torch.stack(entries),
            )
            found.append({**bounds._asdict(), "shares": shares})
        state = {"bounds": {name: torch.stack([own[name] for own in found]) for name in found[0]}}
        if norms is not None:
            state["norms"] = {
                "layers": torch.stack([layer_bounds.expected(own, self.members) for own in norms])
            }
        return state

    def public_norms(self, state: State, rates: Tensor) -> Tensor:
        """(R, P, T) norms of each tensor of the gradients of D_pub's examples, or of its mini-sets."""
        inputs, labels = self.public
        parameters, replicas = state["parameters"], self.task.replicas
        norms = []
        if self.first.norms == "mini_set":
            size = min(self.first.set_size, len(labels))
            count = len(labels) // size
            inputs = (
                inputs[: count * size]
                .unflatten(0, (count, size))
                .expand(replicas, *(-1,) * (inputs.dim() + 1))
            )
            labels = labels[: count * size].reshape(count, size).expand(replicas, -1, -1)
            at_once = self._sets_at_once(size)
            for own, truth in zip(inputs.split(at_once, 1), labels.split(at_once, 1), strict=True):
                found = self._gradients(state, own, truth, torch.ones_like(truth).float(), rates)
                norms.append(torch.stack([g.flatten(2).norm(dim=2) for g in found.values.values()], 2))
            return torch.cat(norms, 1)
        network = self._with_statistics(parameters)
        # each tensor a part of its own; statistics, which are held fixed here, come behind the parameters
        apart = Bounds(
            torch.eye(len(network), device=labels.device),
            *(torch.ones(len(network), device=labels.device) for _ in range(2)),
        )

        clipper = self.clipper  # made out here, as networks are not tried under `vmap`

        def of_replica(tensors: Tensors, inputs: Tensor, labels: Tensor) -> Tensor:
            return clipper(tensors, inputs, labels, torch.ones_like(labels).float(), apart).norms

        at_once = self.task.execution.examples_at_once(replicas)
        for own, truth in zip(inputs.split(at_once), labels.split(at_once), strict=True):
            norms.append(over_replicas(of_replica, self.task.execution, shared=2)(network, own, truth))
        return torch.cat(norms, 1)[..., : len(self.names)]

    def _with_statistics(self, parameters: Tensors) -> Tensors:
        """The parameters, and the statistics that batch norm has on D_pub with them."""
        if not self.batch_norm:
            return parameters
        given = partial(measured, self.task.net)
        # one replica at a time: D_pub is large, and can't be divided
        alone = replace(self.task.execution, replicas_at_once=1)
        return {**parameters, **over_replicas(given, alone, shared=1)(parameters, self.public[0])}

    def _sets_at_once(self, size: int) -> int:
        return max(1, self.task.execution.examples_at_once(self.task.replicas) // size)

    def clipped_sums(
        self, state: State, sets: MiniSets, bounds: Bounds, rates: Tensor, step: int
    ) -> tuple[Tensors, Tensors, Tensors]:
        """Sums of clipped gradients, mean statistics of the mini-sets, and what the batch looked like."""
        sums = {name: torch.zeros_like(value) for name, value in state["parameters"].items()}
        statistics = {name: torch.zeros_like(value) for name, value in state["running"].items()}
        totals = rates.new_zeros(3, len(rates))
        inputs, labels = self._batch(sets, step)
        present = (sets.mask.sum(2) > 0).float()
        at_once = self._sets_at_once(sets.index.shape[2])
        parts = zip(*(part.split(at_once, 1) for part in (inputs, labels, sets.mask, present)), strict=True)
        for own, truth, mask, there in parts:
            if self.single:
                found, measured = self._of_singles(state, own, truth, there, bounds), {}
            else:
                gradients = self._gradients(state, own, truth, mask, rates)
                found = over_replicas(clipped, self.task.execution)(
                    gradients.values, gradients.loss, there, bounds
                )
                measured = gradients.statistics
            sums = {name: value + found.sums[name] for name, value in sums.items()}
            statistics = {
                name: value + (measured[name] * there[..., None]).sum(1) for name, value in statistics.items()
            }
            norms = found.norms.square().sum(2).sqrt()
            over = (found.norms > bounds.limits[:, None]).float().mean(2)
            totals += torch.stack([(value * there).sum(1) for value in (found.losses, norms, over)])
        count = present.sum(1).clamp_min(1)
        means = dict(zip(("train_loss", "gradient_norm", "clipped_share"), totals / count, strict=True))
        return sums, {name: value / each(value, count) for name, value in statistics.items()}, means

    def _batch(self, sets: MiniSets, step: int) -> tuple[Tensor, Tensor]:
        """(R, K, S, ...) inputs as the network sees them in training, and (R, K, S) labels."""
        stored = self.task.inputs[sets.index]
        if self.first.augment == "crop_flip":
            draws = self.task.streams.uniform(step, 3 * sets.index[0].numel(), "augment")
            return self.views.augmented(stored, draws), self.task.labels[sets.index]
        return self.views.plain(stored), self.task.labels[sets.index]

    def _gradients(
        self, state: State, inputs: Tensor, labels: Tensor, mask: Tensor, rates: Tensor
    ) -> mini_sets.Gradient:
        """(R, K, ...) each: the gradients of K mini-sets of every replica."""
        how = self.task.execution
        one = partial(mini_sets.gradient, self.task.net, self.first, how)

        def of_replica(*arguments: Any) -> mini_sets.Gradient:
            return over_replicas(one, how, shared=2)(*arguments)

        # `over_replicas` takes the mini-sets of a replica one by one or together, as it does replicas
        found = over_replicas(of_replica, how)(inputs, labels, mask, state["parameters"], rates)
        if self.first.sparsify:
            active = state["active"]
            values = {name: value * active[name][:, None] for name, value in found.values.items()}
            found = found._replace(values=values)
        return found

    def _of_singles(
        self, state: State, inputs: Tensor, labels: Tensor, there: Tensor, bounds: Bounds
    ) -> ClippedSum:
        """Clipped sums of mini-sets of one example each, by the fast way."""
        clipped_sum = over_replicas(self.clipper, self.task.execution)
        return clipped_sum(state["parameters"], inputs[:, :, 0], labels[:, :, 0], there, bounds)
