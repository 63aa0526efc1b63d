"""Differences and ratios of lines, levels and numbers, with their intervals."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from dprepro.pipeline.reporting.claims.contrast import Contrast
from dprepro.pipeline.reporting.facts import PaperResult
from tests.reporting.lookup import chosen, outcome, plain
from tests.reporting.made_up import toys

ONE, TWO, LOUD = "t/one", "t/two", "t/one:loud"
PRINTED = {"sigma=0": 99.0, "sigma=1": 96.0}


@pytest.fixture(scope="module")
def result() -> PaperResult:
    """From the first level to the second One loses 2 points and Two 12."""
    paper = toys.paper(
        values=PRINTED,
        lines=[{"key": "two", "label": "Two", "values": {"sigma=0": 97.0, "sigma=1": 85.0}}],
        table={"also": {"loud": "louder"}},
    )
    declared = toys.settings(one={}, two={"line": "two"}, three={"variant": "of one seed", "seeds": 1})
    first = toys.record("one", declared, sigma_0=(97.8, 98.0, 98.2), sigma_1=(95.8, 96.0, 96.2))
    louder = [
        each.model_copy(update={"metrics": {**each.metrics, "loud": each.metrics["test_accuracy"] + 0.005}})
        for each in first.replicas
    ]
    two = toys.record("two", declared, sigma_0=(95.9, 96.0, 96.1), sigma_1=(83.9, 84.0, 84.1))
    three = toys.record("three", declared, sigma_0=(98.0,), sigma_1=(96.0,))
    return toys.judged(paper, declared, first.model_copy(update={"replicas": louder}), two, three)


def pair(left: str, right: str | float, *at: str, kind: str = "difference", **said: Any) -> dict[str, Any]:
    """A test of two sides at levels, the second if none is named."""
    return {"kind": kind, "left": left, "right": right, "at": list(at) or ["sigma=1"], **said}


GAP = "One − Two at σ = 1: +12.00 ± 0.4"
RATIO = "One ÷ Two at σ = 1: 1.14, required: "
MEAN = "One − Two, mean over σ = 0, σ = 1: +7.00 ± 0.4"
OWN = "One at σ = 1: 96.00 ± 0.50 (n = 3)"
CHANGE = "One − 0.5 × Two, change from σ = 0 to σ = 1: +4.00 ± 0.0"
BOTH = ("sigma=0", "sigma=1")
FIXED = "One − Two, mean over σ = 0, σ = 1: +1.00 ± "  # 97 - 96
CHANGES = "One − Two, mean over σ = 0, σ = 1: +5.00 ± "  # of changes by 0, and by -2 and -12


@pytest.mark.parametrize(
    ("said", "verdict", "text"),
    [
        (pair(ONE, TWO, above=11, below=13), "holds", GAP),
        (pair(ONE, TWO, above=12.1), "undecided", GAP),
        (pair(ONE, TWO, above=13), "fails", GAP),
        (pair(ONE, TWO, below=11), "fails", GAP),
        (pair(ONE, TWO, kind="ratio", above=1.1, below=1.2), "holds", RATIO),
        (pair(ONE, TWO, kind="ratio", above=1.143), "undecided", RATIO),
        (pair(ONE, TWO, kind="ratio", above=1.2), "fails", RATIO),
        (pair(ONE, TWO, kind="ratio", below=1.1), "fails", RATIO),
        # levels of one row are compared seed by seed, as are metrics
        (pair(ONE, ONE, right_at="sigma=0", below=-1.9), "holds", "One, σ = 1 − σ = 0: −2.00 ± 0.00 (n = 3)"),
        (pair(LOUD, ONE, above=0.4), "holds", "One, louder − One at σ = 1: +0.50 ± 0.00 (n = 3)"),
        (
            pair(ONE, ONE, kind="ratio", right_at="sigma=0", above=0.9),
            "holds",
            "One, ratio of σ = 1 to σ = 0: 0.98, required: above 0.9",
        ),
        # numbers: the line's own value, between the bounds that its difference from the number has
        (pair(ONE, 10.0, times=5, above=40), "holds", f"{OWN}, required: above 90"),
        (pair(ONE, 10.0, times=5, above=60), "fails", f"{OWN}, required: above 110"),
        (pair(ONE, 90.0, above=-5, below=7), "holds", f"{OWN}, required: above 85 and below 97"),
        (pair(ONE, 10.0, kind="ratio", above=9), "holds", "One ÷ 10 at σ = 1: 9.6"),
        (pair(ONE, 0.0, kind="ratio", above=9), "undecided", "One ÷ 0 at σ = 1: unknown"),
        # averages over levels, and changes from one
        (pair(ONE, TWO, *BOTH, mean=True, above=6), "holds", MEAN),
        (pair(ONE, TWO, *BOTH, mean=True, above=9), "fails", MEAN),
        (pair(ONE, TWO, *BOTH, mean=True, right_at="sigma=0", above=0), "holds", FIXED),
        (pair(ONE, TWO, *BOTH, mean=True, since="sigma=0", above=4), "holds", CHANGES),
        (pair(ONE, TWO, times=0.5, since="sigma=0", above=3), "holds", CHANGE),
        (pair(ONE, TWO, times=0.5, since="sigma=0", above=5), "fails", CHANGE),
        # what one gets at the level that is best for the other
        (pair(ONE, TWO, "best", right_at="best", above=0), "holds", "One − Two at σ = 0: +2.00"),
        (pair(ONE, ONE, right_at=f"best of {TWO}", below=0), "holds", "One, σ = 1 − σ = 0: −2.00"),
        # step by step
        (pair(ONE, ONE, *BOTH, right_at="previous", below=0), "holds", "One, σ = 1 − σ = 0: −2.00"),
        (pair(ONE, TWO, "sigma=2", above=0), "not run", "One − Two at σ = 2: not run"),
    ],
)
def test_numbers_are_related_as_a_claim_says(
    result: PaperResult, said: dict[str, Any], verdict: str, text: str
) -> None:
    related = outcome(result, Contrast, **said)
    assert (related.verdict, related.text[: len(text)]) == (verdict, text)


@pytest.mark.parametrize(
    ("said", "verdicts"),
    [
        (pair(ONE, TWO, *BOTH, above=3), ["fails", "holds"]),
        (pair(ONE, TWO, *BOTH, mean=True, above=6), ["holds"]),
        (pair(ONE, TWO, times=0.5, since="sigma=0", above=5), ["fails"]),
        (pair(LOUD, ONE, above=0), []),  # nothing is printed of it
        (pair(ONE, ONE, right_at=f"best of {TWO}", below=0), []),  # nor which level validates best
    ],
)
def test_the_papers_own_numbers_are_put_to_the_same_test(
    result: PaperResult, said: dict[str, Any], verdicts: list[str]
) -> None:
    test = Contrast.model_validate(said)
    assert [each.verdict for each in test.on_paper(result.paper)] == verdicts


@pytest.mark.parametrize(("best", "verdict"), [("sigma=0", "holds"), ("sigma=1", "fails")])
def test_validation_data_say_which_level_is_best(result: PaperResult, best: str, verdict: str) -> None:
    (row,) = plain(result, TWO)[TWO].rows
    cells = {}
    for level, cell in row.cells.items():
        metrics = {"validation_accuracy": float(level == best)}
        validated = tuple(each.model_copy(update={"metrics": metrics}) for each in cell.replicas)
        cells[level] = replace(cell, replicas=validated)
    test = Contrast.model_validate(pair(TWO, 90.0, "best", above=0))
    for line, expected in ((chosen(replace(row, cells=cells)), verdict), (chosen(), "not run")):
        assert [each.verdict for each in test.ours({TWO: line}, result.paper)] == [expected]


def test_one_seed_decides_nothing(result: PaperResult) -> None:
    single = result.lines.get(ONE)
    assert single is not None
    test = Contrast.model_validate(pair(ONE, 50.0, above=0))
    (related,) = test.ours({ONE: chosen(single.rows[1])}, result.paper)
    assert related.verdict == "undecided"
    assert "n = 1: no interval" in related.text


def test_a_line_of_a_contrast_has_its_variant_beside_its_label(result: PaperResult) -> None:
    lines = plain(result, ONE, TWO)
    varied = [replace(row, variant="another way") for row in lines[ONE].rows]
    said = Contrast.model_validate(pair(ONE, TWO, above=0))
    (related,) = said.ours({**lines, ONE: chosen(*varied)}, result.paper)
    assert related.text.startswith("One (another way) − Two at ")


def test_means_and_changes_of_unequal_budgets_are_not_judged(result: PaperResult) -> None:
    longer = {"batch": 100, "epochs": 80, "learning_rate": 0.1}
    for settings, caveat in ((longer, "unequal budgets"), (longer | {"epochs": 50}, None)):
        declared = toys.settings(
            one={"budget": "own"}, two={"line": "two", "budget": "own", "settings": settings}
        )
        made = [
            toys.record(key, declared, sigma_0=(97.8, 98.0, 98.2), sigma_1=(95.8, 96.0, 96.2))
            for key in ("one", "two")
        ]
        lines = plain(toys.judged(result.paper, declared, *made), ONE, TWO)
        for said in (pair(ONE, TWO, *BOTH, mean=True, above=-1), pair(ONE, TWO, since="sigma=0", above=-1)):
            (related,) = Contrast.model_validate(said).ours(lines, result.paper)
            assert (related.verdict, related.caveat) == ("holds", caveat)


def test_lines_from_one_pretrained_network_are_not_judged(result: PaperResult) -> None:
    """Another pretrained network may give another difference, so the table's contrasts judge none either."""
    lines = plain(result, ONE, TWO)
    started = {**lines, TWO: chosen(*(replace(row, start="pretrained") for row in lines[TWO].rows))}
    for said, why in (
        (pair(ONE, TWO, above=0), "one pretrained network for all seeds"),
        (pair(TWO, TWO, right_at="sigma=0", below=0), None),
    ):
        (related,) = Contrast.model_validate(said).ours(started, result.paper)
        assert (related.verdict, related.caveat) == ("holds", why)


@pytest.mark.parametrize(("seeds", "verdict"), [(2, "undecided"), (3, "holds")])
def test_two_equal_seeds_decide_nothing(result: PaperResult, seeds: int, verdict: str) -> None:
    declared = toys.settings(one={}, two={"line": "two"})
    made = toys.record("one", declared, sigma_0=(98.0,) * seeds, sigma_1=(96.0,) * seeds)
    judged = toys.judged(result.paper, declared, made)
    for said in (pair(ONE, 90.0, above=0), pair(ONE, 90.0, kind="ratio", above=1)):
        assert outcome(judged, Contrast, **said).verdict == verdict


def test_a_ratio_takes_no_factor() -> None:
    """It would be ignored: the bounds are those of left / right."""
    line = "times: 0.5; allowed with 'kind: ratio': 1, and another bound"
    with pytest.raises(ValidationError, match=line):
        Contrast.model_validate(pair(ONE, TWO, kind="ratio", times=0.5, above=1))
