"""Nguyen et al.: accounts beside rows, bounds that protect nobody, and figures of their own."""

import re
import xml.etree.ElementTree as ElementTree
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from pipeline.reporting import figures, papers
from pipeline.reporting.claims.contrast import Contrast
from pipeline.reporting.drawing import curves, levels
from pipeline.reporting.figures import layer_norms, tradeoff
from pipeline.reporting.gather import gather
from pipeline.reporting.judging.assess import ClaimResult, assess
from pipeline.reporting.report import Report
from pipeline.reporting.results import TableResult
from pipeline.reporting.tables import flat
from pipeline.reporting.wording import verdict_words
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.lookup import chosen, markdown, page_of, row
from tests.reporting.made_up import clipping, dpsgd
from tests.reporting.markup import check, words

PAPER = papers.load("nguyen2023")
MADE_UP = clipping  # whose report `report_of` is


@pytest.fixture
def tables_of(report_of: Report) -> dict[str, TableResult]:
    return {table.name: table for table in report_of.papers[0].tables}


# -- accounts ----------------------------------------------------------------------------------------


def test_an_account_is_a_row_whose_number_is_exact(tables_of: dict[str, TableResult]) -> None:
    found = row(tables_of["nguyen2023-gdp"], clipping.GDP)
    cell = found.cells["noise_multiplier=2.5"]
    assert (cell.mean.value, cell.mean.half, cell.mean.exact) == (0.5199, 0.0, True)
    assert (found.marks, found.budget, found.searched) == ((), "full", None)
    assert verdict_words(cell) == "agrees"  # to the two digits printed
    line = next(line for line in markdown(tables_of["nguyen2023-gdp"]).splitlines() if clipping.GDP in line)
    assert "| **0.52** agrees; ε 2.4 / 2 / – |" in line


@pytest.mark.parametrize(("mu", "verdict"), [(0.5249, "agrees"), (0.526, "above"), (0.514, "below")])
def test_an_exact_number_agrees_to_a_hundredth(tmp_path: Path, mu: float, verdict: str) -> None:
    declared = clipping.settings()
    dpsgd.changed(clipping.account(clipping.GDP, declared), tmp_path, metrics={"mu": mu})
    table = lookup.table(declared, tmp_path, "gdp")
    assert row(table, clipping.GDP).cells["noise_multiplier=2.5"].verdict.name == verdict


def test_a_mu_too_large_for_a_number_is_shown_with_what_is_proven(tmp_path: Path) -> None:
    declared = clipping.settings()
    found = clipping.account(clipping.GDP, declared)
    spent = clipping.ledger(0.01875, sampling="fixed")
    replicas = [
        one.model_copy(update={"metrics": metrics, "ledger": spent})
        for one, metrics in zip(found.replicas, ({}, {"mu": 1.2e53}), strict=True)
    ]
    keep(found.model_copy(update={"replicas": replicas}), tmp_path)
    table = lookup.table(declared, tmp_path, "gdp")
    lines = markdown(table).splitlines()
    line = next(line for line in lines if f"| ours: {clipping.GDP}, " in line)
    assert "| **∞** above; " in line
    assert "| **1.2e53** above; " in line
    assert line.count(" / 114,000 / – NO PRIVACY TO SPEAK OF") == 2
    assert levels.draw(table) is not None


def test_an_account_of_other_settings_is_marked(tmp_path: Path) -> None:
    declared = clipping.settings()
    keep(clipping.account(clipping.GDP, declared), tmp_path)
    changed = declared.accounts[clipping.GDP].model_copy(update={"axis": "parts"})
    other = declared.model_copy(update={"accounts": {clipping.GDP: changed}})
    table = lookup.table(other, tmp_path, "gdp")
    assert [mark.words for mark in row(table, clipping.GDP).marks] == ["settings have changed since this run"]


def test_claims_on_accounts_need_no_seeds(claims_of: dict[str, ClaimResult]) -> None:
    assert claims_of["g-052"].status == "reproduced"
    assert claims_of["g-051"].status == "reproduced"
    (outcome,) = claims_of["g-051"].assessments[0].outcomes
    assert outcome.text.startswith("BN-LeNet-5, L = 8, 15 times the data − 0.51 at σ = 1.5: +0.00, to be")


# -- guarantees --------------------------------------------------------------------------------------


def test_a_vacuous_bound_is_told_at_a_glance(report_of: Report, tables_of: dict[str, TableResult]) -> None:
    cell = row(tables_of["nguyen2023-f4"], clipping.BC).cells["batch=64"]
    assert cell.guarantee.state == "vacuous"
    text = markdown(tables_of["nguyen2023-f4"])
    assert " / 114,000 / – NO PRIVACY TO SPEAK OF |" in text
    page = words(page_of(report_of).read_text(encoding="utf-8"))
    # sigma .25 is vacuous too, of Figure 12
    assert "3 no privacy to speak of: a bound above ε = 13.8" in page
    assert f"{clipping.BC}, {clipping.IC}: NO PRIVACY TO SPEAK OF. Above ε = 13.8 a bound allows" in page


def test_the_same_guarantee_is_the_same_epsilon(claims_of: dict[str, ClaimResult]) -> None:
    (outcome,) = claims_of["same-guarantee"].assessments[0].outcomes
    assert (outcome.verdict, outcome.caveat) == ("fails", None)
    assert outcome.text == "BC and IC at batch = 64: proven ε ≤ 114,000 and ε ≤ 2 million"


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [(8.0, 8.05, "holds"), (8.0, 9.0, "fails"), (8.0, None, "undecided"), (None, None, "undecided")],
)
def test_two_bounds_are_compared_and_two_missing_ones_are_not(
    tmp_path: Path, one: float | None, other: float | None, verdict: str
) -> None:
    declared = clipping.settings()
    for key, bound in ((clipping.BC, one), (clipping.IC, other)):
        ledger = clipping.ledger(0.5, epsilon_upper=bound, reasons=(dpsgd.BROKEN,))
        dpsgd.changed(clipping.record(key, declared), tmp_path, ledger=ledger)
    found_claims = {claim.claim.key: claim for claim in assess(gather(declared, tmp_path)[0])}
    (outcome,) = found_claims["same-guarantee"].assessments[0].outcomes
    assert outcome.verdict == verdict


def test_the_ledger_tells_sampling_neighbours_and_an_approximate_mu(
    report_of: Report, tables_of: dict[str, TableResult]
) -> None:
    page = words(page_of(report_of).read_text(encoding="utf-8"))
    assert "0.00116, replacement steps 38281" in page
    assert "∞ by the paper's central limit theorem, for this run" in page
    assert "one training example; replace one" in page
    assert "0.52 of μ-GDP by the central limit theorem: an approximation, never a bound" in page
    frame = pd.read_csv(StringIO(flat.csv(flat.of_table(tables_of["nguyen2023-gdp"])))).set_index(
        ["row", "level"]
    )
    one = frame.loc[(clipping.GDP, "noise_multiplier=1.5")]
    assert (one["sampling"], one["mu_clt"]) == ("fixed", 1.9883)


# -- claims over levels ------------------------------------------------------------------------------


def test_best_compares_with_every_other_level(claims_of: dict[str, ClaimResult]) -> None:
    found = claims_of["best-at-02"].assessments[0]
    assert [one.text.partition(":")[0] for one in found.outcomes] == [
        f"BC + ALC, C = {other} − C = 0.2" for other in (0.05, 0.1, 0.4, 0.8)
    ]
    assert {one.verdict for one in found.outcomes} == {"holds"}


@pytest.mark.parametrize(
    ("over", "verdicts"),
    [
        (["clip=0.2", "clip=0.4", "clip=0.8"], ["holds", "holds"]),
        (["clip=0.1", "clip=0.2", "clip=0.4"], ["fails", "holds"]),
        (["clip=0.2", "clip=0.1", "clip=0.05"], ["holds", "holds"]),
    ],
)
def test_falling_is_tested_step_by_step(
    tables_of: dict[str, TableResult], over: list[str], verdicts: list[str]
) -> None:
    line = "f11/bc-alc"
    test = Contrast(kind="difference", left=line, right=line, at=over, right_at="previous", below=0)
    rows = {line: chosen(row(tables_of["nguyen2023-f11"], clipping.PUBLIC))}
    assert [one.verdict for one in test.ours(rows, PAPER)] == verdicts


def test_not_converging_at_the_papers_step_size_is_a_finding(claims_of: dict[str, ClaimResult]) -> None:
    found = claims_of["bc-converges"].assessments[0]
    assert [(one.verdict, one.caveat) for one in found.outcomes] == [("undecided", None), ("undecided", None)]


# -- tables and figures ------------------------------------------------------------------------------


def test_rows_whose_levels_are_of_different_settings_stand_in_parts(
    project: Path, report_of: Report, tables_of: dict[str, TableResult]
) -> None:
    groups, sampling = tables_of["nguyen2023-untried-groups"], tables_of["nguyen2023-untried-sampling"]
    assert (groups.levels, sampling.levels) == (
        ("groups=1", "groups=4"),
        ("sampling=fixed", "sampling=poisson"),
    )
    assert [found.key for found in sampling.rows] == [clipping.SAMPLING]
    # lines without a row are told of once
    assert [line.label for line in sampling.lines] == ["sampling"]
    assert "without batch norm" in [line.label for line in groups.lines]
    assert (
        (project / "reports/tables/nguyen2023-untried-sampling.md")
        .read_text()
        .startswith("# Left untried: sampling. What Sections")
    )


def test_trade_off_curves_are_drawn_once_for_each_ledger(tables_of: dict[str, TableResult]) -> None:
    svg = tradeoff.draw(tables_of["nguyen2023-f12b"])
    assert svg is not None
    ElementTree.fromstring(svg)
    for level in clipping.NOISES:
        assert f"σ = {level}" in svg
    assert svg.count("type I error") == 3
    assert not list(figures.drawn(tables_of["nguyen2023-f4"]))  # which does not ask for it


def test_levels_that_privacy_does_not_depend_on_share_a_panel(tables_of: dict[str, TableResult]) -> None:
    table = tables_of["nguyen2023-f11"]
    asking = table.table.model_copy(update={"figures": ("tradeoff",)})
    svg = tradeoff.draw(TableResult(table.paper, table.key, asking, table.levels, table.lines))
    assert svg is not None
    assert svg.count("type I error") == 1
    # whose row tells that no bound holds, its curve does not hold either
    assert "BC + ALC, statistics of D_pub" in svg
    assert svg.count("BC + ALC") == 1


@pytest.mark.parametrize(
    ("mu", "alpha", "beta"), [(0.0, 0.3, 0.7), (1.0, 0.5, 0.15866), (1.0, 0.05, 0.74049)]
)
def test_the_gaussian_curve_has_the_values_of_normal_tables(mu: float, alpha: float, beta: float) -> None:
    curve = dict(tradeoff.gaussian(mu))
    assert curve[alpha] == pytest.approx(beta, abs=1e-4)
    assert (curve[0.0], curve[1.0]) == (1.0, 0.0)


def test_layer_norms_have_a_figure_of_their_own(project: Path, tables_of: dict[str, TableResult]) -> None:
    table = tables_of["nguyen2023-f11"]
    svg = layer_norms.draw(table)
    assert svg is not None
    ElementTree.fromstring(svg)
    for text in (clipping.PUBLIC, "C = 0.2", "conv", "norm", "linear", "expected gradient norm"):
        assert text in svg
    assert "shortcut" not in svg
    drawn = curves.draw(table)
    assert drawn is not None
    assert "layer" not in drawn


def test_the_page_shows_every_figure_and_leads_to_every_table(report_of: Report, project: Path) -> None:
    names = {path.name for path in report_of.files["nguyen2023"]}
    assert {
        "nguyen2023-gdp-tradeoff.svg",
        "nguyen2023-f12b-tradeoff.svg",
        "nguyen2023-f11-layers.svg",
    } <= names
    check(page_of(report_of))
    page = page_of(report_of).read_text(encoding="utf-8")
    text = words(page)
    assert "none: accounted for alone" in text
    assert re.search(r"0\.52 computed", text)
