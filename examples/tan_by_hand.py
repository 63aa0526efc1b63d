"""DP-SGD by total noise (Sander et al. 2022) in one file: copies, averaged weights and the scaling law.

    python examples/tan_by_hand.py data/prepared/mnist

A step with batch B and noise sigma processes B examples. It learns about as much as any other step with the
same B / sigma (Section 3.4). So a cheap run with B and sigma divided by the same factor shows which accuracy
the private run will reach; the cheap run itself is not private. K augmented copies of an example give one
gradient, which is clipped as a whole (Eq. 5). Weights are averaged over the steps. A test compares
`private_step` with a step of the engine.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

BATCH, SIGMA, STEPS, RATE, COPIES = 1024, 3.0, 100, 2.0, 2
FACTOR = 16  # divides batch and noise for the simulation
CLIP, DELTA, DECAY = 1.0, 1e-5, 0.9999

Tensors = dict[str, Tensor]


def lenet5() -> nn.Sequential:
    """LeNet-5 with layer norm before each activation, for images of 28 x 28."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.GroupNorm(1, 6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.GroupNorm(1, 16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.GroupNorm(1, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.GroupNorm(1, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def crop_flip(image: Tensor, draws: Tensor) -> Tensor:
    """Crop of the image padded by 4 reflected pixels on each side, mirrored if the last draw is at least .5.

    ``draws`` are three numbers in [0, 1): top, left and mirror.
    """
    top, left = (int(draw * 9) for draw in draws[:2])
    height, width = image.shape[-2:]
    padded = F.pad(image[None], (4, 4, 4, 4), mode="reflect")[0]
    crop = padded[:, top : top + height, left : left + width]
    return crop.flip(-1) if draws[2] >= 0.5 else crop


def clipped_sum(net: nn.Module, parameters: Tensors, copies: Tensor, labels: Tensor, clip: float) -> Tensor:
    """Sum over examples of the mean gradient of their ``copies`` (B, K, ...), clipped to ``clip``."""

    def loss(weights: Tensors, images: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net, weights, (images,)), label.expand(len(images)))

    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, copies, labels)
    vectors = torch.cat([gradient.flatten(1) for gradient in each.values()], dim=1)
    return (vectors * (clip / vectors.norm(dim=1)).clamp(max=1)[:, None]).sum(0)


def private_step(
    net: nn.Module, parameters: Tensors, average: Tensors, copies: Tensor, labels: Tensor,
    *, step: int, clip: float, sigma: float, batch: float, rate: float, decay: float, noise: Tensor,
) -> tuple[Tensors, Tensors]:  # fmt: skip
    """Parameters and their average after ``step`` (from 0) on a Poisson sample of expected size ``batch``."""
    total = sum(value.numel() for value in parameters.values())
    found = clipped_sum(net, parameters, copies, labels, clip) if len(labels) else torch.zeros(total)
    parts = ((found + sigma * clip * noise) / batch).split([value.numel() for value in parameters.values()])
    stepped = {
        name: value - rate * part.view_as(value)
        for (name, value), part in zip(parameters.items(), parts, strict=True)
    }
    # the decay grows with the steps, so that the average forgets the initial weights
    kept = min(decay, (2 + step) / (11 + step))
    return stepped, {name: kept * average[name] + (1 - kept) * value for name, value in stepped.items()}


def train(images: Tensor, labels: Tensor, test: tuple[Tensor, Tensor], batch: int, sigma: float) -> None:
    """Train with this batch and noise, and print accuracy and epsilon."""
    examples, net = len(labels), lenet5()
    sampled = batch / examples
    parameters = average = {name: value.detach() for name, value in net.named_parameters()}
    size = sum(value.numel() for value in parameters.values())
    for step in range(STEPS):
        drawn = (torch.rand(examples) < sampled).nonzero()[:, 0]  # each example by a coin of its own
        copies = [torch.stack([crop_flip(images[i], torch.rand(3)) for _ in range(COPIES)]) for i in drawn]
        parameters, average = private_step(
            net, parameters, average, torch.stack(copies) if copies else images[:0, None], labels[drawn],
            step=step, clip=CLIP, sigma=sigma, batch=batch, rate=RATE, decay=DECAY, noise=torch.randn(size),
        )  # fmt: skip
        print(f"\rstep {step + 1} of {STEPS}", end="", file=sys.stderr)
    right = functional_call(net, average, (test[0],)).argmax(1) == test[1]
    spent = PLDAccountant().compose(PoissonSampledDpEvent(sampled, GaussianDpEvent(sigma)), STEPS)
    print(
        f"\nB {batch}, sigma {sigma:g}: test accuracy {100 * right.float().mean():.2f} %, "
        f"epsilon <= {spent.get_epsilon(DELTA):.3f}"
    )


def main(folder: Path) -> None:
    """Run the simulation, which spends far more epsilon, and then the private run that it predicts."""
    (images, labels), test = (
        (
            torch.from_numpy(np.load(folder / f"{split}.inputs.npy")).float() / 255,
            torch.from_numpy(np.load(folder / f"{split}.labels.npy")),
        )
        for split in ("train", "test")
    )
    train(images, labels, test, BATCH // FACTOR, SIGMA / FACTOR)
    train(images, labels, test, BATCH, SIGMA)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
