"""Pages and files of the report."""

import re
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from dprepro.pipeline.ledgers.sentences import upwards
from dprepro.pipeline.params import load
from dprepro.pipeline.reporting import report, verdict
from dprepro.pipeline.reporting.views import SIGNS
from tests.reporting.made_up import dpsgd
from tests.reporting.markup import check, words

ROOT = Path(__file__).parents[2]
STATUSES = {
    word
    for kind in (verdict.Value, verdict.Effect, verdict.Privacy, verdict.Claim)
    for word in get_args(kind)
}
# Words of earlier status systems, which no page has.
GONE = re.compile(
    r"\b(inconclusive|not judged|agrees|undecided|waits for a GPU|voids ε|weakens ε|vacuous|refuted)\b"
)


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Files of this laboratory's report, by path."""
    files: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_put", files.update)
        patch.chdir(ROOT)
        report.write(load())
    return files


def test_every_committed_file_is_what_the_records_say(made: dict[str, str]) -> None:
    committed = {name for name in made if not name.endswith(".html")}
    folder = ROOT / report.REPORTS
    there = {
        path.relative_to(folder).as_posix() for path in (*folder.glob("metrics/*"), *folder.glob("*.md"))
    }
    assert there <= committed
    assert [name for name in committed if made[name] != (folder / name).read_text(encoding="utf-8")] == []


def test_all_pages_have_at_most_18_status_words_and_each_at_most_10(made: dict[str, str]) -> None:
    assert len(STATUSES) == 18
    assert set(SIGNS) == STATUSES
    every = set()
    for name, page in made.items():
        if name.endswith(".html"):
            used = set(re.findall(r'class="status">([^<]+)<', page))
            assert used <= STATUSES, name
            assert len(used) <= 10, name
            every |= used
            text = words(re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL))
            assert not GONE.search(text), (name, GONE.search(text))
    assert len(every) > 10


def test_markdown_pages_have_each_proven_epsilon_and_the_rows_that_claims_compare(
    made: dict[str, str],
) -> None:
    table = pd.read_csv(ROOT / "reports/summary.csv")
    shown = table[table["is_primary"] & (table["privacy"] == "proven")]
    missing = [
        (line.row, line.level)
        for line in shown.itertuples()
        if f"{line.level}: ε ≤ {upwards(line.epsilon_upper)}" not in made[f"{line.paper}.md"]
    ]
    assert len(shown) > 50
    assert missing == []
    page = made["davody2020.md"]
    assert re.search(
        r"DPSGD \(LeNet-5\), ε = 7: [^<]*rows \S+-literal-planned and \S+-lenet5-equal-planned", page
    )
    assert re.search(r"6 confounded</summary>", page)
    assert re.search(r"✕ AdLM, ε = 0.25 \(exceeded: ε ≥ 2 ", made["phan2017.md"])


def test_every_value_that_differs_has_an_explanation_or_says_unexplained(made: dict[str, str]) -> None:
    for name, page in made.items():
        if name.startswith("papers/"):
            marked = len(re.findall(r'<br><span class="(?:higher|lower)">', page))
            explained = "".join(re.findall(r'<ul class="why">.*?</ul>', page, re.DOTALL))
            assert len(re.findall(r": [▲▼]", explained)) == marked, name


def test_every_page_loads_nothing_and_leads_somewhere_and_none_is_an_earlier_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports/rows").mkdir(parents=True)
    (old := tmp_path / "reports/rows/gone.html").write_text("")
    written = report.write(dpsgd.fill(tmp_path))
    assert not old.exists()
    for page in written.parent.rglob("*.html"):
        check(page)


def test_with_nothing_run_the_report_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = report.write(dpsgd.settings())
    assert "Nothing has been trained yet" in written.read_text()
    assert not list(tmp_path.glob("reports/figures/*"))


def test_texts_of_params_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    declared = dpsgd.settings(**{dpsgd.PLAIN: {"label": "<b>bold</b>"}})
    written = report.write(dpsgd.put_all(declared, tmp_path))
    page = (written.parent / f"rows/{dpsgd.PLAIN}.html").read_text()
    assert "<b>bold" not in page
    assert "&lt;b&gt;bold" in page


def test_first_page_lists_headlines_of_declared_rows_alone() -> None:
    here, demo = (report.gather(load(root / "params.yaml"), root) for root in (ROOT, ROOT / "demo"))
    listed = {view.key: len(view.headlines) for view in here.papers}
    assert listed == {key: len(paper.headlines) for key, paper in here.sources.papers.items()}
    assert not any(view.headlines for view in demo.papers)
    assert any(paper.headlines for paper in demo.sources.papers.values())
