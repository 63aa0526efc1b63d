"""Training with noise on the weights (Davody et al. 2020, section 2) in one file. It is not private.

    python examples/noisy_weights_by_hand.py data/prepared/mnist

Every weight is drawn from N(mu, sigma^2) anew in each forward pass, in training and at test. The means mu are
trained by Adam: a weight is mu + sigma noise, so the gradient at the drawn weights is the gradient of mu.
Only matrices and kernels are noisy. A test compares `step` with a step of the engine.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional as F

BATCH, EPOCHS, RATE, SIGMA, DRAWS = 128, 2, 0.001, 1.0, 10
BETAS, TINY = (0.9, 0.999), 1e-8  # of Adam

Tensors = dict[str, Tensor]


def lenet5() -> nn.Sequential:
    """LeNet-5 with layer norm before each activation, for images of 28 x 28."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.GroupNorm(1, 6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.GroupNorm(1, 16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.GroupNorm(1, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.GroupNorm(1, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def draw(means: Tensors, sigma: float, noise: Tensor) -> Tensors:
    """Weights mu + sigma noise for matrices and kernels, mu for others; ``noise`` is standard normal."""
    noisy = {name: value.numel() for name, value in means.items() if value.dim() > 1}
    parts = dict(zip(noisy, noise.split(list(noisy.values())), strict=True))
    return {
        name: value + sigma * parts[name].view_as(value) if name in parts else value
        for name, value in means.items()
    }


def step(
    net: nn.Module, means: Tensors, moments: tuple[Tensors, Tensors], images: Tensor, labels: Tensor,
    *, sigma: float, rate: float, number: int, noise: Tensor,
) -> tuple[Tensors, tuple[Tensors, Tensors]]:  # fmt: skip
    """Means and Adam's moments after step ``number`` (from 0) on a batch."""

    def loss(weights: Tensors) -> Tensor:
        return F.cross_entropy(functional_call(net, weights, (images,)), labels)

    gradients = grad(loss)(draw(means, sigma, noise))
    first = {name: BETAS[0] * moments[0][name] + (1 - BETAS[0]) * value for name, value in gradients.items()}
    second = {
        name: BETAS[1] * moments[1][name] + (1 - BETAS[1]) * value.square()
        for name, value in gradients.items()
    }
    stepped = {}
    for name, value in means.items():
        mean = first[name] / (1 - BETAS[0] ** (number + 1))
        square = second[name] / (1 - BETAS[1] ** (number + 1))
        stepped[name] = value - rate * mean / (square.sqrt() + TINY)
    return stepped, (first, second)


def main(folder: Path) -> None:
    """Train, and test under several draws of the noise."""
    (images, labels), test = (
        (
            torch.from_numpy(np.load(folder / f"{split}.inputs.npy")).float() / 255,
            torch.from_numpy(np.load(folder / f"{split}.labels.npy")),
        )
        for split in ("train", "test")
    )
    net = lenet5()
    means = {name: value.detach() for name, value in net.named_parameters()}
    size = sum(value.numel() for value in means.values() if value.dim() > 1)
    zeros = {name: torch.zeros_like(value) for name, value in means.items()}
    moments = (zeros, zeros)
    batches = [chosen for _ in range(EPOCHS) for chosen in torch.randperm(len(labels)).split(BATCH)]
    for number, chosen in enumerate(batches):
        means, moments = step(
            net, means, moments, images[chosen], labels[chosen],
            sigma=SIGMA, rate=RATE, number=number, noise=torch.randn(size),
        )  # fmt: skip
        print(f"\rstep {number + 1} of {len(batches)}", end="", file=sys.stderr)
    right = [
        functional_call(net, draw(means, SIGMA, torch.randn(size)), (test[0],)).argmax(1) == test[1]
        for _ in range(DRAWS)
    ]
    print(f"\ntest accuracy {100 * torch.stack(right).float().mean():.2f} % over {DRAWS} draws of the noise")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
