"""What a search chose is a row's setting, wherever it tried the row's level."""

import json
from pathlib import Path
from typing import Any

from dprepro.pipeline import params
from dprepro.pipeline.params.searched import read_choices
from tests.params.good import changed
from tests.refusal import refusal_of

GOOD: dict[str, Any] = changed("rows/one/levels", [{"epsilon": 1}, {"epsilon": 8}])
GOOD["rows"]["one"]["search"] = "grid"
CHOSEN = {"grid": {"epsilon=8": {"learning_rate": 1.0}, "epsilon=9": {"learning_rate": 7.0}}}


def with_levels(*levels: dict[str, Any], **row: Any) -> dict[str, Any]:
    return {**GOOD, "rows": {"one": {**GOOD["rows"]["one"], "levels": list(levels), **row}}}


def test_a_level_takes_what_was_chosen_there_and_the_others_what_is_typed() -> None:
    row = params.parse(GOOD, choices=CHOSEN).rows["one"]
    assert [configured.learning_rate for configured in row.resolved] == [0.5, 1.0]
    assert [configured.learning_rate for configured in params.parse(GOOD).rows["one"].resolved] == [0.5, 0.5]


def test_it_is_the_same_row_as_if_it_were_typed() -> None:
    typed = with_levels({"epsilon": 1}, {"epsilon": 8, "learning_rate": 1})
    taken = params.parse(GOOD, choices=CHOSEN)
    assert taken.row_digest("one") == params.parse(typed).row_digest("one")
    assert taken.row_digest("one") != params.parse(GOOD).row_digest("one")
    assert params.parse(typed, choices=CHOSEN).row_digest("one") == taken.row_digest("one")


def test_a_row_without_the_search_takes_nothing() -> None:
    raw = with_levels({"epsilon": 8}, search=None)
    assert params.parse(raw, choices=CHOSEN).rows["one"].resolved[0].learning_rate == 0.5


def test_what_is_typed_against_the_search_is_refused() -> None:
    other = with_levels({"epsilon": 8, "learning_rate": 2.0})
    assert refusal_of(lambda: params.parse(other, choices=CHOSEN)) == (
        "params.yaml: rows.one: learning_rate is 2.0 at 'epsilon=8', where search 'grid' chose 1.0"
    )


def test_what_was_chosen_and_is_no_setting_is_a_line() -> None:
    chosen = {"grid": {"epsilon=8": {"learning_rate": -1.0}}}
    assert refusal_of(lambda: params.parse(GOOD, choices=chosen)).startswith(
        "params.yaml: rows.one: search 'grid' chose settings.learning_rate: -1.0 is not allowed"
    )


def test_choices_are_read_beside_params_yaml(tmp_path: Path) -> None:
    assert read_choices(tmp_path) == {}
    folder = tmp_path / "reports" / "searches"
    folder.mkdir(parents=True)
    candidates = [
        {"level": level, "settings": values, "seeds": 1, "validation_accuracy": [0.5]}
        for level, values in CHOSEN["grid"].items()
    ]
    record = {"name": "grid", "candidates": candidates, "chosen": CHOSEN["grid"]}
    (folder / "grid.json").write_text(json.dumps(record))
    (tmp_path / "params.yaml").write_text(json.dumps(GOOD))
    loaded = params.load(tmp_path / "params.yaml")
    assert loaded == params.parse(GOOD, choices=CHOSEN)
    (folder / "grid.json").write_text("{}")
    line = refusal_of(lambda: params.load(tmp_path / "params.yaml"))
    assert "grid.json: not what `dprepro` writes: candidates: Field required" in line
