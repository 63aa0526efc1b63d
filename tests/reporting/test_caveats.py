"""How much of the paper's training a row has, and what else a reader must know."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dprepro.pipeline.params import load
from dprepro.pipeline.params.papers import Table
from dprepro.pipeline.reporting import table
from dprepro.pipeline.reporting.views import Grid
from dprepro.pipeline.results import records
from tests.reporting.made_up import dpsgd

ROOT = Path(__file__).parents[2]
SILENT = Table(name="t", title="t", axis="", columns=[])
TOLD = SILENT.model_copy(update={"budget": {"epochs": 25}})


def test_where_the_paper_gives_no_budget_ours_is_our_own() -> None:
    row = dpsgd.settings().rows[dpsgd.PLAIN]
    assert table.training_length(row, SILENT) == "own"
    assert table.training_length(row, TOLD) == "full"
    assert table.training_length(row, SILENT.model_copy(update={"own": True})) == "full"


def test_a_planned_row_says_if_no_commit_shows_that_its_plan_came_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings, key = load(ROOT / "params.yaml"), "davody-t5-ln-lenet5-planned"
    row, run = settings.rows[key], records.read_run(key, ROOT)
    record = records.read(key, row, ROOT)
    assert run is not None
    assert record is not None

    def marks() -> list[str]:
        return [caveat.words for caveat in table.stale_caveats(record, row, settings, ROOT)]

    unshown = ["no commit of params.yaml is recorded; git can't show that the plan came first"]
    monkeypatch.setattr(table, "_is_lost", lambda revision: False)
    monkeypatch.chdir(ROOT)
    assert marks() == []
    monkeypatch.chdir(tmp_path)  # a laboratory, whose commits no run records
    assert marks() == unshown
    monkeypatch.chdir(ROOT)
    unknown = run.trainings[0].origin.model_copy(update={"revision": None})
    trainings = tuple(each.model_copy(update={"origin": unknown}) for each in run.trainings)
    monkeypatch.setattr(records, "read_run", lambda *_: run.model_copy(update={"trainings": trainings}))
    assert marks() == unshown


@pytest.mark.parametrize("edition", ["digits", "synthetic"])
def test_data_that_stand_in_for_the_papers_are_compared_with_nothing_and_named(edition: str) -> None:
    (caveat,) = (
        each
        for each in table.record_caveats(dpsgd.record(dpsgd.PLAIN, dpsgd.settings(), edition), SILENT)
        if each.incomparable
    )
    assert caveat.words == table.STAND_INS[edition]
    line = {"epochs": 20.0, "examples": 1200, "training": "paper silent", "not_judged_reason": caveat.words}
    cell: Any = SimpleNamespace(ran=True, line=line)
    grid = Grid("t", TOLD.model_copy(update={"examples": 60000}), (), (), (("DP-SGD", (cell,)),), ())
    assert grid.training == f"our training is on {caveat.words}: 20 epochs, 1,200 examples"
