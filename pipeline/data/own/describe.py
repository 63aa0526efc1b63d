"""Declaration of own files, from the files themselves."""

from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import ValidationError

from dprepro.checking import problem_lines
from dprepro.errors import UserError, notice, reading
from dprepro.fields import Strict
from dprepro.pipeline.data.declaration import digest_of
from dprepro.pipeline.data.own import files as declared
from dprepro.pipeline.data.own import images, npz, tables, texts
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.params import Data, OwnArrays, OwnFiles, OwnImages, OwnTable, OwnTexts, Public, Text
from dprepro.pipeline.params.own import KINDS, PublicNetwork, Unit

if TYPE_CHECKING:
    from pandas import DataFrame

S = TypeVar("S", bound=Strict)
UNKNOWN = "sha256:" + 64 * "0"
TEST, VALIDATION = 6, 10  # a sixth of the examples is for test, a tenth of the rest for validation
PUBLIC = 128  # default number of examples from another raw data set, as in Davody et al.
LEAST = 40  # smallest number of examples
TEXT = Text(tokens=32, vocabulary=20_000)  # as for AG News
_ENDINGS = {"npz": (".npz",), "images": ("",), "texts": (".csv",), "table": (".csv", ".parquet")}
_LAYOUTS = {
    "npz": "a file, or a folder with train.npz and test.npz",
    "images": "a folder of images for each of two or more classes in it, or train and test with such folders",
    "texts": "a file, or a folder with train.csv and test.csv",
    "table": "a CSV or Parquet file, or a folder with train and test, both .csv or both .parquet",
}


def describe(name: str, kind: str, options: Mapping[str, Any], root: Path = Path()) -> tuple[OwnFiles, Data]:
    """Declarations of own files and of their splits, with classes, shape, digest and numbers of examples.

    Args:
        name: name of the data.
        kind: npz, images, texts or table.
        options: given fields of the declaration, and `public`, fields of the public split. `path` is
            required, and lies below ``root``. With `resize`, the height and width of `shape` are kept. A
            table also needs `label`, `columns`, and `classes` or a `target`. `network` needs no digest. If
            the files have no test part and `test` is not given, a sixth of the examples becomes the test
            part.
        root: folder of params.yaml.

    Raises:
        UserError: an option is wrong, or the files are missing, have another form, or have too few examples
            or classes.
    """
    said = dict(options)
    public = _public(name, said.pop("public", None))
    if kind == "table" and "target" in said:
        said.setdefault("classes", [said.get("label")])
    if "network" in said:
        said["network"] = _network(name, said["network"])
        if kind == "images" and "shape" not in said:
            size = said["network"].size
            said |= {"resize": True, "shape": (1, size, size)}
    # what the files tell has a value that is allowed, so that all options are checked before
    as_kind = "features" if kind == "npz" and said.keys() & {"range", "clip"} else kind
    unknown: dict[str, Any] = {"digest": UNKNOWN, "classes": ["0", "1"]}
    if kind in ("npz", "images"):
        unknown["shape"] = (1, 1, 1)
    asked = _declared(f"own.{name}", KINDS[as_kind], {**unknown, **said, "kind": as_kind})
    place = root / asked.path
    if kind == "npz" and place.suffix.lower() in _ENDINGS["table"]:
        raise UserError(f"{place}: a table, not as --npz takes it; allowed with --table")
    parts = (
        [path for part in declared.PARTS if (path := place / f"{part}{ending}").exists()]
        for ending in _ENDINGS[kind]
    )
    there = max(parts, key=len)
    if kind == "images":
        there = [path for path in there if declared.is_part(path)]
    if parted := len(there) == len(declared.PARTS):
        declared.say_other_parts(place, there)
    if not parted and (place.is_dir() != (kind == "images") or there):
        raise UserError(f"{place}: not as --{kind} takes it; allowed: {_LAYOUTS[kind]}")
    test = asked.test
    if parted and test is not None:
        raise UserError(f"own.{name}.test: {test}; not allowed beside the test part of {place}")
    first = there[0] if parted else place
    for folder in there if parted and kind == "images" else [place] * (kind == "images"):
        declared.say_left_out(folder)
    if kind != "images":
        declared.check_regular(first)
    fields, examples = _READ[kind](first, asked)
    if len(fields.get("classes", asked.classes)) < 2 and "target" not in said:
        raise UserError(f"{place}: examples of one class alone; needed: of two")
    if examples < LEAST:
        raise UserError(f"{place}: {examples} examples; needed: {LEAST} at least, for four splits")
    # a person's examples at the end of a split don't begin the next one
    cut = asked.unit.at_most - 1 if asked.unit else 0
    count = examples
    if not parted:
        test = count // TEST if test is None else test
        count -= test + cut
    declaration = _declared(
        f"own.{name}",
        KINDS[fields.get("kind", kind)],
        {"kind": kind, "digest": UNKNOWN, **said, **fields, "test": test},
    )
    digest = digest_of(declared.digests(declared.find(name, declaration, root)))
    declaration = declaration.model_copy(update={"digest": digest})
    validation = count // VALIDATION
    unprotected = public.count if public.raw == name else 0
    train = count - validation - cut - unprotected
    if train < 1 or validation < 1:
        tested = "" if parted else f"{test:,} for test and "
        raise UserError(
            f"{place}: {examples:,} examples; {tested}{unprotected:,} public ones leave too few to train on "
            "and to validate on"
        )
    text = TEXT if kind == "texts" else None
    return declaration, Data(raw=name, train=train, validation=validation, public=public, text=text)


def with_digest(network: Any) -> dict[str, Any]:
    """Declaration of public weights with the digest of their file.

    Raises:
        UserError: the file is not named or can't be read.
    """
    if not isinstance(network, Mapping) or "weights" not in network:
        raise UserError("network.weights: missing; allowed: a file of network weights in this folder")
    with reading(path := Path(str(network["weights"]))):
        return {**network, "digest": digest_file(path)}


def _network(name: str, said: Any) -> PublicNetwork:
    from dprepro.pipeline.data.own.trunk import width  # imports torch

    where = f"own.{name}.network"
    if isinstance(said, Mapping):
        said = {**said, "digest": UNKNOWN, "features": 1}
    asked = _declared(where, PublicNetwork, said)
    found = with_digest(asked.model_dump(exclude_unset=True))
    return _declared(where, PublicNetwork, {**found, "features": width(asked.architecture)})


def _public(name: str, said: Any) -> Public:
    """Public split; of another raw data set it has `PUBLIC` examples, if their number is not given."""
    if said is None:
        return Public(raw=name, count=0)
    if isinstance(said, Mapping):
        elsewhere = {"count": PUBLIC} if said.get("raw", name) != name else {}
        said = {"raw": name, **elsewhere, **said}
    return _declared(f"data.{name}.public", Public, said)


def _declared(where: str, kind: type[S], fields: Any) -> S:
    try:
        return kind.model_validate(fields)
    except ValidationError as problem:
        lines = (f"{where}.{line}".replace(".: ", ": ", 1) for line in problem_lines(problem, kind))
        raise UserError("\n".join(lines)) from problem


def _npz(path: Path, asked: OwnArrays) -> tuple[dict[str, Any], int]:
    examples = npz.read(path, asked.inputs, asked.labels)
    last = int(examples.labels.max()) if len(examples.labels) else 0
    classes = [str(label) for label in range(last + 1)]
    kind = "features" if examples.inputs.dtype == np.float32 else "npz"
    return {"kind": kind, "classes": classes, "shape": examples.inputs.shape[1:]}, len(examples.labels)


def _images(path: Path, asked: OwnImages) -> tuple[dict[str, Any], int]:
    classes = declared.class_folders(path)
    if len(classes) < 2:
        raise UserError(f"{path}: not as --images takes it; allowed: {_LAYOUTS['images']}")
    inner = {each: {*declared.class_folders(path / each)} for each in classes}
    for one, another in combinations(classes, 2):
        if len(shared := sorted(inner[one] & inner[another])) > 1:  # one alone may be such as `images`
            both = f"{one} and {another} both have folders {shared[0]!r} and {shared[1]!r}"
            raise UserError(f"{path}: {both}, so they are no classes; allowed: {_LAYOUTS['images']}")
    by_class = {each: declared.images_of(path / each) for each in classes}
    if empty := next((each for each, images_there in by_class.items() if not images_there), None):
        raise UserError(f"{path / empty}: no images of this class; allowed: {', '.join(declared.IMAGES)}")
    paths = [image for images_there in by_class.values() for image in images_there]
    sizes = {image: images.look(image) for image in paths}
    channels = 1 if all(grey for _, _, grey in sizes.values()) else 3
    if asked.resize:
        shape = (channels, *asked.shape[1:])
        images.check_size(path, len(paths), shape)
        return {"classes": classes, "shape": shape}, len(paths)
    different = {(height, width): image for image, (height, width, _) in sizes.items()}
    if len(different) > 1:
        (size, first), (other, second) = list(different.items())[:2]
        raise UserError(
            f"{first} has {size[0]}x{size[1]} pixels and {second} {other[0]}x{other[1]}; "
            "--size cuts and scales"
        )
    return {"classes": classes, "shape": (channels, *next(iter(different), (1, 1)))}, len(paths)


def _texts(path: Path, asked: OwnTexts) -> tuple[dict[str, Any], int]:
    _, labels = texts.values(path, _kept(path, texts.csv_frame(path), asked.unit), asked.text, asked.label)
    return {"classes": sorted(set(labels))}, len(labels)


def _table(path: Path, asked: OwnTable) -> tuple[dict[str, Any], int]:
    if (file := tables.FORMATS.get(path.suffix.lower())) is None:
        raise UserError(f"{path}: not as --table takes it; allowed: {_LAYOUTS['table']}")
    return {"file": file}, len(_kept(path, tables.frame(path), asked.unit))


def _kept(path: Path, lines: "DataFrame", unit: Unit | None) -> "DataFrame":
    """Lines that the unit of privacy keeps; says how many it leaves out."""
    kept, _ = texts.kept(path, lines, unit)
    if unit is not None and (out := len(lines) - len(kept)):
        notice(f"{path}: {out:,} of {len(lines):,} lines are left out: a person has at most {unit.at_most}")
    return kept


_READ: dict[str, Callable[[Path, Any], tuple[dict[str, Any], int]]] = {
    "npz": _npz,
    "images": _images,
    "texts": _texts,
    "table": _table,
}
