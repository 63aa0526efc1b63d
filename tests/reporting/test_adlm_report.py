"""Phan et al.: what is released once, how much noise that is, pictures of relevances, and its claims."""

import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from pipeline.reporting import papers
from pipeline.reporting.claims.contrast import Contrast
from pipeline.reporting.claims.curves import Overtakes, overtaking
from pipeline.reporting.figures import relevance_pictures
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.report import Report
from pipeline.reporting.results import PaperResult, TableResult
from pipeline.reporting.tables import released_noise
from pipeline.reporting.tables.latex import latex
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.lookup import chosen, drawn, markdown, outcome, page_of, row
from tests.reporting.made_up import dpsgd, laplace, toys
from tests.reporting.markup import check

PAPER = papers.load("phan2017")
MADE_UP = laplace  # whose report `report_of` is


# -- releases ----------------------------------------------------------------------------------------


def test_every_release_says_what_it_claims_and_buys_and_how_noisy_it_is(
    tables_of: dict[str, TableResult],
) -> None:
    table = tables_of["f4a"]
    releases = {
        (release.row.key, release.quantity): dict(zip(table.levels, release.cells, strict=True))
        for release in released_noise.releases(table)
    }
    assert list(releases)[:3] == [(laplace.ADLM, name) for name in ("relevances", "inputs", "labels")]
    assert (laplace.PSGD, "inputs") not in releases
    inputs = releases[laplace.ILM, "inputs"]
    # levels are told apart; 1/|L| of the noise costs |L| d / Delta_h0 = 28.1 times the epsilon
    assert inputs["epsilon=0.25"] == ("ε 0.125 → 3.52", "noise 223 (112 to 4,460)", "223 × span")
    assert inputs["epsilon=8"] == ("ε 4 → 113", "noise 6.97 (3.48 to 139)", "6.97 × span")
    assert inputs["epsilon=2"] == ()  # not run
    assert releases[laplace.ADLM, "relevances"]["epsilon=8"][1:] == ("noise 0.0202", "0.0403 × span")
    assert releases[laplace.CODE, "labels"]["epsilon=8"][0] == "ε 4 → no bound"
    assert releases[laplace.RUN, "labels"]["epsilon=8"] == ("ε 4 → no bound", "no noise")


def test_they_stand_in_the_ledger_of_the_page(text: str, report_of: Report) -> None:
    check(page_of(report_of))
    # rows alike share a sentence
    assert f"{laplace.ADLM} , {laplace.ILM} , {laplace.SOUND} : {laplace.LOCAL}" in text
    assert f"{laplace.CODE} , {laplace.RUN} : {laplace.NOBODY}" in text
    assert f"{laplace.ILM} inputs ε 0.125 → 3.52 noise 223 (112 to 4,460) 223 × span" in text
    assert released_noise.RULE in text
    assert "0 (pure)" in text
    assert "DP noise fresh in every run" in text
    # noise is a number of spans and no percent
    assert "noise on a pixel (std ÷ span) 223 ± 0 112 ± 0" in text
    # pSGD alone has a delta
    page = page_of(report_of).read_text(encoding="utf-8")
    assert re.search(rf'id="row-{laplace.PSGD}".*?<dt>δ</dt><dd>1e-5</dd>', page, re.DOTALL)


def test_where_nothing_is_released_nothing_is_said_of_it(written: Report) -> None:
    text = lookup.text(written)
    assert not [words for words in (released_noise.RULE, "pure", "→ no bound") if words in text]


def test_they_stand_under_the_markdown_in_latex_and_in_the_csv(tables_of: dict[str, TableResult]) -> None:
    table = tables_of["f4a"]
    text = markdown(table)
    assert f"- {laplace.CODE}, {laplace.RUN}: {laplace.NOBODY}" in text
    assert f"| {laplace.ILM} | inputs | ε 0.125 → 3.52; noise 223 (112 to 4,460); 223 × span | " in text
    assert released_noise.RULE in text
    assert r"std $\div$ span" in latex(table)
    frame = lookup.csv(table)
    code = frame.loc[(laplace.CODE, "epsilon=8")]
    assert (code["delta"], code["protects"]) == (0, laplace.NOBODY)
    assert code["releases"].startswith(
        "inputs: claimed 4, accounted none, noise 0.680556 / 1.36111 / 27.2222"
    )
    assert pd.isna(frame.loc[(laplace.PSGD, "epsilon=8"), "releases"])


@pytest.mark.parametrize("converged", [0.0, 1.0])
def test_neither_a_reduced_budget_nor_failed_training_speaks_against_noise(
    tmp_path: Path, converged: float
) -> None:
    declared = laplace.settings()
    reduced = declared.rows[laplace.ILM].model_copy(update={"budget": "reduced"})
    declared = declared.model_copy(update={"rows": {**declared.rows, laplace.ILM: reduced}})
    record = laplace.record(laplace.ILM, declared)
    metrics = record.replicas[-1].metrics | {"converged": converged}
    keep(dpsgd.altered(record, metrics=metrics), tmp_path)
    ilm = row(lookup.table(declared, tmp_path, "f4a"), laplace.ILM)
    assert ilm.cells["epsilon=8"].caveat == "reduced budget: 600 epochs"
    noise = ilm.also["noise_inputs"]["epsilon=8"]
    assert (noise.caveat, noise.untried, noise.converged) == (None, None, 2)
    test = next(claim for claim in PAPER.claims if claim.key == "small-noise").tests[0]
    outcomes = test.ours({"f4a/ilm:noise_inputs": chosen(ilm.measured("noise_inputs"))}, PAPER)
    assert {each.verdict: each.caveat for each in outcomes} == {"not run": None, "fails": None}


# -- claims ------------------------------------------------------------------------------------------


def test_theorem_1_stands_and_falls_with_the_accounted_epsilon(claims_of: dict[str, ClaimResult]) -> None:
    assert [each.status for each in claims_of["theorem-1"].assessments] == ["not reproduced"]
    assert {each.variant: each.status for each in claims_of["ilm-private"].assessments} == {
        "": "not reproduced",
        "sound": "reproduced",
        "as in the code": "not reproduced",
        "as the code runs": "not reproduced",
    }


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
    over: dict[str, Any] = {"kind": "difference", "mean": True, "at": ["epsilon=0.25", "epsilon=0.5"]}
    gap = outcome(result, Contrast, left="f4a/adlm", right="f4a/psgd", **over, **bounds)  # 8 and 7 points
    assert gap.verdict == verdict
    assert gap.text.startswith("AdLM − pSGD, mean over ε = 0.25, ε = 0.5: +7.50 ± 0.6")


def test_an_average_needs_every_level(claims_of: dict[str, ClaimResult]) -> None:
    assert [each.status for each in claims_of["adaptive-average"].assessments][:1] == ["not run"]
    test = Contrast(kind="difference", mean=True, left="t/one", right="t/two", at=list(toys.LEVELS), above=-1)
    values = {"sigma=0": 90.0, "sigma=1": 94.0}
    for theirs, said in ((values, ["One − Two, mean over σ = 0, σ = 1: +0.00, to be above -1"]), ({}, [])):
        paper = toys.paper(values=values, lines=[{"key": "two", "label": "Two", "values": theirs}])
        assert [each.text for each in test.on_paper(paper)] == said


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
    said: dict[str, Any] = {"kind": "overtakes", "at": ["epsilon=0.5"], **bounds}
    crossed = outcome(result, Overtakes, left="f4b/adlm", right="f4b/psgd", **said)
    assert crossed.verdict == verdict
    assert crossed.text.startswith(
        "AdLM overtakes pSGD for good at ε = 0.5: after 600.0 ± 0.0 (n = 2) epochs"
    )
    # the other way round it never happens
    never = outcome(result, Overtakes, left="f4b/psgd", right="f4b/adlm", **said)
    assert (never.verdict, never.text[-15:]) == ("fails", "in 0 of 2 seeds")
    test = Overtakes.model_validate({"left": "f4b/adlm", "right": "f4b/psgd", **said})
    (missing,) = test.ours(dict.fromkeys(test.references, chosen()), PAPER)
    assert missing.verdict == "not run"


# -- figure 3 ----------------------------------------------------------------------------------------


def test_relevances_are_pictures_of_the_first_seed(
    report_of: Report, tables_of: dict[str, TableResult], text: str
) -> None:
    svg = drawn(relevance_pictures.draw(tables_of["f3"]), "AdLM, ε = 0.25", "AdLM, ε = 8", laplace.FIGURE)
    embedded = [
        element.attrib["{http://www.w3.org/1999/xlink}href"].partition("base64,")[2]
        for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}image")
    ]
    images = [matplotlib.image.imread(BytesIO(b64decode(image))) for image in embedded]
    pictures = [image for image in images if image.shape[:2] == laplace.PICTURE]
    assert len(pictures) == 2
    # one pixel a feature; the green fades from yellow to dark red as relevance grows, row by row
    assert np.all(np.diff(pictures[0][:, :, 1].flatten()) < 0)
    assert len(svg) < 50_000
    assert "phan2017-f3-relevance.svg" in {path.name for path in report_of.files["phan2017"]}
    assert "The noisy relevance of every input feature" in text


def test_channels_are_added_up_and_the_last_note_counts(tmp_path: Path) -> None:
    declared = laplace.settings()
    keep(laplace.record(laplace.FIGURE, declared), tmp_path)
    assert relevance_pictures.draw(lookup.table(declared, tmp_path, "f3")) is None
    lines = [
        ("epsilon=8", seed, note, float(note), f"relevance/{channel}/0/{column}", value)
        for seed in (0, 1)
        for note in (1, 2)
        for channel in (0, 1, 2)
        for column in (0, 1)
        for value in [10.0 * note + column + 5 * seed]
    ]
    dpsgd.write_history(laplace.FIGURE, tmp_path, lines)
    table = lookup.table(declared, tmp_path, "f3")
    ((level, picture),) = relevance_pictures.pictures(row(table, laplace.FIGURE))
    assert (level, picture.tolist()) == ("epsilon=8", [[60.0, 63.0]])
