"""The project's own params.yaml: what was searched is used, and what a paper keeps constant is constant."""

from math import sqrt
from pathlib import Path

import pytest

from dprepro.pipeline import params
from dprepro.pipeline.results import records
from tests.paper_rows import paper_rows

ROOT = Path(__file__).parents[2]
OWN = paper_rows()


def test_waiting_rows_can_be_trained_and_no_row_is_declared_twice() -> None:
    waiting, own = params.load(ROOT / "waiting.yaml"), params.load(ROOT / "params.yaml")
    simulated = {row.simulates for row in own.rows.values()}
    behind = {each.row for each in waiting.relevances.values()}  # trained rows that waiting ones need
    for key, row in waiting.rows.items():
        assert key in behind or records.read_run(key, ROOT) is None
        assert key not in own.rows or (key in simulated | behind and row == own.rows[key])


SEARCHED = [
    key for key, row in OWN.rows.items() if row.search and (ROOT / records.search_path(row.search)).exists()
]


@pytest.mark.parametrize("key", [key for key, row in OWN.rows.items() if row.search])
def test_a_row_that_was_run_was_searched_before(key: str) -> None:
    assert records.read_run(key, ROOT) is None or key in SEARCHED


# Sander et al.: every level of these lies on one curve of constant TAN
CONSTANT = [
    key
    for key, line in OWN.lines.items()
    if line.paper == "sander2022" and line.table in {"f2", "f3", "f4", "mnist", "trade", "t3", "t4"}
]


@pytest.mark.parametrize("key", CONSTANT)
def test_levels_have_one_signal_to_noise_ratio(key: str) -> None:
    """B sqrt(S) / sigma, up to the rounding of batches."""
    line = OWN.lines[key]
    sigmas = [
        getattr(configured, "noise_multiplier" if key in OWN.accounts else "sigma")
        for configured in line.resolved
    ]
    ratios = [
        configured.batch * sqrt(configured.steps) / s
        for configured, s in zip(line.resolved, sigmas, strict=True)
    ]
    assert max(ratios) / min(ratios) < 1.002
    if line.table in {"f4", "mnist"}:  # rows train with round batches, so that each is exact
        assert max(ratios) / min(ratios) < 1 + 1e-9


def test_a_sound_row_has_relevances_of_a_network_that_saw_none_of_its_images() -> None:
    rows = [row for row in OWN.rows.values() if row.method == "adlm" and row.resolved[0].variant == "sound"]
    assert rows
    for row in rows:
        relevance = OWN.relevances[row.data]
        seen = OWN.split(OWN.rows[relevance.row].data)
        assert OWN.split(row.data).raw not in {seen.raw, seen.public.raw}
