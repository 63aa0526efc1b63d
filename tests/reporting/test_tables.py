"""A table's section, where the committed pages have no case."""

import re
from pathlib import Path

from pipeline.reporting.pages.views import alarms
from tests.reporting import lookup
from tests.reporting.lookup import section, shown
from tests.reporting.made_up import dpsgd


def test_marks_stand_beside_the_row_and_one_seed_shows_no_interval(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"budget": "reduced", "reproducible": True, "seeds": 1}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared, "synthetic"), tmp_path)
    text = section(lookup.table(declared, tmp_path))
    assert f"reduced budget: 8 epochs synthetic data {dpsgd.EXAMPLES} noise seeded: no guarantee" in text
    assert "(n = 1: no interval)" in text
    assert not re.search(r"\d ± \d", text)


def test_marks_that_all_rows_share_are_told_once(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.LAYER: {"budget": "reduced"}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), tmp_path)
    alone = shown(lookup.table(declared, tmp_path))
    assert (alone.count(dpsgd.EXAMPLES), "All rows: " in alone) == (1, False)
    dpsgd.put(dpsgd.record(dpsgd.LAYER, declared), tmp_path)
    both = shown(lookup.table(declared, tmp_path))
    assert both.count(f"All rows: {dpsgd.EXAMPLES}.") == both.count(dpsgd.EXAMPLES) == 1
    assert dpsgd.BUDGET in both
    assert "reduced budget: 8 epochs" in both


def test_rows_that_fail_for_the_same_reason_are_named_together(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{key: {"reproducible": True} for key in (dpsgd.PLAIN, dpsgd.LAYER)})
    for key in (dpsgd.PLAIN, dpsgd.LAYER, dpsgd.LITERAL):
        dpsgd.put(dpsgd.record(key, declared), tmp_path)
    alike = [rows for rows, _ in alarms(lookup.table(declared, tmp_path))]
    levels = ", ".join(f"ε = {epsilon}" for epsilon in ("7", "3", "1", "0.5", "0.1", "0.05"))
    assert alike == [
        [f"{dpsgd.PLAIN} ({levels})", f"{dpsgd.LAYER} ({levels})"],
        [f"{dpsgd.LITERAL} ({levels})"],
    ]
