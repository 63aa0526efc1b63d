"""Mutated files of each format that `dprepro new data` takes, and how many examples a file still has.

`python -m tests.broad.mutated FIRST END [FORMAT...]` reads the files with these numbers of each format, and
prints what became of them: taken or refused, tracebacks, and examples that are missing without a word.
"""

import csv
import io
import json
import random
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow
from PIL import Image
from pyarrow import parquet
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from typer.testing import CliRunner

from dprepro.errors import Notice, UserError
from dprepro.pipeline.data.own import private
from dprepro.pipeline.data.own.files import IMAGES
from dprepro.pipeline.data.prepared import PREPARED
from dprepro.stages.app import app
from tests.laboratory import NOTHING, laboratory

EXAMPLES = 60
SCHEMA = """\
classes: ["no", "yes"]
columns:
  age: {range: [0, 100], indicator: true}
  city: {values: [Berlin, "Zürich"], other: true}
  dose: {range: [0, 1], fill: 0}
"""
ROWS = [
    {
        **{
            "age": f"{20 + row % 50}",
            "city": ("Berlin", "Zürich", "Oslo, N")[row % 3],
            "note": f"line {row}",
        },
        **{"dose": f"{row / 60:.3f}", "text": f'said "{row}", no more', "label": ("no", "yes")[row % 2]},
    }
    for row in range(EXAMPLES)
]
# what is put into a file at a random place
ODD = (
    *(
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\r",
        b"\n",
        b"\n\n",
        b"\r\n",
        b",",
        b",,",
        b";",
        b"\t",
        b'"',
        b"'",
        b'""',
    ),
    *(
        b"NaN",
        b"NA",
        b"?",
        b"inf",
        b"-1e999",
        b"1e5",
        b"\xc3\xa9",
        b"e\xcc\x81",
        b"\xe2\x80\xa8",
        b"null",
        b"true",
    ),
    *(
        b"#",
        b"=1+1",
        b"2023-05-09",
        b"[",
        b"]",
        b"{",
        b"}",
        b":",
        b"- ",
        b"&a ",
        b"*a",
        b"!!python/x",
        b"<<: ",
        b"%",
    ),
)


class Format(NamedTuple):
    """A format of files."""

    write: Callable[[Path], None]  # a valid file or folder
    command: str  # options of `dprepro new data`
    mutate: Callable[[Path, random.Random], None]
    examples: Callable[[Path], int | None]  # examples by another reader; None: it can't tell


def as_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ROWS[0].keys())
        writer.writeheader()
        writer.writerows(ROWS)


def as_parquet(path: Path) -> None:
    numbers = {name: [float(row[name]) for row in ROWS] for name in ("age", "dose")}
    parquet.write_table(pyarrow.table(pyarrow.Table.from_pylist(ROWS).to_pydict() | numbers), path)


def as_npz(path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (EXAMPLES, 8, 8), dtype=np.uint8)
    np.savez(path, inputs=images, labels=np.arange(EXAMPLES) % 3)


def as_images(path: Path) -> None:
    for row in range(EXAMPLES):
        folder = path / ("cat", "dog")[row % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(row).integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")


def mutate_bytes(path: Path, chance: random.Random) -> None:
    """Change one to three places of a file."""
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = (
            chance.randrange(len(content) + 1)
            if chance.random() < 0.7
            else chance.randrange(min(80, len(content)))
        )
        length = chance.choice((0, 1, 1, 2, 5, 40))
        kind = chance.randrange(5)
        if kind == 0:
            content[place : place + length] = b""
        elif kind == 1:
            content[place:place] = chance.choice(ODD)
        elif kind == 2:
            content[place : place + length] = chance.choice(ODD)
        elif kind == 3:
            content[place:place] = content[place : place + length + 20]
        elif content:
            content[place % len(content)] = chance.randrange(256)
    if chance.random() < 0.03:
        del content[chance.randrange(len(content) + 1) :]
    path.write_bytes(content)


def mutate_lines(path: Path, chance: random.Random) -> None:
    """Change bytes, or whole lines, columns and line ends of a text file."""
    text = path.read_bytes().decode()
    lines = text.split("\n")
    kind = chance.randrange(12)
    if kind == 0:
        chance.shuffle(lines)
    elif kind == 1:
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    elif kind == 2:
        at = chance.randrange(len(lines))
        lines[at] += chance.choice((",", ",,,", " ", ",x", ";", '"', "\t"))
    elif kind == 3:
        lines = [line.replace(",", chance.choice(";\t|"), chance.choice((1, 99))) for line in lines]
    elif kind == 4:
        ended = chance.choice(("\r\n", "\r", "\n\n", "\u2028")).join(line.rstrip("\r") for line in lines)
        path.write_bytes(ended.encode(chance.choice(("utf-8", "utf-8-sig", "utf-16"))))
        return
    elif kind == 5:
        word = chance.choice(
            ("age", "label", "Berlin", "Zürich", "yes", "classes", "range", "values", "text")
        )
        others = (
            "",
            word.upper(),
            f" {word}",
            f"{word} ",
            f'"{word}"',
            "yes",
            "1",
            "null",
            "Zu\u0308rich",
            word * 99,
        )
        path.write_bytes(text.replace(word, chance.choice(others), chance.choice((1, 999))).encode())
        return
    elif kind == 6:
        del lines[chance.randrange(len(lines))]
    if kind <= 6:
        path.write_bytes("\n".join(lines).encode())
    else:
        mutate_bytes(path, chance)


def mutate_parquet(path: Path, chance: random.Random) -> None:
    """Change bytes, or types, names and values of columns."""
    if chance.random() < 0.4:
        mutate_bytes(path, chance)
        return
    table = parquet.read_table(path)
    at = chance.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at)
    kind = chance.randrange(6)
    if kind == 0:
        table = table.remove_column(at)
    elif kind == 1:
        table = table.rename_columns(
            [chance.choice((each, each.upper(), "label", "", "a\nb")) for each in table.column_names]
        )
    elif kind == 2:
        types = ("string", "large_string", "binary", "int8", "uint64", "bool", "date32", "float16", "null")
        try:
            column = column.cast(pyarrow.type_for_alias(chance.choice(types)), safe=False)
        except (pyarrow.ArrowException, ValueError):
            column = pyarrow.array([chance.choice(([1], [], None)) for _ in ROWS])
        table = table.set_column(at, name, column)
    elif kind == 3:
        gone = chance.random()
        values = [None if chance.random() < gone else value for value in column.to_pylist()]
        table = table.set_column(at, name, pyarrow.array(values, column.type))
    elif kind == 4:
        table = table.set_column(at, name, column.dictionary_encode())
    else:
        table = table.append_column(name, column)
    rows = None if kind else chance.choice((None, 1, 7))
    parquet.write_table(
        table, path, compression=chance.choice(("snappy", "gzip", "zstd", "none")), row_group_size=rows
    )


def mutate_npz(path: Path, chance: random.Random) -> None:
    """Change bytes, or types, shapes, names and values of arrays."""
    if chance.random() < 0.4:
        mutate_bytes(path, chance)
        return
    with np.load(path) as read:
        arrays = dict(read)
    name = chance.choice(list(arrays))
    array = arrays.pop(name)
    kind = chance.randrange(7)
    if kind == 0:
        dtype = chance.choice(("u1", "i8", "f2", "f8", "c16", "S3", "U2", "?", "M8[s]", "u8", "i1", ">i4"))
        array = array.astype(dtype)
    elif kind == 1:
        array = array[: chance.randrange(len(array) + 1)]
    elif kind == 2:
        array = chance.choice(
            (array[..., None], array[None], array.reshape(-1), array.T, np.asfortranarray(array))
        )
    elif kind == 3:
        name = chance.choice((name.upper(), "x", f"a/{name}", "", "../x"))
    elif kind == 4:
        array = array.astype("f8")
        array.flat[chance.randrange(array.size)] = chance.choice((np.nan, np.inf, -1, 1e300, 0.5))
    elif kind == 5:
        array = array.astype("i8")
        array.flat[chance.randrange(array.size)] = chance.choice((-1, 256, 10**12, 9999, 10_000))
    else:
        array = np.array([list(row) if row.ndim else row for row in array], object)
    np.savez(path, **{**arrays, name: array})


def mutate_images(path: Path, chance: random.Random) -> None:
    """Change a file's bytes, mode, size, name or place."""
    files = sorted(each for each in path.rglob("*") if each.is_file())
    file = chance.choice(files)
    kind = chance.randrange(8)
    if kind <= 2:
        mutate_bytes(file, chance)
    elif kind == 3:
        mode = chance.choice(("1", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F", "L"))
        ending = chance.choice((".png", ".bmp", ".jpg", ".webp", ".tif", ".gif", ".ppm"))
        with Image.open(file) as image:
            changed = image.convert(mode).resize(chance.choice(((8, 8), (8, 8), (1, 9), (16, 16))))
        try:
            changed.save(file.with_suffix(ending))
        except (OSError, KeyError, ValueError):
            return
        if ending != ".png":
            file.unlink()
    elif kind == 4:
        names = (
            ".x.png",
            "x.PNG",
            "x",
            "a b.png",
            "x.txt",
            "é.png",
            "e\u0301.png",
            "Thumbs.db",
            "x.jpeg",
            "x.tiff",
            "-.png",
        )
        file.rename(file.with_name(chance.choice(names)))
    elif kind == 5:
        folder = chance.choice(
            ("test", "Train", "val", ".hidden", "__MACOSX", "new", "cat/sub", "dog/.sub", "Dog")
        )
        (path / folder).mkdir(parents=True, exist_ok=True)
        file.rename(path / folder / file.name)
    elif kind == 6:
        home = file.parent
        home.rename(
            home.with_name(
                chance.choice((".cat", "a'b", 'a"b', "a: b", "null", "1", "ca\nt", "é", "x" * 200))
            )
        )
    else:
        file.write_bytes(chance.choice((b"", b"\x89PNG\r\n\x1a\n", files[0].read_bytes()[:40])))


def csv_examples(path: Path) -> int | None:
    try:
        rows = [*csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""))]
    except (UnicodeDecodeError, csv.Error):
        return None
    return sum(any(value.strip() for value in row) or len(row) > 1 for row in rows) - 1


def image_examples(path: Path) -> int:
    return sum(each.suffix.lower() in IMAGES and each.is_file() for each in path.rglob("*"))


def npz_examples(path: Path) -> int:
    with np.load(path) as arrays:
        return len(arrays["inputs"])


TABLE = "--label label --schema ../schema.yaml --table"
FORMATS = {
    "csv": Format(as_csv, f"{TABLE} ../a.csv", mutate_lines, csv_examples),
    "parquet": Format(
        as_parquet, f"{TABLE} ../a.parquet", mutate_parquet, lambda path: parquet.read_table(path).num_rows
    ),
    "texts": Format(as_csv, "--texts ../a.csv", mutate_lines, csv_examples),
    "npz": Format(as_npz, "--npz ../a.npz", mutate_npz, npz_examples),
    "images": Format(as_images, "--images ../a", mutate_images, image_examples),
    "schema": Format(as_csv, f"{TABLE} ../a.csv", lambda path, chance: None, csv_examples),
}


def outside_git() -> AbstractContextManager[Any]:
    """Answer as git does outside a checkout, without a process for each question."""
    return patch.object(private, "_git", return_value="")


def outcome(form: str, number: int, folder: Path) -> tuple[str, str]:
    """What becomes of the mutated file ``number`` in an empty ``folder``, in a word; and what is said."""
    about, chance = FORMATS[form], random.Random(f"{form} {number}")
    path = folder / about.command.split("../")[-1]
    schema = folder / "schema.yaml"
    schema.write_text(SCHEMA, encoding="utf-8")
    about.write(path)
    if form == "schema":
        mutate_lines(schema, chance)
    else:
        about.mutate(path, chance)
    (folder / "lab").mkdir()
    with outside_git(), laboratory(folder / "lab"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        done = CliRunner().invoke(app, ["new", "data", "mine", *about.command.split()])
        notices = [str(each.message) for each in said if issubclass(each.category, Notice)]
        if isinstance(done.exception, UserError):
            message = str(done.exception)
            if Path("params.yaml").read_text() != NOTHING or Path(PREPARED / "mine").exists():
                return "half-written", message
            # a declaration has a line for each problem
            each_is_one = all(line.startswith("own.mine.") for line in message.split("\n"))
            short = len(message) < 1500 and ("\n" not in message or each_is_one)
            return ("refused", message) if short else ("long", message)
        if done.exception is not None:
            return "traceback", "".join(traceback.format_exception(done.exception)[-3:])
        manifest = json.loads((PREPARED / "mine" / "manifest.json").read_bytes())
        counts = sum(manifest["counts"].values())
        expected = about.examples(path)
        if expected != counts and not notices:
            return "silent", f"{counts} of {expected} examples"
        if form == "schema" and (lost := columns_of(schema) ^ columns_of(Path("params.yaml"), "own", "mine")):
            return "silent", f"columns {lost}"
        return "taken", "; ".join(notices)


def columns_of(path: Path, *keys: str) -> set[str]:
    """Names of the columns that a file declares under ``keys``."""
    try:
        content = YAML(typ="base").load(path)
    except YAMLError:
        return set()
    for key in keys:
        content = content[key]
    return {str(name) for name in content["columns"]}


def campaign(form: str, first: int, end: int) -> dict[int, tuple[str, str]]:
    """`outcome` of the files with numbers from ``first`` to before ``end``."""
    found = {}
    for number in range(first, end):
        with TemporaryDirectory() as folder:
            found[number] = outcome(form, number, Path(folder))
    return found


def main() -> None:
    """Print what becomes of the files."""
    first, end, *forms = sys.argv[1:]
    for form in forms or FORMATS:
        found = campaign(form, int(first), int(end))
        print(form, dict(Counter(kind for kind, _ in found.values())), flush=True)
        for number, (kind, said) in found.items():
            if kind not in ("taken", "refused"):
                print(f"  {number}: {kind}: {said}", flush=True)


if __name__ == "__main__":
    main()
