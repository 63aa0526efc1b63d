"""Where batch norm's statistics come from, and so whose gradient an example's gradient is.

Each class here is one answer; all functions take and return one replica's tensors, and vmap adds replicas.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional as F

from pipeline.methods.base import Task, as_input
from pipeline.models.normalization import measuring, statistics_layers
from pipeline.privacy.gradients import BookKeeping, ClippedSum, Clipper, PerExample, Tensors, clip_factors
from pipeline.settings import DpsgdSettings


class NoStatistics:
    """No batch norm: examples don't see each other. The base of the other two."""

    # why the accounted epsilon doesn't hold for gradients taken this way
    broken: str | None = None
    # whether a sample may be computed in pieces
    divisible = True

    def __init__(self, task: Task, settings: DpsgdSettings):
        """Keep what a function of parameters and examples needs besides them."""
        self.net: nn.Module = task.net
        self.execution = task.execution
        self.at_once = task.execution.examples_at_once(task.replicas)
        self.public = as_input(task.public)
        self.example = as_input(task.inputs[:1])
        self.weights = self._weights(settings)

    def _weights(self, settings: DpsgdSettings) -> dict[str, float]:
        return {}

    def given(self, parameters: Tensors) -> Tensors:
        """Statistics that enter an example's loss as inputs of their own, by name."""
        return {}

    def clipper(self) -> Clipper:
        """Clipped sums of gradients with respect to parameters and `given`."""
        if not self.execution.reference:
            try:
                return BookKeeping(self.net, self.weights, self.example)
            except NotImplementedError:
                pass  # a layer without a fast rule: the reference takes every layer
        return PerExample(self.net, self.weights)

    def back(self, parameters: Tensors, released: Tensors) -> Tensors:
        """The gradient of the parameters from everything that was released."""
        return released

    def losses(self, parameters: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """(B,) losses as a function of the parameters alone, for training without privacy."""
        given = {**parameters, **self.given(parameters)}
        return F.cross_entropy(functional_call(self.net, given, (inputs,)), labels, reduction="none")

    def logits(self, parameters: Tensors, inputs: Tensor) -> Tensor:
        """(B, K) at test."""
        return functional_call(self.net, {**parameters, **self.given(parameters)}, (inputs,))


class PublicStatistics(NoStatistics):
    """``public_bn``: statistics s(theta) of the public images alone, in training and at test.

    An example's loss then depends on itself, theta and s. Its gradient is the pair (d_i, a u_i) with respect
    to both, and the pair is what is clipped, summed and noised. `back` takes the noisy U through s to theta:
    D + J^T U / a with J = ds/dtheta, which knows no private data, so it is post-processing.
    """

    def _weights(self, settings: DpsgdSettings) -> dict[str, float]:
        names = statistics_layers(self.net)
        return {f"{name}.{part}": settings.statistics_weight for name in names for part in ("mean", "var")}

    def given(self, parameters: Tensors) -> Tensors:
        """Mean and variance of every batch-norm layer on the public images."""
        with measuring(self.net, self.public.new_ones(len(self.public))) as found:
            functional_call(self.net, parameters, (self.public,))
        return found

    def back(self, parameters: Tensors, released: Tensors) -> Tensors:
        """D + J^T U / a, by one backward pass through the public images."""
        upstream = {name: released[name] / weight for name, weight in self.weights.items()}
        through = vjp(self.given, parameters)[1](upstream)[0]
        return {name: released[name] + through[name] for name in parameters}


class JointStatistics(NoStatistics):
    """``batch_bn``: Davody et al., Algorithm 1 to the letter.

    In training the statistics are those of the sample joined with the M public images, and each example's
    loss is differentiated through that joint batch, at a cost of (B + M) B. At test each example is joined
    with the public images, a batch of 1 + M of its own.
    """

    broken = (
        "batch statistics couple the examples: adding one record changes every other record's clipped "
        "gradient, so the sum moves by up to about twice the batch size times C, not by C (Davody et al., "
        "Algorithm 1)"
    )
    divisible = False

    def clipper(self) -> Clipper:
        """Clipped sums through the joint batch."""
        return self._clipped

    def _clipped(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, clip: Tensor
    ) -> ClippedSum:
        losses, pullback = vjp(lambda own: self.losses(own, inputs, labels, mask), tensors)[:2]
        parts: list[Tensors] = []
        norms: list[Tensor] = []
        picks = torch.eye(len(labels), device=losses.device)
        # pieces in a plain loop: every example's gradient at once would not fit
        size = max(1, self.at_once // (len(labels) + len(self.public)))
        for pick, present in zip(picks.split(size), mask.split(size), strict=True):
            gradients = vmap(lambda which: pullback(which)[0])(pick)
            norms.append(
                torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()
            )
            factors = clip_factors(norms[-1], present, clip)
            parts.append(
                {name: torch.tensordot(factors, torch.nan_to_num(g), dims=1) for name, g in gradients.items()}
            )
        sums = {name: torch.stack([part[name] for part in parts]).sum(0) for name in tensors}
        return ClippedSum(sums, torch.cat(norms), losses)

    def losses(self, parameters: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """(B,) losses with the statistics of the examples present and the public images together."""
        counted = torch.cat([mask, mask.new_ones(len(self.public))])
        with measuring(self.net, counted):
            logits = functional_call(self.net, parameters, (torch.cat([inputs, self.public]),))
        return F.cross_entropy(logits[: len(labels)], labels, reduction="none")

    def logits(self, parameters: Tensors, inputs: Tensor) -> Tensor:
        """(B, K), each example in a joint batch of its own."""

        def joined(example: Tensor) -> Tensor:
            together = torch.cat([example[None], self.public])
            with measuring(self.net, together.new_ones(len(together))):
                return functional_call(self.net, parameters, (together,))[0]

        size = max(1, self.at_once // (1 + len(self.public)))
        return vmap(joined, chunk_size=size)(inputs)


STATISTICS: dict[str, type[NoStatistics]] = {"public_bn": PublicStatistics, "batch_bn": JointStatistics}
