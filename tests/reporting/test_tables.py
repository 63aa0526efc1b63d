import re
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

from pipeline.reporting.gather import gather
from pipeline.reporting.report import Report
from pipeline.reporting.results import TableResult
from pipeline.reporting.tables import flat
from pipeline.reporting.tables.latex import latex
from pipeline.reporting.tables.reading import wide
from pipeline.reporting.tables.remarks import reasons
from tests.reporting.lookup import markdown
from tests.reporting.made_up import dpsgd


@pytest.fixture
def table(written: Report) -> TableResult:
    return written.papers[0].tables[0]


def test_markdown_has_the_paper_ours_and_the_privacy_one_below_the_other(table: TableResult) -> None:
    lines = markdown(table).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("| DPSGD (LN-LeNet-5) | paper"))
    paper, ours = (lines[start + offset].split(" | ") for offset in range(2))
    assert paper[5] == "96.68"
    assert ours[1] == f"ours: {dpsgd.LAYER}, N = 55,000 [{dpsgd.BUDGET}] [{dpsgd.EXAMPLES}]"
    assert re.fullmatch(r"\*\*96\.6\d ± 0\.\d\d \(n = 3\)\*\* agrees; ε 1 / 0\.92 / –", ours[5])
    assert ours[2].endswith("; no privacy")


def test_markdown_says_what_does_not_hold_and_why(table: TableResult) -> None:
    text = markdown(table)
    assert text.count("DOES NOT HOLD") == 6 + 1
    assert f"- {dpsgd.LITERAL}: **DOES NOT HOLD** {dpsgd.REASON}" in text


def test_variants_stand_apart_and_rows_that_never_ran_in_one_line_below(table: TableResult) -> None:
    deciding, _, others = markdown(table).partition("What decides nothing")
    assert dpsgd.LAYER in deciding
    assert dpsgd.LAYER not in others
    for variant in (dpsgd.PUBLIC, dpsgd.LITERAL):
        assert f"ours: {variant}" not in deciding
        assert f"ours: {variant}, " in others
    assert "**" not in others.partition("\n- ")[0]
    assert f"Not run: {dpsgd.MISSING} (to be trained)." in others.splitlines()


def test_marks_stand_beside_the_row(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"budget": "reduced", "reproducible": True}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared, "synthetic"), tmp_path)
    text = markdown(gather(declared, tmp_path)[0].tables[0])
    assert (
        f"[reduced budget: 8 epochs] [synthetic data] [{dpsgd.EXAMPLES}] [noise seeded: no guarantee]" in text
    )


def test_rows_that_fail_for_the_same_reason_are_named_together(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{key: {"reproducible": True} for key in (dpsgd.PLAIN, dpsgd.LAYER)})
    for key in (dpsgd.PLAIN, dpsgd.LAYER, dpsgd.LITERAL):
        dpsgd.put(dpsgd.record(key, declared), tmp_path)
    found = reasons(gather(declared, tmp_path)[0].tables[0])
    assert [rows for rows, _ in found] == [[dpsgd.PLAIN, dpsgd.LAYER], [dpsgd.LITERAL]]


def test_one_seed_shows_no_interval(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"seeds": 1}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), tmp_path)
    line = wide(gather(declared, tmp_path)[0].tables[0]).iloc[1]
    assert "±" not in line["3"]
    assert "(n = 1: no interval)" in line["3"]


def test_csv_carries_the_ledger_and_where_numbers_come_from(table: TableResult) -> None:
    frame = pd.read_csv(StringIO(flat.csv(flat.of_table(table)))).set_index(["row", "level"])
    assert len(frame) == 5 * 7
    one = frame.loc[(dpsgd.PUBLIC, "epsilon=1")]
    assert (one["claimed"], one["proven"], one["delta"], one["steps"]) == (1.0, 0.92, 1e-5, 400)
    assert (one["privacy"], one["accountant"]) == ("holds", "pld (dp-accounting 0.6.0)")
    assert (one["unit"], one["neighbouring"]) == ("one training example", "add or remove one")
    assert one["accountants"] == "prv (opacus 1.5.4): none (PRV failed: no luck)"
    assert (one["budget"], one["examples"], one["seeds"]) == ("own", 55000, 3)
    broken = frame.loc[(dpsgd.LITERAL, "epsilon=1")]
    assert (broken["privacy"], broken["why"]) == ("DOES NOT HOLD", dpsgd.REASON)
    assert pd.isna(broken["proven"])
    assert set(frame.loc[dpsgd.MISSING, "status"]) == {"not run"}


def test_latex_is_a_tabular_of_escaped_text(table: TableResult) -> None:
    text = latex(table)
    assert r"\begin{tabular}" in text
    assert r"\textbf{" in text
    assert r"; $\varepsilon$ 3 / 2.76 / –" in text
    assert not set("εδ∞±−≤") & set(text)
