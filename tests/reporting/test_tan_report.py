"""Sander et al.: several metrics side by side, simulations, histograms of norms, and what claims compare."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.reporting.claims.contrast import Contrast, best
from pipeline.reporting.drawing import levels
from pipeline.reporting.drawing.levels import _places
from pipeline.reporting.figures import gradient_norms
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.pages import summary as page
from pipeline.reporting.report import Report
from pipeline.reporting.results import PaperResult, TableResult
from pipeline.reporting.tables.reading import wide
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.lookup import chosen, drawn, markdown, outcome, page_of, plain, row
from tests.reporting.made_up import tan
from tests.reporting.markup import check

MADE_UP = tan  # whose report `report_of` is


# -- several metrics side by side --------------------------------------------------------------------


def source(table: TableResult, name: str) -> list[str]:
    """The cells of the wide table whose source is called so."""
    frame = wide(table)
    return [str(cell) for cell in frame[frame["source"] == name].iloc[0, 2:]]


def test_an_account_shows_every_epsilon_below_the_one_the_paper_prints(
    tables_of: dict[str, TableResult],
) -> None:
    table = tables_of["t6"]
    assert source(table, "paper") == ["17.98", "8.00"]
    assert source(table, "paper, ε of TAN (Eq. 4)") == ["18.06", "8.26"]
    assert source(table, f"ours: {tan.HALF}") == [
        "**17.90** agrees, 0.08 below; ε 17.9 / 16.8 / – NO PRIVACY TO SPEAK OF",
        "**7.98** agrees, 0.02 below; not counted: printed in Table 4 too; ε 7.98 / 7.49 / –",
    ]
    assert source(table, "ε of TAN (Eq. 4)") == [
        "**17.95** agrees, 0.11 below",
        "**8.21** agrees, 0.05 below",
    ]
    assert source(table, "ε by PLD") == ["16.80", "7.49"]
    assert "Numbers: ε by RDP, improved conversion." in markdown(table)
    # one that is not computed is a gap, and no infinity
    computed = dict(zip(tables_of["f2"].levels, source(tables_of["f2"], "ε by PLD"), strict=True))
    assert (computed["noise_multiplier=0.1875"], computed["noise_multiplier=3"]) == ("", "6.58")


def test_rows_show_the_weights_without_average_and_the_vote(tables_of: dict[str, TableResult]) -> None:
    table = tables_of["f5"]
    # copies=4 was not run
    assert [cell[:5] for cell in source(table, "last weights")] == ["69.10", "", "75.10"]
    assert [cell[:5] for cell in source(table, "majority vote")] == ["72.60", "", "78.60"]
    whole = lookup.csv(table).loc[(tan.WHOLE, "copies=16")]
    assert (whole["ours"], whole["test_accuracy_vote"]) == pytest.approx((78.1, 78.6))
    assert whole["test_accuracy_last_half_width_95"] > 0


def test_the_page_shows_them_and_stays_well_formed(report_of: Report, text: str) -> None:
    check(page_of(report_of))
    for expected in (
        "The numbers: test accuracy of the weights' EMA; below them last weights; majority vote.",
        "paper: ε of TAN (Eq. 4) 18.06 8.26",
        "tan (Eq. 4): 7.48 (an approximation, and no bound)",
        "50K paper 74.0 ours all 50K images would leave none to validate on",
        "Norms of the examples' gradients before clipping",
    ):
        assert expected in text
    assert re.search(r"majority vote 72\.60 ± \d\.\d+ 78\.60 ± ", text)
    assert "sander2022-f7-norms.svg" in {path.name for path in report_of.files["sander2022"]}


def test_printed_values_of_further_metrics_count(result: PaperResult) -> None:
    # Table 6 has two epsilons at two levels, within one percent. Of the values that nothing was run for, the
    # circular or repeated ones count nowhere, as they won't once it was
    assert {share.word.counted: share.count for share in page.agreement(result)} == {
        "agree with the paper": 4,
        "not run": 5,
        "not counted: circular, or printed twice": 5,
    }


# -- simulations -------------------------------------------------------------------------------------


def test_a_simulation_is_told_at_a_glance(
    tmp_path: Path, tables_of: dict[str, TableResult], text: str
) -> None:
    table = tables_of["f5"]
    simulated = row(table, tan.SIMULATED)
    mark = f"simulation of {tan.WHOLE}, whose privacy it does not have"
    assert simulated.comparable
    assert simulated.cells["copies=16"].guarantee.state == "vacuous"
    assert row(table, tan.WHOLE).cells["copies=16"].guarantee.state == "holds"
    assert f"{tan.SIMULATED}, simulated at B 256, N = 48,800 [{mark}]" in markdown(table)
    assert mark in text
    # also before it is run
    waiting = row(lookup.table(tan.settings(), tmp_path, "f5"), tan.SIMULATED)
    assert [each.words for each in waiting.marks] == [mark]


# -- claims ------------------------------------------------------------------------------------------


def test_simulations_are_judged_apart_from_what_they_simulate(claims_of: dict[str, ClaimResult]) -> None:
    verdicts = {
        assessment.variant: [each.verdict for each in assessment.outcomes if "K = 16" in each.text]
        for assessment in claims_of["no-benefit"].assessments
    }
    assert verdicts == {"": ["fails"], "simulated at B 256": ["holds"]}


def pair(kind: str, left: str, right: str, at: str, **said: Any) -> dict[str, Any]:
    """A test of two lines at a level."""
    return {"kind": kind, "left": left, "right": right, "at": [at], **said}


RELU, NORM, VOTE = "f5/relu-norm", "f5/norm-relu", "f5/relu-norm:test_accuracy_vote"
SMALL, LARGE, HALF = "rates/b64", "rates/b4096", "t6/imagenet"
WALL, TAN = "f2/cifar10", "f2/cifar10:epsilon_tan"
MEANS = "CONV-ReLU-GN ÷ CONV-GN-ReLU at K = 16: 1.13"  # 78.1 / 69.1
CARRIED = "B 4096, reference, learning rate = 4 − learning rate = 2: +0.30 ± 0.00 (n = 3), to be below 0."
EACH_BEST = "B 4096, reference − B 64, simulation at learning rate = 4 and learning rate = 2: +0.50 ± 0.2"


@pytest.mark.parametrize(
    ("said", "verdict", "text"),
    [
        # computed numbers are related exactly
        (
            pair("ratio", HALF, HALF, "examples=1281167", right_at="examples=640583", below=0.5),
            "holds",
            "ImageNet, examples = 1281167 ÷ examples = 640583: 0.446, to be below 0.5",
        ),
        (
            pair("ratio", WALL, TAN, "noise_multiplier=3", above=0.9),
            "holds",
            "CIFAR-10 ÷ CIFAR-10, ε of TAN (Eq. 4) at σ = 3: 0.949, to be above 0.9",
        ),
        (pair("ratio", WALL, TAN, "noise_multiplier=0.5", below=1.1), "fails", "CIFAR-10 ÷ "),
        (pair("ratio", WALL, TAN, "noise_multiplier=0.3", above=0.9), "not run", "CIFAR-10 ÷ "),
        # means over seeds with their intervals
        (pair("ratio", RELU, NORM, "copies=16", above=1.1, below=1.2), "holds", MEANS),
        (pair("ratio", RELU, NORM, "copies=16", above=1.2), "fails", MEANS),
        (pair("ratio", RELU, NORM, "copies=16", below=1.1), "fails", MEANS),
        (pair("ratio", RELU, NORM, "copies=16", above=1.1302), "undecided", MEANS),
        # the vote gains the same in every seed, though seeds differ by more than the bound
        (
            pair("difference", VOTE, RELU, "copies=16", above=0.4),
            "holds",
            "CONV-ReLU-GN, majority vote − CONV-ReLU-GN at K = 16: +0.50 ± 0.00 (n = 3)",
        ),
        # a best level carries over where little is lost
        (pair("difference", LARGE, LARGE, "best", right_at=f"best of {SMALL}", below=0.5), "holds", CARRIED),
        (pair("difference", LARGE, LARGE, "best", right_at=f"best of {SMALL}", below=0.2), "fails", CARRIED),
        # each line at its best
        (pair("difference", LARGE, SMALL, "best", right_at="best", above=0), "holds", EACH_BEST),
    ],
)
def test_numbers_are_related_as_a_claim_says(
    result: PaperResult, said: dict[str, Any], verdict: str, text: str
) -> None:
    related = outcome(result, Contrast, **said)
    assert (related.verdict, related.text[: len(text)]) == (verdict, text)


def test_a_level_of_another_line_is_looked_at_and_nothing_is_best_of_none(result: PaperResult) -> None:
    carried = pair("difference", LARGE, LARGE, "best", right_at=f"best of {SMALL}", below=0.5)
    test = Contrast.model_validate(carried)
    assert set(test.references) == {SMALL, LARGE}
    nobody = test.ours(dict.fromkeys(test.references, chosen()), result.paper)
    assert [each.verdict for each in nobody] == ["not run"]


def test_validation_data_say_which_level_is_best(result: PaperResult) -> None:
    line = plain(result, SMALL)[SMALL]
    (rates,) = line.line.rows
    worst = min(rates.cells.values(), key=lambda cell: cell.mean.value)
    assert best(line) != worst.level
    replicas = tuple(
        replica.model_copy(update={"metrics": replica.metrics | {"validation_accuracy": 1.0}})
        for replica in worst.replicas
    )
    cells = {**rates.cells, worst.level: replace(worst, replicas=replicas)}
    assert best(chosen(replace(rates, cells=cells))) == worst.level


# -- figures -----------------------------------------------------------------------------------------


def test_epsilons_are_drawn_against_a_logarithmic_axis(tables_of: dict[str, TableResult]) -> None:
    lines = ("CIFAR-10, ours", "CIFAR-10, ε of TAN (Eq. 4)", "CIFAR-10, ε by PLD")
    svg = drawn(levels.draw(tables_of["f2"]), *lines, "0.1875", "ε by RDP")
    assert "mathdefault{10^{2}}" in svg  # the vertical one too
    # further metrics of trained rows stay out
    assert "majority vote" not in drawn(levels.draw(tables_of["f5"]), "test accuracy of the weights' EMA (%)")


@pytest.mark.parametrize(
    ("levels", "places"),
    [
        (("batch=64", "batch=4096"), ([64.0, 4096.0], True)),
        (("batch=64", "batch=128"), ([0.0, 1.0], False)),
        (("ema=0", "ema=0.9", "ema=0.99"), ([0.0, 1.0, 2.0], False)),
        (("epsilon=inf", "epsilon=1"), ([0.0, 1.0], False)),
        (("epsilon=inf", "epsilon=30", "epsilon=1"), ([0.0, 1.0, 2.0], False)),
    ],
)
def test_levels_far_apart_stand_on_a_logarithmic_axis(
    levels: tuple[str, ...], places: tuple[list[float], bool]
) -> None:
    at, logarithmic = _places(levels)
    assert (list(at.values()), logarithmic) == places


def test_histograms_of_norms_have_a_figure_of_their_own(
    tmp_path: Path, tables_of: dict[str, TableResult]
) -> None:
    texts = ("K = 16, batch = 256", "first note", "where gradients are clipped", "0.0625")
    drawn(gradient_norms.draw(tables_of["f7"]), tan.NORMS, *texts)
    assert gradient_norms.draw(tables_of["f5"]) is None
    # nor is there one without a history
    declared = tan.settings()
    keep(tan.record(tan.NORMS, declared), tmp_path)
    assert gradient_norms.draw(lookup.table(declared, tmp_path, "f7")) is None
