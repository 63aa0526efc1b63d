"""Noise scale, its grid, sampling, secrecy of the streams."""

from collections.abc import Callable
from fractions import Fraction
from unittest.mock import patch

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from dprepro.accountants.records import SampledGaussian
from dprepro.clipping.limits import ClipLimits
from dprepro.fields import Noise
from dprepro.noise import mechanisms
from dprepro.noise.mechanisms import GaussianMechanism, release_laplace
from dprepro.noise.streams import Streams

CPU = torch.device("cpu")


def streams(noise: Noise | None = None, name: str = "a") -> Streams:
    return Streams(name, True, CPU, noise)


def mechanism_of(multiplier: float, distance: float = 1.0) -> GaussianMechanism:
    spending = SampledGaussian(sampling="poisson", noise_multiplier=multiplier, examples=100, batch=10)
    return GaussianMechanism(spending, distance)


def whole(tensors: int, clip: float) -> ClipLimits:
    return ClipLimits.whole(torch.tensor(clip), tensors)


NOISES: tuple[Noise, ...] = ("float32", "grid")


@pytest.mark.parametrize("noise", NOISES)
def test_a_steps_noise_goes_into_one_release(noise: Noise) -> None:
    """The difference of two would be that of the exact sums."""
    mechanism, drawn = mechanism_of(1.5), streams(noise)
    mechanism.release({"w": torch.zeros(8)}, whole(1, 1.0), drawn, step=3)
    with pytest.raises(ValueError, match="two releases with the noise of step 3"):
        mechanism.release({"w": torch.ones(8)}, whole(1, 1.0), drawn, step=3)
    mechanism.release({"w": torch.ones(8)}, whole(1, 1.0), drawn, step=4)
    with pytest.raises(ValueError, match="the noise of step 3, or one after step 4"):
        mechanism.release({"w": torch.ones(8)}, whole(1, 1.0), drawn, step=3)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_release_leaves_the_sums_as_they_were(noise: Noise, dtype: torch.dtype) -> None:
    """Audits release sums again, with other noise; a tensor of a block or more is not copied as a whole."""
    sums = {"w": torch.ones(mechanisms.BLOCK, dtype=dtype), "s": torch.ones(3, dtype=dtype)}
    mechanism_of(1.5).release(sums, whole(2, 1.0), streams(noise), step=0)
    for value in sums.values():
        assert torch.equal(value, torch.ones_like(value))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("multiplier", "clip"), [(1.5, 0.5), (3.0, 2.0)])
def test_noise_has_standard_deviation_z_times_clip(noise: Noise, multiplier: float, clip: float) -> None:
    sums = {"w": torch.zeros(300, 100), "s": torch.zeros(20_000)}
    noisy = mechanism_of(multiplier).release(sums, whole(2, clip), streams(noise), step=0)
    for value in noisy.values():
        assert value.std().item() == pytest.approx(multiplier * clip, rel=0.02)
        assert value.mean().abs() < 0.025 * multiplier * clip


def test_parts_together_have_the_multiplier_that_is_accounted() -> None:
    """Part g at noise s_g over sensitivity d_g is G_(d/s); together the root of their squares."""
    mechanism = mechanism_of(0.7, distance=2.0)
    bounds = ClipLimits(
        torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]),
        torch.tensor([0.3, 5.0]),
    )
    deviations = mechanism.deviations(bounds)
    parts = [2 * 0.3 / deviations[0], 2 * 0.3 / deviations[1], 2 * 5.0 / deviations[2]]
    assert parts[0] == pytest.approx(parts[1])
    assert (parts[0] ** 2 + parts[2] ** 2) ** -0.5 == pytest.approx(0.7)


# -- the grid ---------------------------------------------------------------------------------------------


def grid(mechanism: GaussianMechanism, size: int, clip: float) -> float:
    return float(mechanism.spacings(whole(1, clip), size))


@pytest.mark.parametrize(("multiplier", "clip", "scale"), [(0.7, 0.3, 3.0), (40.0, 2.0, 90.0)])
def test_sum_and_noise_are_rounded_each_and_added_exactly(
    multiplier: float, clip: float, scale: float
) -> None:
    """By fractions: an integer of the sum, an integer that doesn't know it, and the nearest float32."""
    mechanism, size = mechanism_of(multiplier), 500
    sums = scale * torch.randn(size, generator=torch.Generator().manual_seed(0))
    released = mechanism.release({"w": sums}, whole(1, clip), streams("grid"), 1)["w"]
    noise = streams("grid").rounded_normal(1, size, mechanism.bits(size))
    spacing = Fraction(grid(mechanism, size, clip))
    by_hand = [
        float(np.float32(spacing * (round(Fraction(value) / spacing) + int(drawn))))
        for value, drawn in zip(sums.tolist(), noise.tolist(), strict=True)
    ]
    assert released.tolist() == by_hand


def worst_pair(mechanism: GaussianMechanism, size: int, clip: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Two sums (size,) that lie ``clip`` apart, of which rounding moves each coordinate by most."""
    spacing = grid(mechanism, size, clip)
    # just below the middle between two multiples, and just above another
    steps = round(clip / size**0.5 / spacing)
    middle = torch.full((size,), 0.5, dtype=torch.float64)
    return ((middle - 0.01) * spacing).float(), ((middle + steps + 0.01) * spacing).float()


@pytest.mark.parametrize(("multiplier", "size"), [(0.7, 3), (1.1, 266_610), (40.0, 5000)])
def test_neighbouring_sums_are_no_further_apart_on_the_grid_than_noise_hides(
    multiplier: float, size: int
) -> None:
    """The distance of what is released with the same noise, over the deviation of that noise, is 1 / z."""
    mechanism, clip = mechanism_of(multiplier), 0.3
    pair = worst_pair(mechanism, size, clip)
    zero = mechanism.release({"w": torch.zeros(size)}, whole(1, clip), streams("grid"), 0)
    drawn = streams("grid").rounded_normal(0, size, mechanism.bits(size)).double()
    spacing = float((zero["w"].double() * drawn).sum() / drawn.square().sum())  # as it was released
    deviation = spacing * 2.0 ** mechanism.bits(size)
    # float32 would hide what is moved: without noise
    with patch.object(Streams, "rounded_normal", lambda self, step, size, bits: torch.zeros(size).double()):
        first, other = (
            mechanism.release({"w": value}, whole(1, clip), streams("grid"), 0)["w"].double()
            for value in pair
        )
    moved, before = (other - first).norm(), (pair[1].double() - pair[0].double()).norm()
    # of neighbours the sums lie at most `clip` apart; of these they may lie a little less or more
    assert moved - before > 0.9 * spacing * size**0.5
    assert (moved - before + clip) / deviation <= 1 / multiplier
    assert deviation < multiplier * clip * (1 + 2 * (mechanisms.FINENESS + mechanisms.COMPUTING))


def hockey_stick(mechanism: GaussianMechanism, clip: float, epsilon: float) -> float:
    """Delta of two sums of one coordinate, from the probabilities of the integers that are released."""
    bits, spacing = mechanism.bits(1), grid(mechanism, 1, clip)
    apart = int(np.floor(clip / spacing)) + 1  # as far as rounding may move them
    integers = np.arange(-12 * 2**bits, 12 * 2**bits + 1)
    chances = np.diff(norm.cdf((np.append(integers, integers[-1] + 1) - 0.5) / 2**bits))
    other = np.concatenate([np.zeros(apart), chances[:-apart]])
    return float(np.maximum(other - np.exp(epsilon) * chances, 0).sum())


def test_integers_spend_no_more_than_dp_accounting_says_of_real_numbers() -> None:
    """On a grid so coarse that what rounding adds is seen."""
    multiplier, clip = 0.98, 0.3
    accountant = PLDAccountant().compose(dp_accounting.GaussianDpEvent(multiplier))
    with patch.object(mechanisms, "FINENESS", 0.1):
        mechanism = mechanism_of(multiplier)
        for epsilon in (0.1, 1.0, 3.0):
            exact = hockey_stick(mechanism, clip, epsilon)
            assert 0.75 * accountant.get_delta(epsilon) < exact <= accountant.get_delta(epsilon)


def test_a_tensor_that_is_clipped_to_nothing_stays_0() -> None:
    bounds = ClipLimits(torch.eye(2), torch.tensor([0.0, 1.0]))
    sums = {"w": torch.zeros(4), "v": torch.ones(4)}
    released = mechanism_of(1.0).release(sums, bounds, streams("grid"), 0)
    assert not released["w"].any()
    assert torch.isfinite(released["v"]).all()


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-0.5, 0.5)])
def test_rounding_lets_laplace_values_lie_no_further_apart(ends: tuple[float, float]) -> None:
    for scale in 2.0 ** np.arange(-10, 30, 0.7):
        spacing = float(mechanisms.laplace_spacings(np.array([scale]))[0])
        values = np.linspace(*ends, 1001) if ends[0] == 0 else np.array(ends)
        on_grid = np.rint(values / spacing) * spacing
        assert on_grid.max() - on_grid.min() <= 1


def test_laplace_values_and_noise_are_rounded_each_and_added_exactly() -> None:
    source, scales = streams("grid"), torch.tensor([0.01, 3.0, 1e6])
    values = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))
    released = release_laplace(values, scales, source, 4, "inputs")
    spacings = mechanisms.laplace_spacings(scales.double().numpy())
    ((rows, drawn),) = source.rounded_laplace(4, 7, scales.double().numpy() / spacings, "inputs")
    assert rows == slice(0, 7)
    for place in np.ndindex(7, 3):
        spacing = Fraction(float(spacings[place[1]]))
        by_hand = spacing * (round(Fraction(float(values[place])) / spacing) + int(drawn[place]))
        assert float(released[place]) == float(np.float32(by_hand))


def test_nothing_is_added_where_the_scale_is_0() -> None:
    values = torch.rand(5, 2)
    for noise in NOISES:
        released = release_laplace(values, torch.zeros(2), streams(noise), 0, "inputs")
        assert torch.equal(released, values)


@pytest.mark.parametrize("noise", NOISES)
def test_laplace_noise_has_its_scale(noise: Noise) -> None:
    scales = torch.tensor([0.2, 5.0, 1e-3, 300.0])
    released = release_laplace(torch.zeros(40_000, 4), scales, streams(noise), 0, "inputs")
    torch.testing.assert_close(released.abs().mean(0), scales, rtol=0.03, atol=0)


DRAWS: dict[str, Callable[[Streams, int], torch.Tensor]] = {
    "float32": lambda source, step: source.normal(step, 50),
    "grid": lambda source, step: source.rounded_normal(step, 50, 20),
}


@pytest.mark.parametrize("noise", NOISES)
def test_noise_is_new_at_every_step_and_in_every_training(noise: Noise) -> None:
    rows = torch.stack([DRAWS[noise](streams(name=name), step) for name in ("a", "b") for step in range(3)])
    assert len({tuple(row.tolist()) for row in rows}) == 6
    correlation = torch.corrcoef(rows) - torch.eye(6)
    assert correlation.abs().max() < 0.6


def test_batches_of_fixed_size_have_every_example_once_or_independently() -> None:
    source = streams()
    batches = torch.stack([source.fixed(step, 12, 5) for step in range(3000)])
    assert all(len(set(batch.tolist())) == 5 for batch in batches[:50])
    # every example in every place: mini-sets are cut from the order
    chances = torch.stack([(batches == example).float().mean(0) for example in range(12)])
    assert (chances - 1 / 12).abs().max() < 4.5 * (1 / 12 / 3000) ** 0.5
    drawn = torch.stack([source.replaced(step, 12, 5) for step in range(3000)])
    twice = torch.tensor([len(set(batch.tolist())) < 5 for batch in drawn]).float().mean()
    assert twice == pytest.approx(1 - 11 / 12 * 10 / 12 * 9 / 12 * 8 / 12, abs=0.04)
