"""The networks of Phan et al. 2017 and their local response normalisation."""

import pytest
import torch
from torch import nn

from dprepro.clipping.normalization import BatchStatistics
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.models.normalization import LocalResponse


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
