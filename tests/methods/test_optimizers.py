"""The rules of `optimizers` against torch.optim."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dprepro.pipeline.methods.optimizers import Adam, Optimizer, Sgd, decayed

STEPS, RATE = 4, 0.1


def problem() -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """Parameters, and gradients of every step."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"weight": (3, 4), "bias": (3,)}
    made = [
        {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        for _ in range(STEPS + 1)
    ]
    return made[0], made[1:]


def after(ours: Optimizer, weight_decay: float = 0.0) -> dict[str, Tensor]:
    parameters, gradients = problem()
    state = ours.start(parameters)
    for step, gradient in enumerate(gradients):
        state |= {"parameters": decayed(state["parameters"], RATE, weight_decay)}
        state = ours.update(state, gradient, RATE, step)
    return state["parameters"]


def by_torch(kind: Callable[..., torch.optim.Optimizer], **options: float) -> dict[str, Tensor]:
    start, gradients = problem()
    leaves = {name: value.requires_grad_() for name, value in start.items()}
    optimizer = kind(leaves.values(), lr=RATE, **options)
    for step in gradients:
        for name, value in leaves.items():
            value.grad = step[name].clone()
        optimizer.step()
    return {name: value.detach() for name, value in leaves.items()}


@pytest.mark.parametrize(("momentum", "dampening"), [(0.0, 0.0), (0.9, 0.0), (0.5, 0.9)])
def test_sgd_with_momentum_and_dampening_is_torchs(momentum: float, dampening: float) -> None:
    expected = by_torch(torch.optim.SGD, momentum=momentum, dampening=dampening)
    torch.testing.assert_close(after(Sgd(momentum, dampening)), expected)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adam_with_decoupled_weight_decay_is_torchs(decay: float) -> None:
    torch.testing.assert_close(after(Adam(), decay), by_torch(torch.optim.AdamW, weight_decay=decay))
