"""Differences that a table prints, beside ours at equal budgets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dprepro.pipeline.reporting.claims.contrast import Contrast
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.judging.contrasts import PrintedContrast, _status
from dprepro.pipeline.reporting.prose.counts import contrast_counts
from dprepro.pipeline.reporting.summary import contrasts_csv
from tests.reporting.made_up import toys

ONE = (90.0, 90.1, 90.2)


def contrasts(*given: Any, **rows: Any) -> list[PrintedContrast]:
    return filled(*given, **rows).contrasts


def filled(
    theirs: float, two: Sequence[float], changes: dict[str, Any] | None = None, **rows: Any
) -> PaperResult:
    """Rows of a line 'Two' that is printed at 90 + ``theirs``, and of 'One', printed at 90."""
    lines = [{"key": "two", "label": "Two", "values": {"sigma=0": 90.0 + theirs}}]
    table = {"argues": [{"left": "two", "right": "one"}], "budget": {} if rows else {"epochs": 50}}
    paper = toys.paper(values={"sigma=0": 90.0}, lines=lines, table=table)
    declared = {"one": {}, **rows, "two": {"line": "two", **(changes or {})}}
    reached = {"one": ONE, "two": two, **dict.fromkeys(rows.keys() - {"one"}, two)}
    return toys.ran(reached, declared, paper)


@pytest.mark.parametrize(
    ("theirs", "ours", "status"),
    [
        (2.0, 2.0, "agrees"),
        (2.0, 5.0, "larger"),
        (3.0, 0.8, "smaller"),
        (2.0, -2.0, "opposite"),
        (0.0, 0.3, "agrees"),
        (0.0, 3.0, "differs"),
        (2.0, 1.0, "same sign"),
    ],
)
def test_sign_and_size_are_judged(theirs: float, ours: float, status: str) -> None:
    (made,) = contrasts(theirs, [value + ours for value in ONE])
    assert (made.status, made.argued) == (status, True)
    assert made.ours is not None
    assert made.ours.value == pytest.approx(ours)
    (line,) = contrasts_csv([made]).splitlines()[1:]
    assert status in line


@pytest.mark.parametrize(("printed", "status"), [(90, "agrees"), (90.0, "undecided")])
def test_a_number_without_decimals_hides_the_sign_of_a_small_difference(printed: float, status: str) -> None:
    lines = [{"key": "two", "label": "Two", "values": {"sigma=0": 90.3}}]
    paper = toys.paper(values={"sigma=0": printed}, lines=lines, table={"budget": {"epochs": 50}})
    (made,) = toys.ran({"one": ONE, "two": ONE}, {"one": {}, "two": {"line": "two"}}, paper).contrasts
    assert made.status == status


@pytest.mark.parametrize(
    ("ours", "theirs", "spread", "status"),
    [
        (-2.0, 2.0, 0.0, "opposite"),
        (-2.0, 2.0, 3.1, "undecided"),  # single runs with our spread could have a difference of 2 by chance
        (5.0, 2.0, 0.0, "larger"),
        (5.0, 2.0, 3.1, "same sign"),
        (1.0, 4.0, 0.0, "smaller"),
        (1.0, 4.0, 3.1, "same sign"),
        (2.2, 2.0, 3.1, "agrees"),
    ],
)
def test_the_spread_of_single_runs_only_withdraws_differences(
    ours: float, theirs: float, spread: float, status: str
) -> None:
    assert _status(ours, theirs, 0.5, 0.5, margin=1.0, sign=1, spread=spread) == status


def test_noise_makes_it_undecided_and_one_seed_is_not_judged() -> None:
    (made,) = contrasts(0.5, (85.0, 90.0, 97.0))
    assert made.status == "undecided"
    # -3.2 ± 3.5 for 3.0 is not 'larger' by its absolute value
    assert _status(-3.2, 3.0, 3.5, 3.5, margin=1.0, sign=1, spread=0.0) == "smaller"
    (made,) = contrasts(0.5, (90.0,), {"seeds": 1})
    assert (made.status, made.why) == ("not judged", "fewer than 3 seeds")


def test_unequal_budgets_are_not_judged_unless_a_row_has_the_other_lines_budget() -> None:
    longer = {"settings": {"batch": 100, "epochs": 80, "learning_rate": 0.1}, "budget": "own"}
    own = {"one": {"budget": "own"}}
    (made,) = contrasts(2.0, [value + 2 for value in ONE], longer, **own)
    assert (made.status, made.why) == ("not judged", "unequal budgets")
    other = {"line": "two", "variant": "at One's budget", "budget": "own", "budget_of": "one"}
    result = filled(2.0, [value + 2 for value in ONE], longer, **own, equal=other)
    (made,) = result.contrasts
    assert made.left.row is not None
    assert (made.status, made.left.row.key) == ("agrees", "equal")
    assert made.unfair  # no search chose the settings
    assert "1 counted as unfair" in contrast_counts([result])[0][2]
    said = {"kind": "difference", "left": "t/two", "right": "t/one", "at": ["sigma=0"], "above": 0}
    (claimed,) = Contrast.model_validate(said).ours(result.lines, result.paper)
    assert claimed.text.endswith("; at equal training budgets, with equal")
    # a claim on a variant compares the variant's own rows
    wider = {"line": "one", "variant": "wider", "budget": "own"}
    result = filled(2.0, [value + 2 for value in ONE], longer, **own, equal=other, wide=wider)
    lines = {**result.lines, "t/one": replace(result.lines["t/one"], variant="wider")}
    (varied,) = Contrast.model_validate(said).ours(lines, result.paper)
    assert varied.text.startswith("Two − One (wider) at σ = 0: +0.00")
    assert (varied.caveat, "equal training budgets" in varied.text) == ("unequal budgets", False)
