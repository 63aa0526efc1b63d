"""Batch clipping with adaptive layerwise clipping (Nguyen et al. 2023) in one file.

    python examples/batch_clipping_by_hand.py data/prepared/mnist-dpub

Trains a small network with batch norm on a prepared data set with public images of the same kind. A batch
gives one gradient, computed with its own batch statistics (Eq. 3). Each layer h of this gradient is clipped
to C_h = C e_h / max e and gets noise of standard deviation 2 C_h sigma. Here e_h is the mean norm of layer h
in public examples' gradients (Section 3.3). A test compares `private_step` with a step of the engine.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
from dp_accounting.rdp import RdpAccountant
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

BATCH, EPOCHS, RATE = 64, 2, 0.025
CLIP, SIGMA, DELTA = 0.2, 2.5, 1e-5

Tensors = dict[str, Tensor]


class BatchNorm(nn.Module):
    """Batch norm by the statistics of the batch or by ``fixed`` statistics, without running averages."""

    def __init__(self, channels: int):
        """Set gain 1 and shift 0."""
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.fixed: tuple[Tensor, Tensor] | None = None
        self.seen: tuple[Tensor, Tensor] | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """``inputs`` (B, C, ...) normalised by channel."""
        over = (0, *range(2, inputs.dim()))
        if self.fixed is None:
            self.seen = inputs.mean(over), inputs.var(over, correction=0)
        mean, var = self.fixed or self.seen  # type: ignore[misc]
        scale = self.weight * (var + 1e-5).rsqrt()
        by_channel = (1, -1, *(1 for _ in over[1:]))
        return inputs * scale.view(by_channel) + (self.bias - mean * scale).view(by_channel)


def network() -> nn.Sequential:
    """Two convolutions and two linear layers, for images of 28 x 28."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.Tanh(), BatchNorm(6), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), BatchNorm(16), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(256, 84), nn.Tanh(), nn.Linear(84, 10),
    )  # fmt: skip


def fix_statistics(net: nn.Module, parameters: Tensors, public: Tensor) -> None:
    """Let every batch norm of ``net`` normalise by its statistics on the public images."""
    layers = free_statistics(net)
    functional_call(net, parameters, (public,))
    for layer in layers:
        layer.fixed = layer.seen


def free_statistics(net: nn.Module) -> list[BatchNorm]:
    """Let every batch norm of ``net`` normalise by the statistics of its batch, and return them all."""
    layers = [layer for layer in net.modules() if isinstance(layer, BatchNorm)]
    for layer in layers:
        layer.fixed = None
    return layers


def layer_bounds(net: nn.Module, parameters: Tensors, images: Tensor, labels: Tensor, clip: float) -> Tensor:
    """Bound C_h = C e_h / max e of each trained tensor, from public examples and their statistics alone."""

    def loss(weights: Tensors, image: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net, weights, (image[None],)), label[None])

    fix_statistics(net, parameters, images)
    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, images, labels)
    free_statistics(net)
    norms = torch.stack([gradient.flatten(1).norm(dim=1).mean() for gradient in each.values()])
    return clip * norms / norms.max()


def private_step(
    net: nn.Module, parameters: Tensors, images: Tensor, labels: Tensor,
    *, bounds: Tensor, sigma: float, rate: float, noise: Tensor,
) -> Tensors:  # fmt: skip
    """Parameters after a step on one batch, clipped as a whole; ``noise`` is standard normal.

    In the worst case, one example reverses the clipped gradient of its batch, which moves layer h by 2 C_h.
    """

    def loss(weights: Tensors) -> Tensor:
        return F.cross_entropy(functional_call(net, weights, (images,)), labels)

    parts = noise.split([value.numel() for value in parameters.values()])
    stepped = {}
    for (name, gradient), bound, part in zip(grad(loss)(parameters).items(), bounds, parts, strict=True):
        clipped = gradient * (bound / gradient.norm()).clamp(max=1)
        stepped[name] = parameters[name] - rate * (clipped + 2 * bound * sigma * part.view_as(clipped))
    return stepped


def main(folder: Path) -> None:
    """Train, test and account."""
    (images, labels), public, test = (
        (
            torch.from_numpy(np.load(folder / f"{split}.inputs.npy")).float() / 255,
            torch.from_numpy(np.load(folder / f"{split}.labels.npy")),
        )
        for split in ("train", "public", "test")
    )
    examples, net = len(labels), network()
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    size = sum(value.numel() for value in parameters.values())
    steps, an_epoch = EPOCHS * examples // BATCH, examples // BATCH
    for step in range(steps):
        if step % an_epoch == 0:
            bounds = layer_bounds(net, parameters, *public, CLIP)
        chosen = torch.randperm(examples)[:BATCH]
        parameters = private_step(
            net, parameters, images[chosen], labels[chosen],
            bounds=bounds, sigma=SIGMA, rate=RATE, noise=torch.randn(size),
        )  # fmt: skip
        print(f"\rstep {step + 1} of {steps}", end="", file=sys.stderr)
    fix_statistics(net, parameters, public[0])  # at test the statistics are public too
    right = functional_call(net, parameters, (test[0],)).argmax(1) == test[1]
    # neighbours replace one example; the noise of L layers together has multiplier sigma / sqrt(L)
    once = SampledWithoutReplacementDpEvent(examples, BATCH, GaussianDpEvent(SIGMA / len(parameters) ** 0.5))
    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE).compose(once, steps)
    print(
        f"\ntest accuracy {100 * right.float().mean():.2f} %, epsilon <= {accountant.get_epsilon(DELTA):.3f}"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
