import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

from pipeline.reporting.drawing import levels, style
from pipeline.reporting.results import TableResult
from tests.reporting import lookup
from tests.reporting.lookup import curves_of, drawn
from tests.reporting.made_up import dpsgd


def test_levels_are_drawn_for_paper_and_ours(table: TableResult) -> None:
    lines = ("DPSGD (LN-LeNet-5), paper", "DPSGD (LN-LeNet-5), ours")
    drawn(levels.draw(table), *lines, "privacy budget ε", "∞", "0.05")


def test_curves_are_drawn_with_the_epsilon_spent(table: TableResult) -> None:
    curves = [drawn(svg, "validation accuracy") for svg in curves_of(table)]
    assert [svg.count("ε spent") for svg in curves] == [1, 1, 1, 0]  # of the last nothing is proven


def test_a_training_of_one_note_is_a_point(tmp_path: Path, table: TableResult) -> None:
    """A line needs two."""
    declared = dpsgd.settings()
    record = dpsgd.record(dpsgd.PLAIN, declared)
    notes = ((each.level, each.seed, 54, 1, "validation_accuracy", 0.5) for each in record.replicas)
    dpsgd.put(record, tmp_path, notes)
    (point,) = curves_of(lookup.table(declared, tmp_path))
    assert point.count("<use") > curves_of(table)[0].count("<use")


def test_without_histories_or_numbers_nothing_is_drawn(tmp_path: Path, table: TableResult) -> None:
    nothing = lookup.table(dpsgd.settings(**{key: {"paper": "mine"} for key in dpsgd.LABELS}), tmp_path)
    assert levels.draw(nothing) is None
    assert curves_of(nothing) == []
    # a line that was only accounted for, at a level of its own, has neither a point nor a printed value
    lines = tuple(replace(line, rows=()) for line in table.lines)
    assert levels.draw(replace(table, levels=("noise_multiplier=1.1",), lines=lines)) is None


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


def test_a_label_with_dollars_is_no_formula(tmp_path: Path) -> None:
    label = r"at $\eps$ and 5$"
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"label": label}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), tmp_path)
    table = lookup.table(declared, tmp_path)
    drawn(levels.draw(table), label)
