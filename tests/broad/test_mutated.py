"""Damaged files of each format end in one line or in data, without a traceback or a silent loss."""

import csv
import io
import random
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas
import pytest
from PIL import Image
from ruamel.yaml import YAML
from typer.testing import CliRunner

from dprepro.errors import Notice, UserError
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.own import private, texts
from dprepro.stages.app import app
from tests.laboratory import NOTHING, laboratory

pytestmark = pytest.mark.broad
EXAMPLES = 60
SCHEMA = """\
classes: ["no", "yes"]
columns:
  age: {range: [0, 100], indicator: true}
  city: {values: [Berlin, "Zürich"], other: true}
"""
# what is put into a file at a random place
ODD = (
    "\0", "\ufeff", "\r", "\n", "\n\n", ",", ",,", ";", "\t", '"', "'", "NaN", "inf", "-1e999", "1e5",
    "\u2028", "e\u0301", "null", "true", "#", "=1+1", "2023-05-09", "[", "}", ":", "- ", "&a ", "*a",
    "!!python/x", "<<: ",
)  # fmt: skip


def as_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("age", "city", "text", "label"))
        for row in range(EXAMPLES):
            city = ("Berlin", "Zürich", "Oslo, N")[row % 3]
            writer.writerow((20 + row, city, f'said "{row}", no more', ("no", "yes")[row % 2]))


def as_parquet(path: Path) -> None:
    as_csv(path)
    pandas.read_csv(path).to_parquet(path)


def as_npz(path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (EXAMPLES, 8, 8), dtype=np.uint8)
    np.savez(path, inputs=images, labels=np.arange(EXAMPLES) % 3)


def as_images(path: Path) -> None:
    for row in range(EXAMPLES):
        folder = path / ("cat", "dog")[row % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), row, np.uint8)).save(folder / f"{row}.png")


class Format(NamedTuple):
    """A format of files."""

    write: Callable[[Path], None]
    name: str  # of the file or folder
    options: str  # of `dprepro new data`
    damaged: str  # the file that is damaged


TABLE = "--label label --schema ../schema.yaml --table"
FORMATS = {
    "csv": Format(as_csv, "a.csv", TABLE, "a.csv"),
    "parquet": Format(as_parquet, "a.parquet", TABLE, "a.parquet"),
    "texts": Format(as_csv, "a.csv", "--texts", "a.csv"),
    "npz": Format(as_npz, "a.npz", "--npz", "a.npz"),
    "images": Format(as_images, "a", "--images", "a/cat/0.png"),
    "schema": Format(as_csv, "a.csv", TABLE, "schema.yaml"),
}


def damage(path: Path, chance: random.Random) -> None:
    """Cut out, repeat, replace or put something odd in at one to three places of a file."""
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 2, 3))):
        place, length = chance.randrange(len(content) + 1), chance.choice((0, 1, 1, 2, 5, 40))
        again = content[place : place + length + 20]
        content[place : place + length] = chance.choice((b"", chance.choice(ODD).encode(), again + again))
    path.write_bytes(content)


def outcome(form: str, number: int, folder: Path) -> tuple[str, str]:
    """What becomes of the damaged file ``number`` in an empty ``folder``, in a word; and what is said."""
    about = FORMATS[form]
    (folder / "schema.yaml").write_text(SCHEMA, encoding="utf-8")
    about.write(folder / about.name)
    damage(folder / about.damaged, random.Random(f"{form} {number}"))
    (folder / "lab").mkdir()
    outside_git = patch.object(private, "_git", return_value="")  # without a process for each question
    with outside_git, laboratory(folder / "lab"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        line = ["new", "data", "mine", *about.options.split(), f"../{about.name}"]
        problem = CliRunner().invoke(app, line).exception
        if isinstance(problem, UserError):
            if Path("params.yaml").read_text() != NOTHING or (prepared.PREPARED / "mine").exists():
                return "half-written", str(problem)
            # a declaration has a line for each problem
            one = all(each.startswith("own.mine.") for each in str(problem).split("\n")[1:])
            return ("refused" if one and len(str(problem)) < 1500 else "long"), str(problem)
        if problem is not None:
            return "traceback", "".join(traceback.format_exception(problem)[-3:])
        told = [str(each.message) for each in said if issubclass(each.category, Notice)]
        if told == [] and (missing := lost(form, folder / about.name, folder / "schema.yaml")):
            return "silent", missing
        return "taken", "; ".join(told)


def lost(form: str, path: Path, schema: Path) -> str:
    """Examples and columns that the prepared data lack, by other readers."""
    counts = prepared.load("mine").manifest["counts"]
    expected = EXAMPLES
    if path.suffix == ".csv":
        rows = csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""))
        expected = sum(any(value.strip() for value in row) or len(row) > 1 for row in rows) - 1
    missing = "" if sum(counts.values()) == expected else f"{counts} of {expected} examples"
    if form == "schema":
        said, kept = (YAML(typ="base").load(each) for each in (schema, Path("params.yaml")))
        if columns := set(said["columns"]) ^ set(kept["own"]["mine"]["columns"]):
            missing += f"columns {columns}"
    return missing


def campaign(form: str, end: int, folder: Path) -> dict[int, tuple[str, str]]:
    """`outcome` of the files with numbers below ``end``."""
    found = {}
    for number in range(end):
        (folder / f"{number}").mkdir()
        found[number] = outcome(form, number, folder / f"{number}")
    return found


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_file_is_taken_whole_or_refused(form: str, tmp_path: Path) -> None:
    found = campaign(form, 50, tmp_path)
    assert {number: told for number, told in found.items() if told[0] not in ("taken", "refused")} == {}
    assert "refused" in {kind for kind, _ in found.values()}


@pytest.mark.parametrize("fault", ["silent", "traceback"])
def test_a_lost_line_and_a_traceback_are_noticed(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = next(number for number, (kind, _) in campaign("texts", 20, tmp_path).items() if kind == "taken")
    reads: Callable[..., Any] = texts.csv_frame

    def faulty(path: Path, rows: int | None = None) -> Any:
        if fault == "traceback":
            raise KeyError("a fault")
        return reads(path, rows)[:-1]

    monkeypatch.setattr(texts, "csv_frame", faulty)
    (tmp_path / "again").mkdir()
    assert outcome("texts", taken, tmp_path / "again")[0] == fault
