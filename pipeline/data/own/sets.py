"""A person's own files as an entry of the catalogue, and their examples.

Where the declaration has no test part of its own, its seed takes ``test`` examples for one: the first in its
permutation, each part then in the order of the files.
"""

from pathlib import Path
from typing import cast

import numpy as np

from pipeline.data.catalog import Edition, Entry, Features, Format
from pipeline.data.formats import Examples
from pipeline.data.own import files as declared
from pipeline.errors import UserError
from pipeline.params import OWN, PARAMS, OwnArrays, OwnFeatures, OwnFiles, OwnImages, OwnTexts


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


def parts(name: str, own: OwnFiles, place: Path) -> dict[str, Examples]:
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
