"""What a search chose stands in params.yaml, written there without a change of any other row."""

import json
from pathlib import Path
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.params.adding import write_chosen
from dprepro.pipeline.params.documents import read_yaml
from dprepro.pipeline.results import records
from tests.params.good import changed

CHOSEN = {"epsilon=8": {"learning_rate": 1.0}, "epsilon=9": {"learning_rate": 7.0}}
ROWS = """\
  # by hand
  one: &one
    {{{common}, label: One, search: grid,
     levels: [{{epsilon: 1}}, {{epsilon: 8}}]}}  # of the paper
  inherits: {{<<: *one, label: Its levels}}
  block:
    <<: *one
    levels:
      - {{epsilon: 1}}

      - epsilon: 8
        learning_rate: 0.25
    label: In lines
  dumped:
    <<: *one
    label: In the column of their key
    levels:
    - epsilon: 1
    - epsilon: 8
  # of the next row
"""
OTHER = "  other: {<<: *one, label: Another search's, search: null}\n"
COMMENTED = "  other:\n    <<: *one\n    levels:\n      - {epsilon: 8}  # why\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A params.yaml whose rows have levels of their own, and take them over."""
    good: dict[str, Any] = changed("rows/one/levels", [{"epsilon": 1}])
    row = {name: value for name, value in good.pop("rows")["one"].items() if name not in ("levels", "label")}
    common = ", ".join(f"{name}: {json.dumps(value)}" for name, value in row.items())
    grid = {"grid": {"row": "one", "grid": {"learning_rate": [1.0, 7.0]}}}
    head = "\n".join(f"{name}: {json.dumps(value)}" for name, value in {**good, "searches": grid}.items())
    target = tmp_path / "params.yaml"
    target.write_text(f"{head}\nrows:\n{ROWS.format(common=common)}")
    return target


def test_the_rows_that_name_the_search_get_its_choice_and_comments_stay(path: Path) -> None:
    assert write_chosen({"grid": CHOSEN}, path) == ["one", "inherits", "block", "dumped"]
    after = params.load(path)
    for key in after.rows:
        assert [level.learning_rate for level in after.rows[key].resolved] == [0.5, 1.0]
    assert all(
        kept in path.read_text()
        for kept in ("  # by hand\n", "  # of the paper\n", "    label: In", "\n  # of the next")
    )
    assert list(read_yaml(path)["rows"]) == ["one", "inherits", "block", "dumped"]


@pytest.mark.parametrize("more", [OTHER, COMMENTED])
def test_shared_and_commented_levels_are_left_to_their_author(path: Path, more: str) -> None:
    path.write_text(path.read_text() + more)
    digest = digest_file(path)
    with pytest.raises(UserError, match=r"rows.other.levels: shared .* yourself: levels: \[{epsilon: "):
        write_chosen({"grid": CHOSEN}, path)
    assert digest_file(path) == digest


def test_writing_again_changes_nothing_and_another_choice_replaces_the_first(path: Path) -> None:
    write_chosen({"grid": CHOSEN}, path)
    digest = digest_file(path)
    assert write_chosen({"grid": CHOSEN}, path) == []
    assert digest_file(path) == digest
    write_chosen({"grid": {"epsilon=8": {"learning_rate": 7.0}}}, path)
    assert params.load(path).rows["block"].resolved[1].learning_rate == 7.0


def test_a_choice_that_is_no_setting_changes_nothing(path: Path) -> None:
    digest = digest_file(path)
    with pytest.raises(UserError, match=r"learning_rate: -1\.0 is not allowed"):
        write_chosen({"grid": {"epsilon=8": {"learning_rate": -1.0}}}, path)
    assert digest_file(path) == digest


def test_settings_that_differ_from_the_choice_are_named(path: Path) -> None:
    assert params.load(path).not_chosen("grid", CHOSEN) == (
        "rows.one: learning_rate is 0.5 at 'epsilon=8', where search 'grid' chose 1.0"
    )
    write_chosen({"grid": CHOSEN}, path)
    assert params.load(path).not_chosen("grid", CHOSEN) is None


def test_the_papers_rows_have_what_their_searches_chose() -> None:
    settings = params.load()
    found = {each.name: settings.not_chosen(each.name, each.chosen) for each in records.search_records()}
    assert found
    assert not any(found.values()), found
