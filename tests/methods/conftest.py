"""What tests of several methods do alike."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from pipeline.methods.base import Execution, Method

CPU = Execution(torch.device("cpu"), replicas_at_once=None, physical=10_000)
WAYS = [
    CPU,
    replace(CPU, replicas_at_once=1, physical=7),
    replace(CPU, replicas_at_once=2, physical=23),
    replace(CPU, reference=True),
]


def check_ways(make: Callable[[Execution], Method], steps: int, rtol: float, atol: float) -> None:
    """However steps are computed, the model and the last metrics are the same but for rounding."""
    models, metrics = [], []
    for how in WAYS:
        method = make(how)
        state = method.init()
        noted: Mapping[str, Tensor] = {}
        for step in range(steps):
            state, noted = method.step(state, step)
        models.append(torch.cat([value.flatten(1) for value in method.model(state).values()], dim=1))
        metrics.append(torch.stack(list(noted.values())))
    check_alike(models, rtol, atol)
    check_alike(metrics, rtol=1e-2, atol=1e-3)


def check_alike(models: Iterable[Tensor], rtol: float, atol: float) -> None:
    """Ways to compute the same thing differ in rounding alone."""
    first, *others = models
    assert others
    for other in others:
        torch.testing.assert_close(other, first, rtol=rtol, atol=atol)
