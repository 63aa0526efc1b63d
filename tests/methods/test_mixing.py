"""A network in which examples see each other trains by no method whose guarantee it would break."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline.errors import UserError
from pipeline.methods.batch_clipping.settings import BatchClippingSettings
from pipeline.methods.dpsgd.settings import DpsgdSettings
from pipeline.methods.registry import build_method
from pipeline.methods.tan.settings import TanSettings
from pipeline.models.model import Model
from pipeline.training.loop import Replica, make_task
from tests.methods.examples import CPU, SAMPLE, made_up

PLAIN = Model(name="lenet_300_100", normalization="none")
SHAPE = (1, 8, 8)
DPSGD: dict[str, Any] = {"batch": SAMPLE, "epochs": 1, "learning_rate": 1, "epsilon": 8, "delta": 1e-5}
SETS: dict[str, Any] = {
    "batch": 4,
    "epochs": 1,
    "learning_rate": 0.1,
    "sigma": 1,
    "delta": 1e-5,
    "clipping": "full",
}
TAN: dict[str, Any] = {"batch": 4, "steps": 2, "learning_rate": 1, "sigma": 1, "delta": 1e-5}


class Centred(nn.Sequential):
    """Takes the mean of the batch away."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = super().forward(inputs)
        return hidden - hidden.mean(0)


def step(method: str, configured: Any, net: nn.Module, tmp_path: Path) -> None:
    """One step of ``method`` with a network that nobody knows."""
    task = make_task([Replica("row", 0, configured)], PLAIN, True, made_up(PLAIN, SHAPE, tmp_path), CPU)
    parameters = {name: value.detach()[None] for name, value in net.named_parameters()}
    built = build_method(method, replace(task, net=net, parameters=parameters), [configured], "none")
    with torch.no_grad():
        built.step(built.init(), 0)


def linear(kind: Callable[..., nn.Module]) -> nn.Module:
    return kind(nn.Flatten(), nn.Linear(64, 4))


@pytest.mark.parametrize(
    ("method", "configured"),
    [
        ("dpsgd", DpsgdSettings(**DPSGD)),
        ("tan", TanSettings(**TAN)),
        ("tan", TanSettings(**TAN, copies=2, augment="crop_flip")),
        ("batch_clipping", BatchClippingSettings(**SETS, mini_set=1)),
        ("batch_clipping", BatchClippingSettings(**SETS, mini_set=2, sampling="poisson")),
    ],
)
def test_it_is_refused_before_the_first_step(method: str, configured: Any, tmp_path: Path) -> None:
    step(method, configured, linear(nn.Sequential), tmp_path)
    with pytest.raises(UserError, match="the network mixes examples: in a batch of 2"):
        step(method, configured, linear(Centred), tmp_path)


def test_a_mini_set_of_fixed_size_is_clipped_as_a_whole_and_may_mix(tmp_path: Path) -> None:
    step("batch_clipping", BatchClippingSettings(**SETS, mini_set=2), linear(Centred), tmp_path)


def test_what_is_not_private_may_mix(tmp_path: Path) -> None:
    step("dpsgd", DpsgdSettings(**{**DPSGD, "epsilon": torch.inf}), linear(Centred), tmp_path)
