"""What tests of several methods do alike."""

from collections.abc import Iterable

import torch
from torch import Tensor

from pipeline.methods.base import Method


def trained(method: Method, steps: int) -> Tensor:
    """(R, P) the whole model of each replica after so many steps."""
    state = method.init()
    for step in range(steps):
        state, _ = method.step(state, step)
    return torch.cat([value.flatten(1) for value in method.model(state).values()], dim=1)


def check_alike(models: Iterable[Tensor], rtol: float, atol: float) -> None:
    """Ways to compute the same thing differ in rounding alone."""
    first, *others = models
    assert others
    for other in others:
        torch.testing.assert_close(other, first, rtol=rtol, atol=atol)
