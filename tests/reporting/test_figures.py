import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.reporting.drawing import accuracy_privacy, levels, style
from pipeline.reporting.gather import gather
from pipeline.reporting.report import Report
from pipeline.reporting.results import TableResult
from tests.reporting import lookup
from tests.reporting.lookup import drawn
from tests.reporting.made_up import dpsgd


def test_without_numbers_nothing_is_drawn(tmp_path: Path, table: TableResult) -> None:
    nothing = lookup.table(dpsgd.settings(**{key: {"paper": "mine"} for key in dpsgd.LABELS}), tmp_path)
    assert levels.draw(nothing) is None
    # a line that was only accounted for, at a level of its own, has neither a point nor a printed value
    lines = tuple(replace(line, rows=()) for line in table.lines)
    assert levels.draw(replace(table, levels=("noise_multiplier=1.1",), lines=lines)) is None


def test_inlined_figures_take_the_pages_colours_and_share_no_ids(table: TableResult, written: Report) -> None:
    drawings = levels.draw(table), accuracy_privacy.draw(written.papers)
    inlined = [style.themed(svg, 'A "title"') for svg in drawings if svg]
    ids: list[str] = []
    for svg in inlined:
        parsed = ElementTree.fromstring(svg.replace("xlink:href", "href"))
        assert parsed.get("aria-label") == 'A "title"'
        assert style.INK not in svg
        assert "var(--ink)" in svg
        ids += [name for element in parsed.iter() if (name := element.get("id"))]
    assert len(ids) == len(set(ids)) > len(inlined)


def test_a_label_with_dollars_is_no_formula(tmp_path: Path) -> None:
    label = r"at $\eps$ and 5$"
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"label": label, "line": None}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), tmp_path)
    table = lookup.table(declared, tmp_path)
    drawn(levels.draw(table), label)


@pytest.mark.parametrize(
    ("levels_of", "places"),
    [
        (("batch=64", "batch=4096"), ([64.0, 4096.0], True)),
        (("batch=64", "batch=128"), ([0.0, 1.0], False)),
        (("ema=0", "ema=0.9", "ema=0.99"), ([0.0, 1.0, 2.0], False)),
        (("epsilon=inf", "epsilon=30", "epsilon=1"), ([0.0, 1.0, 2.0], False)),
    ],
)
def test_levels_far_apart_stand_on_a_logarithmic_axis(
    levels_of: tuple[str, ...], places: tuple[list[float], bool]
) -> None:
    at, logarithmic = levels._places(levels_of)
    assert (list(at.values()), logarithmic) == places


def test_accuracies_above_90_have_a_panel_of_their_own_where_others_lie_far_below(tmp_path: Path) -> None:
    panels = []
    for shift in (0.0, -75.0):
        declared = dpsgd.settings(**{dpsgd.PLAIN: {"paper": "mine", "table": "t", "line": None}})
        dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared, shift=shift), tmp_path)
        mine = next(paper for paper in gather(declared, tmp_path) if paper.key == "mine")
        panels.append(drawn(levels.draw(mine.tables[0])).count("data-box"))
    assert panels == [3, 2]  # the legend is one
