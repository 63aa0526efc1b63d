"""DP-SGD (Abadi et al. 2016) in one file: no class, no option, nothing hidden.

    python examples/dpsgd_by_hand.py data/prepared/mnist

Trains LeNet-5 on a prepared image data set (`dprepro prepare mnist`) and prints its test accuracy and the
spent epsilon. A test compares `private_step` with a step of the engine, which is several times faster.
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

BATCH, EPOCHS, RATE = 1024, 8, 2.0
CLIP, SIGMA, DELTA = 1.0, 0.9, 1e-5


def lenet5() -> nn.Module:
    """Two convolutions and three linear layers, for images of 28 x 28."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def clipped_sum(
    net: nn.Module, parameters: dict[str, Tensor], inputs: Tensor, labels: Tensor, clip: float
) -> Tensor:
    """Sum over examples of their gradients, each clipped to an L2 norm of at most ``clip``."""

    def loss(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net, weights, (one[None],)), label[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs, labels)
    vectors = torch.cat([gradient.flatten(1) for gradient in each.values()], dim=1)
    return (vectors * (clip / vectors.norm(dim=1)).clamp(max=1)[:, None]).sum(0)


def private_step(
    net: nn.Module,
    parameters: dict[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    *,
    clip: float,
    sigma: float,
    batch: float,
    rate: float,
    noise: Tensor,
) -> dict[str, Tensor]:
    """Parameters after one step on a Poisson sample of expected size ``batch``.

    ``noise`` is standard normal. The sum moves by at most ``clip`` when an example joins or leaves, so
    ``sigma`` is the noise multiplier. The sum is divided by the expected size, because the true size is
    private.
    """
    total = sum(value.numel() for value in parameters.values())
    found = clipped_sum(net, parameters, inputs, labels, clip) if len(labels) else torch.zeros(total)
    gradient = (found + sigma * clip * noise) / batch
    parts = gradient.split([value.numel() for value in parameters.values()])
    return {
        name: value - rate * part.view_as(value)
        for (name, value), part in zip(parameters.items(), parts, strict=True)
    }


def main(folder: Path) -> None:
    """Train, test and account."""
    train, test = (
        (
            torch.from_numpy(np.load(folder / f"{split}.inputs.npy")).float() / 255,
            torch.from_numpy(np.load(folder / f"{split}.labels.npy")),
        )
        for split in ("train", "test")
    )
    examples, net = len(train[1]), lenet5()
    sampled = BATCH / examples
    steps = round(EPOCHS / sampled)
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    for step in range(steps):
        drawn = torch.rand(examples) < sampled  # an independent coin for each example
        noise = torch.randn(sum(value.numel() for value in parameters.values()))
        parameters = private_step(
            net, parameters, train[0][drawn], train[1][drawn],
            clip=CLIP, sigma=SIGMA, batch=BATCH, rate=RATE, noise=noise,
        )  # fmt: skip
        print(f"\rstep {step + 1} of {steps}", end="", file=sys.stderr)
    right = functional_call(net, parameters, (test[0],)).argmax(1) == test[1]
    spent = PLDAccountant().compose(PoissonSampledDpEvent(sampled, GaussianDpEvent(SIGMA)), steps)
    print(f"\ntest accuracy {100 * right.float().mean():.2f} %, epsilon <= {spent.get_epsilon(DELTA):.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
