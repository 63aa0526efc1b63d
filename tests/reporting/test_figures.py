import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.reporting import histories
from pipeline.reporting.drawing import levels, style
from pipeline.reporting.gather import gather
from pipeline.reporting.report import Report
from pipeline.reporting.results import TableResult
from pipeline.results import records
from tests.reporting.lookup import curves_of, drawn
from tests.reporting.made_up import dpsgd


@pytest.fixture
def table(written: Report) -> TableResult:
    return written.papers[0].tables[0]


def test_levels_are_drawn_for_paper_and_ours(table: TableResult) -> None:
    drawn(
        levels.draw(table),
        "DPSGD (LN-LeNet-5), paper",
        "DPSGD (LN-LeNet-5), ours",
        "privacy budget ε",
        "∞",
        "0.05",
    )


def test_curves_are_drawn_with_the_epsilon_spent(table: TableResult) -> None:
    curves = [drawn(svg, "validation accuracy") for svg in curves_of(table)]
    assert [svg.count("ε spent") for svg in curves] == [1, 1, 1, 0]  # of the last nothing is proven


def test_a_training_of_one_note_is_a_point(tmp_path: Path, table: TableResult) -> None:
    """A line needs two."""
    declared = dpsgd.settings()
    for key in dpsgd.ACCURACY:
        made = dpsgd.put(dpsgd.record(key, declared), tmp_path)
        notes = ((one.level, one.seed, 54, 1, "validation_accuracy", 0.5) for one in made.replicas)
        dpsgd.write_history(key, tmp_path, notes)
    short = curves_of(gather(declared, tmp_path)[0].tables[0])
    for long, point in zip(curves_of(table), short, strict=True):
        assert point.count("<use") > long.count("<use")


def test_without_histories_or_numbers_nothing_is_drawn(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{key: {"paper": "mine"} for key in dpsgd.LABELS})
    table = gather(declared, tmp_path)[0].tables[0]
    assert levels.draw(table) is None
    assert curves_of(table) == []


def test_levels_of_which_the_paper_prints_nothing_are_no_figure(table: TableResult) -> None:
    """A line that was only accounted for, at a level of its own, has neither a point nor a printed value."""
    lines = tuple(replace(line, rows=()) for line in table.lines)
    assert levels.draw(replace(table, levels=("noise_multiplier=1.1",), lines=lines)) is None


def test_a_history_is_read_as_means_over_seeds(tmp_path: Path) -> None:
    path = records.history_path("row", tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(
        "level,seed,step,epoch,metric,value\n"
        "epsilon=1,0,20,2.0,accuracy,0.8\nepsilon=1,1,20,2.0,accuracy,0.6\nepsilon=1,0,10,1.0,accuracy,0.5\n"
    )
    assert histories.averages(path) == {"accuracy": {"epsilon=1": [(1.0, 0.5), (2.0, pytest.approx(0.7))]}}
    path.write_text("level,seed\nepsilon=1,0\n")
    with pytest.raises(UserError, match="not a history"):
        histories.averages(path)


def test_inlined_figures_take_the_pages_colours_and_share_no_ids(table: TableResult) -> None:
    inlined = [style.themed(svg, 'A "title"') for svg in (levels.draw(table), *curves_of(table)) if svg]
    ids: list[str] = []
    for svg in inlined:
        parsed = ElementTree.fromstring(svg.replace("xlink:href", "href"))
        assert parsed.get("aria-label") == 'A "title"'
        assert style.INK not in svg
        assert "var(--ink)" in svg
        ids += [name for element in parsed.iter() if (name := element.get("id"))]
    assert len(ids) == len(set(ids)) > len(inlined)
