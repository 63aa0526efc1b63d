"""Adapters of low rank: they move, and their per-example gradients are those of one example at a time."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from dprepro.clipping.clippers import clipper_factory
from dprepro.clipping.gradients import BookKeeping, OneByOne
from dprepro.clipping.limits import ClipLimits
from dprepro.pipeline.models.adapters import add_adapters

CLASSES, RANK = 3, 2
FROZEN = ("0.", "4.")  # layers with adapters, `.layer` each


def trunk() -> nn.Sequential:
    """A network whose batch norm has statistics of its own."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(6)
    net = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, stride=2, padding=1), norm, nn.ReLU(inplace=True), nn.Flatten()),
        *(nn.Linear(6 * 16, 8), nn.ReLU(inplace=True), nn.Linear(8, 10)),
    )
    norm.running_mean = torch.randn(6)
    norm.running_var = torch.rand(6) + 0.5
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return net


def images(count: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def trained(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in net.named_parameters() if value.requires_grad}


def test_fresh_adapters_leave_the_networks_output() -> None:
    net, public = add_adapters(trunk(), RANK, CLASSES), trunk().eval()
    assert {name.rpartition(".")[0] for name in trained(net)} == {
        *(f"{place}{part}" for place in FROZEN for part in ("down", "up")), "6"
    }  # fmt: skip
    assert sum(value.numel() for value in trained(net).values()) == (
        RANK * 27 + 6 * RANK + RANK * 96 + 8 * RANK + 9 * CLASSES
    )
    # up to the last layer, in training mode too
    torch.testing.assert_close(net[:6](images(5)), public[:6](images(5)))


@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_gradients_are_those_of_one_example_at_a_time_and_all_adapters_move(clip: float) -> None:
    net, inputs, labels = add_adapters(trunk(), RANK, CLASSES), images(6), torch.arange(6) % CLASSES
    frozen = {name: value.clone() for name, value in net.state_dict().items() if name not in trained(net)}
    factory = clipper_factory(net, inputs[:1])
    fast, slow = factory(net), OneByOne(net)
    assert isinstance(fast, BookKeeping)
    tensors, start = trained(net), trained(net)
    bounds = ClipLimits.whole(torch.tensor(clip), len(tensors))
    for step in range(3):
        sums = fast(tensors, inputs, labels, torch.ones(6), bounds).sums
        expected = slow(tensors, inputs, labels, torch.ones(6), bounds).sums
        for name, value in sums.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)
            # the second layers begin at zero, so that the first ones move one step later
            assert bool(value.any()) == (step > 0 or not name.endswith("down.weight")), name
        tensors = {name: value - 0.1 * sums[name] for name, value in tensors.items()}
    assert not any(torch.equal(value, start[name]) for name, value in tensors.items())
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in frozen.items())
    outputs = functional_call(net, tensors, (inputs,))
    alone = torch.cat([functional_call(net, tensors, (each[None],)) for each in inputs])
    torch.testing.assert_close(outputs, alone)
