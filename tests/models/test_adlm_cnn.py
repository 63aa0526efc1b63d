"""The networks of Phan et al. 2017 and their local response normalisation."""

import pytest
import torch
from torch import nn

from pipeline.methods.registry import build_net
from pipeline.models.model import Model
from pipeline.models.normalization import BatchStatistics, LocalResponse
from pipeline.privacy.gradients import BookKeeping, Bounds, PerExample


def test_local_response_is_equation_22_of_phan_et_al() -> None:
    maps = torch.randn(3, 7, 4, 5).relu() * 5
    found = LocalResponse(7)(maps)
    for place in range(7):
        near = maps[:, max(0, place - 2) : place + 3]
        own = maps[:, place]
        expected = own / torch.maximum(own, (2 + 1e-4 * near.square().sum(1)) ** 0.75)
        torch.testing.assert_close(found[:, place], expected)
    assert found.min() >= 0
    assert found.max() == 1
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


def test_dp_sgd_takes_its_fast_path_through_local_response() -> None:
    """Every example is normalised by itself, so that the fast clipped sums are those of one at a time."""
    torch.manual_seed(1)
    net = build_net(Model(name="adlm_cnn", normalization="response"), (1, 28, 28), 10)
    tensors = {name: value.detach() for name, value in net.named_parameters()}
    images, labels, mask = torch.rand(6, 1, 28, 28) * 9, torch.arange(6), torch.tensor([1.0] * 5 + [0.0])
    bounds = Bounds(torch.ones(len(tensors), 1), torch.tensor([0.5]), torch.ones(len(tensors)))
    fast = BookKeeping(net, images[:1])(tensors, images, labels, mask, bounds)
    slow = PerExample(net)(tensors, images, labels, mask, bounds)
    torch.testing.assert_close(fast.norms, slow.norms, rtol=1e-4, atol=1e-5)
    for name, value in slow.sums.items():
        torch.testing.assert_close(fast.sums[name], value, rtol=1e-3, atol=1e-5)
