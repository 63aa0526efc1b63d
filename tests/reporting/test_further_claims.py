"""Claims about training curves and ledgers, and further metrics that no training decides."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dprepro.pipeline.params import load
from dprepro.pipeline.reporting.caveats import stale_caveats
from dprepro.pipeline.reporting.claims.curves import Overtakes, overtaking
from dprepro.pipeline.reporting.claims.ledgers import BoundsApart, Guaranteed, SameGuarantee
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.gather import Sources, fill
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Ledger
from tests.reporting.lookup import outcome
from tests.reporting.made_up import dpsgd, toys

ROOT = Path(__file__).parents[2]
TWO = [{"key": "two", "label": "Two"}]


@pytest.mark.parametrize(
    ("left", "right", "epoch"),
    [
        # the other's last value stands after its end
        ([(1, 0.1), (2, 0.5), (3, 0.9)], [(0.5, 0.4), (1, 0.6)], 3),
        # for good: a lead that is lost again is none
        ([(1, 0.7), (2, 0.5), (3, 0.9)], [(1, 0.6)], 3),
        ([(1, 0.7), (2, 0.8)], [(1, 0.6)], 1),
        ([(1, 0.1), (2, 0.6)], [(1, 0.6)], None),
        # nor is one that the other takes after its end
        ([(1, 0.7)], [(2, 0.6), (3, 0.8)], None),
        # nothing is shown before the first note
        ([(1, 0.6), (2, 0.7), (3, 0.9)], [(3, 0.5)], 1),
    ],
)
def test_the_epoch_of_overtaking(
    left: list[tuple[float, float]], right: list[tuple[float, float]], epoch: float | None
) -> None:
    assert overtaking(*(pd.Series(dict(curve)) for curve in (left, right))) == epoch


def ran(root: Path, seeds: int) -> PaperResult:
    """A row of each of two lines as they lie under ``root``, with curves that cross at epoch 6."""
    declared = toys.settings(one={"seeds": seeds}, two={"line": "two", "seeds": seeds})
    kept: dict[str, Any] = {}
    for key, slope in (("one", 0.1), ("two", 0.0)):
        lines = [
            ("sigma=0", seed, 100 * epoch, epoch, "validation_accuracy", 0.3 + slope * (epoch - 5))
            for seed in range(seeds)
            for epoch in range(1, 9)
        ]
        kept[key] = dpsgd.put(toys.record(key, declared, sigma_0=(90.0,) * seeds), root, lines)
    return fill("toys", Sources(declared, root, toys.paper(lines=TWO), kept, {}, {}))


@pytest.mark.parametrize(
    ("left", "right", "seeds", "bounds", "verdict", "text"),
    [
        ("one", "two", 3, {"below": 7}, "holds", "after 6.0 ± 0.0 (n = 3) epochs, required: below 7"),
        ("one", "two", 3, {"below": 5}, "fails", "after 6.0 ± 0.0 (n = 3) epochs, required: below 5"),
        ("two", "one", 3, {"below": 7}, "fails", "in 0 of 3 seeds"),
        # a single seed decides nothing, whichever way it went
        ("two", "one", 1, {"below": 7}, "undecided", "in 0 of 1 seeds"),
        (
            "one",
            "two",
            1,
            {"below": 7},
            "undecided",
            "after 6.0 (n = 1: no interval) epochs, required: below 7",
        ),
    ],
)
def test_curves_cross_where_the_claim_says(
    tmp_path: Path, left: str, right: str, seeds: int, bounds: dict[str, float], verdict: str, text: str
) -> None:
    said: dict[str, Any] = {"left": f"t/{left}", "right": f"t/{right}", "at": ["sigma=0"], **bounds}
    crossed = outcome(ran(tmp_path, seeds), Overtakes, kind="overtakes", **said)
    assert (crossed.verdict, crossed.text.partition(": ")[2]) == (verdict, text)


def accounted(*ledgers: Ledger) -> PaperResult:
    """A row of each line, one or two, with these ledgers."""
    rows: Any = {"one": {"reproducible": False}, "two": {"line": "two", "reproducible": False}}
    declared = toys.settings(**dict(list(rows.items())[: len(ledgers)]))
    made = [
        dpsgd.altered(toys.record(key, declared, sigma_0=(90.0,) * 3), ledger=ledger)
        for key, ledger in zip(declared.rows, ledgers, strict=True)
    ]
    return toys.judged(toys.paper(lines=TWO), declared, *made)


@pytest.mark.parametrize(
    ("left", "right", "lower", "verdict"),
    [
        (8.0, 8.05, None, "holds"),
        (8.0, 9.0, 8.5, "fails"),
        (8.0, 9.0, 7.5, "undecided"),
        (8.0, None, None, "undecided"),
        (None, None, None, "undecided"),
    ],
)
def test_two_bounds_are_compared_and_two_missing_ones_are_not(
    left: float | None, right: float | None, lower: float | None, verdict: str
) -> None:
    result = accounted(
        dpsgd.ledger(epsilon_upper=left), dpsgd.ledger(epsilon_upper=right, epsilon_lower=lower)
    )
    said: dict[str, Any] = {"left": "t/one", "right": "t/two", "at": ["sigma=0"]}
    assert outcome(result, SameGuarantee, kind="same_guarantee", **said).verdict == verdict


@pytest.mark.parametrize(
    ("upper", "lower", "verdict"),
    [
        (7.0, None, "holds"),
        (9.0, None, "undecided"),
        (9.0, 8.5, "fails"),
        # a vacuous upper bound refutes a claim no more than a smaller one
        (20.0, None, "undecided"),
        (20.0, 8.5, "fails"),
        (None, None, "fails"),
    ],
)
def test_only_a_lower_bound_refutes_a_claimed_epsilon(
    upper: float | None, lower: float | None, verdict: str
) -> None:
    result = accounted(dpsgd.bounds(8.0, upper, epsilon_lower=lower))
    said: dict[str, Any] = {"of": "t/one", "at": ["sigma=0"]}
    assert outcome(result, Guaranteed, kind="guarantee", **said).verdict == verdict


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [
        ((7.0, 9.0), (2.0, 3.0), "holds"),
        ((6.0, 9.0), (2.0, 3.0), "undecided"),
        ((5.0, 6.0), (3.0, 4.0), "fails"),
        ((None, 9.0), (2.0, 3.0), "undecided"),
        ((7.0, 9.0), (2.0, None), "undecided"),
    ],
)
def test_a_difference_of_bounds_is_more_than_their_widths(left: Any, right: Any, verdict: str) -> None:
    """Is epsilon at sigma = 0 more than twice epsilon at sigma = 1?"""
    declared = toys.settings(one={"levels": [{"sigma": 0}, {"sigma": 1}]})
    made = toys.record("one", declared, sigma_0=(90.0,) * 3, sigma_1=(90.0,) * 3)
    ledgers = {
        level: dpsgd.ledger(epsilon_lower=lower, epsilon_upper=upper)
        for level, (lower, upper) in (("sigma=0", left), ("sigma=1", right))
    }
    replicas = [each.model_copy(update={"ledger": ledgers[each.level]}) for each in made.replicas]
    result = toys.judged(toys.paper(), declared, made.model_copy(update={"replicas": tuple(replicas)}))
    said: dict[str, Any] = {"of": "t/one", "at": ["sigma=0"], "right_at": "sigma=1", "above": 2}
    assert outcome(result, BoundsApart, kind="bounds_apart", **said).verdict == verdict


@pytest.mark.parametrize("accuracy", [10.0, 90.0])
def test_neither_a_reduced_budget_nor_failed_training_speaks_against_noise(accuracy: float) -> None:
    declared = toys.settings(row={"budget": "reduced"})
    made = toys.record("row", declared, sigma_0=(accuracy,) * 3)
    noisy = [each.model_copy(update={"metrics": {**each.metrics, "noise": 2.0}}) for each in made.replicas]
    paper = toys.paper(table={"also": {"noise": "noise"}, "noises": ["noise"]})
    result = toys.judged(paper, declared, made.model_copy(update={"replicas": noisy}))
    (row,) = result.tables[0].rows
    cell = row.also["noise"]["sigma=0"]
    assert row.cells["sigma=0"].caveat == "reduced budget: 50 epochs"
    assert (cell.mean.value, cell.caveat, cell.untried, cell.converged) == (2.0, None, None, 3)  # no percent


def test_an_account_of_other_settings_is_marked() -> None:
    settings, key = load(ROOT / "params.yaml"), "nguyen-gdp-modules"
    account, record = settings.accounts[key], records.read(key, settings.accounts[key], ROOT)
    assert record is not None
    assert list(stale_caveats(record, account, settings, ROOT)) == []
    changed = account.model_copy(update={"axis": "parts"})
    other = settings.model_copy(update={"accounts": {key: changed}})
    marks = stale_caveats(record, changed, other, ROOT)
    assert [caveat.words for caveat in marks] == ["settings have changed since this run"]
