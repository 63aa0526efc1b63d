"""What Laplace noise on released data buys: by brute force, by formulas and by dp-accounting."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from dprepro.accountants.laplace import Laplace, Releases
from dprepro.accountants.pld import pld_epsilon
from dprepro.accountants.records import NeighboringRelation
from dprepro.pipeline.ledgers.declared import _same_releases
from dprepro.pipeline.ledgers.ledger import DELTA, LAPLACE_LARGEST, release_ledger
from dprepro.pipeline.ledgers.sentences import number
from dprepro.pipeline.methods.spending import statement

FEATURES = 784
IMAGES = list(product([0.0, 0.4, 1.0], repeat=3))  # of three pixels
SEARCH, PROTECTS = statement("search", search="grid"), statement("local_at_claimed")


def release(scales: list[float], distance: float = 1.0, repeats: int = 1, claimed: float = 1.0) -> Laplace:
    return Laplace(
        quantity="inputs",
        claimed=claimed,
        distance=distance,
        scales=tuple(scales),
        repeats=repeats,
        span=1.0,
    )


def means() -> list[np.ndarray]:
    """Mean relevances of three examples, one of which may be any."""
    others = np.array([[0.2, 0.9], [1.0, 0.3]])
    return [np.mean([*others, corner], axis=0) for corner in product([0.0, 0.5, 1.0], repeat=2)]


@pytest.mark.parametrize(
    ("points", "scales", "mechanism", "epsilon"),
    [
        (IMAGES, [0.3, 2, 0.7], release([0.3, 2, 0.7]), 1 / 0.3 + 1 / 2 + 1 / 0.7),
        (0.5 - np.eye(4), [1.3] * 4, release([1.3], repeats=2), 2 / 1.3),
        (means(), [0.25] * 2, release([0.25], distance=1 / 3, repeats=2), 2 / 3 / 0.25),
    ],
    ids=["images", "coefficients of labels", "mean relevances"],
)
def test_no_output_tells_neighbours_apart_better_than_epsilon_and_one_does_as_well(
    points: Sequence[Any], scales: list[float], mechanism: Laplace, epsilon: float
) -> None:
    """Log of how much more likely an output is from one point than from the other."""
    places = [np.asarray(point) for point in points]
    outputs = [np.array(noisy) for noisy in product([-5.0, 0.1, 0.5, 6.0], repeat=len(scales))]
    ratios = [
        float(((np.abs(noisy - other) - np.abs(noisy - center)) / scales).sum())
        for center, other in product(places, places)
        for noisy in outputs
    ]
    assert max(ratios) == pytest.approx(mechanism.epsilon, rel=1e-12)
    assert mechanism.epsilon == pytest.approx(epsilon)


# -- by dp-accounting ------------------------------------------------------------------------------------


def shares() -> np.ndarray:
    """(d,) beta_j, as uneven as relevances are; their mean is 1."""
    drawn = np.abs(np.random.default_rng(0).normal(size=FEATURES)) ** 3 * np.linspace(1e-4, 1, FEATURES)
    return FEATURES * drawn / drawn.sum()


def test_the_pure_sum_is_what_privacy_loss_distributions_say_at_no_delta() -> None:
    both = Releases(laplace=(release([0.9, 2.5]), release([1.7], repeats=2)))
    pure = 1 / 0.9 + 1 / 2.5 + 2 / 1.7
    assert both.epsilon == pytest.approx(pure)
    assert pld_epsilon(both.event(), 1e-12, interval=1e-4) == pytest.approx(pure, abs=1e-3)
    assert pure < pld_epsilon(both.coarse_event(), 1e-12, interval=1e-4) < 1.02 * pure
    # the worst case has probability 1/2 in each of four coordinates; half of that takes something off
    assert pld_epsilon(both.event(), 0.5**5, interval=1e-4) < pure - 0.1


@pytest.mark.parametrize("pure", [0.25, 120.0])
def test_bounds_at_a_delta_agree_and_are_below_the_pure_one(pure: float) -> None:
    scales = FEATURES / (shares() * pure)
    ledger = release_ledger(Releases(laplace=(release(scales.tolist()),)), 5)
    renyi, fine = (result.epsilon for result in ledger.accountants)
    assert [result.note for result in ledger.accountants] == [f"an upper bound at delta {number(DELTA)}"] * 2
    assert 0.9 * renyi < fine < 1.01 * renyi < pure


# -- the ledger ------------------------------------------------------------------------------------------


def test_a_ledger_of_releases_is_pure_and_the_same_after_any_number_of_steps() -> None:
    both = Releases(
        laplace=(
            release([28.0, 56.0, 112.0], claimed=0.4),
            Laplace(quantity="labels", claimed=0.6, distance=1.0, scales=(4.0,), repeats=2, span=1.0),
        )
    )
    ledger = release_ledger(both, 10, not_covered=[SEARCH], protects=PROTECTS)
    assert (ledger.claimed, ledger.claimed_by, ledger.delta) == (pytest.approx(1.0), "laplace", 0.0)
    assert ledger.epsilon_upper == pytest.approx(1 / 28 + 1 / 56 + 1 / 112 + 0.5)
    assert ledger.neighbouring is NeighboringRelation.REPLACE_ONE
    assert ledger.event == "inputs 3 x Laplace(28 to 112), labels 2 x Laplace(4)"
    assert (ledger.not_covered, ledger.protects) == ((SEARCH,), PROTECTS)
    inputs, labels = ledger.releases
    assert inputs.noise == pytest.approx((28 * 2**0.5, 56 * 2**0.5, 112 * 2**0.5))
    assert (labels.quantity, labels.claimed, labels.epsilon_upper) == ("labels", 0.6, pytest.approx(0.5))
    assert release_ledger(both, 10_000).model_copy(update={"steps": 10}) == ledger.model_copy(
        update={"not_covered": (), "protects": None}
    )


def test_shared_noise_bounds_nothing() -> None:
    open_end = Laplace.model_validate({**release([2.0]).model_dump(), "distance": None})
    ledger = release_ledger(Releases(laplace=(open_end, release([4.0]))), 10)
    assert (ledger.claimed, ledger.epsilon_upper, ledger.accountants) == (2.0, None, ())
    assert [release.epsilon_upper for release in ledger.releases] == [None, 0.25]
    assert ledger.event == "inputs NonPrivate, inputs 1 x Laplace(4)"
    assert ledger.releases[0].noise[1] == pytest.approx(2 * 2**0.5)


def test_losses_too_large_for_a_grid_are_left_to_renyi() -> None:
    pure = 2.0 * LAPLACE_LARGEST
    actual = release_ledger(Releases(laplace=(release([FEATURES / pure], repeats=FEATURES),)), 10)
    renyi, grid = actual.accountants
    assert renyi.epsilon < pure
    assert (grid.epsilon, grid.note) == (None, f"not computed above a pure epsilon of {LAPLACE_LARGEST}")


def test_noise_that_drawn_relevances_divide_is_known_by_its_epsilon() -> None:
    def released(*scales: float, relevances: bool = True) -> Releases:
        first = [("relevances", (3.0,))] if relevances else []
        return Releases(
            laplace=tuple(
                Laplace(quantity=name, claimed=2.0, distance=1.0, scales=each, span=1.0)
                for name, each in [*first, ("inputs", scales)]
            )
        )

    shares, other = (1.0, 1.0), (2 / 3, 2.0)
    assert released(*shares).epsilon == pytest.approx(released(*other).epsilon)
    assert _same_releases(released(*shares), released(*other))
    assert not _same_releases(released(*shares), released(1.0, 3.0))
    # a bound for drawn scales is none for the method
    assert {each.epsilon for each in release_ledger(released(*shares), 1).accountants} == {None}
    assert None not in {
        each.epsilon for each in release_ledger(released(*shares, relevances=False), 1).accountants
    }
    assert not _same_releases(released(*shares, relevances=False), released(*other, relevances=False))
