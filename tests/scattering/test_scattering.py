"""The example's features: against a second computation, and what holds of any scattering transform."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from tests.scattering.conftest import EXAMPLE


def drawn(count: int, channels: int, side: int) -> torch.Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize(
    ("channels", "side", "image", "row", "column"),
    [(1, 28, 0, 3, 2), (3, 32, 2, 0, 7)],
)
def test_it_is_kymatios_in_its_order(channels: int, side: int, image: int, row: int, column: int) -> None:
    """To 2e-4, as kymatio has filters in single precision and 3.1415 for pi.

    `kymatio.json` has the last channel's 81 features of one pixel, by kymatio 0.3.0.
    """
    from lab.scattering import scattering

    ours = scattering(drawn(3, channels, side))
    assert ours.shape == (3, 81 * channels, side // 4, side // 4)
    theirs = json.loads((Path(__file__).parent / "kymatio.json").read_text())[str(side)]
    assert ours[image, -81:, row, column].tolist() == pytest.approx(theirs, rel=2e-4)


@pytest.mark.parametrize(("name", "side"), [("mnist", 28), ("kmnist", 28), ("cifar10", 32), ("cifar100", 32)])
def test_features_are_within_the_declared_range(name: str, side: int) -> None:
    """A wavelet sums to 0, so that what it makes of pixels is at most half its absolute sum times their span.

    The window that averages moduli goes below 0 a little where it is cut off at half the frequencies.
    """
    from lab.features import pixels
    from lab.scattering import ANGLES, _filters, _gaussian, _morlet

    low, high = YAML(typ="safe").load(EXAMPLE / "params.yaml")["own"][f"{name}-scattering"]["range"]
    ends = pixels(np.stack([np.full((1 if side == 28 else 3, 1, 1), end, np.uint8) for end in (0, 255)]))
    least, most = float(ends.min()), float(ends.max())
    span = float((ends[1] - ends[0]).max())
    size = side + 8
    for scale in (0, 1):
        for angle in range(ANGLES):
            wavelet = _morlet(size, scale, angle * math.pi / ANGLES)
            assert abs(wavelet.sum()) < 1e-9
            assert np.abs(wavelet).sum() <= 2
    window = sum(_gaussian(np.arange(size) + turn * size) for turn in range(-2, 3))
    assert window.min() >= 0
    assert window.sum() == pytest.approx(1, abs=1e-4)
    for average in _filters(size, torch.float64)[1]:
        positive, negative = average.clamp_min(0), average.clamp_max(0)
        above = float(positive.sum(1).max() ** 2 + negative.sum(1).min() ** 2)
        below = float(2 * positive.sum(1).max() * negative.sum(1).min())
        assert low <= min(span * below, least * above + most * below)
        assert max(span * above, most * above + least * below) <= high
