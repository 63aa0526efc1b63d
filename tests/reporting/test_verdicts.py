"""Verdicts, of every combination of what is claimed, accounted, computed and shown."""

from types import SimpleNamespace

import pytest

from pipeline.privacy.parameters import Noise
from pipeline.reporting.judging.verdicts import closeness, of_cell, verdict
from pipeline.reporting.wording import attack_words
from pipeline.results.schema import FLOATING_POINT, Attack, Bound, Ledger
from tests.reporting.made_up import dpsgd


def ledger(claimed: float | None, epsilon_upper: float | None, shown: float | None = None) -> Ledger:
    return dpsgd.ledger(dpsgd.PLAIN, 1).model_copy(
        update={"event": "noise", "claimed": claimed, "epsilon_upper": epsilon_upper, "epsilon_lower": shown}
    )


def attack(
    epsilon: float, epsilon_upper: float | None, whole: bool = False, gaussian: bool = False
) -> Attack:
    return Attack(
        level="epsilon=1",
        attack="pair",
        sees="every step",
        event="noise",
        delta=1e-5,
        epsilon_upper=epsilon_upper,
        whole=whole,
        confidence=0.95,
        trials=(100, 100),
        bounds=(Bound(by="errors", epsilon=epsilon, assumes_gaussian=gaussian),),
        seconds=1,
    )


@pytest.mark.parametrize(
    ("own", "attacks", "name"),
    [
        (ledger(1.0, 0.9), [], "sound"),
        (ledger(1.0, 0.9), [attack(3.0, 3.2)], "sound"),
        (ledger(1.0, 0.9), [attack(3.3, 3.2)], "broken"),
        # clipped sums of float32
        (ledger(1.0, 0.9), [attack(3.2001, 3.2)], "sound"),
        (ledger(1.0, 1.2), [attack(0.5, 1.2, whole=True)], "optimistic"),
        (ledger(1.0, 1.2), [attack(1.1, 1.2, whole=True)], "broken"),
        (ledger(1.0, 1.2), [attack(1.1, 1.2, whole=True, gaussian=True)], "optimistic"),
        (ledger(1.0, 1.2, shown=1.1), [], "broken"),
        (ledger(1.0, None), [attack(0.1, 3.0)], "unproven"),
        (ledger(1.0, None), [attack(5.0, None)], "broken"),
        (ledger(8.0, None), [attack(1.0, None)], "unproven"),
    ],
)
def test_the_verdict_is_computed(own: Ledger, attacks: list[Attack], name: str) -> None:
    assert verdict(own, attacks, reproducible=False).name == name


def test_an_attack_on_arithmetic_is_told_apart() -> None:
    of_floats = attack(60.0, 3.2).model_copy(update={"attack": FLOATING_POINT})
    exceeded = verdict(ledger(1.0, 0.9), [attack(3.0, 3.2), of_floats], False, "float32")
    assert (exceeded.name, exceeded.attack) == ("sound", attack(3.0, 3.2))
    assert exceeded.floating_point == "float32: holds for real numbers only"


@pytest.mark.parametrize(
    ("epsilons", "noise", "told"),
    [
        ({"float32": 3.0}, "float32", "float32: no more shown than accounted"),
        ({"float32": 60.0, "grid": 0.0}, "float32", "float32: holds for real numbers only"),
        ({"float32": 60.0, "grid": 0.0}, "grid", "grid: no more shown than accounted"),
        ({"float32": 60.0}, "grid", "grid: not audited"),
        ({}, "float32", "float32: not audited"),
        ({}, None, "nothing ran"),
    ],
)
def test_each_noise_has_attacks_of_its_own(
    epsilons: dict[Noise, float], noise: Noise | None, told: str
) -> None:
    attacks = [
        attack(epsilon, 3.2).model_copy(update={"attack": FLOATING_POINT, "noise": of})
        for of, epsilon in epsilons.items()
    ]
    assert verdict(ledger(1.0, 0.9), attacks, False, noise).floating_point == told


def test_a_level_with_replicas_of_both_noises_is_told_of_by_the_weaker() -> None:
    record = dpsgd.record(dpsgd.PLAIN, dpsgd.settings())
    replicas = [one.model_copy(update={"noise": "grid"}) for one in record.replicas[:3]]
    for changed, told in (
        (replicas, "grid: not audited"),
        ([*replicas[:2], record.replicas[2]], "float32: not audited"),
    ):
        cell = SimpleNamespace(replicas=changed, guarantee=SimpleNamespace(ledger=changed[0].ledger))
        assert of_cell(cell, record).floating_point == told  # type: ignore[arg-type]


def test_seeded_noise_is_void_and_what_claims_nothing_has_none() -> None:
    assert verdict(ledger(1.0, None), [attack(9.0, 1.0)], reproducible=True).name == "void"
    nothing = ledger(None, None).model_copy(update={"event": None})
    assert verdict(nothing, [], reproducible=True).name == "none"


def test_a_gap_is_stated_and_the_closest_attack_is_named() -> None:
    found = verdict(ledger(1.0, 1.25), [attack(1.0, 4.0), attack(3.0, 4.0)], reproducible=False)
    assert (found.gap, found.attack) == (pytest.approx(0.25), attack(3.0, 4.0))
    assert closeness(attack(3.0, None)) == 0
    assert attack_words(found.attack).endswith("3 (of 4; counted errors)")
    assert attack_words(None) == "not audited"
