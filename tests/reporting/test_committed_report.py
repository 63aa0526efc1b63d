"""The committed report is what the code makes of the committed records; `make report` writes it anew."""

import re
from pathlib import Path

import pytest

from dprepro.pipeline.params import load
from dprepro.pipeline.reporting import report
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.results import records
from tests.there import there

ROOT = Path(__file__).parents[2]


def test_every_page_and_every_file_is_what_the_records_say(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, str] = {}
    monkeypatch.setattr(report, "_put", lambda files, folder: made.update(files))
    report.write(load(ROOT / "params.yaml"), ROOT)
    names = {name for name in made if not name.startswith("metrics/")}
    assert len(names) == 8 + 4
    folder = ROOT / report.REPORTS
    there = {f"metrics/{path.name}" for path in (folder / "metrics").iterdir()} | names
    assert made.keys() == there
    assert [name for name in made if made[name] != (folder / name).read_text(encoding="utf-8")] == []


def test_what_is_said_to_move_a_value_was_tried(papers_here: list[PaperResult]) -> None:
    causes = 0
    for table in (table for paper in papers_here for table in paper.tables):
        ran = {row.declared.label for row in table.rows if row.record is not None}
        for line in table.table.lines:
            told = line.differs or ""
            if re.search(r"\b(moves? it|size matters)\b", told):
                tried = {f"{line.label}, {name}" for name in re.findall(r"row '([^']+)'", told)}
                assert tried, f"{line.label}: {told}"
                assert tried <= ran, f"{line.label}: {told}"
                causes += 1
    assert causes >= 2


@pytest.mark.parametrize(("name", "epochs"), [("davody-t2-lenet5", 2), ("davody-t2-lenet5-longer", 6)])
def test_without_normalisation_no_search_left_chance_under_strong_noise(name: str, epochs: int) -> None:
    """As a finding on Table 2 says."""
    declared = load(ROOT / "params.yaml").searches[name]
    search = there(records.read_search(name, ROOT))
    reached = [max(each.validation_accuracy) for each in search.candidates if each.level == "sigma=1"]
    assert declared.settings["epochs"] == epochs
    assert len(reached) == 5
    assert max(reached) < 1.5 / 10
