"""How much of the paper's training a row has, and which rows wait for a GPU."""

from pathlib import Path
from typing import Any

import pytest

from dprepro.pipeline.params import load
from dprepro.pipeline.reporting import caveats
from dprepro.pipeline.reporting.printed import Table
from dprepro.pipeline.results import records
from tests.reporting.made_up import toys

ROOT = Path(__file__).parents[2]
TABLE = toys.paper(table={"budget": {}}).tables["t"]


def short(epochs: float) -> dict[str, Any]:
    return {"budget": "reduced", "settings": {"batch": 100, "epochs": epochs, "learning_rate": 0.1}}


def share(key: str, table: Table = TABLE, **rows: Any) -> str:
    declared = toys.settings(**rows)
    return caveats.budget_words(key, declared.rows[key], declared, table, declared.rows[key].budget)


def test_a_reduced_row_has_a_share_of_its_full_twin_or_of_what_the_paper_says() -> None:
    assert share("row-reduced", row={}, row_reduced=short(10)) == "10 epochs instead of our full row's 50"
    assert share("row-reduced", row={}, row_reduced=short(0.25)) == "0.25 epochs instead of our full row's 50"
    levels = [{"sigma": 0, "epochs": 2}, {"sigma": 1, "epochs": 6}]
    said = "2 to 6 epochs instead of our full row's 50"
    assert share("row-reduced", row={}, row_reduced=short(1) | {"levels": levels}) == said
    told = toys.paper(table={"budget": {"epochs": 25}}).tables["t"]
    assert share("row-reduced", told, row_reduced=short(5)) == "5 epochs instead of 25"
    assert share("row-reduced", row_reduced=short(5)) == "reduced budget: 5 epochs"
    assert share("row-reduced", row_reduced=short(1)) == "reduced budget: 1 epoch"


def test_where_the_paper_gives_no_budget_ours_is_said() -> None:
    assert share("row", row={"budget": "own"}) == "own budget: 50 epochs"
    told: dict[str, Any] = {"budget": {"epochs": 50}}
    silent: dict[str, Any] = {"budget": {}}
    for said, budget in ((told, "full"), (silent, "own"), ({"own": True}, "full")):
        (row,) = toys.ran({"row": None}, paper=toys.paper(table=said)).tables[0].rows
        assert (row.budget, row.counts) == (budget, True)
        assert ("own budget: 50 epochs" in [caveat.words for caveat in row.caveats]) == (budget == "own")


def test_a_row_that_needs_a_gpu_waits_for_one_until_it_is_run() -> None:
    for changes, needed in (({}, False), ({"needs": "cpu"}, False), ({"needs": "gpu"}, True)):
        (result,) = toys.ran({"row": None}, {"row": changes}).tables[0].rows
        assert result.waits is needed
        assert ("waits for a GPU" in [caveat.words for caveat in result.caveats]) is needed
    assert not toys.ran({"row": (90.0,) * 3}, {"row": {"needs": "gpu"}}).tables[0].rows[0].waits


def test_a_planned_row_says_if_no_commit_shows_that_its_plan_came_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings, key = load(ROOT / "params.yaml"), "davody-t5-ln-lenet5-planned"
    row, run = settings.rows[key], records.read_run(key, ROOT)
    record = records.read(key, row, ROOT)
    assert run is not None
    assert record is not None

    def marks() -> list[str]:
        return [caveat.words for caveat in caveats.stale_caveats(record, row, settings, ROOT)]

    unshown = ["no commit of params.yaml is recorded; git can't show that the plan came first"]
    monkeypatch.setattr(caveats, "_is_lost", lambda revision: False)
    monkeypatch.chdir(ROOT)
    assert marks() == []
    monkeypatch.chdir(tmp_path)  # a laboratory, whose commits no run records
    assert marks() == unshown
    monkeypatch.chdir(ROOT)
    origins = tuple(origin.model_copy(update={"revision": None}) for origin in run.origins)
    monkeypatch.setattr(records, "read_run", lambda *_: run.model_copy(update={"origins": origins}))
    assert marks() == unshown
