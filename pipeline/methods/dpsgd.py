"""DP-SGD (Abadi et al. 2016) with the normalisation layers of Davody et al. 2020.

Each step takes a Poisson sample of expected size B from the N training examples, clips every example's
gradient to C, sums, adds N(0, z^2 C^2), divides by B and descends. Normalisation decides what an example's
gradient is:

* none, layer, group: examples don't see each other; this is plain DP-SGD.
* ``batch_bn``: Davody et al., Algorithm 1 to the letter. Statistics come from the sample joined with the M
  public images, and each example's loss is differentiated through that joint batch. One example then moves
  every example's gradient, so clipping bounds nothing and the accounted epsilon does not hold.
* ``public_bn``: statistics s(theta) come from the public images alone, so it holds. What an example has to
  say about s is a gradient u_i of its own: the joint vector (d_i, a u_i) is clipped, summed and noised, and
  the noisy U goes back through s to theta, D + J^T U / a. J knows only theta and public images, so this last
  step is post-processing.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vjp, vmap
from torch.nn import functional as F

from pipeline.methods.base import Guarantee, State, Task, as_input
from pipeline.models.normalization import measuring, statistics_layers
from pipeline.privacy.accounting import noise_for
from pipeline.privacy.gradients import BookKeeping, ClippedSum, Clipper, PerExample, Tensors, clip_factors
from pipeline.privacy.mechanisms import PoissonGaussian
from pipeline.settings import DpsgdSettings

BROKEN_BATCH_BN = (
    "batch statistics couple the examples: adding one record changes every other record's clipped gradient, "
    "so the sum moves by up to the batch size times C, not by C (Davody et al., Algorithm 1)"
)
CURVES = "training loss and gradient norms in the history are computed on private data without noise"


class Dpsgd:
    """DP-SGD over R replicas that share batch size, steps and whether they are private."""

    def __init__(self, task: Task, settings: Sequence[DpsgdSettings], normalization: str):
        """One of ``settings`` a replica, in the task's order."""
        first = settings[0]
        self.task = task
        self.settings = tuple(settings)
        self.normalization = normalization
        self.examples = len(task.labels)
        self.steps = first.steps(self.examples)
        self.batch = first.batch
        self.private = first.private
        self.rate = first.batch / self.examples
        self.weights = {
            f"{name}.{part}": first.statistics_weight
            for name in statistics_layers(task.net)
            for part in ("mean", "var")
        }
        self.public = as_input(task.public)

    @cached_property
    def mechanism(self) -> PoissonGaussian | None:
        """The mechanism with every replica's noise calibrated; None where nothing is private.

        Raises:
            UserError: a target epsilon can't be reached.
        """
        if not self.private:
            return None
        noise = [
            noise_for(own.epsilon, own.delta, self.rate, self.steps, own.accountant) for own in self.settings
        ]
        return PoissonGaussian(self.rate, tuple(own.clip for own in self.settings), tuple(noise))

    # -- the loop's interface ------------------------------------------------------------------------

    def init(self) -> State:
        """Initial parameters, and no momentum."""
        parameters = self.task.parameters
        return {
            "parameters": parameters,
            "momentum": {name: torch.zeros_like(value) for name, value in parameters.items()},
        }

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """One step of every replica."""
        parameters = state["parameters"]
        samples = self.task.streams.poisson(step, self.examples, self.rate)
        if self.mechanism is None:
            sums, metrics = self._plain(parameters, samples)
        else:
            sums, metrics = self._clipped(parameters, samples)
            sums = self.mechanism.release(sums, self.task.streams, step)
            sums = self._through_statistics(parameters, sums)
        # the expected batch size: the real one is private
        gradient = {name: value / self.batch for name, value in sums.items()}
        momentum = {
            name: self._each(gradient[name], [own.momentum for own in self.settings]) * state["momentum"][name]
            + gradient[name]
            for name in parameters
        }
        rates = [own.learning_rate * self._schedule(own, step) for own in self.settings]
        parameters = {
            name: value - self._each(value, rates) * momentum[name] for name, value in parameters.items()
        }
        return {"parameters": parameters, "momentum": momentum}, metrics

    def predict(self, state: State, inputs: Tensor) -> Tensor:
        """(R, B) classes. With batch norm the statistics are those of the test protocol; see `_logits`."""
        return self._over_replicas(self._logits, in_dims=(0, None))(
            state["parameters"], as_input(inputs)
        ).argmax(-1)

    def guarantee(self, replica: int, steps: int) -> Guarantee:
        """What ``steps`` steps of a replica spend."""
        own = self.settings[replica]
        if self.mechanism is None:
            return Guarantee(None, None, None, None, None)
        return Guarantee(
            event=self.mechanism.event(replica, steps),
            noise_multiplier=self.mechanism.noise_multipliers[replica],
            rate=self.rate,
            delta=own.delta,
            claimed_by=own.accountant,
            broken=BROKEN_BATCH_BN if self.normalization == "batch_bn" else None,
            uncounted=[CURVES],
        )

    # -- gradients -----------------------------------------------------------------------------------

    def _clipped(self, parameters: Tensors, samples: list) -> tuple[Tensors, Tensors]:
        """Sums of clipped gradients, and metrics of the samples."""
        assert self.mechanism is not None
        clips = self.mechanism.clip_bounds(next(iter(parameters.values())))
        if self.normalization == "batch_bn":
            tensors, run = parameters, self._joint_clipped
        else:
            tensors, run = {**parameters, **self._statistics(parameters)}, self._clipper()
        call = self._over_replicas(run)
        sums: Tensors = {name: torch.zeros_like(value) for name, value in tensors.items()}
        seen = torch.zeros(4, self.task.replicas, device=clips.device)
        for inputs, labels, mask in self._chunks(samples):
            part = call(tensors, inputs, labels, mask, clips)
            sums = {name: value + part.sums[name] for name, value in sums.items()}
            seen += torch.stack(
                [
                    mask.sum(1),
                    (part.losses * mask).sum(1),
                    (part.norms * mask).sum(1),
                    ((part.norms > clips[:, None]) * mask).sum(1),
                ]
            )
        count = seen[0].clamp_min(1)
        return sums, {
            "train_loss": seen[1] / count,
            "gradient_norm": seen[2] / count,
            "clipped_share": seen[3] / count,
        }

    def _clipper(self) -> Clipper:
        weights = self.weights if self.normalization == "public_bn" else {}
        if not self.task.execution.reference:
            try:
                return BookKeeping(self.task.net, weights, as_input(self.task.inputs[:1]))
            except NotImplementedError:
                pass
        return PerExample(self.task.net, weights)

    def _joint_clipped(
        self, parameters: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, clip: Tensor
    ) -> Any:
        """Algorithm 1: every example's loss through the joint batch; cost (B + M) B."""
        losses, pullback = vjp(lambda tensors: self._joint_losses(tensors, inputs, labels, mask), parameters)
        at_once = max(1, self.task.execution.physical // (len(labels) + len(self.public)))

        def one(which: Tensor) -> Tensors:
            return pullback(which)[0]

        picks = torch.eye(len(labels), device=losses.device)
        sums: Tensors = {}
        norms = []
        # a plain loop over chunks: vmap's own chunking would keep every example's gradient at once
        for pick, present in zip(picks.split(at_once), mask.split(at_once), strict=True):
            gradients = vmap(one)(pick)
            norm = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()
            factors = clip_factors(norm, present, clip)
            for name, value in gradients.items():
                part = torch.tensordot(factors, torch.nan_to_num(value), dims=1)
                sums[name] = sums[name] + part if name in sums else part
            norms.append(norm)
        return ClippedSum(sums, torch.cat(norms), losses)

    def _joint_losses(self, parameters: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """(B,) losses with statistics of the present examples and the public images together."""
        counted = torch.cat([mask, torch.ones(len(self.public), device=mask.device)])
        with measuring(self.task.net, counted):
            logits = functional_call(self.task.net, parameters, (torch.cat([inputs, self.public]),))
        return F.cross_entropy(logits[: len(labels)], labels, reduction="none")

    def _plain(self, parameters: Tensors, samples: list) -> tuple[Tensors, Tensors]:
        """Sums of gradients, unclipped: training without privacy."""

        def total(tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
            if self.normalization == "batch_bn":
                losses = self._joint_losses(tensors, inputs, labels, mask)
            else:
                given = {**tensors, **self._measure(tensors)} if self.normalization == "public_bn" else tensors
                losses = F.cross_entropy(functional_call(self.task.net, given, (inputs,)), labels, reduction="none")
            loss = (losses * mask).sum()
            return loss, loss  # type: ignore[return-value]

        call = self._over_replicas(grad(total, has_aux=True))
        sums: Tensors = {name: torch.zeros_like(value) for name, value in parameters.items()}
        loss = torch.zeros(self.task.replicas, device=self.public.device)
        for chunk in self._chunks(samples):
            part, value = call(parameters, *chunk)
            sums = {name: total + part[name] for name, total in sums.items()}
            loss = loss + value
        return sums, {"train_loss": loss / torch.tensor([max(1, len(s)) for s in samples]).to(loss)}

    # -- public statistics ---------------------------------------------------------------------------

    def _measure(self, parameters: Tensors) -> Tensors:
        """Statistics of every normalisation layer on the public images, as a function of one replica."""
        with measuring(self.task.net, torch.ones(len(self.public), device=self.public.device)) as found:
            functional_call(self.task.net, parameters, (self.public,))
        return found

    def _statistics(self, parameters: Tensors) -> Tensors:
        """(R, C) statistics given to the private pass; nothing unless ``public_bn``."""
        if self.normalization != "public_bn":
            return {}
        return self._over_replicas(self._measure)(parameters)

    def _through_statistics(self, parameters: Tensors, released: Tensors) -> Tensors:
        """D + J^T (U / a): what the noisy statistics' gradients mean for theta."""
        if self.normalization != "public_bn":
            return released
        upstream = {name: released[name] / weight for name, weight in self.weights.items()}

        def back(own: Tensors, upstream: Tensors) -> Tensors:
            return vjp(self._measure, own)[1](upstream)[0]

        through = self._over_replicas(back)(parameters, upstream)
        return {name: released[name] + through[name] for name in parameters}

    def _logits(self, parameters: Tensors, inputs: Tensor) -> Tensor:
        """(B, K) of one replica.

        ``batch_bn`` joins each test example with the public images (Algorithm 1, test phase), one joint
        batch of 1 + M an example. ``public_bn`` uses the public images' statistics.
        """
        net = self.task.net
        if self.normalization == "batch_bn":

            def joined(example: Tensor) -> Tensor:
                together = torch.cat([example[None], self.public])
                with measuring(net, torch.ones(len(together), device=together.device)):
                    return functional_call(net, parameters, (together,))[0]

            size = max(1, self.task.execution.physical // (1 + len(self.public)))
            return vmap(joined, chunk_size=size)(inputs)
        given = {**parameters, **self._measure(parameters)} if self.normalization == "public_bn" else parameters
        return functional_call(net, given, (inputs,))

    # -- shapes --------------------------------------------------------------------------------------

    def _over_replicas(self, function: Callable[..., Any], in_dims: Any = 0) -> Callable[..., Any]:
        return vmap(function, in_dims=in_dims, chunk_size=self.task.execution.replicas_at_once)

    def _chunks(self, samples: list) -> Any:
        """Samples as (R, L, ...) inputs, (R, L) labels and masks, padded to the longest, L at a time.

        `batch_bn` needs a sample whole: its statistics are the sample's.
        """
        longest = max(1, *(len(sample) for sample in samples))
        pieces = math.ceil(longest / self.task.execution.examples_at_once(self.task.replicas))
        size = longest if self.normalization == "batch_bn" else math.ceil(longest / pieces)
        device = self.task.inputs.device
        index = torch.zeros(len(samples), math.ceil(longest / size) * size, dtype=torch.long)
        mask = torch.zeros(index.shape)
        for row, sample in enumerate(samples):
            index[row, : len(sample)] = torch.from_numpy(sample)
            mask[row, : len(sample)] = 1
        for part, present in zip(index.split(size, 1), mask.split(size, 1), strict=True):
            here = part.to(device)
            yield as_input(self.task.inputs[here]), self.task.labels[here], present.to(device)

    def _schedule(self, own: DpsgdSettings, step: int) -> float:
        if own.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return 1.0

    @staticmethod
    def _each(like: Tensor, values: list[float]) -> Tensor:
        """One number a replica, shaped to multiply ``like`` (R, ...)."""
        return torch.tensor(values).to(like).reshape(-1, *(1,) * (like.dim() - 1))

