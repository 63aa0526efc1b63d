"""Random faults from seeded generators: damage, changed values, kills."""

import gzip
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from dprepro.errors import UserError
from dprepro.pipeline.data import prepared
from dprepro.pipeline.export.folder import export
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import read_weights, weights_path
from dprepro.pipeline.training.checkpoints import Checkpoint
from dprepro.pipeline.transport import archive
from dprepro.pipeline.transport.adopting import adopt
from dprepro.pipeline.transport.archive import pack
from dprepro.stages.app import app
from dprepro.stages.init import init
from tests.faults import project
from tests.faults.kills import Unbroken
from tests.faults.project import CHECKPOINT, MINE, PACK, ROW, settings

CPU = torch.device("cpu")


def damaged(good: bytes, chance: random.Random) -> bytes:
    """``good`` with something flipped, cut out, put in, repeated or cut off."""
    content = bytearray(good)
    at, length = chance.randrange(len(content)), chance.choice([1, 1, 2, 8, 100])
    what = chance.randrange(5)
    if what == 0:
        content[at] ^= 1 << chance.randrange(8)
    elif what == 1:
        del content[at : at + length]
    elif what == 2:
        content[at:at] = chance.randbytes(length)
    elif what == 3:
        content[at:at] = content[at : at + length] * chance.choice([1, 2, 50])
    else:
        del content[at:]
    return bytes(content)


def repacked(good: bytes, chance: random.Random) -> bytes:
    """A pack that is whole as far as its compression goes, and damaged below it."""
    return gzip.compress(damaged(gzip.decompress(good), chance), 1)


WEIGHTS = weights_path(ROW, "epsilon=3", 0)
INPUTS, LABELS = (prepared.PREPARED / "mnist" / name for name in ("train.inputs.npy", "test.labels.npy"))


def read_first_weights() -> object:
    (training,) = records.read_run(ROW).trainings
    return read_weights(WEIGHTS, training.weights, CPU)


READ: dict[Path, Callable[[], object]] = {
    Path("params.yaml"): settings,
    records.run_path(ROW): lambda: records.read_run(ROW),
    PACK: lambda: archive.unpack(PACK, settings(), Path(".dprepro/staged")),
    WEIGHTS: read_first_weights,
    CHECKPOINT: lambda: Checkpoint.restore(CHECKPOINT, CPU),
    INPUTS: lambda: prepared.load("mnist"),
    LABELS: lambda: prepared.load("mnist"),
}


@pytest.mark.parametrize(
    ("path", "damage"),
    [
        *((path, damaged) for path in (Path("params.yaml"), records.run_path(ROW), PACK)),
        (PACK, repacked),
    ],
)
def test_damage_is_one_line_or_harmless(
    workspace: Path, path: Path, damage: Callable[[bytes, random.Random], bytes]
) -> None:
    good = path.read_bytes()
    for seed in range(40):
        path.write_bytes(damage(good, random.Random(seed)))
        with suppress(UserError):
            READ[path]()


@pytest.mark.parametrize("path", [WEIGHTS, CHECKPOINT, INPUTS, LABELS, PACK])
def test_no_flipped_bit_goes_unnoticed(workspace: Path, path: Path) -> None:
    good = path.read_bytes()
    for seed in range(20):
        chance, flipped = random.Random(seed), bytearray(good)
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        try:
            READ[path]()
        except UserError:
            continue
        # a bit of the compression's own, such as its time, changes nothing
        assert path == PACK
        assert gzip.decompress(bytes(flipped)) == gzip.decompress(good)


# commands, and what they make
WORK: dict[str, tuple[Callable[[], object], Path]] = {
    "pack": (lambda: pack(settings(), [ROW], PACK), PACK),
    "evaluate": (project.evaluate, records.EVALUATIONS),
    "search": (project.search, records.SEARCHES),
    "adopt": (lambda: adopt(settings(), PACK), records.TRAININGS),
    "export": (lambda: export(ROW, None, None, Path("for/others"), settings()), Path("for")),
    "init": (lambda: init(Path("laboratory")), Path("laboratory")),
    "new data": (
        lambda: app(["new", "data", "mine", "--npz", str(MINE)], standalone_mode=False), Path("data/own"),
    ),
}  # fmt: skip


def begun(command: str, workspace: Path, scratch: Path) -> Unbroken:
    """The command without a kill, where there is nothing of what it makes."""
    work, made_by_it = WORK[command]
    if made_by_it.is_dir():
        shutil.rmtree(made_by_it)
    else:
        made_by_it.unlink(missing_ok=True)
    return Unbroken(work, workspace, scratch)


@pytest.mark.parametrize("command", WORK)
def test_a_killed_command_ends_as_an_unbroken_one(workspace: Path, tmp_path: Path, command: str) -> None:
    unbroken = begun(command, workspace, tmp_path)
    # the last: all was written, and nobody was told
    for place in {2, unbroken.changes // 2, unbroken.changes + 1}:
        unbroken.check_killed(place)


@pytest.mark.broad
@pytest.mark.parametrize("command", ["search", "init", "export", "adopt"])
def test_a_command_killed_at_any_of_its_changes_ends_as_an_unbroken_one(
    workspace: Path, tmp_path: Path, command: str
) -> None:
    """Changes in November 2026: 22 of search, 62 of init, 36 of export, and 112 of adopt."""
    unbroken = begun(command, workspace, tmp_path)
    print(f"{command}: {unbroken.changes} changes")
    for place in range(1, unbroken.changes + 2):
        unbroken.check_killed(place)
