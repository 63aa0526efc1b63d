"""The adaptive Laplace mechanism (Phan et al. 2017, Algorithm 1) in one file, and the epsilon that it spends.

    python examples/adlm_by_hand.py data/prepared/mnist

Images and labels get Laplace noise once, before training; relevant pixels get less noise. Training then reads
only the noisy numbers. Algorithm 1 divides the noise by the batch size |L|, as if a whole batch were released
and not each image. This multiplies the epsilon of an image by |L|. `main` prints the claimed and the spent
epsilon. A test compares `release` and `step` with those of the engine.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn import functional as F

BATCH, EPOCHS, RATE = 1800, 1, 0.03
EPSILONS = 2.0, 2.0, 4.0  # of relevances, inputs and loss: epsilon_1, epsilon_2, epsilon_3
FIRST_MAPS = 32  # |h0|, taken as the number of feature maps of the first convolution
LEAST = 1e-5  # least relevance: with relevance 0, a pixel would get infinite noise

Tensors = dict[str, Tensor]


def network() -> nn.Sequential:
    """Two convolutions, a linear layer of 25 units, and an output layer without bias, for 28 x 28 images."""
    return nn.Sequential(
        nn.Conv2d(1, FIRST_MAPS, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(FIRST_MAPS, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 7 * 7, 25), nn.ReLU(), nn.Linear(25, 10, bias=False),
    )  # fmt: skip


def ratios(relevances: Tensor, noise: Tensor, examples: int, epsilon: float) -> Tensor:
    """Ratios beta_j = d |R_j| / sum |R| of noisy relevances R (Eq. 16, lines 3 to 7); Delta_R = 2 d / |D|."""
    noisy = relevances + 2 * len(relevances) / (examples * epsilon) * noise
    size = noisy.abs().clamp_min(LEAST)
    return len(size) * size / size.sum()


def input_scale(features: int, batch: int, epsilon: float, maps: int = FIRST_MAPS) -> float:
    """Noise scale of inputs: b = Delta_h0 / (|L| epsilon_2) with Delta_h0 = 2 |h0| d (Lemma 3, line 13)."""
    return 2 * maps * features / (batch * epsilon)


def loss_scale(batch: int, epsilon: float, classes: int = 10, units: int = 25) -> float:
    """Noise scale of the loss's coefficients (Lemma 5, line 19).

    b = Delta_F / (|L| epsilon_3) with Delta_F = M (|h_k| + |h_k|^2 / 4).
    """
    return classes * (units + units**2 / 4) / (batch * epsilon)


def release(
    images: Tensor, labels: Tensor, beta: Tensor, scales: tuple[float, float], noises: Tensors
) -> Tensors:
    """Noisy images and noisy coefficients of the loss, released once (lines 12, 13, 18 and 19).

    ``scales`` are those of inputs and loss; ``noises`` are standard Laplace: 'inputs' (N, d), 'first' and
    'second' (N, M).
    """
    flat = images.flatten(1) + scales[0] / beta * noises["inputs"]
    return {
        "inputs": flat.view_as(images),
        "first": 0.5 - F.one_hot(labels, 10) + scales[1] * noises["first"],
        "second": 1 / 8 + scales[1] * noises["second"],
    }


def hidden(net: nn.Sequential, parameters: Tensors, inputs: Tensor, bias: Tensor) -> Tensor:
    """Units of the last hidden layer before scaling; ``bias``: noisy factor of the first bias (line 14)."""
    weights = {**parameters, "0.bias": parameters["0.bias"] * bias}
    rest = {name: value for name, value in weights.items() if not name.startswith(f"{len(net) - 1}.")}
    return functional_call(net[:-1], rest, (inputs,))


def outputs(net: nn.Sequential, parameters: Tensors, units: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Outputs for ``units`` scaled to [0, 1] by a batch's extremes ``low`` and ``high`` (Section III-B)."""
    bounded = (units - low) / (high - low).clamp_min(1e-6)
    return bounded @ parameters[f"{len(net) - 1}.weight"].T


def step(net: nn.Sequential, parameters: Tensors, batch: Tensors, bias: Tensor, rate: float) -> Tensors:
    """Parameters after a step of SGD on the polynomial loss (Eq. 25) of a released batch."""

    def loss(weights: Tensors) -> Tensor:
        units = hidden(net, weights, batch["inputs"], bias)
        z = outputs(net, weights, units, units.amin(0), units.amax(0))
        return (math.log(2) + batch["first"] * z + batch["second"] * z.square()).sum(1).mean()

    return {name: parameters[name] - rate * value for name, value in grad(loss)(parameters).items()}


def main(folder: Path) -> None:
    """Release, train, test and account; a pixel's mean replaces the paper's relevances of a network."""
    (images, labels), test = (
        (
            torch.from_numpy(np.load(folder / f"{split}.inputs.npy")).float() / 255,
            torch.from_numpy(np.load(folder / f"{split}.labels.npy")),
        )
        for split in ("train", "test")
    )
    examples, features, batch = len(labels), images[0].numel(), min(BATCH, len(labels))
    laplace = torch.distributions.Laplace(0.0, 1.0)
    beta = ratios(images.flatten(1).mean(0), laplace.sample((features,)), examples, EPSILONS[0])
    scales = input_scale(features, batch, EPSILONS[1]), loss_scale(batch, EPSILONS[2])
    shapes = {"inputs": (examples, features), "first": (examples, 10), "second": (examples, 10)}
    noises = {name: laplace.sample(shape) for name, shape in shapes.items()}
    bias = 1 + scales[0] * laplace.sample()
    released, net = release(images, labels, beta, scales, noises), network()
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    for _ in range(EPOCHS):
        for chosen in torch.randperm(examples)[: examples // batch * batch].split(batch):
            part = {name: value[chosen] for name, value in released.items()}
            parameters = step(net, parameters, part, bias, RATE)
    first = hidden(net, parameters, released["inputs"][:batch], bias)
    units = hidden(net, parameters, test[0], bias)
    right = outputs(net, parameters, units, first.amin(0), first.amax(0)).argmax(1) == test[1]
    # an example changes a pixel by at most 1, two of its label's coefficients by 1, an average pixel by 1 / N
    image, label, averages = (beta / scales[0]).sum().item(), 2 / scales[1], EPSILONS[0] / 2
    print(
        f"test accuracy {100 * right.float().mean():.2f} %, epsilon claimed {sum(EPSILONS):g}, spent "
        f"{averages + image + label:.4g} at delta 0: {image:.4g} by images, {label:.4g} by labels"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
