"""Examples that see each other train by no method whose guarantee it breaks; why they don't is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dprepro.clipping.functional import Tensors
from dprepro.clipping.gradients import ClippedSum, PerExample
from dprepro.clipping.limits import ClipLimits
from dprepro.errors import UserError
from dprepro.pipeline.methods import private_steps
from dprepro.pipeline.models.networks import build_net
from tests.conftest import dpsgd, make_data
from tests.methods.conftest import ALONE, PLAIN, batch_clipping, build, tan
from tests.methods.examples import made_up


class Branching(nn.Module):
    """Looks at the values of an example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(784, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([self.layer(image.flatten()) * (1 if image.sum() > 0 else 2) for image in inputs])


def trained(net: nn.Module) -> private_steps.PrivateSteps:
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    task: dict[str, Any] = {"net": net, "parameters": parameters}
    method: private_steps.PrivateSteps = build(
        make_data(train=40), PLAIN, tan(batch=20), how=ALONE, seeded=False, **task
    )
    return method


class Bounded(nn.Module):
    """Shrinks in place, in its own table, the rows that an example looks up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(256, 8, max_norm=1e3)  # above the norms in tests before training
        self.last = nn.Linear(8, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.table((inputs.flatten(1)[:, ::40] * 255).long().clamp(0, 255)).mean(1))


def mixing(tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, bounds: ClipLimits) -> ClippedSum:
    """Examples whose gradients are scaled by how many there are."""
    net = build_net(PLAIN, (1, 28, 28), 10)
    one = PerExample(net)(tensors, inputs, labels, mask, bounds)
    return one._replace(sums={name: value * len(labels) ** 0.5 for name, value in one.sums.items()})


def test_a_part_that_differs_from_what_an_example_has_alone_stops_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(private_steps, "CHECKED_EVERY", 2)
    method = trained(build_net(PLAIN, (1, 28, 28), 10))
    state = method.init()
    state, _ = method.step(state, 0)
    method.of_examples = mixing
    state, _ = method.step(state, 1)  # not compared
    with pytest.raises(
        UserError,
        match=r"step 2: an example's part of a clipped sum differs.*this stop depends on its private data",
    ):
        method.step(state, 2)


def test_the_reason_why_examples_do_not_meet_is_kept() -> None:
    net = build_net(PLAIN, (1, 28, 28), 10)
    assert trained(net).isolation == "by_construction"
    assert trained(Branching()).isolation == "one_at_a_time"


@pytest.mark.parametrize("configured", [tan(batch=8), batch_clipping(clipping="full", side=None, mini_set=4)])
def test_no_weight_changes_but_by_a_release(configured: Any) -> None:
    """Which rows of a table were shrunk would tell which words the private examples have."""
    torch.manual_seed(0)
    net, data = Bounded(), make_data(train=40)
    before = {name: value.clone() for name, value in net.named_parameters()}
    task: dict[str, Any] = {"net": net, "parameters": dict(net.named_parameters())}
    method = build(data, PLAIN, configured, how=ALONE, seeded=False, **task)
    with pytest.raises(UserError, match=r"max_norm changes the rows|changes 'table"):
        method.step(method.init(), 0)
    assert all(torch.equal(value, before[name]) for name, value in net.named_parameters())


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
