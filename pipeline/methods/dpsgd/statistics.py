"""Sources of batch norm's statistics, and the per-example gradient for each source.

Each class is one source.
"""

from collections import Counter
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import vjp, vmap

from dprepro.clipping.clippers import ClipperFactory, clipper_factory
from dprepro.clipping.functional import Tensors, functional_call
from dprepro.clipping.gradients import ClippedSum, Clipper, clip_and_sum, loss_of
from dprepro.clipping.layer_gradients import AtOutputs, Full, Gradients
from dprepro.clipping.layers import trained_layers, watch_layers
from dprepro.clipping.limits import ClipLimits
from dprepro.clipping.normalization import BatchStatistics, measured, measuring, statistics_layers
from dprepro.errors import UserError
from dprepro.pipeline.methods.base import Task, as_input
from dprepro.pipeline.methods.dpsgd.joint_convolutions import LinearizedBlocks, leading_blocks
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings

# Smallest number of examples whose gradients through a joint batch are computed together: fewer leave a CPU
# idle
FEWEST_AT_ONCE = 4
# the same number with `LinearizedBlocks`, whose Jacobian is read once for all examples of a piece
FEWEST_BEHIND_BLOCKS = 128


class NoStatistics:
    """No batch norm: examples don't mix. Base class of the other sources."""

    # whether a sample may be computed in pieces
    divisible = True

    def __init__(self, task: Task, settings: DpsgdSettings):
        """Take the network, the public inputs and the names of statistics."""
        self.net: nn.Module = task.net
        self.execution = task.execution
        self.public = as_input(task.public)
        self.example = as_input(task.inputs[:1])
        self.names = self._names()  # of `input_statistics`

    def _names(self) -> list[str]:
        return []

    def input_statistics(self, parameters: Tensors) -> Tensors:
        """Statistics that are separate inputs of an example's loss, by name."""
        return {}

    def clipper(self) -> Clipper:
        """Clipper of gradients with respect to parameters and `input_statistics`."""
        return self.factory(self.net)

    @cached_property
    def factory(self) -> ClipperFactory:
        """Factory of clippers for examples that don't mix."""
        return clipper_factory(self.net, self.example, reference=self.execution.reference)

    def parameter_gradients(self, parameters: Tensors, released: Tensors) -> Tensors:
        """Gradients of the parameters, from released gradients of parameters and `input_statistics`."""
        return released

    def losses(self, parameters: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """(B,) losses as a function of the parameters alone, for training without privacy."""
        tensors = {**parameters, **self.input_statistics(parameters)}
        return loss_of(functional_call(self.net, tensors, (inputs,)), labels, reduction="none")

    def logits(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """(B, K) logits of K classes at test time; ``tensors``: parameters and their `input_statistics`."""
        return functional_call(self.net, tensors, (inputs,))


class PublicStatistics(NoStatistics):
    """``public_bn``: statistics s(theta) of the public images alone, in training and at test time.

    An example's loss depends on the example, theta and s. Its gradients are d_i with respect to theta and u_i
    with respect to s. The vector (d_i, u_i) is clipped; the noisy sum of these vectors is (D, U).
    `parameter_gradients` returns the gradient with respect to theta, D + J^T U with J = ds/dtheta. It uses no
    private data besides the noisy sum, so it is post-processing.
    """

    def _names(self) -> list[str]:
        return [f"{name}.{part}" for name in _batch_norms(self.net) for part in ("mean", "var")]

    def input_statistics(self, parameters: Tensors) -> Tensors:
        """Mean and variance of every batch-norm layer on the public images."""
        return measured(self.net, parameters, self.public)

    def parameter_gradients(self, parameters: Tensors, released: Tensors) -> Tensors:
        """Gradient D + J^T U (see the class), by one backward pass through the public images."""
        upstream = {name: released[name] for name in self.names}
        statistics_gradients = vjp(self.input_statistics, parameters)[1](upstream)[0]
        return {name: released[name] + statistics_gradients[name] for name in parameters}


class JointStatistics(NoStatistics):
    """``batch_bn``: Davody et al., Algorithm 1 to the letter.

    In training, the statistics are those of the sample of B examples joined with the M public images. Each
    example's loss is differentiated through this joint batch, at the cost of (B + M) B passes. At test time,
    each example is joined with the public images in a separate batch of 1 + M.
    """

    divisible = False

    def __init__(self, task: Task, settings: DpsgdSettings):
        """Take the network and the public images; some batch norm must be trained."""
        super().__init__(task, settings)
        self.first_norm = next(iter(_batch_norms(self.net).values()))
        self.linear = _linear_layers(self.net, self.example)
        self.blocks, self.rest = ([], self.net) if task.execution.reference else leading_blocks(self.net)
        self.block_names = set().union(*(block.names for block in self.blocks))

    def clipper(self) -> Clipper:
        """Clipper of gradients through the joint batch."""
        return self._clipped

    def _clipped(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, bounds: ClipLimits
    ) -> ClippedSum:
        """Sum of the examples' clipped gradients through the joint batch, in pieces that fit the memory.

        Because of the statistics, an example's loss depends on the whole joint batch. A linear layer's
        gradient is the product of its inputs and the gradients at its outputs. To get the gradients at its
        outputs, zeros called taps are added to the outputs, and the loss is differentiated with respect to
        the taps. For other layers, each example's gradient is held in memory. If the network begins with
        `leading_blocks`, only the layers after these blocks are differentiated in this way.
        """
        joint, present = self._joined(inputs, mask)
        blocks = LinearizedBlocks(self.blocks, tensors, joint, present)
        behind = {name: value for name, value in tensors.items() if name not in self.block_names}
        from_taps = {f"{name}.{key}" for name in self.linear for key in ("weight", "bias")}
        others = {name: value for name, value in behind.items() if name not in from_taps}
        taps = {name: joint.new_zeros(len(joint), layer.out_features) for name, layer in self.linear.items()}

        def losses(others: Tensors, taps: Tensors, entering: list[Tensor]) -> tuple[Tensor, Tensors]:
            layer_inputs: Tensors = {}

            def tap(name: str, layer_input: Tensor, output: Tensor) -> Tensor:
                layer_inputs[name] = layer_input
                return output + taps[name]

            with watch_layers(self.linear, tap), measuring(self.rest, present):
                images = entering[0] if entering else joint
                logits = functional_call(self.rest, {**behind, **others}, (images,))
            return loss_of(logits[: len(labels)], labels, reduction="none"), layer_inputs

        # without blocks the inputs are the images, whose gradient is not needed
        entering = [blocks.outputs] if self.blocks else []
        values, pullback, layer_inputs = vjp(losses, others, taps, entering, has_aux=True)  # type: ignore[misc]
        products = {name: value @ value.T for name, value in layer_inputs.items()}
        fewest = FEWEST_BEHIND_BLOCKS if self.blocks else FEWEST_AT_ONCE
        at_once = max(fewest, self.execution.physical // len(joint))
        examples = torch.eye(len(mask), device=mask.device).split(at_once)
        parts: list[ClippedSum] = []
        for cotangents, piece_mask, piece_losses in zip(
            examples, mask.split(at_once), values.split(at_once), strict=True
        ):
            written_out, at_taps, at_blocks = vmap(pullback)(cotangents)
            for at_outputs in at_blocks:
                written_out |= blocks.gradients(at_outputs)
            gradients: dict[str, Gradients] = {
                # copies of views, whose products would be rounded in another order
                name: Full(value.clone())
                for name, value in written_out.items()
            }
            for name, left in at_taps.items():
                gradients[f"{name}.weight"] = AtOutputs(left, products[name])
                gradients[f"{name}.bias"] = Full(left.sum(1))
            ordered = {name: gradients[name] for name in tensors}
            parts.append(clip_and_sum(ordered, piece_losses, piece_mask, bounds))
        total = ClippedSum.of(parts)
        # an example without a finite norm adds nothing, so its inputs may be replaced by 0
        weights = {
            f"{name}.weight": total.sums[f"{name}.weight"].T @ torch.nan_to_num(value)
            for name, value in layer_inputs.items()
        }
        return ClippedSum({**total.sums, **weights}, total.norms, values)

    def losses(self, parameters: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """(B,) losses in the joint batch of the public images and the examples whose ``mask`` is 1."""
        joint, present = self._joined(inputs, mask)
        with measuring(self.net, present):
            logits = functional_call(self.net, parameters, (joint,))
        return loss_of(logits[: len(labels)], labels, reduction="none")

    def _joined(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Joint batch (B + M, ...) of B ``inputs`` and M public images, and its mask (B + M,)."""
        return torch.cat([inputs, self.public]), torch.cat([mask, mask.new_ones(len(self.public))])

    def logits(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """(B, K) logits of K classes, each example in a separate joint batch.

        The public images join the batch at the first batch norm. Examples don't mix before this layer, so
        there the public images have the same values in every batch.
        """
        captured: list[Tensor] = []
        hook = self.first_norm.register_forward_pre_hook(
            lambda layer, arguments: captured.append(arguments[0])
        )
        with hook, measuring(self.net, self.public.new_ones(len(self.public))):
            functional_call(self.net, tensors, (self.public,))

        def joint_logits(example: Tensor) -> Tensor:
            join = self.first_norm.register_forward_pre_hook(
                lambda layer, arguments: (torch.cat([arguments[0], captured[0]]),)
            )
            with join, measuring(self.net, example.new_ones(1 + len(self.public))):
                return functional_call(self.net, tensors, (example[None],))[0]

        size = max(1, self.execution.physical // (1 + len(self.public)))
        return vmap(joint_logits, chunk_size=size)(inputs)


def _linear_layers(net: nn.Module, example: Tensor) -> dict[str, nn.Linear]:
    """Linear layers by name with a trained unshared matrix and one input vector per example."""
    try:
        layers = {
            name: layer
            for name, layer in trained_layers(net).items()
            if type(layer) is nn.Linear and layer.weight.requires_grad
        }
    except NotImplementedError:
        return {}
    vectors: Counter[str] = Counter()

    def count(name: str, inputs: Tensor, output: Tensor) -> None:
        vectors[name] += inputs[..., 0].numel()

    with torch.no_grad(), watch_layers(layers, count):
        net(example)
    return {name: layer for name, layer in layers.items() if vectors[name] == 1}


def _batch_norms(net: nn.Module) -> dict[str, BatchStatistics]:
    """Trained batch norms by name, in order."""
    layers = statistics_layers(net)
    if not layers:
        raise UserError("model.normalization: no batch norm is trained here; use 'none'")
    return layers


STATISTICS: dict[str, type[NoStatistics]] = {
    "none": NoStatistics,
    "layer": NoStatistics,
    "group": NoStatistics,
    "response": NoStatistics,
    "public_bn": PublicStatistics,
    "batch_bn": JointStatistics,
}
