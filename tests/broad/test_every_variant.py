"""Rows of `params.yaml` beside this file: what they show; and all of them, from raw files to the report."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from dprepro.pipeline.data import fetch, prepare, prepared
from dprepro.pipeline.ledgers.rows import account, row_ledgers
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.models.model import architectures
from dprepro.pipeline.params import Settings, load, papers
from dprepro.pipeline.pretrained import relevance, starts
from dprepro.pipeline.reporting import report
from dprepro.pipeline.reporting.table import read_sources
from dprepro.pipeline.results import records
from dprepro.pipeline.tracking import publishing
from dprepro.pipeline.tracking.runs import runs
from dprepro.pipeline.training import evaluation, rows

PARAMS = Path(__file__).with_name("params.yaml")


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load(PARAMS)


def test_rows_show_every_table_method_and_normalisation(settings: Settings) -> None:
    rows = settings.rows.values()
    assert set(papers.load("davody2020").tables) <= {row.table for row in rows}
    assert {row.method for row in rows} == set(method_settings())
    for method, settings_type in method_settings().items():
        shown = {row.model.normalization for row in rows if row.method == method}
        assert shown - {"group"} == set(settings_type.normalizations) - {"group"}
    # of own data; tests/data/test_own_tables.py and tests/data/test_trunk.py train them
    of_own = {"logistic", "mlp", "pretrained"}
    assert {row.model.name for row in rows} | of_own == architectures().keys()
    assert settings.accounts


@pytest.mark.parametrize("method", ["adlm", "batch_clipping", "ilm", "tan"])
def test_rows_show_every_choice(method: str, settings: Settings) -> None:
    """Every word that a setting knows, and of the other settings one value that isn't the default."""
    shown = [level for row in settings.rows.values() if row.method == method for level in row.resolved]
    # of every method; tests/methods/test_settings.py has the schedules
    every_method = {"schedule", "epochs", "learning_rate", "warmup", "milestones", "gamma"}
    # which take no other way through the code, or tests of tests/methods do (allocated batches, DP-SGD)
    plain_numbers = {"delta", "participations", "class_weights"}
    for name, field in method_settings()[method].model_fields.items():
        values = {getattr(configured, name) for configured in shown}
        if name in every_method | plain_numbers:
            continue
        if get_origin(field.annotation) is Literal:
            # no paper allocates its batches; tests/methods/test_allocated_batches.py does
            elsewhere = {"allocation"} if name == "sampling" else set()
            assert values | elsewhere == set(get_args(field.annotation)), name
        else:
            assert values - {field.default}, name


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
        trained = rows.train(key, settings, data, cpu, lambda _: None, 60.0)
        assert trained == len(settings.rows[key].levels) * settings.rows[key].seeds, key
        evaluation.evaluate(key, settings, data, cpu)
        row_ledgers(key, settings)
    for key in settings.accounts:
        account(key, settings)
    for key, line in settings.lines.items():
        record = records.read(key, line)
        assert record is not None, key
        assert all(0 <= training.metrics.get("test_accuracy", 0) <= 1 for training in record.trainings), key
    written = report.write(settings)
    pages = {page.stem: page.read_text() for page in written.parent.rglob("*.html")}
    assert settings.lines.keys() <= pages.keys()
    assert [name for name, page in pages.items() if "<table" not in page] == []
    found = list(runs(read_sources(settings)))
    publishing.publish(found)
    assert {run.tags["row"] for run in found} == settings.lines.keys()


def _join(settings: Settings, name: str) -> None:
    """What comes with prepared data of `starts` and `relevances`, made where it isn't there yet."""
    if (prepared.PREPARED / name).exists():
        return
    make = starts.make_start if name in settings.starts else relevance.make_relevance
    make(name, settings)
