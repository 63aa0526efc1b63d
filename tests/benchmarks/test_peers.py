"""Trainings by the code of others: the page follows from the record, and nothing of ours trained."""

import ast
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from scipy.stats import ttest_ind

from benchmarks.peers import PEERS, RECORD, ROWS, SEEDS, TRAINING, ours, settings, table

ROOT = Path(__file__).parents[2]
RUNS = json.loads((ROOT / RECORD).read_text())
OURS = {"dprepro", "benchmarks", "tests"}


def test_the_training_imports_nothing_of_ours() -> None:
    imported = set()
    for node in ast.walk(ast.parse(TRAINING.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).partition(".")[0])
    assert {"opacus", "jax_privacy"} <= imported
    assert not imported & OURS


def test_the_runs_have_the_settings_of_the_rows() -> None:
    assert RUNS["settings"] == {network: settings(network, ROOT) for network in ROWS}
    for run in RUNS["runs"]:
        assert run["examples"] == RUNS["settings"][run["network"]]["examples"]


def test_seeds_are_those_fixed_beforehand_each_once() -> None:
    found = [(run["peer"], run["network"], run["seed"]) for run in RUNS["runs"]]
    assert len(found) == len(set(found))
    assert set(found) <= {(peer, network, seed) for peer in SEEDS for network in ROWS for seed in SEEDS[peer]}


def test_the_section_is_what_follows_from_the_record() -> None:
    assert (ROOT / PEERS).read_text(encoding="utf-8") == table(RUNS, ROOT)


@pytest.mark.parametrize("network", ROWS)
def test_the_interval_is_that_of_another_library(network: str) -> None:
    """Welch's interval by SciPy, of made-up runs; one seed has none."""
    theirs = {0: 0.91, 1: 0.934, 2: 0.926}
    made_up = [run("opacus", network, *each) for each in theirs.items()]
    section = table({"runs": [*made_up, run("jax_privacy", network, 0, 0.9)]}, ROOT)
    own = [100 * value for value in ours(network, ROOT).by_seed.values()]
    scaled = [100 * value for value in theirs.values()]
    interval = ttest_ind(scaled, own, equal_var=False).confidence_interval(0.95)
    difference, half = fmean(scaled) - fmean(own), (interval.high - interval.low) / 2
    assert f"| {difference:+.2f} ± {half:.2f} |" in section
    assert f"| {90 - fmean(own):+.2f} |" in section


def run(peer: str, network: str, seed: int, accuracy: float) -> dict[str, Any]:
    return {
        "peer": peer,
        "network": network,
        "seed": seed,
        "test_accuracy": accuracy,
        "cpu_seconds": 1.0,
        "versions": {},
    }
