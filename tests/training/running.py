"""What tests train with: DP-SGD, seeded, without a checkpoint on the way."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.training.loop import Context, FinishedTraining, Progress

LAYER = Model(name="lenet5", normalization="layer")


def quiet(_: Progress) -> None:
    pass


def context(data: Prepared, how: Execution, folder: Path, **changes: Any) -> Context:
    """What trainings of DP-SGD are trained from, seeded, without a checkpoint on the way."""
    context = Context(LAYER, True, data, how, quiet, folder, 1e9)
    return replace(context, **changes)


def weights(trainings: Iterable[FinishedTraining]) -> dict[tuple[str, int], torch.Tensor]:
    return {
        finished.run.key: torch.cat([value.flatten() for value in finished.state["parameters"].values()])
        for finished in trainings
    }
