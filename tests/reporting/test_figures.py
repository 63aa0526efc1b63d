from dataclasses import replace
from pathlib import Path

from pipeline.reporting.drawing import levels
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


def test_a_label_with_dollars_is_no_formula(tmp_path: Path) -> None:
    label = r"at $\eps$ and 5$"
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"label": label, "line": None}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), tmp_path)
    table = lookup.table(declared, tmp_path)
    drawn(levels.draw(table), label)
