"""A laboratory in an empty folder, and the commands of `dprepro` that are typed in it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from dprepro.stages.app import app
from tests.conftest import forgetting
from tests.docs.blocks import edit
from tests.made_records import stripes
from tests.refusal import refusal_of

NOTHING = "raw: {}\ndata: {}\nrows: {}\n"


@contextmanager
def laboratory(folder: Path, declared: str = NOTHING) -> Iterator[Path]:
    """Work in ``folder``, which gets a params.yaml with what is ``declared``."""
    with chdir(folder), forgetting():
        Path("params.yaml").write_text(declared)
        yield folder


@contextmanager
def copy_of(folder: Path, there: Path) -> Iterator[Path]:
    """Work in ``there``, which gets a copy of a laboratory."""
    shutil.copytree(folder, there, dirs_exist_ok=True)
    with chdir(there), forgetting():
        yield there


def run(*line: str) -> str:
    """Output of a command, a line or its words."""
    done = _invoke(*line)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*line: str) -> str:
    """The one line with which a command ends, while params.yaml stays as it is."""
    declared = Path("params.yaml")
    before = declared.exists() and declared.read_bytes()
    said = refusal_of(lambda: _invoke(*line))
    assert before == (declared.exists() and declared.read_bytes())
    return said


def _invoke(*line: str) -> Result:
    words = line[0].split() if len(line) == 1 else line
    return CliRunner().invoke(app, words, catch_exceptions=False)


def declare(change: Callable[[Any], object]) -> None:
    """Apply ``change`` to the content of params.yaml."""
    declared = YAML().load(Path("params.yaml"))
    change(declared)
    YAML().dump(declared, Path("params.yaml"))


def new_data(count: int) -> None:
    """Declare so many images with stripes as the data set 'mine'."""
    images, labels = stripes(count)
    np.savez("mine.npz", inputs=images, labels=labels)
    run("new data mine --npz mine.npz")


def new_row(line: str) -> None:
    """Declare a row, with its noise by `take_renyi_dp`."""
    run(f"new row {line}")
    take_renyi_dp(Path())


def take_renyi_dp(folder: Path) -> None:
    """Let rows find their noise by Rényi DP: by privacy losses each command would take seconds."""
    edit(folder / "params.yaml", '"pld"', '"rdp"')


def train(*rows: str) -> None:
    """Train and measure ``rows``, and compute their ledgers."""
    for row in rows:
        for stage in ("train", "evaluate", "ledger"):
            run(f"{stage} {row}")
