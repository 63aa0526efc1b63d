"""The verdict on each printed value, and the sentence that counts them."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.judging import values
from dprepro.pipeline.reporting.prose import counts
from tests.reporting import lookup
from tests.reporting.made_up import toys

PRINTED = {"sigma=0": 90.0}
SURE = (90.1, 90.2, 90.3)


def verdict(result: PaperResult) -> tuple[str, str]:
    (value,) = result.values
    return value.status, value.words


def judged(rows: dict[str, Sequence[float] | None], changes: Any = None, **paper: Any) -> PaperResult:
    """The paper with rows of these accuracies, or that were not run; ``changes`` are what rows declare."""
    return toys.ran(rows, changes, toys.paper(**{"values": PRINTED} | paper))


def of(printed: Any, *accuracies: float, table: Any = None, **row: Any) -> tuple[str, str]:
    """The verdict on a printed value by one row."""
    changes = {"row": {"seeds": len(accuracies), **row}}
    return verdict(judged({"row": accuracies}, changes, values={"sigma=0": printed}, table=table or {}))


@pytest.mark.parametrize(
    ("printed", "accuracies", "expected"),
    [
        (90.0, SURE, ("agrees", "agrees")),  # .2 away, ± .25
        (90.0, (90.5, 90.5, 90.5), ("agrees", "agrees, 0.5 above")),
        (90.0, (92.7, 92.9, 93.1), ("above", "above")),
        (90.0, (86.9, 87.1, 87.3), ("below", "below")),
        (90.0, (89.0, 90.0, 91.0), ("inconclusive", "inconclusive (about 7 seeds would decide it)")),
        (90.0, (89.0, 91.0, 93.0), ("inconclusive", "inconclusive (not even 100 seeds would decide it)")),
        ("90.0 ± 1.0", SURE, ("inconclusive", "inconclusive (not even 100 seeds would decide it)")),
        ("No-convergence", (90.0, 90.0, 90.0), ("above", "above (3 of 3 seeds converge)")),
        (
            90.0,
            (90.0, 90.0, 10.0),
            ("inconclusive", "inconclusive (2 of 3 seeds converge; about 11 seeds would decide it)"),
        ),
        ("No-convergence", (10.0, 10.0, 10.0), ("not judged", "too narrow a search of step sizes")),
        (90.0, (90.0,), ("not judged", "one seed")),
        (90.0, (10.0,), ("not judged", "too narrow a search of step sizes")),
        (90.0, (90.0, 90.0), ("not judged", "2 seeds")),
        ("n/a", SURE, ("not judged", "the paper prints 'n/a' there")),
    ],
)
def test_a_printed_value_has_the_verdict_of_the_rule(
    printed: Any, accuracies: tuple[float, ...], expected: tuple[str, str]
) -> None:
    assert of(printed, *accuracies) == expected


def test_a_reduced_row_is_too_small_a_budget_and_an_own_one_counts() -> None:
    assert of(90.0, *SURE, budget="reduced") == ("not judged", "too small a budget")
    assert of(90.0, *SURE, budget="own")[0] == "agrees"


def test_on_part_of_the_data_neither_above_nor_below_is_judged() -> None:
    fewer = {"examples": 100_000}
    assert of(90.0, *(90.1,) * 3, table=fewer)[0] == "agrees"
    for side, accuracy in (("above", 93.0), ("below", 85.0)):
        said = f"not judged ({side}): too small a part of the data"
        assert of(90.0, *(accuracy,) * 3, table=fewer) == ("not judged", said)
    # more training would not help
    said = "too small a part of the data"
    assert of(90.0, *SURE, table={"examples": 1_000_000}, budget="reduced") == ("not judged", said)


# -- which row decides -------------------------------------------------------------------------------


def test_value_and_claim_name_the_same_row() -> None:
    """Wherever it ran: at one level in the first row, at another in the second, and reduced ones nowhere."""
    declared = toys.settings(first={}, second={}, third_reduced={"budget": "reduced"})
    first = toys.record("first", declared, sigma_0=SURE)
    second = toys.record("second", declared, sigma_0=(50.0, 50.1, 50.2), sigma_1=(50.0, 50.1, 50.2))
    reduced = toys.record("third-reduced", declared, sigma_0=(20.0,) * 3, sigma_1=(20.0,) * 3)
    tests = [
        {"kind": "difference", "left": "t/one", "right": 0, "at": [level], "above": 80}
        for level in ("sigma=0", "sigma=1")
    ]
    paper = toys.paper(claims=[toys.claim(*tests)], values={"sigma=0": 90.0, "sigma=1": 90.0})
    result = toys.judged(paper, declared, first, second, reduced)
    assert [(value.row.key if value.row else None, value.status) for value in result.values] == [
        ("first", "agrees"),
        ("second", "below"),
    ]
    plain = next(each for each in result.claims[0].assessments if not each.variant and not each.reduced)
    assert [outcome.verdict for outcome in plain.outcomes] == ["holds", "fails"]
    assert plain.outcomes[0].text.startswith("One at σ = 0: 90.20 ± ")
    assert plain.outcomes[1].text.startswith("One at σ = 1: 50.10 ± ")
    # and the tables show the same
    deciding, _, others = lookup.shown(result.tables[0]).partition("Without effect on a verdict")
    assert re.search(r"agrees 90\.20 ± 0\.25 \(3\).* first .*below 50\.10 ± 0\.25 \(3\).* second ", deciding)
    assert "90.20" not in others


def test_what_came_out_never_chooses_the_row() -> None:
    scattered = (50.0, 90.0, 70.0)
    for first, second, status in ((SURE, scattered, "agrees"), (scattered, SURE, "inconclusive")):
        (value,) = judged({"first": first, "second": second}).values
        assert value.row
        assert (value.row.key, value.status) == ("first", status)


PLAN = {"toys-t": {"seeds": 5, "margin": 1, "budget": "ours", "search": "none"}}


def planned(seeds: int, digest: str | None = None) -> PaperResult:
    """An exploratory row that agrees, and a planned one with so many seeds that doesn't."""
    declared = toys.settings(row={}, row_planned={"plan": "toys-t", "seeds": 5}, plans=PLAN)
    exploratory = toys.record("row", declared, sigma_0=SURE)
    made = toys.record("row-planned", declared, sigma_0=(80.0,) * seeds)
    made = toys.under(digest or declared.plan_digest("row-planned"), made)
    return toys.judged(toys.paper(values=PRINTED), declared, exploratory, made)


def test_what_was_seen_before_a_plan_may_have_been_replaced() -> None:
    """No time of it is recorded: another row was trained anew, or this one got its plan later."""
    (table,) = planned(5).tables
    (line,) = table.lines
    first, second = line.rows
    (cell,) = second.cells.values()
    (earlier,) = first.cells.values()
    later = replace(
        earlier,
        replicas=tuple(each.model_copy(update={"started": 2e9}) for each in earlier.replicas),
    )
    first = replace(first, cells={later.level: later})
    for one, two, expected in (
        (first, second, "blind"),
        (replace(first, replaced=True), second, "after earlier results"),
        (first, replace(second, replaced=True), "after earlier results"),
    ):
        assert values.evidence(replace(line, rows=(one, two)), two, cell) == expected


def test_a_planned_row_decides_once_all_its_seeds_are_there() -> None:
    (value,) = planned(5).values
    assert value.row
    assert (value.row.key, value.row.variant, value.status) == ("row-planned", "", "below")
    assert value.planned


@pytest.mark.parametrize(("seeds", "decides"), [(8, "again"), (7, "first")])
def test_a_repetition_decides_whatever_comes_out_once_all_its_seeds_are_there(
    seeds: int, decides: str
) -> None:
    plans = PLAN | {"toys-t-repeated": PLAN["toys-t"] | {"seeds": 8}}
    declared = toys.settings(
        first={"plan": "toys-t", "seeds": 5},
        again={"plan": "toys-t-repeated", "seeds": 8},
        plans=plans,
    )
    reached = {"first": SURE + SURE[:2], "again": (80.0, 100.0, *SURE, *SURE)[:seeds]}
    made = [
        toys.under(declared.plan_digest(key), toys.record(key, declared, sigma_0=accuracies))
        for key, accuracies in reached.items()
    ]
    (value,) = toys.judged(toys.paper(values=PRINTED), declared, *made).values
    assert value.row
    assert (value.row.key, value.planned) == (decides, True)
    assert value.status == {"again": "inconclusive", "first": "agrees"}[decides]


@pytest.mark.parametrize(("seeds", "digest"), [(4, None), (5, "sha256:of-another-plan")])
def test_a_plan_that_was_not_kept_is_exploratory(seeds: int, digest: str | None) -> None:
    result = planned(seeds, digest)
    (value,) = result.values
    assert value.row
    assert (value.row.key, value.status, value.planned) == ("row", "agrees", False)
    table = result.tables[0]
    alone = replace(table.lines[0], rows=tuple(table.rows[1:]))
    (line,) = values.judged([alone], table.table)
    value = line.values[""]["sigma=0"]
    assert (value.verdict, value.words) == (None, "trained otherwise than planned, or fewer than 5 seeds")


def test_the_full_row_decides_whatever_the_reduced_one_says() -> None:
    reduced = {"row-reduced": {"budget": "reduced"}}
    assert verdict(judged({"row": SURE, "row-reduced": (50.0,) * 3}, reduced)) == ("agrees", "agrees")
    alone = judged({"row": None, "row-reduced": (50.0,) * 3}, reduced)
    assert verdict(alone) == ("not judged", "too small a budget")


def test_a_row_that_does_something_differently_decides_nothing() -> None:
    changed = {"row": {"variant": "otherwise"}}
    assert verdict(judged({"row": None}, changed)) == (
        "not run",
        "only rows with changed methods are declared",
    )
    ran = judged({"row": SURE}, changed)
    assert verdict(ran) == ("not run", "only changed methods were run")
    # the value has a line of its own on the page of all results
    (fact,) = (fact for fact in ran.facts if fact.row is None)
    assert (fact.status, fact.level) == ("not run", "sigma=0")


def test_why_there_is_no_number() -> None:
    lines = [
        {"key": "two", "label": "Two", "values": PRINTED, "untried": "it costs too much"},
        {"key": "three", "label": "Three", "values": PRINTED},
        {"key": "four", "label": "Four", "values": PRINTED},
    ]
    result = judged({"row": None}, lines=lines)
    reasons = ["still to be trained", "it costs too much", "no row is declared", "no row is declared"]
    assert [value.words for value in result.values] == reasons
    # which are counted where there are several
    why = "no row is declared (2); still to be trained (1); it costs too much (1)"
    assert counts.value_counts([result])[-1] == ("not run", 4, why)


def test_a_row_waits_at_its_own_levels_alone() -> None:
    large = {"needs": "gpu", "levels": [{"sigma": 1}]}
    paper = toys.paper(values={"sigma=0": 90.0, "sigma=1": 90.0})
    statuses = [value.status for value in toys.ran({"row": None}, {"row": large}, paper).values]
    assert statuses == ["not run", "waits for a GPU"]


def test_values_of_our_own_experiments_are_no_values_of_the_paper() -> None:
    result = judged({"row": None}, table={"own": True})
    assert (result.values, counts.value_counts([result])) == ([], [])


def test_what_agrees_differs_waits_and_was_not_run_is_counted() -> None:
    lines = [
        {"key": key, "label": key.capitalize(), "values": PRINTED}
        for key in ("two", "three", "four", "five", "six")
    ]
    scope = [{"what": "Table 2", "numbers": 7, "why": "too large"}]
    paper = toys.paper(values=PRINTED, lines=lines, out_of_scope=scope)
    changes = {
        "two": {"line": "two"},
        "three-reduced": {"line": "three", "budget": "reduced"},
        "four": {"line": "four", "needs": "gpu"},
        "five": {"line": "five", "needs": "gpu"},
    }
    low = (80.0,) * 3
    rows = {"one": (90.0,) * 3, "two": low, "three-reduced": low, "four": None, "five": None}
    assert counts.value_counts([toys.ran(rows, changes, paper, gpu_hours={"four": 2.5})]) == [
        ("printed values", 6, "7 more are out of scope, for stated reasons"),
        (
            "agree",
            1,
            "1 equal within error, 0 only within the margin. 0 of the 1 are informative. "
            "1 at the paper's settings, on at least 90 % of its data (1 exploratory).",
        ),
        ("below the paper", 1, "1 at the paper's settings, on at least 90 % of its data (1 exploratory)"),
        ("not judged", 1, "too small a budget"),
        (
            "wait for a GPU",
            2,
            "about 2.5 GPU hours, estimated from the number of operations, 1 row not counted",
        ),
        ("not run", 1, "no row is declared"),
    ]


def test_circular_and_repeated_values_count_nowhere_and_say_so() -> None:
    lines = [{"key": "two", "label": "Two", "values": PRINTED, "uncounted": {"sigma=0": "printed twice"}}]
    result = judged({"row": SURE, "other": SURE}, {"other": {"line": "two"}}, lines=lines)
    assert [(value.status, value.words) for value in result.values] == [
        ("agrees", "agrees"),
        ("not counted", "agrees; not counted: printed twice"),
    ]
    assert [line[:2] for line in counts.value_counts([result])] == [
        ("printed values", 2),
        ("agree", 1),
        ("not counted", 1),
    ]
    # nor before it was run
    waiting = judged({"row": SURE, "other": None}, {"other": {"line": "two"}}, lines=lines)
    assert waiting.values[1].words == "still to be trained; not counted: printed twice"
    assert counts.value_counts([waiting])[-1][:2] == ("not counted", 1)
