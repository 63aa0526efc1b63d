"""Layer-wise relevance propagation: conservation, another library's numbers, and refusals."""

import copy
from pathlib import Path

import pytest
import torch
from captum.attr import LRP
from captum.attr._utils.lrp_rules import EpsilonRule
from torch import Tensor, nn

from dprepro.clipping.normalization import BatchStatistics
from dprepro.pipeline import params
from dprepro.pipeline.models import resnet18
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.models.normalization import LocalResponse
from dprepro.pipeline.pretrained.lrp import propagate_relevance, relevances
from tests.refusal import refusal_of

REPO, SIDE = Path(__file__).parents[2], 8


def convolutional(*norm: nn.Module, bias: bool = False) -> nn.Sequential:
    """Two convolutions with ``norm`` behind the first, pooling of both kinds, and two linear layers."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=bias), *norm, nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 3, bias=bias), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(6, 5, bias=bias), nn.ReLU(), nn.Dropout(), nn.Linear(5, 3, bias=bias)),
    ).eval()


def images(count: int = 6, channels: int = 1, side: int = SIDE) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(5))


def spread(norm: BatchStatistics) -> BatchStatistics:
    """Statistics and a gain of its own, and neither mean nor shift, which act as biases."""
    norm.var += torch.arange(len(norm.var))
    norm.weight.data += 0.1 * torch.arange(len(norm.weight))
    return norm


NORMS: dict[str, list[nn.Module]] = {
    "none": [],
    "response": [nn.ReLU(), LocalResponse(4)],
    "batch": [spread(BatchStatistics(4, 1e-5))],
    "group": [nn.GroupNorm(2, 4)],
    "group, fixed": [nn.GroupNorm(2, 4, affine=False)],
    "layer": [nn.GroupNorm(1, 4)],
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_relevance_is_conserved_without_biases(norm: list[nn.Module]) -> None:
    net, inputs = convolutional(*norm), images()
    output = net(inputs).amax(1)
    assert output.abs().min() > 1e-3
    torch.testing.assert_close(propagate_relevance(net, inputs).sum((1, 2, 3)), output, rtol=1e-4, atol=1e-6)


def test_biases_keep_relevance() -> None:
    net, inputs = convolutional(bias=True), images()
    lost = propagate_relevance(net, inputs).sum((1, 2, 3)) / net(inputs).amax(1) - 1
    assert (lost.abs() > 0.01).all()


@pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require")
def test_captum_finds_the_same_where_it_has_rules() -> None:
    norm = spread(BatchStatistics(4, 1e-5))
    norm.mean += 0.1
    norm.bias.data += 0.2
    net, inputs = convolutional(norm, bias=True), images()
    actual, theirs = propagate_relevance(net, inputs), copy.deepcopy(net)
    for layer in theirs.modules():
        if isinstance(layer, (BatchStatistics, nn.Flatten)):
            layer.rule = EpsilonRule()
    expected = LRP(theirs).attribute(inputs.clone(), target=net(inputs).argmax(1))
    largest = expected.abs().max().item()
    torch.testing.assert_close(actual / largest, expected.detach() / largest, rtol=1e-4, atol=1e-5)


def test_relevances_are_scaled_for_each_example_alone() -> None:
    net, inputs = convolutional(LocalResponse(4), bias=True), images()
    raw, scaled_relevances = propagate_relevance(net, inputs), relevances(net, inputs)
    assert scaled_relevances.shape == inputs.shape
    assert not scaled_relevances.requires_grad
    for each, scaled in zip(raw, scaled_relevances, strict=True):
        assert (scaled.min(), scaled.max()) == (0, 1)
        torch.testing.assert_close(scaled, (each - each.min()) / (each.max() - each.min()))
    for index, scaled in enumerate(scaled_relevances):
        torch.testing.assert_close(relevances(net, inputs[index : index + 1])[0], scaled)
    # how sure a network is doesn't count, and neither does a second look
    for parameter in net[-1].parameters():
        parameter.data.mul_(7)
    for _ in range(2):
        torch.testing.assert_close(relevances(net, inputs), scaled_relevances, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("bias", [False, True])
def test_a_black_image_is_nowhere_relevant(norm: list[nn.Module], bias: bool) -> None:
    net = convolutional(*norm, bias=bias)
    for function in (propagate_relevance, relevances):
        assert (function(net, torch.zeros(2, 1, SIDE, SIDE)) == 0).all()


def test_what_has_no_rule_is_one_line() -> None:
    inner = nn.Sequential(nn.Linear(3, 3), nn.Softplus())
    names = ["ReLU", "Linear", "LocalResponse"]
    line = refusal_of(lambda: relevances(nn.Sequential(nn.Flatten(), inner), images()))
    assert line.startswith("network, 1.1: no rule to propagate relevance through Softplus; allowed: ")
    assert all(name in line for name in names)
    # what a module adds up in its own code can't be seen from outside
    residual = resnet18.build(Model(name="resnet18"), (3, 32, 32), 10)
    line = refusal_of(lambda: relevances(residual, images(1, 3, 32)))
    assert line.startswith("network, 2: no rule to propagate relevance through BasicBlock")
    assert refusal_of(lambda: relevances(nn.Softplus(), images())).startswith("network, as a whole: no rule")


@pytest.mark.parametrize("project", ["", "demo"])
def test_relevances_that_are_declared_pass_through_their_networks(project: str) -> None:
    settings = params.load(REPO / project / "params.yaml")
    for relevance in settings.relevances.values():
        row = settings.rows[relevance.row]
        net = build_net(row.model, (1, 28, 28), 10).eval()
        assert propagate_relevance(net, images(2, side=28)).abs().sum() > 0
    assert settings.relevances
