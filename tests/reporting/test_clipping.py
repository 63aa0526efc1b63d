"""Nguyen et al.: accounts beside rows, bounds that protect nobody, and figures of their own."""

from pathlib import Path

import pytest

from pipeline.reporting import figures
from pipeline.reporting.claims.contrast import Contrast
from pipeline.reporting.drawing import levels
from pipeline.reporting.figures import layer_norms, tradeoff
from pipeline.reporting.gather import gather
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.report import Report
from pipeline.reporting.results import PaperResult, TableResult
from pipeline.reporting.wording import verdict_words
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.lookup import chosen, curves_of, drawn, markdown, page_of, row
from tests.reporting.made_up import clipping, dpsgd
from tests.reporting.markup import check

MADE_UP = clipping  # whose report `report_of` is


# -- accounts ----------------------------------------------------------------------------------------


def test_an_account_is_a_row_whose_number_is_exact(tables_of: dict[str, TableResult]) -> None:
    account = row(tables_of["gdp"], clipping.GDP)
    cell = account.cells["noise_multiplier=2.5"]
    assert (cell.mean.value, cell.mean.half, cell.mean.exact) == (0.5199, 0.0, True)
    assert (account.marks, account.budget, account.searched) == ((), "full", None)
    assert verdict_words(cell) == "agrees"  # to the two digits printed
    line = next(line for line in markdown(tables_of["gdp"]).splitlines() if clipping.GDP in line)
    assert "| **0.52** agrees; ε 2.4 / 2 / – |" in line


def test_a_mu_too_large_for_a_number_is_shown_with_what_is_proven(tmp_path: Path) -> None:
    declared = clipping.settings()
    spent = clipping.ledger(0.01875, sampling="fixed")
    record = dpsgd.altered(clipping.record(clipping.GDP, declared), ledger=spent)
    replicas = [
        replica.model_copy(update={"metrics": metrics})
        for replica, metrics in zip(record.replicas, ({}, {"mu": 1.2e53}), strict=True)
    ]
    keep(record.model_copy(update={"replicas": replicas}), tmp_path)
    table = lookup.table(declared, tmp_path, "gdp")
    line = next(line for line in markdown(table).splitlines() if f"| ours: {clipping.GDP}, " in line)
    assert "| **∞** above; " in line
    assert "| **1.2e53** above; " in line
    assert line.count(" / 114,000 / – NO PRIVACY TO SPEAK OF") == 2
    assert levels.draw(table) is not None


def test_an_account_of_other_settings_is_marked(tmp_path: Path) -> None:
    declared = clipping.settings()
    keep(clipping.record(clipping.GDP, declared), tmp_path)
    changed = declared.accounts[clipping.GDP].model_copy(update={"axis": "parts"})
    other = declared.model_copy(update={"accounts": {clipping.GDP: changed}})
    marks = row(lookup.table(other, tmp_path, "gdp"), clipping.GDP).marks
    assert [mark.words for mark in marks] == ["settings have changed since this run"]


def test_claims_on_accounts_need_no_seeds(claims_of: dict[str, ClaimResult]) -> None:
    assert claims_of["g-052"].status == "reproduced"
    assert claims_of["g-051"].status == "reproduced"
    (outcome,) = claims_of["g-051"].assessments[0].outcomes
    assert outcome.text.startswith("BN-LeNet-5, L = 8, 15 times the data − 0.51 at σ = 1.5: +0.00, to be")


# -- guarantees --------------------------------------------------------------------------------------


def test_a_vacuous_bound_is_told_at_a_glance(tables_of: dict[str, TableResult], text: str) -> None:
    assert row(tables_of["f4"], clipping.BC).cells["batch=64"].guarantee.state == "vacuous"
    assert " / 114,000 / – NO PRIVACY TO SPEAK OF |" in markdown(tables_of["f4"])
    # sigma .25 is vacuous too, of Figure 12
    assert "3 no privacy to speak of: a bound above ε = 13.8" in text
    assert f"{clipping.BC}, {clipping.IC}: NO PRIVACY TO SPEAK OF. Above ε = 13.8 a bound allows" in text


def test_the_same_guarantee_is_the_same_epsilon(claims_of: dict[str, ClaimResult]) -> None:
    (outcome,) = claims_of["same-guarantee"].assessments[0].outcomes
    assert (outcome.verdict, outcome.caveat) == ("fails", None)
    assert outcome.text == "BC and IC at batch = 64: proven ε ≤ 114,000 and ε ≤ 2 million"


@pytest.mark.parametrize(
    ("left", "right", "verdict"),
    [(8.0, 8.05, "holds"), (8.0, 9.0, "fails"), (8.0, None, "undecided"), (None, None, "undecided")],
)
def test_two_bounds_are_compared_and_two_missing_ones_are_not(
    tmp_path: Path, left: float | None, right: float | None, verdict: str
) -> None:
    declared = clipping.settings()
    for key, bound in ((clipping.BC, left), (clipping.IC, right)):
        ledger = clipping.ledger(0.5, epsilon_upper=bound, reasons=(dpsgd.BROKEN,))
        keep(dpsgd.altered(clipping.record(key, declared), ledger=ledger), tmp_path)
    claim = lookup.claims(gather(declared, tmp_path)[0])["same-guarantee"]
    assert [outcome.verdict for outcome in claim.assessments[0].outcomes] == [verdict]


def test_the_ledger_tells_sampling_neighbours_and_an_approximate_mu(
    text: str, tables_of: dict[str, TableResult]
) -> None:
    for expected in (
        "0.00116, replacement steps 38281",
        "∞ by the paper's central limit theorem, for this run",
        "one training example; replace one",
        "0.52 of μ-GDP by the central limit theorem: an approximation, never a bound",
    ):
        assert expected in text
    account = lookup.csv(tables_of["gdp"]).loc[(clipping.GDP, "noise_multiplier=1.5")]
    assert (account["sampling"], account["mu_clt"]) == ("fixed", 1.9883)


# -- claims over levels ------------------------------------------------------------------------------


def test_best_compares_with_every_other_level(claims_of: dict[str, ClaimResult]) -> None:
    outcomes = claims_of["best-at-02"].assessments[0].outcomes
    assert [(outcome.text.partition(":")[0], outcome.verdict) for outcome in outcomes] == [
        (f"BC + ALC, C = {other} − C = 0.2", "holds") for other in (0.05, 0.1, 0.4, 0.8)
    ]


@pytest.mark.parametrize(
    ("over", "verdicts"),
    [
        (["clip=0.2", "clip=0.4", "clip=0.8"], ["holds", "holds"]),
        (["clip=0.1", "clip=0.2", "clip=0.4"], ["fails", "holds"]),
        (["clip=0.2", "clip=0.1", "clip=0.05"], ["holds", "holds"]),
    ],
)
def test_falling_is_tested_step_by_step(
    result: PaperResult, tables_of: dict[str, TableResult], over: list[str], verdicts: list[str]
) -> None:
    line = "f11/bc-alc"
    test = Contrast(kind="difference", left=line, right=line, at=over, right_at="previous", below=0)
    rows = {line: chosen(row(tables_of["f11"], clipping.PUBLIC))}
    assert [outcome.verdict for outcome in test.ours(rows, result.paper)] == verdicts


def test_not_converging_at_the_papers_step_size_is_a_finding(claims_of: dict[str, ClaimResult]) -> None:
    outcomes = claims_of["bc-converges"].assessments[0].outcomes
    assert [(outcome.verdict, outcome.caveat) for outcome in outcomes] == [("undecided", None)] * 2


# -- tables and figures ------------------------------------------------------------------------------


def test_rows_whose_levels_are_of_different_settings_stand_in_parts(
    project: Path, tables_of: dict[str, TableResult]
) -> None:
    groups, sampling = tables_of["untried-groups"], tables_of["untried-sampling"]
    assert groups.levels == ("groups=1", "groups=4")
    assert sampling.levels == ("sampling=fixed", "sampling=poisson")
    assert [part.key for part in sampling.rows] == [clipping.SAMPLING]
    # lines without a row are told of once
    assert [line.label for line in sampling.lines] == ["sampling"]
    assert "without batch norm" in [line.label for line in groups.lines]
    text = (project / "reports/tables/nguyen2023-untried-sampling.md").read_text()
    assert text.startswith("# Left untried: sampling. What Sections")


def test_trade_off_curves_are_drawn_once_for_each_ledger(tables_of: dict[str, TableResult]) -> None:
    titles = [f"σ = {level}" for level in clipping.NOISES]
    assert drawn(tradeoff.draw(tables_of["f12b"]), *titles).count("type I error") == 3
    assert not figures.of_table(tables_of["f4"])  # which does not ask for it
    # levels that privacy does not depend on share a panel; whose row tells that no bound holds, its curve
    # does not hold either
    svg = drawn(tradeoff.draw(tables_of["f11"]), "BC + ALC, statistics of D_pub")
    assert (svg.count("type I error"), svg.count("BC + ALC")) == (1, 1)


@pytest.mark.parametrize(
    ("mu", "alpha", "beta"), [(0.0, 0.3, 0.7), (1.0, 0.5, 0.15866), (1.0, 0.05, 0.74049)]
)
def test_the_gaussian_curve_has_the_values_of_normal_tables(mu: float, alpha: float, beta: float) -> None:
    curve = dict(tradeoff.gaussian(mu))
    assert curve[alpha] == pytest.approx(beta, abs=1e-4)
    assert (curve[0.0], curve[1.0]) == (1.0, 0.0)


def test_layer_norms_have_a_figure_of_their_own(tables_of: dict[str, TableResult]) -> None:
    kinds = ("conv", "norm", "linear")
    svg = drawn(
        layer_norms.draw(tables_of["f11"]), clipping.PUBLIC, "C = 0.2", *kinds, "expected gradient norm"
    )
    assert "shortcut" not in svg
    assert not any("layer" in svg for svg in curves_of(tables_of["f11"]))


def test_the_page_shows_every_figure_and_leads_to_every_table(report_of: Report, text: str) -> None:
    names = {path.name.removeprefix("nguyen2023-") for path in report_of.files["nguyen2023"]}
    assert {"gdp-tradeoff.svg", "f12b-tradeoff.svg", "f11-layers.svg"} <= names
    check(page_of(report_of))
    for expected in (
        "none: accounted for alone",
        "0.52 computed",
        "Accuracies at epoch 20 in Section 4.2, 88.31 and 60 % (2 numbers).",
        "not tested",
    ):
        assert expected in text
    assert "the papers' own are typed from their texts" in report_of.index.read_text(encoding="utf-8")
