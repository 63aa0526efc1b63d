"""Random faults from seeded generators: damage, changed values, kills."""

import gzip
import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from dprepro.accounting import dpsgd_settings
from dprepro.errors import UserError
from dprepro.pipeline import verification
from dprepro.pipeline.data import prepared
from dprepro.pipeline.export.folder import export
from dprepro.pipeline.ledgers.ledger import make_ledger
from dprepro.pipeline.results import records
from dprepro.pipeline.results.weights import read_weights, weights_path
from dprepro.pipeline.training.checkpoints import restore
from dprepro.pipeline.transport import archive
from dprepro.pipeline.transport.adopting import adopt
from dprepro.pipeline.transport.archive import pack
from dprepro.stages import ui
from dprepro.stages.app import app
from dprepro.stages.init import init
from tests.faults import project
from tests.faults.kills import Kill, Unbroken
from tests.faults.project import CHECKPOINT, MINE, PACK, ROW, settings
from tests.not_none import not_none

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
    (replica,) = not_none(records.read_run(ROW)).replicas
    return read_weights(WEIGHTS, replica.weights, CPU)


READ: dict[Path, Callable[[], object]] = {
    Path("params.yaml"): settings,
    records.run_path(ROW): lambda: records.read_run(ROW),
    PACK: lambda: archive.unpack(PACK, settings(), Path(".dprepro/staged")),
    WEIGHTS: read_first_weights,
    CHECKPOINT: lambda: restore(CHECKPOINT, CPU),
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


def test_an_epsilon_at_the_edge_is_bounded_from_both_sides() -> None:
    for seed in range(12):
        chance = random.Random(seed)
        examples = chance.choice([1, 2, 1000, 60_000, 2**31, 10**12])
        with suppress(UserError):
            configured = dpsgd_settings(
                chance.choice([0, 5e-324, 1e-6, 0.1, 1.1, 100, 1e6, 1e308]),
                examples=examples,
                batch=chance.choice([1, 2, examples // 2, examples - 1, examples, examples + 1]),
                steps=chance.choice([0, 1, 2, 1000, 10**6, 10**9, 10**12]),
                delta=chance.choice([0, 5e-324, 1e-300, 1e-15, 1e-14, 1e-5, 0.5, 1 - 1e-16, 1]),
                sampling=chance.choice(["poisson", "fixed", "shuffled"]),
            )
            ledger = make_ledger(
                configured.spending, configured.total_steps, configured.delta, configured.claimed_by
            )
            if ledger.epsilon_upper is not None and ledger.epsilon_lower is not None:
                assert ledger.epsilon_lower <= ledger.epsilon_upper, configured


Place = tuple[str | int, ...]
# What made a replica (its device, its command, times, curves) nothing can be compared with but DVC's lock, an
# accuracy only with weights, and what nearly no attacker errs by not at all
UNVOUCHED = {
    *("seconds", "cpu_seconds", "started", "ended", "measured_by", "metrics", "config", "versions"),
    *("note", "accountant", "tradeoff", "spent", "curves"),
}
OF_ORIGINS = {"data", "examples", "reproducible"}  # what something vouches for


def places(tree: Any, place: Place = ()) -> Iterator[Place]:
    """Where the values are that are vouched for."""
    if isinstance(tree, dict | list):
        for name, inner in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if name not in UNVOUCHED and (place[-1:] != ("origin",) or name in OF_ORIGINS):
                yield from places(inner, (*place, name))
    else:
        yield place


def other(value: Any) -> Any:
    """A value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else 0.9 * value or 0.1
    if value is None:
        return 0.5
    return f"sha256:{0:064}" if value.startswith("sha256:") else f"{value}x"


@pytest.mark.parametrize(
    ("path", "count"),
    [
        (records.run_path(ROW), 20),
        (records.evaluation_path(ROW), 20),
        (records.ledger_path(ROW), 20),
        (records.ledger_path("counted"), 4),  # each account is computed again
    ],
)
def test_no_changed_value_goes_unnoticed(workspace: Path, path: Path, count: int) -> None:
    """One valid value changed to another, as by somebody who wants another result: `dprepro verify` tells."""
    good, declared = path.read_bytes(), settings()
    # accounts are not computed again for what is changed of a row
    declared = declared.model_copy(update={"rows" if path.stem == "counted" else "accounts": {}})
    for seed in range(count):
        tree = json.loads(good)
        place = random.Random(seed).choice(sorted(places(tree), key=str))
        at = tree
        for name in place[:-1]:
            at = at[name]
        at[place[-1]] = other(at[place[-1]])
        path.write_text(json.dumps(tree))
        assert any(finding.wrong for finding in verification.verify(declared)), place


def serve() -> None:
    """`dprepro ui` up to where MLflow's server takes over."""
    with patch.multiple(ui, serve=lambda *_: 0, _check_free=lambda *_: None), suppress(SystemExit):
        ui.ui(port=5000, host="127.0.0.1")


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
    "ui": (serve, Path("mlflow.db")),
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
    assert bool([name for name in unbroken.left if name.startswith("mlflow.db")]) == (command == "ui")
    # the last: all was written, and nobody was told
    for place in {2, unbroken.changes // 2, unbroken.changes, unbroken.changes + 1}:
        unbroken.check_killed(Kill(before_change=place))


@pytest.mark.broad
@pytest.mark.parametrize("command", ["search", "init", "export", "adopt"])
def test_a_command_killed_at_any_of_its_changes_ends_as_an_unbroken_one(
    workspace: Path, tmp_path: Path, command: str
) -> None:
    """Changes in November 2026: 22 of search, 62 of init, 36 of export, and 112 of adopt."""
    unbroken = begun(command, workspace, tmp_path)
    print(f"{command}: {unbroken.changes} changes")
    for place in range(1, unbroken.changes + 2):
        unbroken.check_killed(Kill(before_change=place))
