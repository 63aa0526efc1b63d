"""Phan et al.: what is released once, how much noise that is, pictures of relevances, and its claims."""

import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from io import BytesIO, StringIO
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from pipeline.reporting import papers, report
from pipeline.reporting.claims.contrast import Contrast
from pipeline.reporting.claims.curves import Overtakes, overtaking
from pipeline.reporting.figures import relevance_pictures
from pipeline.reporting.gather import gather
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.judging.claim_test import Outcome
from pipeline.reporting.printed import Line, Printed, Table
from pipeline.reporting.report import Report
from pipeline.reporting.results import PaperResult, TableResult
from pipeline.reporting.tables import flat, released_noise
from pipeline.reporting.tables.latex import latex
from pipeline.reporting.tables.reading import wide
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.lookup import chosen, drawn, markdown, page_of, plain, row
from tests.reporting.made_up import dpsgd, laplace
from tests.reporting.markup import check, words

PAPER = papers.load("phan2017")
MADE_UP = laplace  # whose report `report_of` is


@pytest.fixture
def page(report_of: Report) -> str:
    return page_of(report_of).read_text(encoding="utf-8")


# -- releases ----------------------------------------------------------------------------------------


def test_every_release_says_what_it_claims_and_buys_and_how_noisy_it_is(
    tables_of: dict[str, TableResult],
) -> None:
    table = tables_of["f4a"]
    found = {
        (one.row.key, one.quantity): dict(zip(table.levels, one.cells, strict=True))
        for one in released_noise.releases(table)
    }
    assert list(found)[:3] == [(laplace.ADLM, name) for name in ("relevances", "inputs", "labels")]
    assert (laplace.PSGD, "inputs") not in found
    inputs = found[laplace.ILM, "inputs"]
    # levels are told apart; 1/|L| of the noise costs |L| d / Delta_h0 = 28.1 times the epsilon
    assert inputs["epsilon=0.25"] == ("ε 0.125 → 3.52", "noise 223 (112 to 4,460)", "223 × span")
    assert inputs["epsilon=8"] == ("ε 4 → 113", "noise 6.97 (3.48 to 139)", "6.97 × span")
    assert inputs["epsilon=2"] == ()  # not run
    assert found[laplace.ADLM, "relevances"]["epsilon=8"][1:] == ("noise 0.0202", "0.0403 × span")
    assert found[laplace.CODE, "labels"]["epsilon=8"][0] == "ε 4 → no bound"
    assert found[laplace.RUN, "labels"]["epsilon=8"] == ("ε 4 → no bound", "no noise")


def test_rows_alike_share_the_sentence_that_says_what_they_protect(
    tables_of: dict[str, TableResult],
) -> None:
    found = [([laplace.ADLM, laplace.ILM, laplace.SOUND], laplace.LOCAL)]
    found += [([laplace.CODE, laplace.RUN], laplace.NOBODY)]
    assert released_noise.protections(tables_of["f4a"]) == found


def test_they_stand_in_the_ledger_of_the_page(page: str, report_of: Report) -> None:
    check(page_of(report_of))
    text = words(page)
    assert f"{laplace.CODE} , {laplace.RUN} : {laplace.NOBODY}" in text
    assert f"{laplace.ILM} inputs ε 0.125 → 3.52 noise 223 (112 to 4,460) 223 × span" in text
    assert released_noise.RULE in text
    assert "0 (pure)" in text
    assert "DP noise fresh in every run" in text
    # pSGD alone has a delta
    assert re.search(rf'id="row-{laplace.PSGD}".*?<dt>δ</dt><dd>1e-5</dd>', page, re.DOTALL)


def test_where_nothing_is_released_nothing_is_said_of_it(tmp_path: Path) -> None:
    text = words(page_of(report.write(dpsgd.fill(tmp_path), tmp_path)).read_text())
    assert released_noise.RULE not in text
    assert "pure" not in text
    assert "→ no bound" not in text


def test_they_stand_under_the_markdown_and_in_the_csv(tables_of: dict[str, TableResult]) -> None:
    table = tables_of["f4a"]
    text = markdown(table)
    assert f"- {laplace.CODE}, {laplace.RUN}: {laplace.NOBODY}" in text
    assert f"| {laplace.ILM} | inputs | ε 0.125 → 3.52; noise 223 (112 to 4,460); 223 × span | " in text
    assert released_noise.RULE in text
    frame = pd.read_csv(StringIO(flat.csv(flat.of_table(table)))).set_index(["row", "level"])
    one = frame.loc[(laplace.CODE, "epsilon=8")]
    assert one["delta"] == 0
    assert one["protects"] == laplace.NOBODY
    assert one["releases"].startswith("inputs: claimed 4, accounted none, noise 0.680556 / 1.36111 / 27.2222")
    assert pd.isna(frame.loc[(laplace.PSGD, "epsilon=8"), "releases"])


# -- how much noise ----------------------------------------------------------------------------------


def test_noise_is_a_number_of_spans_and_no_percent(tables_of: dict[str, TableResult], page: str) -> None:
    frame = wide(tables_of["f4a"])
    noisy = frame[frame["source"] == "noise on a pixel (std ÷ span)"]
    assert noisy.iloc[1]["0.25"] == "223 ± 0 (n = 2)"
    assert "noise on a pixel (std ÷ span) 223 ± 0 112 ± 0" in words(page)
    assert r"std $\div$ span" in latex(tables_of["f4a"])


@pytest.mark.parametrize("converged", [0.0, 1.0])
def test_neither_a_reduced_budget_nor_failed_training_speaks_against_noise(
    tmp_path: Path, converged: float
) -> None:
    declared = laplace.settings()
    reduced = declared.rows[laplace.ILM].model_copy(update={"budget": "reduced"})
    declared = declared.model_copy(update={"rows": {**declared.rows, laplace.ILM: reduced}})
    found = laplace.record(laplace.ILM, declared)
    metrics = {"converged": converged}
    replicas = [one.model_copy(update={"metrics": one.metrics | metrics}) for one in found.replicas]
    keep(found.model_copy(update={"replicas": replicas, "budget": "reduced"}), tmp_path)
    (result,) = gather(declared, tmp_path)
    (table,) = [one for one in result.tables if one.key == "f4a"]
    own = row(table, laplace.ILM)
    assert own.cells["epsilon=8"].caveat == "reduced budget: 600 epochs"
    noise = own.also["noise_inputs"]["epsilon=8"]
    assert (noise.caveat, noise.untried, noise.converged) == (None, None, 2)
    test = next(claim for claim in PAPER.claims if claim.key == "small-noise").tests[0]
    verdicts = {
        one.verdict: one.caveat
        for one in test.ours({"f4a/ilm:noise_inputs": chosen(own.measured("noise_inputs"))}, PAPER)
    }
    assert verdicts == {"not run": None, "fails": None}


def test_seeded_laplace_noise_is_marked(tmp_path: Path) -> None:
    declared = laplace.settings()
    found = laplace.record(laplace.SOUND, declared)
    made = found.provenance.model_copy(update={"reproducible": True})
    keep(found.model_copy(update={"origins": (made,)}), tmp_path)
    table = lookup.table(declared, tmp_path, "f4a")
    assert any(mark.seeded for mark in row(table, laplace.SOUND).marks)


# -- claims ------------------------------------------------------------------------------------------


def test_theorem_1_stands_and_falls_with_the_accounted_epsilon(claims_of: dict[str, ClaimResult]) -> None:
    assert [one.status for one in claims_of["theorem-1"].assessments] == ["not reproduced"]
    found = {one.variant: one.status for one in claims_of["ilm-private"].assessments}
    assert found == {
        "": "not reproduced",
        "sound": "reproduced",
        "as in the code": "not reproduced",
        "as the code runs": "not reproduced",
    }


def average(result: PaperResult, **bounds: float) -> Outcome:
    test = Contrast.model_validate(
        {
            "kind": "difference",
            "mean": True,
            "left": "f4a/adlm",
            "right": "f4a/psgd",
            "at": ["epsilon=0.25", "epsilon=0.5"],
            **bounds,
        }
    )
    (found,) = test.ours(plain(result, str(test.left), str(test.right)), PAPER)
    return found


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ({"above": 6}, "holds"),
        ({"above": 9}, "fails"),
        ({"above": 7.4}, "undecided"),
        ({"below": 6.5}, "fails"),
    ],
)
def test_a_gap_may_be_of_averages_over_levels(
    result: PaperResult, bounds: dict[str, float], verdict: str
) -> None:
    found = average(result, **bounds)  # 8 and 7 points
    assert found.verdict == verdict
    assert found.text.startswith("AdLM − pSGD, mean over ε = 0.25, ε = 0.5: +7.50 ± 0.6")


def test_an_average_needs_every_level(result: PaperResult, claims_of: dict[str, ClaimResult]) -> None:
    assert [one.status for one in claims_of["adaptive-average"].assessments][:1] == ["not run"]
    values = {level: Printed(value=value) for level, value in (("a=1", 90.0), ("a=2", 94.0))}
    lines = (Line(key="x", label="X", values=values), Line(key="y", label="Y", values=values))
    table = Table(name="T", title="t", axis="a", margin=1, columns=["a=1", "a=2"], lines=lines)
    test = Contrast(kind="difference", mean=True, left="t/x", right="t/y", at=["a=1", "a=2"], above=-1)
    (found,) = test.on_paper(papers.Paper(title="p", tables={"t": table}))
    assert (found.verdict, found.text) == ("holds", "X − Y, mean over a = 1, a = 2: +0.00, to be above -1")
    short = lines[1].model_copy(update={"values": {"a=1": values["a=1"]}})
    table = table.model_copy(update={"lines": (lines[0], short)})
    assert not list(test.on_paper(papers.Paper(title="p", tables={"t": table})))


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
    assert overtaking(left, right) == epoch


@pytest.mark.parametrize(
    ("bounds", "verdict"), [({"below": 601}, "holds"), ({"below": 500}, "fails"), ({"above": 50}, "holds")]
)
def test_curves_cross_where_the_claim_says(
    result: PaperResult, bounds: dict[str, float], verdict: str
) -> None:
    test = Overtakes.model_validate(
        {"kind": "overtakes", "left": "f4b/adlm", "right": "f4b/psgd", "at": ["epsilon=0.5"], **bounds}
    )
    rows = plain(result, str(test.left), str(test.right))
    (found,) = test.ours(rows, PAPER)
    assert found.verdict == verdict
    assert found.text.startswith("AdLM overtakes pSGD for good at ε = 0.5: after 600.0 ± 0.0 (n = 2) epochs")
    # the other way round it never happens
    (never,) = test.ours({test.left: rows[test.right], test.right: rows[test.left]}, PAPER)
    assert (never.verdict, never.text[-15:]) == ("fails", "in 0 of 2 seeds")
    (missing,) = test.ours(dict.fromkeys((test.left, test.right), chosen()), PAPER)
    assert missing.verdict == "not run"


# -- figure 3 ----------------------------------------------------------------------------------------


def test_relevances_are_pictures_of_the_first_seed(
    report_of: Report, tables_of: dict[str, TableResult]
) -> None:
    svg = drawn(relevance_pictures.draw(tables_of["f3"]), "AdLM, ε = 0.25", "AdLM, ε = 8", laplace.FIGURE)
    found = [
        element.attrib["{http://www.w3.org/1999/xlink}href"].partition("base64,")[2]
        for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}image")
    ]
    images = [matplotlib.image.imread(BytesIO(b64decode(one))) for one in found]
    shown = [one for one in images if one.shape[:2] == laplace.PICTURE]
    assert len(shown) == 2
    # one pixel a feature; the green fades from yellow to dark red as relevance grows, row by row
    assert np.all(np.diff(shown[0][:, :, 1].flatten()) < 0)
    assert len(svg) < 50_000
    assert "phan2017-f3-relevance.svg" in {path.name for path in report_of.files["phan2017"]}
    assert "The noisy relevance of every input feature" in words(page_of(report_of).read_text())


def test_channels_are_added_up_and_the_last_note_counts(tmp_path: Path) -> None:
    declared = laplace.settings()
    found = laplace.record(laplace.FIGURE, declared)
    lines = [
        (
            "epsilon=8",
            seed,
            note,
            1.0 * note,
            f"relevance/{channel}/0/{column}",
            10.0 * note + column + 5 * seed,
        )
        for seed in (0, 1)
        for note in (1, 2)
        for channel in (0, 1, 2)
        for column in (0, 1)
    ]
    dpsgd.write_history(laplace.FIGURE, tmp_path, lines)
    keep(found, tmp_path)
    table = lookup.table(declared, tmp_path, "f3")
    ((level, picture),) = relevance_pictures.pictures(row(table, laplace.FIGURE))
    assert (level, picture.tolist()) == ("epsilon=8", [[60.0, 63.0]])


def test_without_relevances_there_is_no_picture(tmp_path: Path, tables_of: dict[str, TableResult]) -> None:
    assert relevance_pictures.draw(tables_of["f4a"]) is None
    declared = laplace.settings()
    keep(laplace.record(laplace.FIGURE, declared), tmp_path)
    table = lookup.table(declared, tmp_path, "f3")
    assert relevance_pictures.draw(table) is None
