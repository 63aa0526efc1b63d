"""Results of other laboratories: read from their reports, drawn in the figure over all papers."""

from pathlib import Path

import pandas as pd
import pytest

from dprepro.errors import UserError
from dprepro.pipeline.identity.entries import entries
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting import pictures, report
from dprepro.pipeline.reporting.pictures import ExternalResult, external_results
from tests.reporting.made_up import dpsgd

PAPER = """
title: Another paper
authors: [A. First, B. Second]
year: 2021
tables: {t: {name: t, title: t, axis: '', columns: [], lines: []}}
"""


def named() -> Settings:
    return dpsgd.settings().model_copy(update={"beside": ("other",)})


@pytest.fixture
def summary(tmp_path: Path) -> Path:
    """A laboratory's, with a level that decides and has a bound, and others that lack one or the other."""
    path = tmp_path / "other/reports/summary.csv"
    path.parent.mkdir(parents=True)
    (tmp_path / "other/papers").mkdir()
    (tmp_path / "other/papers/second.yaml").write_text(PAPER)
    bound = {"metric": "test_accuracy", "is_primary": True, "epsilon_upper": 2.5, "privacy": "proven"}
    lines = [
        {**bound, "ours": 98.7},
        {**bound, "ours": 1.0, "is_primary": False},
        {**bound, "ours": 2.0, "epsilon_upper": "", "privacy": "no claim"},
        {**bound, "ours": 3.0, "metric": "auc"},
    ]
    common = {"paper": "second", "label": "features", "dataset": "mnist", "privacy_reason": ""}
    pd.DataFrame([common | line for line in lines]).to_csv(path, index=False)
    return path


def test_only_what_decides_and_has_a_bound_is_taken(tmp_path: Path, summary: Path) -> None:
    label = "First et al. 2021, run here"
    assert external_results(named(), tmp_path) == [ExternalResult(label, "mnist", 2.5, 98.7)]
    assert external_results(dpsgd.settings(), tmp_path) == []


def test_it_is_drawn_in_its_data_sets_panel(tmp_path: Path, summary: Path) -> None:
    table = report.gather(dpsgd.fill(tmp_path), tmp_path).table
    without = pictures.draw(table)
    picture = pictures.draw(table, external_results(named(), tmp_path))
    assert without is not None
    assert picture is not None
    assert "First et al. 2021, run here" in picture
    assert "First et al." not in without
    elsewhere = [ExternalResult("of another data set", "mnist-of-my-hospital", 1.0, 50.0)]
    assert pictures.draw(table, elsewhere) == without


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"a,b\n1,2\n",
        b"metric,is_primary,epsilon_upper,privacy,ours,paper\ntest_accuracy,True,x,,90,second\n",
        b"caf\xe9\n",
    ],
)
def test_what_is_no_summary_is_one_line(tmp_path: Path, summary: Path, content: bytes | None) -> None:
    if content is None:
        summary.unlink()
    else:
        summary.write_bytes(content)
    with pytest.raises(UserError, match=r"summary\.csv: .*dprepro report"):
        external_results(named(), tmp_path)


def test_a_new_report_there_moves_the_reports_digest_here(
    tmp_path: Path, summary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = entries(named())
    summary.write_text(summary.read_text().replace("98.7", "97.7"))
    after = entries(named())
    assert {stage for stage in before if before[stage] != after[stage]} == {"report"}
