"""The verdict on each printed value, and the sentence that counts them."""

from typing import Any

import pytest
from reporting.made_up import toys

from pipeline.reporting.gather import PaperResult
from pipeline.reporting.judging import values
from pipeline.reporting.pages import paper as page

PRINTED = {"sigma=0": 90.0}


def verdict(result: PaperResult) -> tuple[str, str]:
    (value,) = values.judge(result)
    assert value.words == (value.why or value.verdict)
    return value.verdict, value.why


def of(printed: Any, *accuracies: float, **row: Any) -> tuple[str, str]:
    declared = toys.settings(row={"seeds": len(accuracies), **row})
    record = toys.record("row", declared, sigma_0=accuracies)
    return verdict(toys.judged(toys.paper(values={"sigma=0": printed}), declared, record))


@pytest.mark.parametrize(
    ("printed", "accuracies", "expected"),
    [
        # the prediction interval of these three is ± 1 or so, of which the mean is .9 away
        (90.0, (90.7, 90.9, 91.1), "agrees"),
        (90.0, (92.7, 92.9, 93.1), "above"),
        (90.0, (86.9, 87.1, 87.3), "below"),
        # within half a unit of the last digit printed
        (90, (90.4, 90.4, 90.4), "agrees"),
        (90.0, (90.4, 90.4, 90.4), "above"),
        # both sides' errors where the paper prints its own
        ("90.0 ± 2.0", (93.0, 93.0, 93.0), "agrees"),
        ("90.0 ± 1.0", (93.0, 93.0, 93.0), "above"),
        ("No-convergence", (10.0, 10.0, 10.0), "not judged"),  # without a search
        ("No-convergence", (90.0, 90.0, 90.0), "above"),
    ],
)
def test_seeds_agree_or_differ_by_their_prediction_interval(
    printed: Any, accuracies: tuple[float, ...], expected: str
) -> None:
    assert of(printed, *accuracies)[0] == expected


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [(90.9, "agrees"), (89.1, "agrees"), (92.0, "not judged"), (84.0, "below"), (96.0, "above")],
)
def test_one_seed_tells_near_and_far_and_nothing_between(accuracy: float, expected: str) -> None:
    assert of(90.0, accuracy) == (expected, "one seed" if expected == "not judged" else "")


def test_an_interval_that_agrees_with_everything_tells_nothing() -> None:
    found, why = of(90.0, 88.0, 92.0)
    assert found == "not judged"
    assert why == "too wide an interval, or only some seeds converged"
    # which stays true of what lies outside of it
    assert of(20.0, 88.0, 92.0)[0] == "above"


def test_a_reduced_row_is_too_small_a_budget_and_an_own_one_counts() -> None:
    assert of(90.0, 90.1, 90.1, 90.1, budget="reduced") == ("not judged", "too small a budget")
    assert of(90.0, 90.0, 90.0, 90.0, budget="own") == ("agrees", "")


def test_a_reduced_row_on_a_part_of_the_data_says_that_more_training_would_not_help() -> None:
    declared = toys.settings(row={"budget": "reduced"})
    record = toys.record("row", declared, sigma_0=(90.0,))
    paper = toys.paper(values=PRINTED, table={"examples": 1_000_000})
    assert verdict(toys.judged(paper, declared, record)) == ("not judged", "too small a part of the data")


def test_the_full_row_decides_whatever_the_reduced_one_says() -> None:
    declared = toys.settings(row={}, row_reduced={"budget": "reduced"})
    full = toys.record("row", declared, sigma_0=(90.0, 90.0, 90.0))
    reduced = toys.record("row-reduced", declared, sigma_0=(50.0, 50.0, 50.0))
    paper = toys.paper(values=PRINTED)
    assert verdict(toys.judged(paper, declared, full, reduced)) == ("agrees", "")
    assert verdict(toys.judged(paper, declared, reduced)) == ("not judged", "too small a budget")


def test_a_row_that_does_something_differently_decides_nothing() -> None:
    paper = toys.paper(values=PRINTED)
    declared = toys.settings(row={"label": "One, otherwise"})
    assert verdict(toys.judged(paper, declared)) == ("not run", "declared with a change alone")
    record = toys.record("row", declared, sigma_0=(90.0, 90.0, 90.0))
    assert verdict(toys.judged(paper, declared, record)) == ("not run", "run with a change alone")


def test_why_there_is_no_number() -> None:
    untried = [{"key": "two", "label": "Two", "values": PRINTED, "untried": "it costs too much"}]
    further = [{"key": "three", "label": "Three", "values": PRINTED}]
    paper = toys.paper(values=PRINTED, lines=[*untried, *further])
    result = toys.judged(paper, toys.settings(row={}))
    assert [value.why for value in values.judge(result)] == [
        "still to be trained",
        "it costs too much",
        "no row is declared",
    ]


def test_a_row_waits_at_its_own_levels_alone() -> None:
    large = {"needs": "gpu", "levels": [{"sigma": 1}]}
    declared = toys.settings(row=large)
    paper = toys.paper(values={"sigma=0": 90.0, "sigma=1": 90.0})
    found = [value.verdict for value in values.judge(toys.judged(paper, declared))]
    assert found == ["not run", "waits for a GPU"]


def test_values_of_our_own_experiments_are_no_values_of_the_paper() -> None:
    paper = toys.paper(values=PRINTED, table={"own": True})
    assert values.judge(toys.judged(paper, toys.settings(row={}))) == []
    assert page.verdicts(toys.judged(paper, toys.settings(row={}))) == ""


def test_the_first_line_says_what_agrees_differs_waits_and_was_not_run() -> None:
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
    assert page.verdicts(result) == (
        "Of 6 printed values 1 agree, 1 differ, 1 can't be judged yet (too small a budget), 2 wait for a GPU "
        "(about 2.5 GPU hours by their operations, 1 row not counted), and 1 not run (no row is declared). "
        "7 more numbers are out of scope, for the reasons given below."
    )


def test_reasons_are_counted_where_there_are_several() -> None:
    lines = [
        {"key": "two", "label": "Two", "values": PRINTED},
        {"key": "three", "label": "Three", "values": PRINTED},
    ]
    result = toys.judged(toys.paper(values=PRINTED, lines=lines), toys.settings(row={}))
    assert page.verdicts(result).endswith("and 3 not run (no row is declared: 2, still to be trained: 1).")
