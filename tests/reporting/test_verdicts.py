"""Verdicts, of every combination of what is claimed, accounted, computed and shown."""

from types import SimpleNamespace

import pytest

from dprepro.fields import Noise
from dprepro.pipeline.reporting.judging.verdicts import cell_verdict, closeness, verdict
from dprepro.pipeline.reporting.wording import attack_words, final_model_words
from dprepro.pipeline.results.schema import FLOATING_POINT, Attack, Bound, Ledger
from dprepro.stages.audit import describe
from tests.reporting.made_up import dpsgd
from tests.reporting.made_up.dpsgd import attack
from tests.reporting.made_up.dpsgd import bounds as ledger


@pytest.mark.parametrize(
    ("spent", "attacks", "name"),
    [
        (ledger(1.0, 0.9), [], "sound"),
        (ledger(1.0, 0.9), [attack(3.0, 3.2)], "sound"),
        (ledger(1.0, 0.9), [attack(3.3, 3.2)], "exceeded"),
        # clipped sums of float32
        (ledger(1.0, 0.9), [attack(3.2001, 3.2)], "sound"),
        (ledger(1.0, 1.2), [attack(0.5, 1.2, whole=True)], "optimistic"),
        (ledger(1.0, 1.2), [attack(1.1, 1.2, whole=True)], "refuted"),
        (ledger(1.0, 1.2), [attack(1.1, 1.2, whole=True, gaussian=True)], "optimistic"),
        (ledger(1.0, 1.2, epsilon_lower=1.1), [], "refuted"),
        (ledger(1.0, None), [attack(0.1, 3.0)], "unproven"),
        (ledger(1.0, None), [attack(5.0, None)], "exceeded"),
        (ledger(8.0, None), [attack(1.0, None)], "unproven"),
        # what claims nothing and is not private has no verdict
        (ledger(None, None, event=None, claimed_by=None), [], "none"),
        # a claim above the largest float
        (ledger(None, 4e6), [], "huge"),
        (ledger(None, 4e6), [attack(3.3, 3.2)], "exceeded"),
    ],
)
def test_the_verdict_is_computed(spent: Ledger, attacks: list[Attack], name: str) -> None:
    assert verdict(spent, attacks, reproducible=False).name == name
    # seeded noise is void
    assert verdict(spent, attacks, reproducible=True).name == ("none" if name == "none" else "void")


@pytest.mark.parametrize(
    ("epsilons", "noise", "told"),
    [
        ({"float32": 0.0}, "float32", "float32: no attack on rounding succeeded"),
        # thousands of trials without an error show at most 8, for any accounted epsilon
        ({"float32": 3.0}, "float32", "float32: an attack on rounding showed ε ≥ 3, not more than accounted"),
        ({"float32": 60.0, "grid": 0.0}, "float32", "float32: an attack on rounding found a record"),
        ({"float32": 60.0, "grid": 0.0}, "grid", "grid: no attack on rounding succeeded"),
        ({"float32": 60.0}, "grid", "grid: not audited"),
        ({}, "float32", "float32: not audited"),
        ({}, None, "nothing ran"),
    ],
)
def test_attacks_on_arithmetic_are_told_apart_for_each_noise(
    epsilons: dict[Noise, float], noise: Noise | None, told: str
) -> None:
    of_floats = [attack(epsilon, 3.2, attack=FLOATING_POINT, noise=of) for of, epsilon in epsilons.items()]
    judged = verdict(ledger(1.0, 0.9), [attack(3.0, 3.2), *of_floats], False, noise)
    assert (judged.name, judged.attack, judged.floating_point) == ("sound", attack(3.0, 3.2), told)


def test_a_level_with_replicas_of_both_noises_is_told_of_by_the_weaker() -> None:
    record = dpsgd.record(dpsgd.PLAIN, dpsgd.settings())
    replicas = [replica.model_copy(update={"noise": "grid"}) for replica in record.replicas[:3]]
    for changed, told in (
        (replicas, "grid: not audited"),
        ([*replicas[:2], record.replicas[2]], "float32: not audited"),
    ):
        cell = SimpleNamespace(replicas=changed, guarantee=SimpleNamespace(ledger=changed[0].ledger))
        assert cell_verdict(cell, record).floating_point == told  # type: ignore[arg-type]


def test_the_closest_attack_is_named() -> None:
    judged = verdict(ledger(1.0, 1.25), [attack(1.0, 4.0), attack(3.0, 4.0)], reproducible=False)
    assert judged.attack == attack(3.0, 4.0)
    assert closeness(attack(3.0, None)) == 0
    assert attack_words(judged.attack).endswith(
        ": ε ≥ 3 (from counted errors, at 95 % confidence); accounted ε 4"
    )
    assert attack_words(None) == "not audited"


def test_a_bound_with_an_assumption_says_so_and_a_median_is_no_maximum() -> None:
    both = (Bound(by="one_run", epsilon=0.5), Bound(by="one_run_curve", epsilon=2.0, assumes_gaussian=True))
    made = attack(0.5, 3.0, bounds=both, could_show=(Bound(by="one_run", epsilon=1.0),))
    assert final_model_words(made) == (
        "ε ≥ 0.5, or 2 if the scores are Gaussian (a perfect attacker's median: 1)"
    )
    assert describe(made).endswith(
        "epsilon >= 0.5, or 2 if the scores are Gaussian, a perfect attacker's median 1, 3 accounted"
    )
