"""The rules of `optimizers` against torch.optim, replica by replica."""

import torch
from torch import Tensor

from dprepro.pipeline.methods.optimizers import Adam, Sgd, decayed

STEPS, RATES = 4, (0.1, 0.02)


def problem() -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """Parameters of two replicas, and gradients of every step."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"weight": (2, 3, 4), "bias": (2, 3)}
    made = [
        {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        for _ in range(STEPS + 1)
    ]
    return made[0], made[1:]


def by_torch(optimizers: list[tuple[type[torch.optim.Optimizer], dict[str, float]]]) -> dict[str, Tensor]:
    """Where each replica ends with an optimizer of its own."""
    start, gradients = problem()
    ends = []
    for replica, (kind, options) in enumerate(optimizers):
        leaves = {name: value[replica].clone().requires_grad_() for name, value in start.items()}
        optimizer = kind(leaves.values(), **options)  # type: ignore[arg-type]
        for step in gradients:
            for name, value in leaves.items():
                value.grad = step[name][replica].clone()
            optimizer.step()
        ends.append({name: value.detach() for name, value in leaves.items()})
    return {name: torch.stack([end[name] for end in ends]) for name in start}


def test_sgd_with_momentum_and_dampening_is_torchs() -> None:
    momentum, dampening = (0.9, 0.5), (0.0, 0.9)
    parameters, gradients = problem()
    sgd = Sgd(torch.tensor(momentum), torch.tensor(dampening))
    state = sgd.start(parameters)
    for step, gradient in enumerate(gradients):
        state = sgd.update(state, gradient, torch.tensor(RATES), step)
    expected = by_torch(
        [
            (torch.optim.SGD, {"lr": lr, "momentum": m, "dampening": d})
            for lr, m, d in zip(RATES, momentum, dampening, strict=True)
        ]
    )
    torch.testing.assert_close(state["parameters"], expected)


def test_adam_with_decoupled_weight_decay_is_torchs() -> None:
    decays, rates = (0.0, 0.3), torch.tensor(RATES)
    parameters, gradients = problem()
    state = Adam().start(parameters)
    for step, gradient in enumerate(gradients):
        state |= {"parameters": decayed(state["parameters"], rates, decays)}
        state = Adam().update(state, gradient, rates, step)
    expected = by_torch(
        [(torch.optim.AdamW, {"lr": lr, "weight_decay": w}) for lr, w in zip(RATES, decays, strict=True)]
    )
    torch.testing.assert_close(state["parameters"], expected)
