"""Declaration of own files, from the files themselves."""

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from dprepro.checking import problem_lines
from dprepro.errors import UserError, notice
from dprepro.pipeline.data.declaration import digest_of
from dprepro.pipeline.data.own import files as declared
from dprepro.pipeline.data.own import images, npz, tables, texts
from dprepro.pipeline.params import Data, OwnFiles, Public, Text
from dprepro.pipeline.params.own import KINDS

if TYPE_CHECKING:
    from pandas import DataFrame

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


def describe(
    name: str, kind: str, options: dict[str, Any], root: Path = Path(), public: Public | None = None
) -> tuple[OwnFiles, Data]:
    """Declarations of own files and of their splits, with classes, shape, digest and numbers of examples.

    Args:
        name: name of the data.
        kind: npz, images, texts or table.
        options: given fields of the declaration. `path` is required, and lies below ``root``. `shape` of
            images may be (None, H, W), the size to scale them to. A table also needs `classes` and
            `columns`. If the files have no test part and `test` is not given, a sixth of the
            examples becomes the test part.
        root: folder of params.yaml.
        public: public examples; None: none.

    Raises:
        UserError: the files are missing, have another form, or have too few examples or classes.
    """
    place = root / options["path"]
    if kind == "npz" and place.suffix.lower() in _ENDINGS["table"]:
        raise UserError(f"{place}: a table, not as --npz takes it; allowed with --table")
    parts = {
        ending: [path for part in declared.PARTS if (path := declared.part_of(place, part, ending)).exists()]
        for ending in _ENDINGS[kind]
    }
    ending, there = max(parts.items(), key=lambda found: len(found[1]))
    if kind == "images":
        there = [path for path in there if declared.is_part(path)]
    if parted := len(there) == len(declared.PARTS):
        declared.say_other_parts(place, ending)
    if not parted and (place.is_dir() != (kind == "images") or there):
        raise UserError(f"{place}: not as --{kind} takes it; allowed: {_LAYOUTS[kind]}")
    test = options.get("test")
    if parted and test is not None:
        raise UserError(f"--test {test}: not allowed beside the test part of {place}")
    first = there[0] if parted else place
    for folder in there if parted and kind == "images" else [place] * (kind == "images"):
        declared.say_left_out(folder)
    if kind != "images":
        declared.check_regular(first)
    fields, count = _READ[kind](first, options)
    if len(fields["classes"]) < 2 and "target" not in options:
        raise UserError(f"{place}: examples of one class alone; needed: of two")
    if count < LEAST:
        raise UserError(f"{place}: {count} examples; needed: {LEAST} at least, for four splits")
    # a person's examples at the end of a split don't begin the next one
    unit = options.get("unit")
    cut = unit.at_most - 1 if unit else 0
    if not parted:
        test = count // TEST if test is None else test
        count -= test + cut
    declaration = _declared(name, {"kind": kind, "digest": UNKNOWN, **options, **fields, "test": test})
    digest = digest_of(declared.digests(declared.find(name, declaration, root)))
    declaration = declaration.model_copy(update={"digest": digest})
    public = public or Public(raw=name, count=0)
    validation = count // VALIDATION
    train = count - validation - cut - (public.count if public.raw == name else 0)
    if train < 1 or not validation:
        raise UserError(
            f"--test {test}, --public {public.count}: of {max(0, count)} examples too few are left to "
            "train on and to validate on"
        )
    text = TEXT if kind == "texts" else None
    return declaration, Data(raw=name, train=train, validation=validation, public=public, text=text)


def _declared(name: str, fields: dict[str, Any]) -> OwnFiles:
    try:
        return KINDS[fields["kind"]].model_validate(fields)
    except ValidationError as problem:
        lines = (f"own.{name}.{line}" for line in problem_lines(problem))
        raise UserError("\n".join(lines)) from problem


def _npz(path: Path, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    examples = npz.read(path, options.get("inputs", "inputs"), options.get("labels", "labels"))
    last = int(examples.labels.max()) if len(examples.labels) else 0
    classes = [str(label) for label in range(last + 1)]
    kind = "features" if examples.inputs.dtype == np.float32 else "npz"
    return {"kind": kind, "classes": classes, "shape": examples.inputs.shape[1:]}, len(examples.labels)


def _images(path: Path, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
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
    if (asked := options.get("shape")) is not None:
        images.check_size(path, len(paths), (channels, *asked[1:]))
        return {"classes": classes, "shape": (channels, *asked[1:])}, len(paths)
    different = {(height, width): image for image, (height, width, _) in sizes.items()}
    if len(different) > 1:
        (size, first), (other, second) = list(different.items())[:2]
        raise UserError(
            f"{first} has {size[0]}x{size[1]} pixels and {second} {other[0]}x{other[1]}; "
            "--size cuts and scales"
        )
    return {"classes": classes, "shape": (channels, *next(iter(different), (1, 1)))}, len(paths)


def _texts(path: Path, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    names = options.get("text", "text"), options.get("label", "label")
    _, labels = texts.values(path, _kept(path, texts.csv_frame(path), options), *names)
    return {"classes": sorted(set(labels))}, len(labels)


def _table(path: Path, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    if (file := tables.FORMATS.get(path.suffix.lower())) is None:
        raise UserError(f"{path}: not as --table takes it; allowed: {_LAYOUTS['table']}")
    return {"classes": options["classes"], "file": file}, len(_kept(path, tables.frame(path), options))


def _kept(path: Path, lines: "DataFrame", options: dict[str, Any]) -> "DataFrame":
    """Lines that the unit of privacy keeps; says how many it leaves out."""
    unit = options.get("unit")
    kept, _ = texts.kept(path, lines, unit)
    if unit is not None and (out := len(lines) - len(kept)):
        notice(f"{path}: {out:,} of {len(lines):,} lines are left out: a person has at most {unit.at_most}")
    return kept


_READ = {"npz": _npz, "images": _images, "texts": _texts, "table": _table}
