"""The project's own params.yaml: a searched row uses what its committed search chose on validation data."""

import json
from pathlib import Path

import pytest

from pipeline import settings

ROOT = Path(__file__).parents[1]
OWN = settings.load(ROOT / "params.yaml")


@pytest.mark.parametrize("key", [key for key, row in OWN.rows.items() if row.search])
def test_a_row_uses_what_its_search_chose(key: str) -> None:
    row = OWN.rows[key]
    found = json.loads((ROOT / f"reports/searches/{row.search}.json").read_text())
    used = {f"epsilon={own.epsilon:g}": own.model_dump() for own in row.resolved}
    for level, chosen in found["chosen"].items():
        assert {name: used[level][name] for name in chosen} == chosen
