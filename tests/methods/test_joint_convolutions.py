"""Gradients of convolutions through a joint batch against torch's backward pass."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.func import vjp, vmap

from dprepro.clipping.functional import functional_call
from dprepro.clipping.normalization import BatchStatistics, measuring
from dprepro.pipeline.methods.dpsgd.joint_convolutions import LinearizedBlocks, leading_blocks


def network(*channels: int, bias: bool = True) -> nn.Sequential:
    """Of a block for each of ``channels`` but the first, with strides, padding and pooling of every kind."""
    torch.manual_seed(0)
    strides, poolings = [2, 1, 1], [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, padding=1), nn.MaxPool2d((2, 1))]
    layers: list[nn.Module] = []
    for (inputs, outputs), stride, pooling in zip(pairwise(channels), strides, poolings, strict=False):
        conv = nn.Conv2d(inputs, outputs, (3, 2), stride, padding=(1, 2), bias=bias)
        layers += [conv, BatchStatistics(outputs, 0.1), nn.ReLU(), pooling]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(5, 3))
    for name, value in net.named_parameters():
        nn.init.normal_(value, mean=0.5 if name.endswith("weight") else 0)
    return net.double()


@pytest.mark.parametrize(
    ("channels", "bias", "absent"), [((1, 3), True, 0), ((2, 3, 4), False, 2), ((1, 2, 3, 4), True, 1)]
)
def test_they_are_those_of_a_backward_pass(channels: tuple[int, ...], bias: bool, absent: int) -> None:
    net = network(*channels, bias=bias)
    blocks, rest = leading_blocks(net)
    before = net[: 4 * len(blocks)]
    assert len(blocks) == len(channels) - 1
    assert [type(layer) for layer in rest.children()] == [nn.Flatten, nn.Linear]
    tensors = {name: value.detach() for name, value in net.named_parameters()}
    convolutions = {name: value for name, value in tensors.items() if name in dict(before.named_parameters())}
    assert set().union(*(block.names for block in blocks)) == set(convolutions)
    inputs, present = torch.randn(7, channels[0], 19, 16).double(), torch.ones(7).double()
    present[:absent] = 0

    def outputs(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        with measuring(before, present):
            result: torch.Tensor = functional_call(before, tensors, (inputs,))
        return result

    expected, pullback = vjp(outputs, convolutions)  # type: ignore[misc]
    linearized = LinearizedBlocks(blocks, tensors, inputs, present)
    torch.testing.assert_close(linearized.outputs, expected)
    at_outputs = torch.randn(5, *expected.shape).double() * (present > 0)[:, None, None, None]
    gradients = linearized.gradients(at_outputs)
    assert set(gradients) == set(convolutions)
    for name, value in vmap(pullback)(at_outputs)[0].items():
        torch.testing.assert_close(gradients[name], value)


def test_a_network_that_begins_otherwise_is_left_whole() -> None:
    frozen = network(1, 2, 3)
    frozen[0].requires_grad_(False)
    for net in (frozen, nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), nn.Linear(4, 3), network(1, 2)[1:]):
        assert leading_blocks(net) == ([], net)
    shared = nn.Sequential(*network(2, 2)[:4], *network(2, 2))
    shared[4] = shared[0]
    assert leading_blocks(shared) == ([], shared)
    twice = nn.Sequential(*network(1, 2)[:4], network(1, 2)[3], *network(2, 3))
    twice[4] = twice[3]  # one pooling, one after the other
    first, rest = leading_blocks(twice)
    assert (len(first), list(rest.children())) == (1, list(twice)[4:])
    first, rest = leading_blocks(nn.Sequential(*network(1, 2), nn.Conv2d(2, 3, 1), nn.ReLU()))
    assert len(first) == 1
    assert [type(layer) for layer in rest.children()][-1] is nn.ReLU
