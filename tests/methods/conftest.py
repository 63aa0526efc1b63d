"""Methods on a few examples, and their settings in short runs."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dprepro.fields import Noise
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.batch_clipping.settings import BatchClippingSettings
from dprepro.pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.methods.tan.settings import TanSettings
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.training.loop import SeedRun, make_task

CPU = Execution(torch.device("cpu"), physical=10_000)
ALONE = Execution(torch.device("cpu"), physical=64)
LENET, PLAIN = Model(name="lenet5"), Model(name="lenet_300_100")


def build(
    data: Prepared,
    model: Model,
    settings: MethodSettings,
    how: Execution = CPU,
    seeded: bool = True,
    noise: Noise | None = None,
    **task: Any,
) -> Any:
    """Method for a training with ``settings``; ``task`` replaces fields of its task."""
    made = make_task(SeedRun("level", 0, settings), model, seeded, data, how, noise)
    return settings.build_method(replace(made, **task), model.normalization)


def flat(tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in tensors.values()])


def tan(**changes: object) -> TanSettings:
    values = {"batch": 20, "steps": 5, "learning_rate": 0.5, "sigma": 1.5, "clip": 0.4, "delta": 1e-3}
    return TanSettings.model_validate(values | changes)


def batch_clipping(**changes: object) -> BatchClippingSettings:
    values = {"batch": 12, "epochs": 0.5, "learning_rate": 0.3, "sigma": 0.5, "clip": 0.2, "side": 32,
              "clipping": "adaptive", "delta": 1e-3}  # fmt: skip
    return BatchClippingSettings.model_validate(values | changes)


def noisy(**changes: object) -> NoisyWeightsSettings:
    values = {"batch": 20, "epochs": 2, "learning_rate": 0.01, "sigma": 0.1, "draws": 3}
    return NoisyWeightsSettings.model_validate(values | changes)
