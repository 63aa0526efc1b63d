from pathlib import Path

import pytest

from pipeline.data import fetch, prepare
from pipeline.data.prepared import SPLITS
from pipeline.settings import Settings, load

DEMO = Path(__file__).parents[1] / "demo"


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load(DEMO / "params.yaml")


def test_rows_repeat_and_say_that_they_are_made_up(settings: Settings) -> None:
    assert settings.source.kind == "synthetic"
    assert all(row.reproducible for row in settings.rows.values())


def test_rows_show_every_line_of_table_5(settings: Settings) -> None:
    shown = {row.model.normalization for row in settings.rows.values()}
    assert shown == {"none", "layer", "batch_bn", "public_bn"}
    assert all({level.private for level in row.resolved} == {True, False} for row in settings.rows.values())


def test_data_can_be_prepared(settings: Settings, tmp_path: Path) -> None:
    for name in settings.raw:
        fetch.fetch(name, settings, tmp_path)
    for name, data in settings.data.items():
        counts = prepare.prepare(name, settings, tmp_path).manifest["counts"]
        assert counts == {
            "train": data.train,
            "validation": data.validation,
            "test": settings.raw[data.raw].test,
            "public": data.public.count,
        }
        assert set(counts) == set(SPLITS)
