"""What a report draws anew and what it leaves as it is, and figures of the same bytes on every machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.files import write_json
from pipeline.params import Settings
from pipeline.reporting import budgets, kept, report
from pipeline.reporting.drawing import levels
from pipeline.reporting.gather import gather
from pipeline.reporting.results import TableResult
from pipeline.results import records
from tests.keeping import lay_papers
from tests.reporting.made_up import dpsgd

# a row of a second paper, which shares nothing with the first but the folder
OTHER = {dpsgd.LAYER: {"paper": "mine", "table": "first", "label": "idea"}}
DRAW = """
import sys
from pipeline.reporting.drawing.style import svg

def draw(figure):
    for axes in figure.subplots(1, 2):
        axes.plot([1, 2, 3], [1, 4, 7 / 3], "o-", label="line")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center")

print(svg("figure", (6 + float(sys.argv[1]), 3), draw))
"""


@pytest.fixture
def declared(tmp_path: Path) -> Settings:
    """Two papers with all rows run, and their report written."""
    lay_papers(tmp_path)
    declared = dpsgd.settings(**OTHER)
    for key in dpsgd.ACCURACY:
        dpsgd.put(dpsgd.record(key, declared), tmp_path)
    report.write(declared, tmp_path)
    return declared


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    """By name the bytes of what a report writes, and when they were written."""
    folder = root / report.REPORTS
    written = [
        folder / name for name in ("README.md", "index.html", "results.html", "ledger.html", "summary.csv")
    ]
    written += [path for name in ("papers", "tables", "figures") for path in (folder / name).rglob("*.*")]
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in written
    }


def source(declared: Settings, root: Path) -> str:
    """The digest of all that the second paper's table is drawn from."""
    return kept.Kept(declared, root).of_table(gather(declared, root)[1].tables[0])


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
    tmp_path: Path,
    declared: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    before, tables, draw = contents(tmp_path), list[str](), levels.draw

    def noting(table: TableResult) -> str | None:
        tables.append(table.name)
        return draw(table)

    monkeypatch.setattr(levels, "draw", noting)
    dpsgd.put(dpsgd.record(dpsgd.LAYER, declared, shift=-2.0), tmp_path)
    report.write(declared, tmp_path)
    after = contents(tmp_path)
    assert tables == ["mine-first"]
    assert {name for name in after if after[name] != before[name]} == {
        *(f"tables/mine-first.{suffix}" for suffix in ("md", "csv", "tex")),
        "figures/mine-first.svg",
        f"figures/{dpsgd.LAYER}-curves.svg",
        "papers/mine.html",
        "index.html",
        "results.html",
        "summary.csv",
        "figures/accuracy-privacy.svg",
    }
    # and is as whoever has never drawn anything draws it
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    lay_papers(elsewhere)
    for key in dpsgd.ACCURACY:
        dpsgd.put(dpsgd.record(key, declared, shift=-2.0 if key == dpsgd.LAYER else 0.0), elsewhere)
    report.write(declared, elsewhere)
    assert {name: text for name, (text, _) in contents(elsewhere).items()} == {
        name: text for name, (text, _) in after.items()
    }


def test_nothing_is_shown_of_what_was_changed_or_lost_since(tmp_path: Path, declared: Settings) -> None:
    """Pages that somebody touched are made whole, and drawings that were damaged are drawn anew."""
    before = contents(tmp_path)
    (tmp_path / "reports/papers/mine.html").write_text("mine")
    (tmp_path / "reports/figures/mine-first.svg").unlink()
    for path in (tmp_path / kept.FOLDER).iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    report.write(declared, tmp_path)
    assert {name: text for name, (text, _) in contents(tmp_path).items()} == {
        name: text for name, (text, _) in before.items()
    }


@pytest.mark.parametrize("place", kept.RECORDS[:3], ids=["run", "evaluation", "ledger"])
def test_whatever_a_table_is_drawn_from_moves_its_digest(
    tmp_path: Path, declared: Settings, place: Callable[[str, Path], Path]
) -> None:
    before = source(declared, tmp_path)
    assert source(declared, tmp_path) == before
    path = place(dpsgd.LAYER, tmp_path)
    path.write_text(path.read_text() + "\n")
    assert source(declared, tmp_path) != before


def test_so_do_settings_marks_curves_and_code(
    tmp_path: Path, declared: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [source(declared, tmp_path)]
    sources.append(
        source(dpsgd.settings(**{dpsgd.LAYER: {**OTHER[dpsgd.LAYER], "label": "thought"}}), tmp_path)
    )
    sources.append(source(dpsgd.settings(**{dpsgd.LAYER: {**OTHER[dpsgd.LAYER], "seeds": 2}}), tmp_path))
    write_json(tmp_path / budgets.GPU_HOURS, {dpsgd.LAYER: 2.0})
    sources.append(source(declared, tmp_path))
    dpsgd.write_history(dpsgd.LAYER, tmp_path, [("epsilon=1", 0, 54, 1, "validation_accuracy", 0.5)])
    sources.append(source(declared, tmp_path))
    records.audit_path(dpsgd.LAYER, tmp_path).unlink(missing_ok=True)
    monkeypatch.setattr(kept, "LIBRARIES", ("jinja2",))
    sources.append(source(declared, tmp_path))
    monkeypatch.setattr(kept, "_bytes_of", lambda package: "other code")
    sources.append(source(declared, tmp_path))
    assert len(set(sources)) == len(sources)
