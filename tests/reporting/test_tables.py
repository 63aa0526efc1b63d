import re
from pathlib import Path

import pandas as pd

from pipeline.reporting.results import TableResult
from pipeline.reporting.tables.latex import latex
from pipeline.reporting.tables.reading import wide
from pipeline.reporting.tables.remarks import reasons
from tests.reporting import lookup
from tests.reporting.lookup import markdown
from tests.reporting.made_up import dpsgd


def test_markdown_has_the_paper_ours_and_the_privacy_one_below_the_other(table: TableResult) -> None:
    lines = markdown(table).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("| DPSGD (LN-LeNet-5) | paper"))
    paper, ours = (lines[start + offset].split(" | ") for offset in range(2))
    assert paper[5] == "96.68"
    assert ours[1] == f"ours: {dpsgd.LAYER}, N = 55,000 [{dpsgd.BUDGET}] [{dpsgd.EXAMPLES}]"
    assert re.fullmatch(r"\*\*96\.6\d ± 0\.\d\d \(n = 3\)\*\* agrees; ε 1 / 0\.92 / –", ours[5])
    assert ours[2].endswith("; no privacy")


def test_variants_stand_apart_and_rows_that_never_ran_in_one_line_below(table: TableResult) -> None:
    text = markdown(table)
    deciding, _, others = text.partition("What decides nothing")
    assert dpsgd.LAYER in deciding
    assert dpsgd.LAYER not in others
    for variant in (dpsgd.PUBLIC, dpsgd.LITERAL):
        assert f"ours: {variant}" not in deciding
        assert f"ours: {variant}, " in others
    assert "**" not in others.partition("\n- ")[0]
    assert f"Not run: {dpsgd.MISSING} (to be trained)." in others.splitlines()
    # and below it what does not hold, and why
    assert text.count("DOES NOT HOLD") == 6 + 1
    assert f"- {dpsgd.LITERAL}: **DOES NOT HOLD** {dpsgd.REASON}" in text


def test_marks_stand_beside_the_row_and_one_seed_shows_no_interval(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"budget": "reduced", "reproducible": True, "seeds": 1}})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared, "synthetic"), tmp_path)
    text = markdown(lookup.table(declared, tmp_path))
    assert (
        f"[reduced budget: 8 epochs] [synthetic data] [{dpsgd.EXAMPLES}] [noise seeded: no guarantee]" in text
    )
    assert "(n = 1: no interval)" in text
    assert "±" not in str(wide(lookup.table(declared, tmp_path)).iloc[1]["3"])


def test_rows_that_fail_for_the_same_reason_are_named_together(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{key: {"reproducible": True} for key in (dpsgd.PLAIN, dpsgd.LAYER)})
    for key in (dpsgd.PLAIN, dpsgd.LAYER, dpsgd.LITERAL):
        dpsgd.put(dpsgd.record(key, declared), tmp_path)
    alike = [rows for rows, _ in reasons(lookup.table(declared, tmp_path))]
    assert alike == [[dpsgd.PLAIN, dpsgd.LAYER], [dpsgd.LITERAL]]


def test_csv_carries_the_ledger_and_where_numbers_come_from(table: TableResult) -> None:
    frame = lookup.csv(table)
    assert len(frame) == 5 * 7
    public = frame.loc[(dpsgd.PUBLIC, "epsilon=1")]
    expected = {
        "claimed": 1.0, "proven": 0.92, "delta": 1e-5, "steps": 400, "privacy": "holds",
        "accountant": "pld (dp-accounting 0.6.0)", "unit": "one training example",
        "neighbouring": "add or remove one", "budget": "own", "examples": 55000, "seeds": 3,
        "accountants": "prv (opacus 1.5.4): none (PRV failed: no luck)",
    }  # fmt: skip
    assert {column: public[column] for column in expected} == expected
    broken = frame.loc[(dpsgd.LITERAL, "epsilon=1")]
    assert (broken["privacy"], broken["why"]) == ("DOES NOT HOLD", dpsgd.REASON)
    assert pd.isna(broken["proven"])
    assert set(frame.loc[dpsgd.MISSING, "status"]) == {"not run"}


def test_latex_is_a_tabular_of_escaped_text(table: TableResult) -> None:
    text = latex(table)
    for expected in (r"\begin{tabular}", r"\textbf{", r"; $\varepsilon$ 3 / 2.76 / –"):
        assert expected in text
    assert not set("εδ∞±−≤") & set(text)
