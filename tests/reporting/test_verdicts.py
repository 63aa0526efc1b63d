"""Verdicts, of every combination of what is claimed, accounted, computed and shown."""

import pytest

from pipeline.privacy.parameters import Noise
from pipeline.reporting.judging.verdicts import arithmetic, closeness, verdict
from pipeline.reporting.ledger_overview import attack_words
from pipeline.results.schema import FLOATING_POINT, Attack, Bound, Ledger, Replica
from tests.reporting.made_up import dpsgd


def ledger(claimed: float | None, accounted: float | None, shown: float | None = None) -> Ledger:
    return dpsgd.ledger(dpsgd.PLAIN, 1).model_copy(
        update={"event": "noise", "claimed": claimed, "accounted": accounted, "shown": shown}
    )


def attack(epsilon: float, accounted: float | None, whole: bool = False, gaussian: bool = False) -> Attack:
    return Attack(
        level="epsilon=1",
        attack="pair",
        sees="every step",
        event="noise",
        delta=1e-5,
        accounted=accounted,
        whole=whole,
        confidence=0.95,
        trials=(100, 100),
        bounds=(Bound(by="errors", epsilon=epsilon, assumes_gaussian=gaussian),),
        seconds=1,
    )


def replicas(attacks: list[Attack], *noises: Noise) -> list[Replica]:
    return [
        Replica(
            level="epsilon=1",
            seed=seed,
            settings={},
            metrics={},
            ledger=ledger(1.0, 0.9),
            started=1.0,
            attacks=tuple(attacks),
            noise=noise,
        )
        for seed, noise in enumerate(noises or ("float32",))
    ]


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
    judged = verdict(ledger(1.0, 0.9), [attack(3.0, 3.2), of_floats], reproducible=False)
    assert (judged.name, judged.attack) == ("sound", attack(3.0, 3.2))
    assert arithmetic(replicas([attack(3.0, 3.2), of_floats])) == "float32: holds for real numbers only"
    less = of_floats.model_copy(update={"accounted": 61.0})
    assert arithmetic(replicas([less])) == "float32: no more shown than accounted"
    assert arithmetic(replicas([attack(60.0, 3.2)])) == "float32: not audited"


def test_each_noise_has_attacks_of_its_own() -> None:
    of_floats = attack(60.0, 3.2).model_copy(update={"attack": FLOATING_POINT})
    on_grid = attack(0.0, 3.2).model_copy(update={"attack": FLOATING_POINT, "noise": "grid"})
    both = [of_floats, on_grid]
    assert arithmetic(replicas(both, "grid", "grid")) == "grid: no more shown than accounted"
    assert arithmetic(replicas([of_floats], "grid")) == "grid: not audited"
    # a level that has replicas of both is as weak as the weaker
    assert arithmetic(replicas(both, "grid", "float32")) == "float32: holds for real numbers only"
    account = [one.model_copy(update={"started": None}) for one in replicas([])]
    assert arithmetic(account) == "nothing ran"


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
