"""A short, repeatable part of what `make fuzz` does for hours."""

import random
import shutil
from pathlib import Path

import pytest

from tests.faults import edits, flips, networks
from tests.faults.inputs import Inputs, tried
from tests.faults.kills import Kill, Kills


@pytest.mark.parametrize("kind", Inputs().kinds())
def test_hostile_input_is_one_line(own: Path, kind: str) -> None:
    read = Inputs().kinds()[kind]
    wrong = {seed: found for seed in range(40) if (found := tried(read, seed)) is not None}
    assert wrong == {}


@pytest.mark.parametrize("seed", range(30))
def test_a_random_networks_clipped_sums_are_those_of_one_backward_pass_an_example(seed: int) -> None:
    assert networks.tried(seed) is None


@pytest.mark.parametrize("kind", flips.FILES)
def test_no_flipped_bit_goes_unnoticed(own: Path, kind: str) -> None:
    assert all(flips.noticed(kind, random.Random(seed)) for seed in range(20))


@pytest.mark.parametrize("kind", edits.FILES)
def test_no_changed_value_goes_unnoticed(own: Path, kind: str) -> None:
    count = 4 if kind == "account" else 20  # each account is computed again
    missed = (edits.noticed(kind, random.Random(seed)) for seed in range(count))
    assert list(filter(None, missed)) == []


@pytest.mark.parametrize("command", ["pack", "evaluate", "new data"])
def test_a_killed_command_ends_as_an_unbroken_one(made: Path, tmp_path: Path, command: str) -> None:
    kills = Kills(made, tmp_path)
    changes = kills.unbroken(command).changes
    for place in {2, changes, changes + 1}:  # the last: all was written, and nobody was told
        assert kills.tried(command, Kill(before_change=place)) is None, place


def test_a_store_that_is_killed_while_sqlite_writes_ends_as_an_unbroken_one(
    made: Path, empty_store: Path, tmp_path: Path
) -> None:
    stored = shutil.copytree(made, tmp_path / "stored")
    shutil.copy(empty_store, stored / "mlflow.db")
    kills = Kills(stored, tmp_path)
    whole = kills.unbroken("publish")
    assert [name for name in whole.left if name.startswith("mlflow.db")]
    for part in (0.2, 0.6):
        assert kills.tried("publish", Kill(after=part * whole.seconds)) is None, part
    # and where it is made, which takes seconds
    assert kills.tried("publish first", Kill(after=1.0), whole) is None
