"""The attack on floating-point noise: it knows the sampler, and finds nothing on the grid."""

from math import log
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.accountants.records import SampledGaussian
from dprepro.auditing import epsilon_bounds, floating_point
from dprepro.auditing.epsilon_bounds import ErrorCounts
from dprepro.fields import Noise
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.pipeline import params
from dprepro.pipeline.audits import canaries
from dprepro.pipeline.audits.rows import attacks_on
from dprepro.pipeline.methods.tan.method import Tan
from dprepro.pipeline.methods.tan.settings import TanSettings
from dprepro.pipeline.results.schema import FLOATING_POINT

DELTA, ALPHA = 1e-5, 0.05
SETTINGS = params.load(Path(__file__).parents[2] / "params.yaml")


def mechanism_of(multiplier: float) -> GaussianMechanism:
    spending = SampledGaussian(sampling="poisson", noise_multiplier=multiplier, examples=100, batch=10)
    return GaussianMechanism(spending, 1.0)


def shown(errors: ErrorCounts) -> float:
    return epsilon_bounds.by_coordinates(errors, floating_point.COORDINATES, ALPHA, DELTA)


def test_numpy_draws_what_is_drawable_and_little_else_is() -> None:
    generator = np.random.default_rng(0)
    draws = generator.standard_normal(50_000, dtype=np.float32)
    assert floating_point.drawable(draws[np.abs(draws) < floating_point.TAIL]).all()
    assert floating_point.drawable(generator.uniform(-0.01, 0.01, 5000).astype(np.float32)).mean() < 0.5


@pytest.mark.parametrize("multiplier", [0.5, 1.1, 30.0])
def test_a_record_in_float32_noise_is_seen_from_one_release(multiplier: float) -> None:
    errors = floating_point.attack_floating_point(mechanism_of(multiplier), 1.0, "float32", "float32")
    assert errors.false_alarms == 0
    assert shown(errors) > max(20.0, gaussian_epsilon(1 / multiplier, DELTA))


@pytest.mark.parametrize("multiplier", [0.5, 1.1, 30.0])
def test_noise_on_a_grid_shows_nothing_at_ten_times_the_trials(multiplier: float) -> None:
    releases = 10 * floating_point.RELEASES
    errors = floating_point.attack_floating_point(mechanism_of(multiplier), 1.0, "grid", releases=releases)
    assert errors.without == errors.within == 10 * 2 * floating_point.COORDINATES
    assert shown(errors) == 0


def after_a_step(noise: Noise, trainings: int) -> ErrorCounts:
    """Canaries called wrongly by a reader of the parameters after a step from 0, by powers of two."""
    examples = 1024
    configured = TanSettings(batch=examples, steps=1, sigma=1.1, learning_rate=0.5, delta=DELTA)
    there = np.arange(examples) % 2 == 1
    kinds = canaries.single_canaries(examples, torch.from_numpy(there))
    alarms = misses = 0
    for number in range(trainings):
        method = Tan(canaries.task(kinds, f"reader/{number}", 1, noise=noise), configured, "none")
        state, _ = method.step(method.init(), 0)
        (moved,) = state["parameters"].values()
        released = (-2 * examples * moved).numpy()  # exactly
        if noise == "grid":
            spacing = method.mechanism.spacings(method.clip_limits, moved.numel()).numpy()
            wrong = floating_point.off_grid(released, spacing)
        else:
            deviation = method.mechanism.deviations(method.clip_limits).numpy()[0]
            wrong = floating_point.impossible(released.ravel(), deviation).reshape(released.shape)
        called = wrong.any(0)
        alarms, misses = alarms + int(called[~there].sum()), misses + int((~called[there]).sum())
    return ErrorCounts(alarms, trainings * int((~there).sum()), misses, trainings * int(there.sum()))


def test_parameters_after_a_step_tell_of_float32_noise_and_not_of_noise_on_a_grid() -> None:
    errors = after_a_step("float32", 2)
    assert errors.false_alarms == 0
    assert epsilon_bounds.by_coordinates(errors, 1024, ALPHA, DELTA) > gaussian_epsilon(1 / 1.1, DELTA)
    errors = after_a_step("grid", 20)
    assert epsilon_bounds.by_coordinates(errors, 1024, ALPHA, DELTA) == 0


def test_the_bound_of_coordinates_is_that_of_their_product() -> None:
    errors = ErrorCounts(3, 1000, 800, 1000)
    alarms, misses = errors.upper(ALPHA)
    by_hand = [log(((1 - alarms) ** count - DELTA) / misses**count) for count in range(1, 51)]
    assert epsilon_bounds.by_coordinates(errors, 50, ALPHA, DELTA) == pytest.approx(max(by_hand))
    assert epsilon_bounds.by_coordinates(ErrorCounts(100, 1000, 900, 1000), 50, ALPHA, DELTA) == 0


@pytest.mark.parametrize(
    "key", ["davody-t5-lenet5", "nguyen-f12b-bc-alc-reduced", "phan-f4a-ilm-sound-reduced"]
)
def test_rows_are_attacked_and_float32_noise_does_not_hold_and_noise_on_a_grid_does(key: str) -> None:
    row = SETTINGS.rows[key]
    with (
        patch.multiple("dprepro.pipeline.audits.mechanism", LONGEST=1, ROUNDS=1),
        patch("dprepro.pipeline.audits.pair.NUMBERS", 0),
    ):
        shown = list(attacks_on(key, row, row.resolved[-1], SETTINGS))
    others = [attack.noise for attack in shown if attack.attack != FLOATING_POINT]
    assert set(others) == {"grid"}
    attacks = {attack.noise: attack for attack in shown if attack.attack == FLOATING_POINT}
    for attack in attacks.values():
        assert sum(attack.trials) >= 30_000
    assert attacks["float32"].largest > attacks["float32"].epsilon_upper
    assert attacks["grid"].largest == 0


def test_a_row_with_seeded_noise_is_attacked_with_the_noise_that_it_has() -> None:
    row = SETTINGS.rows["davody-t5-lenet5"].model_copy(update={"reproducible": True})
    with (
        patch.multiple("dprepro.pipeline.audits.mechanism", LONGEST=1, ROUNDS=1),
        patch("dprepro.pipeline.audits.pair.NUMBERS", 0),
    ):
        attacks = list(attacks_on("seeded", row, row.resolved[-1], SETTINGS))
    assert {attack.noise for attack in attacks} == {"float32"}
