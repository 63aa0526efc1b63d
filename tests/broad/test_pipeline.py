"""Every row of ``params.yaml`` beside this file, from raw files to the report: `make test-broad`."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.data import fetch, prepare, prepared
from pipeline.ledgers import accounts
from pipeline.ledgers.rows import row_ledgers
from pipeline.methods.base import Execution
from pipeline.params import Settings, load
from pipeline.pretrained import relevance, starts
from pipeline.reporting import report
from pipeline.results import records
from pipeline.tracking import publishing
from pipeline.training import evaluation, rows

PARAMS = Path(__file__).with_name("params.yaml")


def in_order(settings: Settings) -> Iterator[str]:
    """Rows, those behind starts and relevances first."""
    starts, relevances = settings.starts.values(), settings.relevances.values()
    behind = [*(start.row for start in starts), *(relevance.row for relevance in relevances)]
    yield from dict.fromkeys([*behind, *settings.rows])


@pytest.mark.broad
def test_every_variant_from_raw_files_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Execution
) -> None:
    shutil.copyfile(PARAMS, tmp_path / "params.yaml")
    monkeypatch.chdir(tmp_path)
    settings = load()
    for name in settings.raw:
        fetch.fetch(name, settings)
    for name in settings.data:
        prepare.prepare(name, settings)
    for key in in_order(settings):
        _join(settings, settings.rows[key].data)
        data = prepared.load(settings.rows[key].data)
        done = rows.train(key, settings, data, cpu, lambda _: None, 60.0)
        assert done.trained == len(settings.rows[key].levels) * settings.rows[key].seeds, key
        evaluation.evaluate(key, settings, data, cpu)
        row_ledgers(key, settings)
    for key in settings.accounts:
        accounts.account(key, settings)
    for key, line in settings.lines.items():
        record = records.read(key, line)
        assert record is not None, key
        assert all(0 <= replica.metrics.get("test_accuracy", 0) <= 1 for replica in record.replicas), key
    written = report.write(settings)
    assert all(page.stat().st_size > 10_000 for page in (written.index, *written.pages.values()))
    with next(iter(Path("reports/histories").glob("*.csv"))).open(newline="") as file:
        assert next(csv.reader(file)) == list(records.HISTORY_COLUMNS)
    published = publishing.publish(publishing.declared(settings), settings)
    assert set(published.written) == settings.lines.keys()


def _join(settings: Settings, name: str) -> None:
    """What comes with prepared data of `starts` and `relevances`, made where it isn't there yet."""
    if (prepared.PREPARED / name).exists():
        return
    make = starts.make_start if name in settings.starts else relevance.make_relevance
    make(name, settings)
