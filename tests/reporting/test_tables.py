"""What the committed tables, which `test_committed.py` compares, have no case of."""

from pathlib import Path

from pipeline.reporting.prose.remarks import alarms
from pipeline.reporting.results import TableResult
from pipeline.reporting.tables.reading import escaped, latex, wide
from tests.reporting import lookup
from tests.reporting.lookup import markdown
from tests.reporting.made_up import dpsgd


def test_marks_stand_beside_the_row_and_one_seed_shows_no_interval(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"budget": "reduced", "reproducible": True, "seeds": 1}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared, "synthetic"), tmp_path)
    table = lookup.table(declared, tmp_path)
    text = markdown(table)
    assert (
        f"[reduced budget: 8 epochs] [synthetic data] [{dpsgd.EXAMPLES}] [noise seeded: no guarantee]" in text
    )
    assert "(n = 1: no interval)" in text
    assert "±" not in str(wide(table).iloc[1]["3"])


def test_marks_that_all_rows_share_are_told_once(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.LAYER: {"budget": "reduced"}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), tmp_path)
    alone = markdown(lookup.table(declared, tmp_path))
    assert (alone.count(f"[{dpsgd.EXAMPLES}]"), "All rows: " in alone) == (1, False)
    dpsgd.put(dpsgd.record(dpsgd.LAYER, declared), tmp_path)
    both = markdown(lookup.table(declared, tmp_path))
    assert both.count(f"All rows: {dpsgd.EXAMPLES}.") == both.count(dpsgd.EXAMPLES) == 1
    assert f"[{dpsgd.BUDGET}]" in both
    assert "[reduced budget: 8 epochs]" in both


def test_rows_that_fail_for_the_same_reason_are_named_together(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{key: {"reproducible": True} for key in (dpsgd.PLAIN, dpsgd.LAYER)})
    for key in (dpsgd.PLAIN, dpsgd.LAYER, dpsgd.LITERAL):
        dpsgd.put(dpsgd.record(key, declared), tmp_path)
    alike = [rows for rows, _ in alarms(lookup.table(declared, tmp_path))]
    assert alike == [[dpsgd.PLAIN, dpsgd.LAYER], [dpsgd.LITERAL]]


def test_latex_is_a_tabular_of_escaped_text(table: TableResult) -> None:
    text = latex(table)
    for expected in (r"\begin{tabular}", r"\textbf{", r"; $\varepsilon$ 3 / 2.76 / –"):
        assert expected in text
    assert not set("εδ∞±−≤") & set(text)
    said = r"\textbf{5\%} of S\textasciicircum{}2 \textasciitilde{} a\_b\textbackslash{}"
    assert escaped("**5%** of S^2 ~ a_b\\") == said
