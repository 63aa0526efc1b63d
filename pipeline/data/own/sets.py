"""``data/raw/NAME`` of a person's own files, laid out by `fetch` and read back as the catalogue's are.

The folder holds copies of the declared files and ``source.json`` with their checksums. Where the declaration
has no test part of its own, its seed takes ``test`` examples for one: the first in its permutation, each part
then in the order of the files.
"""

from pathlib import Path
from shutil import copyfile
from typing import cast

import numpy as np

from pipeline.data import catalog, raw
from pipeline.data.catalog import Edition, Entry, Features, Format
from pipeline.data.formats import Examples
from pipeline.data.own import files as declared
from pipeline.data.own import private
from pipeline.data.prepared import PREPARED
from pipeline.data.raw import RAW, RawSet
from pipeline.errors import UserError, reading, writing
from pipeline.files import digest_file
from pipeline.params import OWN, PARAMS, OwnArrays, OwnFeatures, OwnFiles, OwnImages, OwnTexts, Settings


def entry_of(name: str, settings: Settings) -> Entry:
    """What a model needs to know of a raw data set, the catalogue's or one's own."""
    own = settings.own.get(name)
    return raw.entry_of(name, settings) if own is None else entry(name, own)


def entry(name: str, own: OwnFiles) -> Entry:
    """A declaration as an entry of the catalogue. Its files stand in ``source.json``, and not here."""
    return Entry(
        key=name,
        title=f"own data {name!r}",
        licence=own.licence,
        format=cast(Format, OWN),
        classes=tuple(own.classes),
        shape=own.example_shape,
        editions={OWN: Edition((), ())},
        features=Features(own.range, own.clip) if isinstance(own, OwnFeatures) else None,
    )


def collect(name: str, own: OwnFiles, root: Path, target: Path) -> None:
    """Copy the declared files into ``target``, once they are the declared ones.

    Raises:
        UserError: they are not, or can't be copied.
    """
    if name in catalog.catalog():
        raise UserError(f"{PARAMS}: own.{name}: the catalogue has data of that name; allowed: another name")
    private.ignore([RAW, PREPARED, Path(own.path)], root)
    private.refuse_tracked(private.tracked([Path(own.path)], root))
    found = declared.find(name, own, root)
    told = declared.digest_of(declared.digests(found))
    if told != own.digest:
        raise UserError(
            f"{root / own.path}: its digest is {told}, but {PARAMS} has own.{name}.digest: {own.digest}; "
            "if it was meant to change, write the new one there"
        )
    # whatever they hold is compared with the declaration now, while somebody looks
    _parts(name, own, root / own.path)
    for below, path in found.items():
        with reading(path), writing(target / below):
            (target / below).parent.mkdir(parents=True, exist_ok=True)
            copyfile(path, target / below)


def load(name: str, settings: Settings, root: Path = Path()) -> RawSet:
    """Read ``data/raw/NAME`` after checking that it holds the declared bytes.

    Raises:
        UserError: it doesn't; the line says what to run.
    """
    own = settings.own.get(name)
    if own is None:
        return raw.load(name, settings, root)
    folder, again = root / RAW / name, f"run `dprepro fetch {name}`"
    _, files = raw.read_source(folder, again)
    for below, digest in files.items():
        path = folder / below
        if not path.is_file() or digest_file(path) != digest:
            raise UserError(f"{path}: is not what was fetched; {again} again")
    if declared.digest_of(dict(sorted(files.items()))) != own.digest:
        raise UserError(f"{folder}: holds other files than own.{name}.digest of {PARAMS}; {again} again")
    return RawSet(entry(name, own), OWN, files, _parts(name, own, folder))


def _parts(name: str, own: OwnFiles, place: Path) -> dict[str, Examples]:
    """Training and test part of the files in the folder ``place``, or of that file, as they are declared."""
    if declared.parted(own):
        parts = {part: _read(own, place, part) for part in declared.PARTS}
    elif isinstance(own, OwnArrays) and own.test_inputs and own.test_labels:
        arrays = own.model_copy(update={"inputs": own.test_inputs, "labels": own.test_labels})
        parts = {"train": _read(own, place, "all"), "test": _read(arrays, place, "all")}
    else:
        parts = _split(name, own, _read(own, place, "all"))
    for part, examples in parts.items():
        _check(name, own, part, examples)
    return parts


def _read(own: OwnFiles, place: Path, part: str) -> Examples:
    """The examples of one part of own files: 'train', 'test', or 'all' where they have no parts."""
    if isinstance(own, OwnImages):
        from pipeline.data.own import images

        return images.read(place if part == "all" else place / part, own.classes, own.shape, own.resize)
    path = place / f"{part}{declared.ending(own)}" if place.is_dir() else place
    if isinstance(own, OwnArrays):
        from pipeline.data.own import npz

        return npz.read(path, own.inputs, own.labels)
    assert isinstance(own, OwnTexts)
    from pipeline.data.own import texts

    return texts.read(path, own.text, own.label, own.classes)


def _split(name: str, own: OwnFiles, examples: Examples) -> dict[str, Examples]:
    count = len(examples.labels)
    assert own.test is not None
    if own.test >= count:
        raise UserError(f"{PARAMS}: own.{name}.test: {own.test}; allowed: less than the {count} examples")
    # raw PCG64 output, as in `pipeline.data.splits`: NumPy promises that stream for ever
    order = np.argsort(np.random.PCG64(own.seed).random_raw(count), kind="stable")
    chosen = {"train": np.sort(order[own.test :]), "test": np.sort(order[: own.test])}
    return {part: Examples(examples.inputs[which], examples.labels[which]) for part, which in chosen.items()}


def _check(name: str, own: OwnFiles, part: str, examples: Examples) -> None:
    """Make sure that examples have labels of the declared classes, and images the declared shape."""
    inputs, labels, where = examples.inputs, examples.labels, f"{own.path}: its {part} part"
    if not len(labels):
        raise UserError(f"{where} has no examples")
    if isinstance(own, OwnArrays) and (inputs.dtype == np.float32) != isinstance(own, OwnFeatures):
        kind = "features" if isinstance(own, OwnFeatures) else "npz"
        raise UserError(f"{where} has {inputs.dtype}; own.{name}.kind in {PARAMS} says {kind!r}")
    if own.example_shape is not None and inputs.shape[1:] != own.example_shape:
        there, due = ("x".join(map(str, shape)) for shape in (inputs.shape[1:], own.example_shape))
        raise UserError(f"{where} has examples of {there}; own.{name}.shape in {PARAMS} says {due}")
    if isinstance(own, OwnFeatures) and own.range is not None:
        low, high = own.range
        if not own.clip and not low <= inputs.min() <= inputs.max() <= high:
            raise UserError(
                f"{where} has values from {inputs.min():g} to {inputs.max():g}, beyond own.{name}.range in "
                f"{PARAMS}, {low:g} to {high:g}; `clip: true` moves them to its end"
            )
        np.clip(inputs, low, high, out=inputs)
    if not 0 <= labels.min() <= labels.max() < len(own.classes):
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise UserError(
            f"{where} has the label {wrong}; allowed: 0 to {len(own.classes) - 1}, for own.{name}.classes"
        )
    absent = np.flatnonzero(np.bincount(labels, minlength=len(own.classes)) == 0)
    if part == "train" and len(absent):
        raise UserError(f"{where} has no example of {own.classes[absent[0]]!r}, of own.{name}.classes")
