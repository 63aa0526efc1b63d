"""Gradients of convolutions through the batch norm of a joint batch, without a backward pass an example.

In a joint batch of J every example's loss has a gradient at the outputs of all J. To take it back through the
convolutions is an ordinary backward pass of J images, for every example. Forward there is less to do: a
weight of a kernel moves one channel alone, by the pixels that it is multiplied with, and pooling leaves few
places. So it is computed once how these move with each weight, and the gradients of all examples are products
of matrices with that. A step of LeNet-5 with 256 examples takes a quarter of the time.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

from pipeline.models.normalization import BatchStatistics, moments
from pipeline.privacy.gradients import Tensors
from pipeline.privacy.layer_gradients import is_supported, windows


class Block(NamedTuple):
    """A convolution, its batch norm, ReLU and pooling for the maximum; the names of the first two."""

    conv_name: str
    conv: nn.Conv2d
    norm_name: str
    norm: BatchStatistics
    pool: nn.MaxPool2d

    @property
    def names(self) -> set[str]:
        """Those of its parameters, in the network."""
        layers: dict[str, nn.Module] = {self.conv_name: self.conv, self.norm_name: self.norm}
        return {f"{name}.{key}" for name, layer in layers.items() for key, _ in layer.named_parameters()}


def leading_blocks(net: nn.Module) -> tuple[list[Block], nn.Module]:
    """The blocks that ``net`` begins with, and the rest of it.

    None, and all of it, where it begins otherwise, holds a block's parameter fixed, or is no sequence.
    """
    blocks: list[Block] = []
    if not isinstance(net, nn.Sequential):
        return blocks, net
    layers = list(net.named_children())
    for (conv_name, conv), (norm_name, norm), (_, relu), (_, pool) in zip(
        *(layers[start::4] for start in range(4)), strict=False
    ):
        if not (
            type(conv) is nn.Conv2d
            and type(norm) is BatchStatistics
            and type(relu) is nn.ReLU
            and type(pool) is nn.MaxPool2d
            and is_supported(conv)
            and all(value.requires_grad for layer in (conv, norm) for value in layer.parameters())
        ):
            break
        blocks.append(Block(conv_name, conv, norm_name, norm, pool))
    return blocks, net[4 * len(blocks) :] if blocks else net


class LinearizedBlocks:
    """Outputs (J, C, H, W) of `leading_blocks` for a joint batch, and how they move with the parameters.

    Moves are (C, N, J, Q): of a channel, by each of N parameters, in every image, at its Q = H W places.
    """

    def __init__(self, blocks: list[Block], tensors: Tensors, inputs: Tensor, present: Tensor):
        """Of ``inputs`` (J, ...) those with ``present`` (J,) 1 are there; the others leave no trace."""
        self.blocks = blocks
        self.outputs = inputs
        # Of each block. Of the last one the N are a channel's own parameters: its kernel's weights, its gain
        # and its shift. Of the others they are all of the block's, channel by channel
        self.moves: list[Tensor] = []
        for block in blocks:
            entering = self.outputs
            self.outputs, behind = _forward(block, tensors, entering, present)
            kernel, shape = tensors[f"{block.conv_name}.weight"], entering.shape[2:]
            images = [moves.unflatten(3, shape) for moves in self.moves]
            self.moves = [behind.of_images(moved.permute(1, 2, 0, 3, 4), kernel) for moved in images[:-1]]
            if images:
                own = [
                    behind.of_images(moved[:, :, None], kernel[:, channel : channel + 1])
                    for channel, moved in enumerate(images[-1])
                ]
                self.moves.append(torch.cat(own, 1))
            self.moves.append(torch.cat([behind.of_weights(entering), behind.of_norm()], 1))

    def gradients(self, at_outputs: Tensor) -> Tensors:
        """(P, ...) of P examples by name, from their gradients (P, J, C, H, W) at the outputs."""
        left = at_outputs.flatten(3).permute(2, 0, 1, 3).flatten(2)  # (C, P, J Q)
        gradients: Tensors = {}
        for block, moves in zip(self.blocks, self.moves, strict=True):
            products = left @ moves.flatten(2).transpose(1, 2)  # (C, P, N)
            if block is self.blocks[-1]:
                by_channel = products.transpose(0, 1)
            else:
                by_channel = products.sum(0).unflatten(1, (block.conv.out_channels, -1))
            weights, gain, shift = by_channel.tensor_split((-2, -1), dim=2)
            gradients[f"{block.conv_name}.weight"] = weights.unflatten(2, block.conv.weight.shape[1:])
            if block.conv.bias is not None:  # batch norm takes it away again
                gradients[f"{block.conv_name}.bias"] = torch.zeros_like(shift[..., 0])
            gradients |= {f"{block.norm_name}.weight": gain[..., 0], f"{block.norm_name}.bias": shift[..., 0]}
        return gradients


class _Behind(NamedTuple):
    """What comes behind a block's convolution, and how the outputs move where the convolution's do."""

    conv: nn.Conv2d
    normalized: Tensor  # (C, J, H, W), before gain and shift
    share: Tensor  # (J,) of a place of each image in a mean over all; 0 of images that aren't there
    places: Tensor  # (C, J, Q) that pooling takes, of the P = H W
    on: Tensor  # (C, J, Q) 1 where ReLU lets through what was taken
    scale: Tensor  # (C,) that batch norm multiplies by

    def of_norm(self) -> Tensor:
        """(C, 2, J, Q): moves with a channel's gain and shift."""
        return torch.stack([self.on * self._taken(), self.on], 1)

    def of_weights(self, inputs: Tensor) -> Tensor:
        """(C, K, J, Q): moves with the weights of a channel's kernel, which sees ``inputs`` (J, I, ...)."""
        pixels = windows(self.conv, inputs).permute(1, 4, 5, 0, 2, 3).flatten(4).flatten(0, 2)  # (K, J, P)
        mean = (pixels.sum(2) @ self.share).expand(len(self.places), -1)
        along = torch.einsum("cjp,kjp->ck", self._weighted().flatten(2), pixels)
        return self._moves(pixels.expand(len(self.places), -1, -1, -1), mean, along)

    def of_images(self, images: Tensor, kernel: Tensor) -> Tensor:
        """(C, N, J, Q): moves where what ``kernel`` (C, I, ...) sees moves by ``images`` (N, J, I, ...)."""
        stride, padding = self.conv.stride, self.conv.padding
        flat = F.conv2d(images.flatten(0, 1), kernel, None, stride, padding).flatten(2)
        change = flat.unflatten(0, images.shape[:2]).permute(2, 0, 1, 3)
        # what each pixel adds to a mean over all places: then no pass over the places is needed
        maps = torch.stack([self.share[:, None, None].expand_as(self.normalized), self._weighted()])
        pixels = conv2d_input(
            (maps.shape[0] * maps.shape[2], kernel.shape[:2].numel(), *images.shape[3:]),
            *(kernel, maps.transpose(1, 2).flatten(0, 1), stride, padding),
            groups=len(kernel),
        )
        pixels = pixels.unflatten(1, kernel.shape[:2]).unflatten(0, (2, -1))  # (2, J, C, I, ...)
        mean, along = torch.einsum("mjcihw,njihw->mcn", pixels, images)
        return self._moves(change, mean, along)

    def _weighted(self) -> Tensor:
        return self.normalized * self.share[:, None, None]

    def _taken(self) -> Tensor:
        return self.normalized.flatten(2).gather(2, self.places)

    def _moves(self, change: Tensor, mean: Tensor, along: Tensor) -> Tensor:
        """(C, N, J, Q): moves where the convolution's outputs move by ``change`` (C, N, J, P).

        ``mean`` and ``along`` (C, N) are the means of the change and of its product with what is normalized.
        """
        taken = change.gather(3, self.places[:, None].expand(-1, change.shape[1], -1, -1))
        centered = taken.sub_(mean[..., None, None])
        moves = torch.addcmul(centered, self._taken()[:, None], along[..., None, None], value=-1)
        return moves.mul_((self.on * self.scale[:, None, None])[:, None])


def _forward(block: Block, tensors: Tensors, inputs: Tensor, present: Tensor) -> tuple[Tensor, _Behind]:
    """A block's outputs (J, C, H, W) for ``inputs`` (J, ...), and what is behind its convolution."""
    conv, norm, pool = block.conv, block.norm, block.pool
    gain, shift = (tensors[f"{block.norm_name}.{key}"][:, None, None] for key in ("weight", "bias"))
    kernel, bias = tensors[f"{block.conv_name}.weight"], tensors.get(f"{block.conv_name}.bias")
    summed = F.conv2d(inputs, kernel, bias, conv.stride, conv.padding)
    mean, var = moments(summed, present)
    normalized = norm.normalized(summed, mean, var)
    outputs, places = F.max_pool2d(
        (gain * normalized + shift).relu(),
        *(pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode),
        return_indices=True,
    )
    behind = _Behind(
        conv,
        normalized.transpose(0, 1),
        present / (present.sum().clamp_min(1) * summed[0, 0].numel()),
        places.flatten(2).transpose(0, 1),
        (outputs > 0).to(outputs).flatten(2).transpose(0, 1),
        gain[:, 0, 0] * torch.rsqrt(var + norm.epsilon),
    )
    return outputs, behind
