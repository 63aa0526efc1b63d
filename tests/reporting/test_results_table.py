"""The table of results and its remarks, on a made-up laboratory with a table of a paper, and on this one."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dprepro.pipeline.params import load
from dprepro.pipeline.params.papers import Paper, Table
from dprepro.pipeline.reporting import table
from dprepro.pipeline.reporting.claims import claims
from dprepro.pipeline.reporting.effects import effects
from dprepro.pipeline.reporting.table import CELL, Sources, read_sources, results
from dprepro.pipeline.reporting.views import Grid
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Record
from tests.reporting.made_up import dpsgd

ROOT = Path(__file__).parents[2]
NOWHERE = Path("nowhere")  # has no further records
PLAIN, LAYER, BATCH = "t5/lenet5", "t5/ln-lenet5", "t5/bn-lenet5"
PRINTED = {"epsilon=3": 96.0, "epsilon=1": 90.0, "epsilon=0.5": 91.5}


def paper(**said: Any) -> Paper:
    """Table 5 with two lines, which print three levels each."""
    lines = [
        {"key": "lenet5", "label": "plain", "values": PRINTED},
        {"key": "ln-lenet5", "label": "LN", "values": {level: value + 2 for level, value in PRINTED.items()}},
        {"key": "bn-lenet5", "label": "BN", "values": {"epsilon=3": 98.0}},
    ]
    table = {
        "name": "Table 5",
        "title": "t",
        "axis": "ε",
        "columns": list(PRINTED),
        "margin": 1,
        "lines": lines,
    }
    return Paper.model_validate({"title": "Toys", "tables": {"t5": table | said.pop("table", {})}, **said})


def sources(made: Paper | None = None, records: dict[str, Record] | None = None, **changes: Any) -> Sources:
    """Sources with the rows of the example, changed as told, and their records."""
    declared = dpsgd.settings(**changes)
    kept = {key: dpsgd.record(key, declared) for key in dpsgd.ACCURACY} | (records or {})
    return Sources(declared, NOWHERE, {"davody2020": made or paper()}, kept, {})


def line(table: pd.DataFrame, row: str, level: str) -> dict[str, Any]:
    return dict(table[(table["row"] == row) & (table["level"] == level)].iloc[0])


@pytest.fixture(scope="module")
def here() -> Sources:
    """This laboratory's own sources."""
    return read_sources(load(ROOT / "params.yaml"), ROOT)


def test_a_line_has_the_mean_its_interval_and_the_difference_from_the_paper() -> None:
    made = sources()
    found = line(results(made), dpsgd.PLAIN, "epsilon=1")
    values = [
        100 * each.metrics["test_accuracy"]
        for each in made.records[dpsgd.PLAIN].trainings
        if each.level == "epsilon=1"
    ]
    assert found["ours"] == pytest.approx(sum(values) / 3)
    assert found["n"] == 3
    assert found["difference"] == pytest.approx(found["ours"] - 90)
    assert (found["status"], found["training"], found["planned"]) == ("higher", "paper silent", False)
    assert (found["epsilon_paper"], found["epsilon_upper"], found["privacy"]) == (1.0, 0.92, "proven")
    # within the margin of 1
    assert line(results(made), dpsgd.PLAIN, "epsilon=3")["status"] == "reproduced"


def test_a_reduced_row_and_one_of_other_settings_are_not_judged() -> None:
    reduced: Any = {dpsgd.PLAIN: {"budget": "reduced"}}
    table = results(sources(**reduced))
    found = line(table, dpsgd.PLAIN, "epsilon=1")
    assert (found["status"], found["not_judged_reason"]) == ("not run", "training too short")
    changed = dpsgd.record(dpsgd.PLAIN, dpsgd.settings(), edition="synthetic")
    found = line(results(sources(records={dpsgd.PLAIN: changed})), dpsgd.PLAIN, "epsilon=1")
    assert (found["status"], found["not_judged_reason"]) == ("not run", "synthetic data")


def test_a_planned_row_without_all_of_its_seeds_has_no_status(here: Sources) -> None:
    """Or a seed that was left out because of its result would decide."""
    row = "davody-t5-lenet5-planned"
    record = here.records[row]
    kept = tuple(each for each in record.trainings if (each.level, each.seed) != ("epsilon=3", 102))
    assert len(kept) == len(record.trainings) - 1
    fewer = replace(here, records={**here.records, row: record.model_copy(update={"trainings": kept})})
    table = results(fewer)
    found = line(table, row, "epsilon=3")
    assert pd.isna(found["status"])
    assert found["not_judged_reason"] == "4 of 5 declared seeds"
    assert line(table, row, "epsilon=7")["status"] == "reproduced"


def test_a_handicap_is_held_against_lower_alone() -> None:
    made = paper(table={"examples": 100_000})
    table = results(sources(made))
    assert line(table, dpsgd.PLAIN, "epsilon=1")["status"] == "higher"
    assert pd.isna(line(table, dpsgd.PLAIN, "epsilon=1")["handicap"])
    low = {dpsgd.PLAIN: dpsgd.record(dpsgd.PLAIN, dpsgd.settings(), shift=-10)}
    found = line(results(sources(made, low)), dpsgd.PLAIN, "epsilon=1")
    assert (found["status"], found["handicap"]) == ("lower", "55 % of the data")


def test_a_value_that_is_printed_twice_has_no_status() -> None:
    made = paper()
    first = made.tables["t5"].lines[0].model_copy(update={"uncounted": {"epsilon=1": "printed in Figure 1"}})
    lines = (first, *made.tables["t5"].lines[1:])
    made.tables["t5"] = made.tables["t5"].model_copy(update={"lines": lines})
    found = line(results(sources(made)), dpsgd.PLAIN, "epsilon=1")
    assert pd.isna(found["status"])
    assert found["explanation"] == "not counted: printed in Figure 1"


def test_effects_compare_lines_and_levels_and_mark_the_argued_pairs() -> None:
    made = sources(paper(table={"argues": [{"left": "ln-lenet5", "right": "lenet5"}]}))
    found = effects(results(made), made)
    argued = found[found["argued"]]
    assert list(argued["left_level"]) == list(PRINTED)
    assert set(argued["paper_difference"]) == {2.0}
    assert list(argued["difference"].round(0)) == [1.0, 3.0, 4.0]
    assert list(argued["status"]) == ["same direction"] * 3
    # two levels of two lines, and batch norm against the first
    assert len(found[~found["argued"]]) == 2 * 2 + 1


def test_unequal_training_confounds_only_if_the_side_with_more_wins() -> None:
    for row, expected in ((dpsgd.LAYER, "confounded"), (dpsgd.PLAIN, "same direction")):
        longer: Any = {row: {"settings": {"batch": 1024, "epochs": 20, "learning_rate": 0.5}}}
        made = sources(**longer)
        found = effects(results(made), made)
        between = found[(found["left_line"] == "ln-lenet5") & (found["right_line"] == "lenet5")]
        assert set(between["status"]) == {expected}


@pytest.mark.parametrize(
    ("test", "status"),
    [
        ({"kind": "effect", "left": LAYER, "right": PLAIN, "above": 0}, "supported"),
        ({"kind": "effect", "left": PLAIN, "right": LAYER, "above": 0}, "contradicted"),
        ({"kind": "effect", "left": PLAIN, "right": LAYER, "ratio": True, "below": 1}, "supported"),
        ({"kind": "effect", "left": PLAIN, "right": 95.0, "above": 0}, "mixed"),
        ({"kind": "effect", "left": BATCH, "right": PLAIN, "above": 0}, "not tested"),
        ({"kind": "value", "of": "t5/lenet5", "converges": True}, "supported"),
        ({"kind": "value", "of": "t5/lenet5", "converges": False}, "contradicted"),
        ({"kind": "bound", "of": "t5/lenet5"}, "supported"),
        ({"kind": "bound", "of": "t5/lenet5", "right_at": "epsilon=3", "above": 0.1}, "mixed"),
    ],
)  # fmt: skip
def test_a_claim_is_judged_by_effects_values_and_bounds(test: dict[str, Any], status: str) -> None:
    claim = {"key": "c", "says": "so", "where": "there", "tests": [{"at": list(PRINTED), **test}]}
    made = sources(paper(claims=[claim]))
    (found,) = claims(results(made), made)
    assert found.status == status


def test_a_claim_on_an_epsilon_without_a_bound_is_not_proven() -> None:
    claim = {
        "key": "c",
        "says": "so",
        "where": "there",
        "tests": [{"kind": "bound", "of": "t5/bn-lenet5", "at": ["epsilon=3"]}],
    }
    declared = dpsgd.settings(**{dpsgd.LITERAL: {"variant": ""}})
    made = Sources(
        declared, NOWHERE, {"davody2020": paper(claims=[claim])},
        {dpsgd.LITERAL: dpsgd.record(dpsgd.LITERAL, declared)}, {},
    )  # fmt: skip
    (found,) = claims(results(made), made)
    assert (found.status, found.parts[0].reason) == ("not proven", "not proven")


def test_every_printed_value_here_is_judged_once(here: Sources) -> None:
    table = results(here)
    assert not table.loc[table["variant"] != "", "is_primary"].any()
    table = table[table["is_primary"] & table["printed"].notna()]
    printed = sum(
        len(values)
        for paper in here.papers.values()
        for each in paper.tables.values()
        if not each.own
        for line in each.lines
        for values in (line.values, *line.also.values())
    )
    assert len(table) == printed == len(table.drop_duplicates(CELL))
    # what has no status says why
    open_ = table[table["status"].isna()]
    assert open_["explanation"].str.startswith("not counted").all()
    assert table.loc[table["status"] == "not run", "not_judged_reason"].notna().all()


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
