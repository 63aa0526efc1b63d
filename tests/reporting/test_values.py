"""The verdict on each printed value, and the sentence that counts them."""

from typing import Any

import pytest

from pipeline.reporting import tally
from pipeline.reporting.judging import values
from pipeline.reporting.judging.assess import assess
from pipeline.reporting.results import PaperResult
from pipeline.reporting.tables import reading
from tests.reporting.made_up import toys

PRINTED = {"sigma=0": 90.0}
SURE = (90.1, 90.2, 90.3)


def verdict(result: PaperResult) -> tuple[str, str]:
    (value,) = values.judge(result)
    return value.status, value.words


def of(printed: Any, *accuracies: float, **row: Any) -> tuple[str, str]:
    declared = toys.settings(row={"seeds": len(accuracies), **row})
    record = toys.record("row", declared, sigma_0=accuracies)
    return verdict(toys.judged(toys.paper(values={"sigma=0": printed}), declared, record))


@pytest.mark.parametrize(
    ("printed", "accuracies", "expected"),
    [
        (90.0, SURE, ("agrees", "agrees")),  # .2 away, ± .25
        (90.0, (90.5, 90.5, 90.5), ("agrees", "agrees, 0.5 above")),
        (90.0, (92.7, 92.9, 93.1), ("above", "above")),
        (90.0, (86.9, 87.1, 87.3), ("below", "below")),
        (90.0, (89.0, 90.0, 91.0), ("inconclusive", "inconclusive, 7 seeds would decide")),
        (90.0, (89.0, 91.0, 93.0), ("inconclusive", "inconclusive, 100 seeds would not decide")),
        ("90.0 ± 1.0", SURE, ("inconclusive", "inconclusive, 100 seeds would not decide")),
        ("No-convergence", (90.0, 90.0, 90.0), ("above", "above (3 of 3 seeds converge)")),
        (
            90.0,
            (90.0, 90.0, 10.0),
            ("inconclusive", "inconclusive, 11 seeds would decide (2 of 3 seeds converge)"),
        ),
        ("No-convergence", (10.0, 10.0, 10.0), ("not judged", "too few step sizes tried")),
        (90.0, (90.0,), ("not judged", "one seed")),
        (90.0, (10.0,), ("not judged", "too few step sizes tried")),
        (90.0, (90.0, 90.0), ("not judged", "2 seeds")),
    ],
)
def test_a_printed_value_has_the_verdict_of_the_rule(
    printed: Any, accuracies: tuple[float, ...], expected: tuple[str, str]
) -> None:
    assert of(printed, *accuracies) == expected


def test_a_reduced_row_is_too_small_a_budget_and_an_own_one_counts() -> None:
    assert of(90.0, *SURE, budget="reduced") == ("not judged", "too small a budget")
    assert of(90.0, *SURE, budget="own")[0] == "agrees"


def test_a_reduced_row_on_a_part_of_the_data_says_that_more_training_would_not_help() -> None:
    declared = toys.settings(row={"budget": "reduced"})
    record = toys.record("row", declared, sigma_0=SURE)
    paper = toys.paper(values=PRINTED, table={"examples": 1_000_000})
    assert verdict(toys.judged(paper, declared, record)) == ("not judged", "too small a part of the data")


@pytest.mark.parametrize(("accuracy", "status"), [(90.1, "agrees"), (93.0, "above"), (85.0, "not judged")])
def test_fewer_data_cannot_help_so_that_only_below_decides_nothing(accuracy: float, status: str) -> None:
    declared = toys.settings(row={})
    record = toys.record("row", declared, sigma_0=(accuracy,) * 3)
    paper = toys.paper(values=PRINTED, table={"examples": 100_000})
    found, words = verdict(toys.judged(paper, declared, record))
    assert found == status
    assert status != "not judged" or words == (
        "below, which decides nothing: trained on 55,000 of 100,000 examples"
    )


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
    claims = [{"key": "c", "says": "so", "where": "there", "tests": tests}]
    paper = toys.paper(claims=claims, values={"sigma=0": 90.0, "sigma=1": 90.0})
    result = toys.judged(paper, declared, first, second, reduced)
    judged = values.judge(result)
    assert [(value.row.key if value.row else None, value.status) for value in judged] == [
        ("first", "agrees"),
        ("second", "below"),
    ]
    plain = next(one for one in assess(result)[0].assessments if not one.variant and not one.reduced)
    assert [one.verdict for one in plain.outcomes] == ["holds", "fails"]
    assert plain.outcomes[0].text.startswith("One − 0 at σ = 0: +90.20 ± ")
    assert plain.outcomes[1].text.startswith("One − 0 at σ = 1: +50.10 ± ")
    # and the tables show the same in bold
    line = reading.wide(result.tables[0]).iloc[1]
    assert line["0"].startswith("**90.20 ± 0.25 (n = 3)** agrees")
    assert line["1"].startswith("**50.10 ± 0.25 (n = 3)** below")
    assert "90.20" not in str(reading.wide_variants(result.tables[0]).values)


def test_what_came_out_never_chooses_the_row() -> None:
    declared = toys.settings(first={}, second={})
    good = {"sigma_0": SURE}
    bad = {"sigma_0": (50.0, 90.0, 70.0)}
    paper = toys.paper(values=PRINTED)
    for one, other, status in ((good, bad, "agrees"), (bad, good, "inconclusive")):
        records = toys.record("first", declared, **one), toys.record("second", declared, **other)
        (value,) = values.judge(toys.judged(paper, declared, *records))
        assert value.row
        assert (value.row.key, value.status) == ("first", status)


PLAN = {"toys-t": {"seeds": 5, "margin": 1, "budget": "ours", "search": "none"}}


def planned(seeds: int, digest: str | None = None) -> PaperResult:
    """An exploratory row that agrees, and a planned one with so many seeds that doesn't."""
    declared = toys.settings(
        row={}, row_planned={"label": "One, planned", "plan": "toys-t", "seeds": 5}, plans=PLAN
    )
    exploratory = toys.record("row", declared, sigma_0=SURE)
    made = toys.record("row-planned", declared, sigma_0=(80.0,) * seeds)
    origin = made.origins[0].model_copy(
        update={"plan": declared.plan_digest("row-planned") if digest is None else digest}
    )
    made = made.model_copy(update={"origins": (origin,)})
    return toys.judged(toys.paper(values=PRINTED), declared, exploratory, made)


def test_a_planned_row_decides_once_all_its_seeds_are_there() -> None:
    (value,) = values.judge(planned(5))
    assert value.row
    assert (value.row.key, value.row.variant, value.status, value.planned) == (
        "row-planned",
        "",
        "below",
        True,
    )
    assert tally.metrics(planned(5))["decided_as_planned"] == 1


@pytest.mark.parametrize(
    ("label", "variant"),
    [("One, planned", ""), ("One, planned, longer", "longer"), ("One, public, planned", "public")],
)
def test_planned_is_no_change_wherever_a_label_says_it(label: str, variant: str) -> None:
    declared = toys.settings(row={"label": label, "plan": "toys-t", "seeds": 5}, plans=PLAN)
    (row,) = toys.judged(toys.paper(values=PRINTED), declared).tables[0].rows
    assert row.variant == variant


@pytest.mark.parametrize(("seeds", "digest"), [(4, None), (5, "sha256:of-another-plan")])
def test_a_plan_that_was_not_kept_is_exploratory(seeds: int, digest: str | None) -> None:
    result = planned(seeds, digest)
    (value,) = values.judge(result)
    assert value.row
    assert (value.row.key, value.status, value.planned) == ("row", "agrees", False)
    cell = result.tables[0].rows[1].cells["sigma=0"]
    assert (cell.verdict, cell.why) == (None, "trained otherwise than planned, or fewer than 5 seeds")


def test_the_full_row_decides_whatever_the_reduced_one_says() -> None:
    declared = toys.settings(row={}, row_reduced={"budget": "reduced"})
    full = toys.record("row", declared, sigma_0=(90.0, 90.0, 90.0))
    reduced = toys.record("row-reduced", declared, sigma_0=(50.0, 50.0, 50.0))
    paper = toys.paper(values=PRINTED)
    assert verdict(toys.judged(paper, declared, full, reduced)) == ("agrees", "agrees")
    assert verdict(toys.judged(paper, declared, reduced)) == ("not judged", "too small a budget")


def test_a_row_that_does_something_differently_decides_nothing() -> None:
    paper = toys.paper(values=PRINTED)
    declared = toys.settings(row={"label": "One, otherwise"})
    assert verdict(toys.judged(paper, declared)) == ("not run", "only variants of it are declared")
    record = toys.record("row", declared, sigma_0=(90.0, 90.0, 90.0))
    assert verdict(toys.judged(paper, declared, record)) == ("not run", "only variants of it were run")


def test_why_there_is_no_number() -> None:
    untried = [{"key": "two", "label": "Two", "values": PRINTED, "untried": "it costs too much"}]
    further = [{"key": "three", "label": "Three", "values": PRINTED}]
    paper = toys.paper(values=PRINTED, lines=[*untried, *further])
    result = toys.judged(paper, toys.settings(row={}))
    assert [value.words for value in values.judge(result)] == [
        "still to be trained",
        "it costs too much",
        "no row is declared",
    ]


def test_a_row_waits_at_its_own_levels_alone() -> None:
    large = {"needs": "gpu", "levels": [{"sigma": 1}]}
    declared = toys.settings(row=large)
    paper = toys.paper(values={"sigma=0": 90.0, "sigma=1": 90.0})
    found = [value.status for value in values.judge(toys.judged(paper, declared))]
    assert found == ["not run", "waits for a GPU"]


def test_values_of_our_own_experiments_are_no_values_of_the_paper() -> None:
    paper = toys.paper(values=PRINTED, table={"own": True})
    assert values.judge(toys.judged(paper, toys.settings(row={}))) == []
    assert tally.values(toys.judged(paper, toys.settings(row={}))) == []


def test_what_agrees_differs_waits_and_was_not_run_is_counted() -> None:
    lines = [
        {"key": key, "label": key.capitalize(), "values": PRINTED}
        for key in ("two", "three", "four", "five", "six")
    ]
    scope = [{"what": "Table 2", "numbers": 7, "why": "too large"}]
    paper = toys.paper(values=PRINTED, lines=lines, out_of_scope=scope)
    large = {"needs": "gpu", "model": {"name": "resnet18", "normalization": "running_bn"}}
    declared = toys.settings(
        one={},
        two={"label": "Two"},
        three_reduced={"label": "Three", "budget": "reduced"},
        four={"label": "Four", **large},
        five={"label": "Five", "needs": "gpu"},
    )
    result = toys.judged(
        paper,
        declared,
        toys.record("one", declared, sigma_0=(90.0, 90.0, 90.0)),
        toys.record("two", declared, sigma_0=(80.0, 80.0, 80.0)),
        toys.record("three-reduced", declared, sigma_0=(80.0, 80.0, 80.0)),
        gpu_hours={"four": 2.5},
    )
    assert tally.values(result) == [
        ("printed values", "6", "7 more are out of scope, for reasons on the papers' pages"),
        ("agree", "1", "1 at a budget of our own (1 exploratory)"),
        ("below the paper", "1", "1 at a budget of our own (1 exploratory)"),
        ("not judged", "1", "too small a budget"),
        ("wait for a GPU", "2", "about 2.5 GPU hours by their operations, 1 row not counted"),
        ("not run", "1", "no row is declared"),
    ]


def test_reasons_are_counted_where_there_are_several() -> None:
    lines = [
        {"key": "two", "label": "Two", "values": PRINTED},
        {"key": "three", "label": "Three", "values": PRINTED},
    ]
    result = toys.judged(toys.paper(values=PRINTED, lines=lines), toys.settings(row={}))
    assert tally.values(result)[-1] == ("not run", "3", "no row is declared: 2, still to be trained: 1")


def test_circular_and_repeated_values_count_nowhere_and_say_so() -> None:
    lines = [{"key": "two", "label": "Two", "values": PRINTED, "uncounted": {"sigma=0": "printed twice"}}]
    declared = toys.settings(row={}, other={"label": "Two"})
    found = [toys.record(key, declared, sigma_0=SURE) for key in declared.rows]
    result = toys.judged(toys.paper(values=PRINTED, lines=lines), declared, *found)
    assert [(value.status, value.words) for value in values.judge(result)] == [
        ("agrees", "agrees"),
        ("not counted", "agrees; not counted: printed twice"),
    ]
    counts = tally.metrics(result)
    assert (counts["printed"], counts["agree"], counts["differ"], counts["not_counted"]) == (2, 1, 0, 1)


def test_verdicts_are_counted_by_what_they_stand_on() -> None:
    declared = toys.settings(row={})
    record = toys.record("row", declared, sigma_0=SURE)
    for budget, strength in (({}, "decided_at_own_budget"), ({"epochs": 50}, "decided_at_paper_settings")):
        paper = toys.paper(values=PRINTED, table={"budget": budget})
        counts = tally.metrics(toys.judged(paper, declared, record))
        assert [name for _, name in tally.STRENGTHS.values() if counts[name]] == [strength]
