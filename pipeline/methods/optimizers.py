"""Optimizers for R replicas together, with the rules of torch.optim.

All tensors have a leading replica dimension (R, ...); rates and other scalars are (R,).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dprepro.clipping.gradients import Tensors
from dprepro.pipeline.methods.base import State, Task, per_replica

# Adam's constants as in Kingma and Ba, and in torch
BETAS, TINY = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Sgd:
    """SGD with momentum; as in torch, the first gradient is not dampened."""

    momentum: Tensor | None = None  # None: no replica has momentum
    dampening: Tensor | float = 0.0

    @classmethod
    def of(cls, task: Task, settings: Sequence[Any]) -> "Sgd":
        """SGD with the momentum and the dampening, if any, of each replica's settings."""
        momenta = [setting.momentum for setting in settings]
        dampening = task.numbers(getattr(setting, "dampening", 0.0) for setting in settings)
        return cls(task.numbers(momenta) if any(momenta) else None, dampening)

    def start(self, parameters: Tensors) -> State:
        """Parameters with zero momentum."""
        return {"parameters": parameters, "momentum": _zeros(parameters)}

    def update(self, state: State, gradients: Tensors, rates: Tensor, step: int) -> State:
        """Parameters and momentum after a step."""
        directions, momentum = gradients, self.momentum
        if momentum is not None:
            share = torch.ones_like(momentum) - (0.0 if step == 0 else self.dampening)
            directions = {
                name: (per_replica(value, momentum) * state["momentum"][name]).add_(
                    per_replica(value, share) * value
                )
                for name, value in gradients.items()
            }
        return {"parameters": _descend(state["parameters"], directions, rates), "momentum": directions}


class Adam:
    """Adam (Kingma and Ba 2015, Algorithm 1)."""

    def start(self, parameters: Tensors) -> State:
        """Parameters with zero moments."""
        moments = {moment: _zeros(parameters) for moment in ("first_moment", "second_moment")}
        return {"parameters": parameters, **moments}

    def update(self, state: State, gradients: Tensors, rates: Tensor, step: int) -> State:
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
        parameters = _descend(state["parameters"], directions, rates)
        return {"parameters": parameters, "first_moment": first, "second_moment": second}


Optimizer = Sgd | Adam


def decayed(parameters: Tensors, rates: Tensor, weight_decays: Sequence[float]) -> Tensors:
    """Parameters after decoupled weight decay at given learning rates (Loshchilov and Hutter 2019)."""
    if not any(weight_decays):
        return parameters
    factors = 1 - rates * rates.new_tensor(weight_decays)
    return {name: value * per_replica(value, factors) for name, value in parameters.items()}


def _zeros(parameters: Tensors) -> Tensors:
    return {name: torch.zeros_like(value) for name, value in parameters.items()}


def _descend(parameters: Tensors, directions: Tensors, rates: Tensor) -> Tensors:
    values = list(parameters.values())
    descended = torch._foreach_addcmul(
        values, [per_replica(value, rates) for value in values], [directions[name] for name in parameters], -1
    )
    return dict(zip(parameters, descended, strict=True))
