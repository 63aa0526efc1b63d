"""What stands and what there is to do, in few lines: of records that are there, lack parts or changed."""

from pathlib import Path
from typing import Any

import pytest

from pipeline import params
from pipeline.identity.plan import plan
from pipeline.identity.status import lines, status
from pipeline.params import Settings
from pipeline.results import records
from tests.reporting.made_up import dpsgd

ROOT = Path(__file__).parents[2]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    dpsgd.fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    return dpsgd.settings()


def test_each_row_is_in_one_place(settings: Settings) -> None:
    changes: dict[str, Any] = {
        dpsgd.PUBLIC: {"needs": "gpu", "seeds": 9},
        dpsgd.LITERAL: {"reproducible": True},
    }
    declared = dpsgd.settings(**changes)
    records.evaluation_path(dpsgd.LAYER).unlink()
    found = status(declared, gpu=False)
    assert dpsgd.PLAIN in found.stand
    assert found.waiting == (dpsgd.PUBLIC,)
    assert found.untrained == (dpsgd.MISSING,)
    assert found.changed == {"settings": (dpsgd.LITERAL,)}
    assert found.unmeasured == (dpsgd.LAYER,)
    told = list(lines(found))
    assert told[0] == "1 rows stand"
    assert f"1 wait for a GPU: {dpsgd.PUBLIC}" in told
    assert f"1 changed (settings): {dpsgd.LITERAL}" in told


def test_the_laboratorys_own_is_told_in_twenty_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of it, and what training is planned for is in it as `dprepro plan` has it."""
    monkeypatch.chdir(ROOT)
    declared = params.load()
    found = status(declared, gpu=False)
    assert len(list(lines(found))) <= 19  # and one that says what does it
    assert all(len(line) < 300 for line in lines(found))
    todo = {*found.waiting, *found.untrained, *(key for keys in found.changed.values() for key in keys)}
    assert todo == {each.row for each in plan(declared, gpu=False)}
    assert todo | {*found.stand, *found.unmeasured, *found.unaccounted} == declared.rows.keys()
