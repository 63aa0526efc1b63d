"""Two rows at equal proven epsilon."""

import json
import math
from itertools import groupby
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from dprepro.errors import UserError
from dprepro.pipeline.params import parse
from dprepro.pipeline.reporting.compare import SAME, Level, _rival, compared
from dprepro.pipeline.reporting.wording import signed
from dprepro.pipeline.results import records
from dprepro.stages.app import app
from tests.docs.blocks import ROOT
from tests.reporting.made_up import dpsgd


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a folder of the example's records that nobody else changes."""
    dpsgd.fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_level_stands_beside_the_best_that_spends_no_more(there: Path) -> None:
    first, *others = compared(dpsgd.LAYER, dpsgd.PLAIN, dpsgd.settings())
    assert (first.level.line["level"], first.rival) == (
        "epsilon=inf",
        None,
    )  # 'no bound' is comparable with none
    epsilons = [comparison.level.proven for comparison in others]
    assert epsilons == sorted(epsilons, reverse=True)
    for comparison in others:
        rival = comparison.rival
        assert rival is not None
        assert not comparison.lacking
        assert rival.proven <= 1.01 * comparison.level.proven
        assert comparison.difference is not None
        assert comparison.difference.value == pytest.approx(
            comparison.level.accuracy.value - rival.accuracy.value
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"neighbouring": "replace one"}, "neighbours add or remove one and replace one"),
        ({"delta": 1e-6}, "delta 1e-05 and 1e-06"),
    ],
)
def test_epsilons_of_other_neighbours_or_deltas_are_refused_in_a_line(
    there: Path, changes: dict[str, object], said: str
) -> None:
    assert compared(dpsgd.PLAIN, dpsgd.LAYER, dpsgd.settings())
    ledgers = json.loads((path := records.ledger_path(dpsgd.LAYER)).read_text())
    for entry in ledgers["entries"]:
        entry["ledger"] |= changes
    place = records.run_path(dpsgd.LAYER)
    trainings = [json.loads(line) for line in place.read_text().splitlines()]
    for training in trainings:
        training["delta"] = changes.get("delta", training["delta"])
    path.write_text(json.dumps(ledgers))
    place.write_text("".join(f"{json.dumps(training)}\n" for training in trainings))
    with pytest.raises(UserError, match=said):
        compared(dpsgd.PLAIN, dpsgd.LAYER, dpsgd.settings())


def test_rows_that_have_nothing_to_compare_are_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    declared = dpsgd.settings()
    with pytest.raises(UserError, match="not run; `dprepro train"):
        compared(dpsgd.PLAIN, dpsgd.LAYER, declared)
    with pytest.raises(UserError, match="no row 'nothing'"):
        compared(dpsgd.LAYER, "nothing", declared)
    rows = {key: row.model_dump() for key, row in declared.rows.items()}
    rows[dpsgd.LAYER]["data"] = "other"
    mnist = dpsgd.DATA["data"]["mnist"]
    elsewhere = parse(
        {**dpsgd.DATA, "data": {"mnist": mnist, "other": mnist | {"raw": "kmnist"}}, "rows": rows}
    )
    with pytest.raises(UserError, match="different data sets, mnist and kmnist"):
        compared(dpsgd.PLAIN, dpsgd.LAYER, elsewhere)


def level(name: str, epsilon: float, validation: float, ours: float) -> Level:
    """As much of a level as is looked at."""
    line = {"level": name, "epsilon_upper": epsilon, "validation": validation, "ours": ours}
    return Level(line, dpsgd.ledger(epsilon_upper=epsilon))


def test_of_several_levels_the_one_that_validates_best_is_taken_whatever_test_data_say() -> None:
    bounded = [level("batch=64", 4.0, 0.8, 99), level("batch=128", 4.0, 0.9, 50)]
    for epsilon in (4.0, 20.0):
        rival = _rival(epsilon, bounded)
        assert rival is not None
        assert rival.line["level"] == "batch=128"


def test_it_prints_the_differences_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each effect that the pages judge at one level, if the right row proves no larger epsilon."""
    monkeypatch.chdir(ROOT)
    effects = pd.read_csv("reports/contrasts.csv").dropna(subset=["difference", "half_width"])
    bounds = pd.read_csv("reports/summary.csv").dropna(subset=["epsilon_upper"])
    proven = bounds.groupby(["row", "level"])["epsilon_upper"].first().to_dict()
    judged = [
        effect
        for effect in effects.to_dict("records")
        if effect["left_row"] != effect["right_row"]
        and effect["left_level"] == effect["right_level"] != "epsilon=inf"
        and proven.get((effect["right_row"], effect["right_level"]), math.inf)
        <= SAME * proven.get((effect["left_row"], effect["left_level"]), 0)
    ]
    assert len(judged) > 10
    for rows, pair in groupby(judged, lambda effect: (effect["left_row"], effect["right_row"])):
        done = CliRunner().invoke(app, ["compare", *rows], catch_exceptions=False)
        for effect in pair:
            printed = f"{signed(effect['difference'], 2)} ± {effect['half_width']:.2f}"
            assert printed in done.output, (rows, effect["left_level"])
