"""A short, repeatable part of what `make fuzz` does for hours."""

import random
from pathlib import Path

import pytest

from tests.faults import flips
from tests.faults.inputs import Inputs, tried
from tests.faults.kills import Kills

KINDS = ["params", "records", "histories", "packs", "prepared", "idx", "archives", "arguments"]


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_input_is_one_line(own: Path, kind: str) -> None:
    read = Inputs().kinds()[kind]
    wrong = {seed: found for seed in range(40) if (found := tried(read, seed)) is not None}
    assert wrong == {}


def test_every_kind_is_tried() -> None:
    assert list(Inputs().kinds()) == KINDS


@pytest.mark.parametrize("kind", flips.FILES)
def test_no_flipped_bit_goes_unnoticed(own: Path, kind: str) -> None:
    assert all(flips.noticed(kind, random.Random(seed)) for seed in range(20))


@pytest.mark.parametrize("command", ["prepare again", "pack", "evaluate"])
def test_a_killed_command_ends_as_an_unbroken_one(made: Path, tmp_path: Path, command: str) -> None:
    kills = Kills(made, tmp_path)
    places = kills.places(command)
    for place in {2, places - 1, places}:
        assert kills.tried(command, place) is None, place
