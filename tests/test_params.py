"""The project's own params.yaml: a searched row uses what its committed search chose on validation data."""

import json
from pathlib import Path

import pytest

from pipeline import records, settings

ROOT = Path(__file__).parents[1]
OWN = settings.load(ROOT / "params.yaml")


SEARCHED = [
    key for key, row in OWN.rows.items() if row.search and (ROOT / records.search_path(row.search)).exists()
]


@pytest.mark.parametrize("key", SEARCHED)
def test_a_row_uses_what_its_search_chose(key: str) -> None:
    row = OWN.rows[key]
    assert row.search is not None
    found = json.loads((ROOT / records.search_path(row.search)).read_text())
    used = {row.level(own): own.model_dump() for own in row.resolved}
    for level, chosen in found["chosen"].items():
        assert {name: used[level][name] for name in chosen} == chosen


@pytest.mark.parametrize("key", [key for key, row in OWN.rows.items() if row.search])
def test_a_row_that_was_run_was_searched_before(key: str) -> None:
    assert records.read(key, ROOT) is None or key in SEARCHED
