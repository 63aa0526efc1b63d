"""The attack on floating-point noise: it knows the sampler, and finds nothing on a grid."""

from math import log
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline import params
from pipeline.audits import bounds, floating_point
from pipeline.audits.bounds import Errors
from pipeline.audits.rows import attacks_on
from pipeline.privacy.gaussian import gaussian_epsilon
from pipeline.privacy.gradients import Bounds, Tensors
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.randomness import Streams
from pipeline.privacy.spending import Spending
from pipeline.results.schema import FLOATING_POINT

DELTA, ALPHA = 1e-5, 0.05
SETTINGS = params.load(Path(__file__).parents[2] / "params.yaml")
RELEASE = GaussianMechanism.release


def mechanism_of(multiplier: float) -> GaussianMechanism:
    spending = Spending(sampling="poisson", noise_multiplier=multiplier, examples=100, batch=10)
    return GaussianMechanism((spending,), 1.0)


def shown(errors: Errors) -> float:
    return bounds.by_coordinates(errors, floating_point.COORDINATES, ALPHA, DELTA)


def test_numpy_draws_what_is_drawable_and_little_else_is() -> None:
    generator = np.random.default_rng(0)
    draws = generator.standard_normal(50_000, dtype=np.float32)
    assert floating_point.drawable(draws[np.abs(draws) < floating_point.TAIL]).all()
    assert floating_point.drawable(generator.uniform(-0.01, 0.01, 5000).astype(np.float32)).mean() < 0.5


@pytest.mark.parametrize("multiplier", [0.5, 1.1, 30.0])
def test_a_record_in_float32_noise_is_seen_from_one_release(multiplier: float) -> None:
    errors = floating_point.audit(mechanism_of(multiplier), 1.0, "float32", "float32")
    assert errors.false_alarms == 0
    assert shown(errors) > max(20.0, gaussian_epsilon(1 / multiplier, DELTA))


def on_a_grid(
    self: GaussianMechanism,
    sums: Tensors,
    bounds: Bounds,
    streams: Streams,
    step: int,
    shares: Tensor | None = None,
) -> Tensors:
    """Sum and noise both rounded to multiples of 2^-12, and added exactly."""
    grid = 2.0**-12
    noise = RELEASE(
        self, {name: torch.zeros_like(value) for name, value in sums.items()}, bounds, streams, step
    )
    return {
        name: grid * ((value / grid).round() + (noise[name] / grid).round()) for name, value in sums.items()
    }


def test_noise_on_a_grid_shows_nothing() -> None:
    with patch.object(GaussianMechanism, "release", on_a_grid):
        errors = floating_point.audit(mechanism_of(1.1), 1.0, "grid")
    assert shown(errors) < gaussian_epsilon(1 / 1.1, DELTA) / 2


def test_the_bound_of_coordinates_is_that_of_their_product() -> None:
    errors = Errors(3, 1000, 800, 1000)
    alarms, misses = errors.upper(ALPHA)
    by_hand = [log(((1 - alarms) ** count - DELTA) / misses**count) for count in range(1, 51)]
    assert bounds.by_coordinates(errors, 50, ALPHA, DELTA) == pytest.approx(max(by_hand))
    assert bounds.by_coordinates(Errors(100, 1000, 900, 1000), 50, ALPHA, DELTA) == 0


def test_it_bounds_what_releases_of_independent_coordinates_spend() -> None:
    """Randomized response on each coordinate: with k of them exactly k times the epsilon of one is spent."""
    generator, alarms, misses = np.random.default_rng(0), 0.1, 0.4
    above = 0
    for _ in range(200):
        errors = Errors(int(generator.binomial(500, alarms)), 500, int(generator.binomial(500, misses)), 500)
        above += bounds.by_coordinates(errors, 10, ALPHA, 0.0) > 10 * log((1 - alarms) / misses)
    assert above <= 200 * ALPHA


@pytest.mark.parametrize(
    "key", ["davody-t5-lenet5", "nguyen-f12b-bc-alc-reduced", "phan-f4a-ilm-sound-reduced"]
)
def test_rows_are_attacked_and_what_holds_for_real_numbers_does_not_for_floats(key: str) -> None:
    row = SETTINGS.rows[key]
    with patch("pipeline.audits.mechanism.LONGEST", 1), patch("pipeline.audits.pair.NUMBERS", 0):
        found = list(attacks_on(key, row, row.resolved[-1], SETTINGS))
    attack = next(attack for attack in found if attack.attack == FLOATING_POINT)
    assert attack.accounted is not None
    assert attack.largest > attack.accounted
    assert sum(attack.trials) >= 30_000
