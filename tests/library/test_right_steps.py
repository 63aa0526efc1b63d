"""Right steps of further kinds than those of `test_replay.py`, in which `replay` finds nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

import dprepro
from tests.library.test_replay import (
    CLAIMS,
    CLASSES,
    CLIP,
    EXPECTED,
    NOISE,
    WIDTH,
    Make,
    data,
    deep,
    images,
    mean,
    network,
    with_opacus,
)

pytestmark = pytest.mark.broad  # two seconds each


class Residual(nn.Module):
    """Dense layers with a connection past them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(WIDTH, size) for size in (WIDTH, WIDTH, CLASSES))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(inputs + self.second(self.first(inputs).relu()))
        return outputs


def text() -> nn.Module:
    return nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(8 * 6, CLASSES))


def tokens() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(30, (8, 6), generator=generator), torch.randint(CLASSES, (8,), generator=generator)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, Tensor]]] = {
    "dense": (network, data(8)),
    "images": (images, data(8, 1, 8, 8)),
    "deep": (deep, data(8)),
    "residual": (Residual, data(8)),
    "text": (text, tokens()),
}


def ghost(make: Callable[[], nn.Module]) -> Make:
    def train_step() -> Callable[[Tensor, Tensor], Any]:
        wrapped = GradSampleModuleFastGradientClipping(
            make(), max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean"
        )
        sgd = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        optimizer = DPOptimizerFastGradientClipping(
            sgd, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=EXPECTED
        )
        criterion = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss(), "mean")

        def step(inputs: Tensor, labels: Tensor) -> Any:
            optimizer.zero_grad()
            criterion(wrapped(inputs), labels).backward()
            optimizer.step()
            return wrapped, optimizer

        return step

    return train_step


def ours(make: Callable[[], nn.Module], at_once: int | None = None) -> Make:
    def train_step() -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
        net = make()

        def step(inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return mean(dprepro.noisy_sum(net, inputs, labels, CLIP, NOISE, at_once=at_once))

        return step

    return train_step


def in_place_of_backward() -> Callable[[Tensor, Tensor], nn.Module]:
    net, sampler = network(), dprepro.PoissonSampler(10 * EXPECTED, EXPECTED, 1)
    private_backward = dprepro.PrivateBackward(net, sampler, CLIP, NOISE)
    adam = torch.optim.Adam(net.parameters())

    def step(inputs: Tensor, labels: Tensor) -> nn.Module:
        private_backward(inputs, labels)
        adam.step()
        return net

    return step


WAYS: dict[str, Callable[[Callable[[], nn.Module]], Make]] = {
    "Opacus": with_opacus,
    "Opacus, functorch": partial(with_opacus, functorch=True),
    "Opacus, ghost": ghost,
    "ours": ours,
}
STEPS: dict[str, tuple[Make, tuple[Tensor, Tensor]]] = {
    f"{way}, {name}": (step(make), examples)
    for way, step in WAYS.items()
    for name, (make, examples) in NETWORKS.items()
    if way != "Opacus" or name in ("residual", "text")  # the others are in test_replay.py
}
STEPS |= {
    "ours, at once": (ours(network, at_once=3), data(8)),
    "ours, in place of backward": (in_place_of_backward, data(8)),
    "ours, a large batch": (ours(network), data(64)),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_right_step_has_no_violation(name: str) -> None:
    make, examples = STEPS[name]
    replayed = dprepro.replay(make, *examples, **CLAIMS)
    assert replayed.violations == ()
    assert replayed.sensitivity_of_all == pytest.approx(replayed.sensitivity_allowed, rel=0.5)
    assert replayed.noise == pytest.approx(dict.fromkeys(replayed.noise, NOISE), rel=0.5)
