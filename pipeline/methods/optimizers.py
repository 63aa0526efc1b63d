"""SGD and Adam as functions from a state to the next one, with the rules of torch.optim.

`torch.optim` changes weights in place, and a `State` of a method is kept in checkpoints. Its Adam and its
dampening round in another order than here, and trainings shall repeat recorded ones to the last bit.
"""

from dataclasses import dataclass

import torch

from dprepro.clipping.functional import Tensors
from dprepro.pipeline.methods.base import State

# Adam's constants as in Kingma and Ba, and in torch
BETAS, TINY = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Sgd:
    """SGD with momentum; as in torch, the first gradient is not dampened."""

    momentum: float = 0.0
    dampening: float = 0.0

    def start(self, parameters: Tensors) -> State:
        """Parameters with zero momentum."""
        return {"parameters": parameters, "momentum": _zeros(parameters)}

    def update(self, state: State, gradients: Tensors, rate: float, step: int) -> State:
        """Parameters and momentum after a step."""
        directions = gradients
        if self.momentum:
            share = 1 - torch.tensor(0.0 if step == 0 else self.dampening)  # rounded as the gradients are
            directions = {
                name: (state["momentum"][name] * self.momentum).add_(value * float(share))
                for name, value in gradients.items()
            }
        return {"parameters": _descend(state["parameters"], directions, rate), "momentum": directions}


class Adam:
    """Adam (Kingma and Ba 2015, Algorithm 1)."""

    def start(self, parameters: Tensors) -> State:
        """Parameters with zero moments."""
        moments = {moment: _zeros(parameters) for moment in ("first_moment", "second_moment")}
        return {"parameters": parameters, **moments}

    def update(self, state: State, gradients: Tensors, rate: float, step: int) -> State:
        """Parameters and both moments after a step."""
        beta1, beta2 = BETAS
        first, second, directions = {}, {}, {}
        for name, gradient in gradients.items():
            first[name] = torch.lerp(gradient, state["first_moment"][name], beta1)
            second[name] = gradient.square().lerp_(state["second_moment"][name], beta2)
            mean = first[name] / (1 - beta1 ** (step + 1))
            square = second[name] / (1 - beta2 ** (step + 1))
            # in place, because memory that was just written is in the cache
            directions[name] = mean.div_(square.sqrt_().add_(TINY))
        parameters = _descend(state["parameters"], directions, rate)
        return {"parameters": parameters, "first_moment": first, "second_moment": second}


Optimizer = Sgd | Adam


def decayed(parameters: Tensors, rate: float, weight_decay: float) -> Tensors:
    """Parameters after decoupled weight decay at a learning rate (Loshchilov and Hutter 2019)."""
    if not weight_decay:
        return parameters
    factor = float(1 - torch.tensor(rate) * weight_decay)  # rounded as the parameters are
    return {name: value * factor for name, value in parameters.items()}


def _zeros(parameters: Tensors) -> Tensors:
    return {name: torch.zeros_like(value) for name, value in parameters.items()}


def _descend(parameters: Tensors, directions: Tensors, rate: float) -> Tensors:
    steps = [directions[name] for name in parameters]
    descended = torch._foreach_add(list(parameters.values()), steps, alpha=-rate)
    return dict(zip(parameters, descended, strict=True))
