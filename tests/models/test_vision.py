"""Vision models: sizes, normalisation, other libraries' numbers, and that torch.func takes them all."""

from importlib import import_module
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from dprepro.clipping.gradients import BookKeeping
from dprepro.clipping.limits import ClipLimits
from dprepro.clipping.normalization import BatchStatistics, measuring, statistics_layers
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.models.normalization import LocalResponse
from tests.small_networks import small_networks

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
SHAPES = {
    **dict.fromkeys(("lenet5", "lenet_300_100"), GREY),
    **dict.fromkeys(("resnet18", "vgg", "vgg16", "tf_tutorial", "convnet", "wrn16_4"), COLOUR),
    "lenet5_tanh": (1, 32, 32),
}


def make(name: str, normalization: str = "none", unnormalized: int = 0, **more: Any) -> nn.Module:
    """The network in double precision, so that two ways to the same numbers can be told from two numbers."""
    torch.manual_seed(5)
    model = Model.model_validate(
        {"name": name, "normalization": normalization, "groups": 2, "unnormalized": unnormalized, **more}
    )
    return import_module(f"dprepro.pipeline.models.{name}").build(model, SHAPES[name], 10).double()


def layers_of(name: str, normalization: str, unnormalized: int = 0, **more: Any) -> nn.Module:
    """The network without its numbers, which take a while to draw."""
    with torch.device("meta"):
        return make(name, normalization, unnormalized, **more)


def images(name: str, size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.rand(size, *SHAPES[name], generator=generator).double(), torch.arange(size) % 10


def tensors_of(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "normalization", "unnormalized", "count", "tensors"),
    [
        ("lenet_300_100", "running_bn", 0, 266_610 + 2 * 410, 12),
        ("resnet18", "running_bn", 1, 11_173_962, 62),  # as kuangliu/pytorch-cifar prints it
        ("resnet18", "running_bn", 0, 11_173_962 + 2 * 10, 64),
        # the last convolution trades scale and shift for a bias
        ("resnet18", "running_bn", 2, 11_173_962 - 512, 61),
        # a scale and a shift of each channel or unit behind every trainable layer
        ("vgg", "running_bn", 0, 2_462_282 + 2 * (2 * 64 + 2 * 128 + 4 * 256 + 512 + 10), 40),
        ("vgg16", "running_bn", 0, 14_719_818 + 2 * (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512 + 10), 56),
        ("tf_tutorial", "running_bn", 0, 1_144_138 + 2 * (2 * 64 + 2 * 384 + 10), 20),
        ("lenet5", "running_bn", 0, 61_706 + 2 * (6 + 16 + 120 + 84 + 10), 20),
        ("convnet", "batch_bn", 1, 132_042, 18),
        ("lenet5_tanh", "batch_bn", 2, 61_990, 16),
        # 448 in the stem; 47,296, 73,856, 229,760, 295,168, 918,272 and 1,180,160 in the blocks; 2,570 behind
        ("wrn16_4", "group", 0, 2_747_530 + 2 * 2016, 66),
        ("wrn16_4", "group", 1, 2_747_530 + 2 * 2016, 66),
        # as many as LeNet-5, whose first linear layer is a convolution
        ("lenet5_tanh", "none", 0, 61_706, 10),
    ],
)
def test_sizes(name: str, normalization: str, unnormalized: int, count: int, tensors: int) -> None:
    parameters = list(layers_of(name, normalization, unnormalized).parameters())
    assert sum(value.numel() for value in parameters) == count
    assert len(parameters) == tensors


@pytest.mark.parametrize(("name", "smallest"), [("convnet", 8), ("lenet5_tanh", 32)])
def test_too_small_inputs_are_refused(name: str, smallest: int) -> None:
    build = import_module(f"dprepro.pipeline.models.{name}").build
    assert build(Model(name=name), (1, smallest, smallest), 3)(
        torch.rand(2, 1, smallest, smallest)
    ).shape == (2, 3)
    for shape in ((1, smallest - 1, smallest), (1, smallest, smallest - 1), (smallest, 500)):
        with pytest.raises(ValueError, match=f"images of at least {smallest}x{smallest}"):
            build(Model(name=name), shape, 3)


def compare_with_torchvision(net: nn.Module, theirs: nn.Module) -> None:
    """Both networks with the same random tensors, in the order in which they lie there."""
    theirs, norms = theirs.double(), iter(statistics_layers(net).values())
    inputs, _ = images("resnet18", 6)
    with torch.no_grad():
        for mine, other in zip(net.parameters(), theirs.parameters(), strict=True):
            mine.copy_(other.uniform_(0.5, 1.5) if other.dim() == 1 else other)
        for layer in theirs.modules():
            if isinstance(layer, nn.BatchNorm2d):
                statistics = next(norms)
                statistics.mean.copy_(layer.running_mean.uniform_(-0.1, 0.1))
                statistics.var.copy_(layer.running_var.uniform_(0.5, 1.5))
        assert next(norms, None) is None
        torch.testing.assert_close(net(inputs), theirs.eval()(inputs), rtol=1e-6, atol=1e-8)
        with measuring(net, inputs.new_ones(6)):
            measured = net(inputs)
        torch.testing.assert_close(measured, theirs.train()(inputs), rtol=1e-6, atol=1e-8)


def test_resnet18_is_torchvisions_with_a_small_stem() -> None:
    theirs = torchvision.models.resnet18(num_classes=10)
    theirs.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    theirs.maxpool = nn.Identity()
    compare_with_torchvision(make("resnet18", "running_bn", 1), theirs)


def test_vgg16_has_the_convolutions_of_torchvisions() -> None:
    theirs = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["D"], batch_norm=True)
    net = make("vgg16", "running_bn", 1)
    assert isinstance(net, nn.Sequential)
    compare_with_torchvision(net[: len(theirs)], theirs)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("kind", ["none", "layer", "public_bn"])
@small_networks()
def test_the_fast_way_takes_every_model(name: str, kind: str) -> None:
    """Where nothing is clipped, the sum of per-example gradients is the ordinary one."""
    net = make(name, kind)
    inputs, labels = images(name, 2)
    tensors = tensors_of(net)
    clipper = BookKeeping(net, inputs[:1])
    bounds = ClipLimits.whole(inputs.new_tensor(1e9), len(tensors))
    actual = clipper(tensors, inputs, labels, inputs.new_ones(2), bounds).sums
    leaves = {key: value.requires_grad_() for key, value in tensors.items()}
    total = F.cross_entropy(functional_call(net, leaves, (inputs,)), labels, reduction="sum")
    for (key, leaf), value in zip(
        leaves.items(), torch.autograd.grad(total, list(leaves.values())), strict=True
    ):
        assert leaf.shape == actual[key].shape
        torch.testing.assert_close(actual[key], value, rtol=1e-6, atol=1e-12)


def test_frozen_batch_norm_keeps_its_statistics() -> None:
    net = make("lenet5", "running_bn")
    first = net[1]
    assert list(statistics_layers(net)) == ["1", "5", "10", "13", "16"]
    first.requires_grad_(False)
    assert list(statistics_layers(net)) == ["5", "10", "13", "16"]
    first.mean.fill_(0.25)
    first.var.fill_(4.0)
    inputs, _ = images("lenet5", 4)
    seen: list[Tensor] = []
    first.register_forward_hook(lambda layer, arguments, output: seen.append(output))
    with torch.no_grad(), measuring(net, inputs.new_ones(4)) as statistics:
        net(inputs)
    assert sorted(statistics) == sorted(
        f"{name}.{part}" for name in (5, 10, 13, 16) for part in ("mean", "var")
    )
    expected = (net[0](inputs) - 0.25) / (4.0 + first.epsilon) ** 0.5
    torch.testing.assert_close(seen[0], expected)


def test_a_described_model_has_the_sizes_of_its_network() -> None:
    assert Model(name="mlp").described["hidden"] == [64, 32]
    assert Model(name="mlp", hidden=(8,)).described["hidden"] == [8]
    assert "hidden" not in Model(name="lenet5").described


def test_local_response_is_equation_22_of_phan_et_al() -> None:
    maps = torch.randn(3, 7, 4, 5).relu() * 5
    actual = LocalResponse(7)(maps)
    for place in range(7):
        near = maps[:, max(0, place - 2) : place + 3]
        channel = maps[:, place]
        expected = channel / torch.maximum(channel, (2 + 1e-4 * near.square().sum(1)) ** 0.75)
        torch.testing.assert_close(actual[:, place], expected)
    assert actual.min() >= 0
    assert actual.max() == 1
    # torch's layer divides alpha by the size and has no maximum
    small = maps.clamp(max=1)
    theirs = nn.functional.local_response_norm(small, 5, alpha=5e-4, beta=0.75, k=2.0)
    torch.testing.assert_close(LocalResponse(7)(small), theirs)
    flat = torch.rand(3, 7)
    torch.testing.assert_close(LocalResponse(7)(flat), LocalResponse(7)(flat[..., None, None])[..., 0, 0])


@pytest.mark.parametrize(
    ("shape", "parameters", "maps", "units"),
    [((1, 28, 28), 130_771, [32, 64], 25), ((3, 32, 32), 1_355_978, [128, 128, 256], 30)],
)
def test_adlm_cnn_is_as_in_section_iv(
    shape: tuple[int, ...], parameters: int, maps: list[int], units: int
) -> None:
    net = build_net(Model(name="adlm_cnn", normalization="response"), shape, 10)
    assert sum(value.numel() for value in net.parameters()) == parameters
    layers = list(net.children())
    assert [layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d)] == maps
    behind = [layers[place + 2] for place, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)]
    assert all(isinstance(layer, LocalResponse) for layer in behind)
    assert [layer.out_features for layer in layers if isinstance(layer, nn.Linear)] == [units, 10]
    assert net(torch.rand(2, *shape)).shape == (2, 10)
    # the authors' code has batch norm instead, on the last hidden layer alone
    theirs = list(build_net(Model(name="adlm_cnn", normalization="batch_bn"), shape, 10).children())
    assert [type(layer) for layer in theirs[-4:]] == [nn.Linear, BatchStatistics, nn.ReLU, nn.Linear]
    assert sum(isinstance(layer, (BatchStatistics, LocalResponse)) for layer in theirs) == 1
