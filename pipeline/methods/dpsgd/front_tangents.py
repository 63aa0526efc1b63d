"""Derivatives of what a convolutional front makes of a joint batch, taken forward, once for all examples.

An example's gradient goes through every image of the joint batch: L private examples and L + M images are
L (L + M) backward passes of the front. But all of them go through the same images, and differ only in what
comes from behind. So the front's outputs are differentiated with respect to its parameters, joint statistics
included, and the gradients that arrive at the outputs are multiplied with that.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.normalization import BatchStatistics
from pipeline.privacy.layer_gradients import Tensors, plain, windows

# Images whose tangents go through a convolution at once: what a processor's cache holds
IMAGES = 16


class Block(NamedTuple):
    """Layers behind each other, with a `ReLU` before the pooling; and their names in the network."""

    conv: nn.Conv2d
    norm: BatchStatistics
    pool: nn.MaxPool2d
    conv_name: str
    norm_name: str


def front(net: nn.Module) -> list[Block]:
    """The blocks that a sequential network begins with; of more than two there are none.

    With a third, the tangents of two would have to go on, which are more than the examples of any batch.
    Nor are there any where the network uses a layer twice: its children then don't tell their order.
    """
    layers = list(net.named_children())
    if type(net) is not nn.Sequential or len(layers) < len(net):
        return []
    blocks: list[Block] = []
    while True:
        match layers[4 * len(blocks) :]:
            case [
                (str() as conv_name, nn.Conv2d() as conv),
                (str() as norm_name, BatchStatistics() as norm),
                (_, nn.ReLU()),
                (_, nn.MaxPool2d() as pool),
                *_,
            ] if plain(conv):
                blocks.append(Block(conv, norm, pool, conv_name, norm_name))
            case _:
                return blocks if len(blocks) <= 2 else []


class FrontTangents:
    """Tangents of one or two blocks on one joint batch.

    Every number that the last block puts out belongs to a channel, and depends on that channel's own kernel,
    scale and shift, and on everything in the block before. The biases of convolutions change nothing: batch
    norm takes them away.
    """

    def __init__(self, blocks: list[Block], images: Tensor):
        """On ``images`` (N, C, H, W), within the pass that measured the blocks' statistics."""
        *earlier, self.last = blocks
        self.earlier: list[Block] = earlier
        tangents: Tensor | None = None
        for block in earlier:
            passed = Pooled(block, images)
            tangents, images = passed.tangents(), passed.pooled
        self.passed = Pooled(self.last, images, tangents)

    def gradients(self, out: Tensor) -> Tensors:
        """Of every tensor of the blocks, (S, ...), from S gradients at the outputs, (S, N, O, H', W')."""
        parts = self.passed.gradients(out)  # (O, S, columns)
        kernels = self.last.conv.weight[0].numel()
        gradients = _named(self.last, parts[..., -2:].transpose(0, 1), parts[..., :kernels].transpose(0, 1))
        for block in self.earlier:
            channels = block.conv.out_channels
            shared = parts[..., kernels:-2].sum(0).unflatten(1, (channels, -1))  # (S, C, columns)
            gradients |= _named(block, shared[..., -2:], shared[..., :-2])
        return gradients


class Pooled:
    """What the pools of a block took, and how summed inputs there depend on parameters before the batch norm.

    Shapes: N images, O channels, Q places after and P before pooling. Columns are the I K K numbers of the
    channel's own kernel, and after those whatever came from the block before.
    """

    def __init__(self, block: Block, images: Tensor, tangents: Tensor | None = None):
        """Of ``images`` (N, I, H, W); ``tangents`` are theirs, (I, N, J, H, W), J of each channel."""
        conv, norm, pool = block[:3]
        measured, counted = norm.measured, norm.counted
        assert measured is not None, "statistics are the joint batch's"
        assert counted is not None
        summed = F.conv2d(images, conv.weight, conv.bias, conv.stride, conv.padding)
        normalized = norm.normalized(summed, *measured)
        wide = (norm.weight[:, None, None], norm.bias[:, None, None])
        shape = (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
        active = F.relu(normalized * wide[0] + wide[1])
        self.pooled, places = F.max_pool2d(active, *shape, return_indices=True)
        self.there = (self.pooled > 0).to(summed)  # (N, O, H', W') where the ReLU let something through
        places, normalized = places.flatten(2), normalized.flatten(2)
        self.chosen = normalized.gather(2, places).transpose(0, 1)  # (O, N, Q)
        self.rate = norm.weight * torch.rsqrt(measured[1] + norm.epsilon)  # (O,)

        share = counted / (counted.sum().clamp_min(1) * normalized.shape[2])  # (N,) of a place in an average
        self.columns, self.averages = _columns(conv, images, tangents, places, normalized, share)

    def gradients(self, out: Tensor) -> Tensor:
        """(O, S, columns + 2) of the columns, the scale and the shift, from those after pooling.

        A parameter also moves the mean and the variance by which its images are normalised: so much of the
        gradients of shift and scale are taken away again.
        """
        before = (out * self.there).flatten(3).permute(2, 0, 1, 3).flatten(2)  # (O, S, N Q)
        scale = before @ self.chosen.flatten(1)[..., None]
        shift = before.sum(2, keepdim=True)
        gradients = before @ self.columns.flatten(1, 2)
        gradients.sub_(shift @ self.averages[:, :1]).sub_(scale @ self.averages[:, 1:])
        return torch.cat([gradients * self.rate[:, None, None], scale, shift], 2)

    def tangents(self) -> Tensor:
        """(O, N, columns + 2, H', W') of the block's outputs, of the same, each of its own channel's."""
        mean, along = self.averages[:, None, None].unbind(3)
        chosen = self.chosen[..., None]
        moved = self.columns.sub(mean).addcmul_(chosen, along, value=-1).mul_(self.rate[:, None, None, None])
        moved = torch.cat([moved, chosen, torch.ones_like(chosen)], 3)
        moved = moved.transpose(2, 3).unflatten(3, self.pooled.shape[2:])
        return moved.mul_(self.there.transpose(0, 1)[:, :, None])


def _columns(
    conv: nn.Conv2d,
    images: Tensor,
    tangents: Tensor | None,
    places: Tensor,
    normalized: Tensor,
    share: Tensor,
) -> tuple[Tensor, Tensor]:
    """How summed inputs at ``places`` (N, O, Q) depend on parameters, and averages of that over all places.

    Args:
        conv: the convolution.
        images: (N, I, H, W) its inputs.
        tangents: (I, N, J, H, W) theirs, or None.
        places: which of the P places of an image.
        normalized: (N, O, P) what batch norm makes of the summed inputs.
        share: (N,) of each place of an image in an average.

    Returns:
        (O, N, Q, I K K + I J); (O, 2, I K K + I J) the average, and that of the product with ``normalized``.
    """
    (outputs, kernels), before = conv.weight.flatten(1).shape, 0 if tangents is None else tangents.shape[2]
    columns = images.new_empty(outputs, len(images), places.shape[2], kernels + conv.in_channels * before)
    averages = images.new_zeros(outputs, 2, columns.shape[3])
    # what the averages of a channel are taken with, (O, N, 2, P)
    weights = torch.stack([torch.ones_like(normalized), normalized], 2) * share[:, None, None, None]
    weights = weights.transpose(0, 1)
    for first in range(0, len(images), IMAGES):
        piece = slice(first, first + IMAGES)
        seen = (
            windows(conv, images[piece]).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        )  # (n, P, I K K)
        which = places[piece].transpose(0, 1)
        columns[:, piece, :, :kernels] = seen[torch.arange(len(seen))[:, None], which]
        averages[..., :kernels] += (weights[:, piece] @ seen).sum(1)
        if tangents is None:
            continue
        which = places[piece, None].expand(-1, before, -1, -1)
        for channel, of_all in enumerate(tangents):
            at = slice(kernels + channel * before, kernels + (channel + 1) * before)
            kernel, part = conv.weight[:, channel : channel + 1], of_all[piece]
            moved = F.conv2d(part.flatten(0, 1)[:, None], kernel, None, conv.stride, conv.padding)
            moved = moved.flatten(2).unflatten(0, part.shape[:2])  # (n, J, O, P)
            columns[:, piece, :, at] = moved.gather(3, which).permute(2, 0, 3, 1)
            for output in range(outputs):
                product = weights[output, piece] @ moved[:, :, output].transpose(1, 2)  # (n, 2, J)
                averages[output, :, at] += product.sum(0)
    return columns, averages


def _named(block: Block, norm: Tensor, kernel: Tensor) -> Tensors:
    """By name, from (S, O, 2) and (S, O, I K K)."""
    named = {
        f"{block.conv_name}.weight": kernel.unflatten(2, block.conv.weight.shape[1:]),
        f"{block.norm_name}.weight": norm[..., 0],
        f"{block.norm_name}.bias": norm[..., 1],
    }
    if block.conv.bias is not None:
        named[f"{block.conv_name}.bias"] = torch.zeros_like(norm[..., 0])
    return named
