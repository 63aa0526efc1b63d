"""From gradients to new parameters, for R replicas at once; the rules are torch.optim's own.

All tensors have a leading replica dimension (R, ...); rates and the like are (R,).
"""

import torch
from torch import Tensor

from pipeline.methods.base import State, each
from pipeline.privacy.gradients import Tensors

# Adam's constants as in Kingma and Ba, and in torch
BETAS, TINY = (0.9, 0.999), 1e-8


def sgd_start(parameters: Tensors) -> State:
    """What `sgd` keeps, before the first step."""
    return {"momentum": {name: torch.zeros_like(value) for name, value in parameters.items()}}


def sgd(
    state: State, gradients: Tensors, rates: Tensor, step: int, momentum: Tensor, dampening: Tensor
) -> State:
    """SGD with momentum; as in torch the first gradient is not dampened."""
    if momentum.device.type == "cpu" and not (momentum.any() or dampening.any()):
        # the buffer is the gradient; on a GPU it would take longer to find that out
        return {"parameters": _descended(state["parameters"], gradients, rates), "momentum": gradients}
    kept = torch.ones_like(dampening) if step == 0 else 1 - dampening
    buffer = {
        name: (each(value, momentum) * state["momentum"][name]).add_(each(value, kept) * value)
        for name, value in gradients.items()
    }
    return {"parameters": _descended(state["parameters"], buffer, rates), "momentum": buffer}


def adam_start(parameters: Tensors) -> State:
    """What `adam` keeps, before the first step."""
    return {
        moment: {name: torch.zeros_like(value) for name, value in parameters.items()}
        for moment in ("first_moment", "second_moment")
    }


def adam(state: State, gradients: Tensors, rates: Tensor, step: int) -> State:
    """Kingma and Ba 2015, Algorithm 1."""
    ahead, below = BETAS
    first, second, directions = {}, {}, {}
    for name, gradient in gradients.items():
        first[name] = torch.lerp(gradient, state["first_moment"][name], ahead)
        second[name] = gradient.square().lerp_(state["second_moment"][name], below)
        mean = first[name] / (1 - ahead ** (step + 1))
        square = second[name] / (1 - below ** (step + 1))
        # in place: memory that was just written is the fastest there is
        directions[name] = mean.div_(square.sqrt_().add_(TINY))
    parameters = _descended(state["parameters"], directions, rates)
    return {"parameters": parameters, "first_moment": first, "second_moment": second}


def _descended(parameters: Tensors, directions: Tensors, rates: Tensor) -> Tensors:
    return {name: value - each(value, rates) * directions[name] for name, value in parameters.items()}
