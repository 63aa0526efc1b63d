"""What a report draws anew and what it leaves as it is, and figures of the same bytes on every machine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.files import write_json
from pipeline.params import Settings
from pipeline.reporting import kept, report
from pipeline.reporting.drawing import levels
from pipeline.reporting.gather import gather
from pipeline.reporting.results import TableResult
from pipeline.results import records
from tests.keeping import keep, lay_papers
from tests.reporting.made_up import dpsgd

# a row of a second paper, which shares nothing with the first but the folder
OTHER = {"paper": "mine", "table": "first", "label": "idea"}
DRAW = """
import sys
from pipeline.reporting.drawing.style import svg

def draw(figure):
    for axes in figure.subplots(1, 2):
        axes.plot([1, 2, 3], [1, 4, 7 / 3], "o-", label="line")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center")

print(svg("figure", (6 + float(sys.argv[1]), 3), draw))
"""


def reported(root: Path, shift: float = 0.0) -> Settings:
    """Two papers with all rows run, the second's ``shift``ed, and their report written."""
    lay_papers(root)
    declared = dpsgd.settings(**{dpsgd.LAYER: OTHER})
    for key in dpsgd.ACCURACY:
        dpsgd.put(dpsgd.record(key, declared, shift=shift if key == dpsgd.LAYER else 0.0), root)
    report.write(declared, root)
    return declared


def contents(root: Path) -> dict[str, bytes]:
    """By name the bytes of what a report writes."""
    folder = root / report.REPORTS
    names = ["README.md", "index.html", "results.html", "ledger.html", "summary.csv"]
    written = [path for name in ("papers", "tables", "figures") for path in (folder / name).rglob("*.*")]
    written += [folder / name for name in names]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in written}


def test_another_process_on_another_machine_draws_the_same_bytes() -> None:
    """Of which the last bits of coordinates differ, of which matplotlib's ids are digests."""
    drawn = [
        subprocess.run(
            [sys.executable, "-c", DRAW, elsewhere],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed, elsewhere in (("1", "0"), ("2", "1e-12"))
    ]
    assert drawn[0] == drawn[1]
    assert b"clip-path=" in drawn[0]


def test_one_changed_record_draws_its_own_pages_and_what_is_over_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    declared = reported(tmp_path)
    before, tables, draw = contents(tmp_path), list[str](), levels.draw
    untouched = {path: path.stat().st_mtime_ns for path in (tmp_path / report.REPORTS / "tables").iterdir()}

    def noting(table: TableResult) -> str | None:
        tables.append(table.name)
        return draw(table)

    monkeypatch.setattr(levels, "draw", noting)
    dpsgd.put(dpsgd.record(dpsgd.LAYER, declared, shift=-2.0), tmp_path)
    report.write(declared, tmp_path)
    after = contents(tmp_path)
    assert tables == ["mine-first"]
    moved = {name for name in after if after[name] != before[name]}
    assert moved == {
        *(f"tables/mine-first.{suffix}" for suffix in ("md", "csv", "tex")),
        "figures/mine-first.svg",
        f"figures/{dpsgd.LAYER}-curves.svg",
        "papers/mine.html",
        "index.html",
        "results.html",
        "summary.csv",
        "figures/accuracy-privacy.svg",
    }
    assert all(
        (path.stat().st_mtime_ns != when) == (f"tables/{path.name}" in moved)
        for path, when in untouched.items()
    )
    # and is as whoever has never drawn anything draws it
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    reported(elsewhere, shift=-2.0)
    assert contents(elsewhere) == after
    # pages that somebody touched since are made whole, and drawings that were damaged are drawn anew
    (tmp_path / "reports/papers/mine.html").write_text("mine")
    (tmp_path / "reports/figures/mine-first.svg").unlink()
    for path in (tmp_path / kept.FOLDER).iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    report.write(declared, tmp_path)
    assert contents(tmp_path) == after


def test_whatever_a_table_is_drawn_from_moves_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings, what was run, measured and accounted, a row's cost, curves and code."""
    sources: list[str] = []

    def note(**changes: Any) -> None:
        declared = dpsgd.settings(**{dpsgd.LAYER: OTHER | changes})
        sources.append(kept.Kept(tmp_path).of_table(gather(declared, tmp_path)[1].tables[0]))

    declared = dpsgd.settings(**{dpsgd.LAYER: OTHER})
    dpsgd.put(dpsgd.record(dpsgd.PLAIN, declared), tmp_path)
    layer = dpsgd.put(dpsgd.record(dpsgd.LAYER, declared), tmp_path)
    note()
    note()
    assert sources.pop() == sources[0]
    note(label="thought")
    note(seeds=2)
    for changed in (
        {"seconds": 99.0},
        {"metrics": {"test_accuracy": 0.5, "validation_accuracy": 0.5}},
        {"ledger": dpsgd.ledger(epsilon_upper=0.5)},
    ):
        keep(dpsgd.altered(layer, **changed), tmp_path)
        note()
    write_json(tmp_path / records.GPU_HOURS, {dpsgd.LAYER: 2.0})
    note()
    dpsgd.write_history(dpsgd.LAYER, tmp_path, [("epsilon=1", 0, 54, 1, "validation_accuracy", 0.5)])
    note()
    monkeypatch.setattr(kept, "LIBRARIES", ("jinja2",))
    note()
    monkeypatch.setattr(kept, "_bytes_of", lambda package: "other code")
    note()
    assert len(set(sources)) == len(sources)
