"""What a row's replicas cost together, against one run of the same network as a plain PyTorch loop.

    python benchmarks/replicas.py davody-t2-ln-lenet5 --device cuda

The goal, on a GPU: the 50 replicas of a row of Davody et al. Table 2 in at most 4 times one plain run. Prints
one line of JSON; nothing is written.
"""

import json
import time
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from pipeline import params
from pipeline.data import prepared
from pipeline.methods.base import Task, as_input
from pipeline.methods.noisy_weights.method import NoisyWeights, noisy_names
from pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from pipeline.training import loop as training
from stages.train import execution


def plain(task: Task, own: NoisyWeightsSettings) -> Callable[[int], None]:
    """A step as anybody would write it: noise in, backward, noise out, Adam. Changes ``task.net``."""
    net, noisy = task.net, set(noisy_names(task.net))
    optimizer = torch.optim.Adam(net.parameters(), lr=own.learning_rate)

    def step(number: int) -> None:
        chosen = torch.randint(len(task.labels), (own.batch,), device=task.labels.device)
        noise: dict[str, Tensor] = {}
        with torch.no_grad():
            for name, value in net.named_parameters():
                if name in noisy:
                    noise[name] = own.sigma * torch.randn_like(value)
                    value += noise[name]
        optimizer.zero_grad()
        F.cross_entropy(net(as_input(task.inputs[chosen])), task.labels[chosen]).backward()
        with torch.no_grad():
            for name, value in net.named_parameters():
                if name in noisy:
                    value -= noise[name]
        optimizer.step()

    return step


def together(method: NoisyWeights) -> Callable[[int], None]:
    """A step of every replica by the engine."""
    state = method.init()

    def step(number: int) -> None:
        nonlocal state
        with torch.no_grad():
            state, _ = method.step(state, number)

    return step


def seconds(step: Callable[[int], None], steps: int, device: torch.device) -> float:
    """Of one step, after a tenth as many to warm up."""
    for number in range(max(1, steps // 10)):
        step(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(steps):
        step(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


def main(
    row: Annotated[str, typer.Argument(help="A row of noisy_weights without batch norm.")],
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "auto",
    steps: Annotated[int, typer.Option(min=1)] = 200,
) -> None:
    """Time both and print the ratio."""
    loaded = params.load()
    own = loaded.row(row)
    if own.method != "noisy_weights" or own.model.normalization == "running_bn":
        raise typer.BadParameter(
            f"{row}: needs method noisy_weights, and no batch norm, which is not torch's"
        )
    how = execution(device, 0, 0, False)
    members = training.grouped(training.replicas(own))[0]
    task = training.make_task(members, own.model, True, prepared.load(own.data), how)
    configured = [member.settings for member in members]
    assert all(isinstance(one, NoisyWeightsSettings) for one in configured)
    method = NoisyWeights(task, configured, own.model.normalization)  # type: ignore[arg-type]
    all_of_them = seconds(together(method), steps, how.device)
    one_alone = seconds(plain(task, configured[0]), steps, how.device)  # type: ignore[arg-type]
    print(
        json.dumps(
            {
                "row": row,
                "device": training.describe_device(how.device),
                "replicas": len(members),
                "batch": configured[0].batch,
                "seconds_per_step_together": all_of_them,
                "seconds_per_step_plain": one_alone,
                "ratio": all_of_them / one_alone,
                "torch": torch.__version__,
            }
        )
    )


if __name__ == "__main__":
    typer.run(main)
