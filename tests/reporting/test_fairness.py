"""Strength and fairness of a verdict, from made-up searches, curves and neighbouring lines."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dprepro.pipeline.reporting.judging.fairness import epochs
from dprepro.pipeline.reporting.results import Value
from dprepro.pipeline.results import records
from tests.keeping import keep_history, keep_search
from tests.reporting.made_up import toys

FLAT, RISING = (0.8, 0.86, 0.86), (0.8, 0.83, 0.86)
TWO = {"key": "two", "label": "Two", "values": {"sigma=0": 90.0}}
BELOW, ABOVE, SURE = (86.0,) * 3, (94.0,) * 3, (90.1, 90.2, 90.3)


def search(chosen: float, *tried: float, level: str = "sigma=0", **settings: Any) -> list[dict[str, Any]]:
    """The candidates of a search of step sizes, of which ``chosen`` validates best."""
    return [
        {
            "level": level,
            "settings": {"learning_rate": rate, **settings},
            "validation_accuracy": [0.9 if rate == chosen else 0.5],
        }
        for rate in tried
    ]


def judged(
    root: Path,
    accuracies: Sequence[float] = BELOW,
    curve: Sequence[float] = FLAT,
    searches: dict[str, list[dict[str, Any]]] | None = None,
    other: dict[str, Any] | None = None,
    **table: Any,
) -> Value:
    """The value of line 'One' by a row of a budget of our own, beside a line 'Two' that agrees."""
    tried = searches or {"own": search(0.1, 0.01, 0.1, 1.0)}
    for name, candidates in tried.items():
        keep_search(root, name, "one", *candidates)
    read = {name: records.read_search(name, root) for name in tried}
    found = {name: record for name, record in read.items() if record is not None}
    grids = {name: {"row": "one", "grid": {"learning_rate": [0.1]}} for name in found}
    declared = toys.settings(
        searches=grids,
        one={"budget": "own", "search": "own"},
        two={"line": "two", "budget": "own", **(other or {})},
    )
    notes = [
        ("sigma=0", 0, step, 25.0 * step, "validation_accuracy", value) for step, value in enumerate(curve)
    ]
    keep_history("one", root, notes)
    ran = [toys.record("one", declared, sigma_0=accuracies), toys.record("two", declared, sigma_0=SURE)]
    paper = toys.paper(values={"sigma=0": 90.0}, lines=[TWO], table={"budget": {}, **table})
    (value,) = (
        value
        for value in toys.judged(paper, declared, *ran, searches=found, root=root).values
        if value.row and value.row.key == "one"
    )
    return value


def test_a_fair_verdict_counts(tmp_path: Path) -> None:
    assert (judged(tmp_path).status, judged(tmp_path).unfair) == ("below", ())
    assert judged(tmp_path, ABOVE).status == "above"


def test_fewer_epochs_than_another_line_are_an_unequal_budget(tmp_path: Path) -> None:
    longer = {"settings": {"batch": 100, "epochs": 80, "learning_rate": 0.1}}
    value = judged(tmp_path, other=longer)
    assert (value.status, value.words) == ("not judged", "not judged (below): unequal budget")
    assert value.unfair == ("unequal budget: at most 50 epochs, where another line has up to 80",)
    # a search that tried as many has them within reach
    tried = {"own": search(0.1, 0.01, 0.1, 1.0, epochs=80)}
    assert judged(tmp_path, other=longer, searches=tried).status == "below"


def test_epochs_of_candidates_that_are_given_in_steps_count() -> None:
    def row(*replicas: Any) -> Any:
        candidates = [SimpleNamespace(level="sigma=1", settings={"steps": steps}) for steps in (50, 400)]
        cells = {"sigma=1": SimpleNamespace(replicas=replicas)}
        record = SimpleNamespace(origins=[SimpleNamespace(examples=1000)])
        search = SimpleNamespace(candidates=candidates)
        return SimpleNamespace(trained=True, search=search, cells=cells, record=record)

    trained = SimpleNamespace(settings={"steps": 50, "batch": 10}, origin=0)
    assert epochs(row(trained), "sigma=1") == 4
    assert epochs(row(), "sigma=1") == 0


@pytest.mark.parametrize("accuracies", [BELOW, ABOVE])
def test_a_winner_at_an_edge_is_not_fair_in_either_direction(
    tmp_path: Path, accuracies: tuple[float, ...]
) -> None:
    edge = {"own": search(1.0, 0.01, 0.1, 1.0)}
    value = judged(tmp_path, accuracies, searches=edge)
    assert value.status == "not judged"
    assert value.unfair == ("edge of the grid: learning rate 1 of 0.01, 0.1, 1",)
    # unless a wider grid was tried and lost
    assert not judged(tmp_path, accuracies, searches=edge | {"wider": search(1.0, 1.0, 10.0)}).unfair
    assert judged(tmp_path, accuracies, searches=edge | {"wider": search(10.0, 1.0, 10.0)}).unfair
    assert judged(tmp_path, accuracies, searches=edge | {"lower": search(1.0, 0.001, 1.0)}).unfair


def test_a_level_without_a_search_and_a_rising_curve_are_not_fair(tmp_path: Path) -> None:
    other_level = search(0.1, 0.01, 0.1, 1.0, level="sigma=1")
    value = judged(tmp_path, searches={"own": other_level})
    assert value.words == "not judged (below): no search at this level"
    value = judged(tmp_path, curve=RISING)
    assert value.words == (learning := "not judged (below): still learning")
    # .6 points in the last tenth: as long again would gain six times the margin
    assert value.unfair == ("still learning: 0.6 points of validation accuracy in its last tenth",)
    assert judged(tmp_path, curve=RISING, margin=2.0, margin_why="toys").words == learning
    assert judged(tmp_path, curve=(0.9,)).words == learning
    value = judged(tmp_path, curve=(0.8, 0.9, float("nan")))
    assert value.unfair == (
        "still learning: a validation accuracy that is no number, which can't show a rise",
    )


def test_what_agrees_needs_no_fairness(tmp_path: Path) -> None:
    assert judged(tmp_path, SURE, curve=RISING).status == "agrees"


@pytest.mark.parametrize(
    ("other", "informative", "strength"),
    [
        (90.4, False, "equal within error, not informative"),  # the mean of the other lines agrees as well
        (92.0, True, "equal within error, informative"),
    ],
)
def test_an_agreement_that_the_other_lines_predict_says_so(
    tmp_path: Path, other: float, informative: bool, strength: str
) -> None:
    lines = [{**TWO, "values": {"sigma=0": other}}]
    paper = toys.paper(values={"sigma=0": 90.0}, lines=lines)
    value, _ = toys.ran({"one": SURE}, paper=paper).values
    assert (value.status, value.informative, value.strength) == ("agrees", informative, strength)
    value, _ = toys.ran({"one": (90.5, 90.5, 90.5)}, paper=paper).values
    assert value.strength.startswith("within the margin")


def test_close_lines_have_half_the_range_of_their_column_as_margin() -> None:
    def value(other: float, close: bool) -> Value:
        lines = [{**TWO, "values": {"sigma=0": other}}]
        paper = toys.paper(values={"sigma=0": 90.0}, lines=lines, table={"close": close})
        return toys.ran({"one": (90.5, 90.5, 90.5)}, paper=paper).values[0]

    assert (value(90.6, close=False).status, value(90.6, close=False).margin) == ("agrees", 1.0)
    narrow = value(90.6, close=True)
    assert (narrow.status, narrow.margin) == ("above", pytest.approx(0.3))
    assert narrow.by_table_margin == "agrees, 0.5 above"
    # a column of one number says nothing, and the table's margin stays
    assert value(90.0, close=True).margin == 1.0
