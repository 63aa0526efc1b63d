"""A network in which examples see each other trains by no method whose guarantee it would break."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dprepro.errors import UserError
from tests.conftest import dpsgd
from tests.methods.conftest import ALONE, PLAIN, batch_clipping, build, tan
from tests.methods.examples import made_up

SHAPE = (1, 8, 8)
BATCH = {"batch": 4, "delta": 1e-5}
SETS: dict[str, Any] = {**BATCH, "clipping": "full", "side": None}


class Centred(nn.Sequential):
    """Takes the mean of the batch away."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = super().forward(inputs)
        return hidden - hidden.mean(0)


def step(configured: Any, net: nn.Module, tmp_path: Path) -> None:
    """One step with a network that nobody knows."""
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    data = made_up(PLAIN, SHAPE, tmp_path)
    method = build(data, PLAIN, configured, how=ALONE, net=net, parameters=parameters)
    with torch.no_grad():
        method.step(method.init(), 0)


def linear(kind: Callable[..., nn.Module]) -> nn.Module:
    return kind(nn.Flatten(), nn.Linear(64, 4))


@pytest.mark.parametrize(
    "configured",
    [
        dpsgd(**BATCH, epochs=1),
        tan(**BATCH),
        tan(**BATCH, copies=2, augment="crop_flip"),
        batch_clipping(**SETS, mini_set=1),
    ],
)
def test_it_is_refused_before_the_first_step(configured: Any, tmp_path: Path) -> None:
    step(configured, linear(nn.Sequential), tmp_path)
    with pytest.raises(UserError, match="the network mixes examples: in a batch of 2"):
        step(configured, linear(Centred), tmp_path)


def test_mini_sets_of_fixed_size_and_trainings_without_privacy_may_mix(tmp_path: Path) -> None:
    step(batch_clipping(**SETS, mini_set=2), linear(Centred), tmp_path)
    step(dpsgd(**BATCH, epochs=1, epsilon=torch.inf), linear(Centred), tmp_path)
