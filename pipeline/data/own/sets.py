"""Examples of the user's own files.

If the files have no test part, the declaration's seed permutes the examples, and the first ``test`` of them
are the test part. Both parts keep the order of the files. If the unit of privacy is a person, the seed
permutes people, and no person is in both parts.
"""

from pathlib import Path

import numpy as np

from dprepro.errors import UserError
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.data.own import files as declared
from dprepro.pipeline.data.own import npz, tables, texts
from dprepro.pipeline.data.splits import permutation_of, without_people_of
from dprepro.pipeline.params import (
    PARAMS,
    OwnArrays,
    OwnFeatures,
    OwnFiles,
    OwnImages,
    OwnTable,
    OwnTexts,
)


def parts(name: str, declaration: OwnFiles, place: Path, root: Path = Path()) -> dict[str, Examples]:
    """Training and test part of the declared files, after a comparison with their declaration.

    The weights of a public network are looked for in ``root``, the folder of params.yaml.
    """
    if declared.parted(declaration):
        parts = {part: _read(declaration, place, part) for part in declared.PARTS}
        people = [set() if each.people is None else set(each.people) for each in parts.values()]
        if both := len(set.intersection(*people)):
            raise UserError(f"{place}: people in both parts: {both:,}; allowed: each person in one part")
    elif isinstance(declaration, OwnArrays) and declaration.test_inputs and declaration.test_labels:
        arrays = declaration.model_copy(
            update={"inputs": declaration.test_inputs, "labels": declaration.test_labels}
        )
        parts = {"train": _read(declaration, place, "all"), "test": _read(arrays, place, "all")}
    else:
        parts = _split(name, declaration, _read(declaration, place, "all"))
    if (network := declaration.public_network) is not None:
        from dprepro.pipeline.data.own import trunk  # imports torch

        parts = {
            part: Examples(trunk.features(examples.inputs, network, root), examples.labels)
            for part, examples in parts.items()
        }
    for part, examples in parts.items():
        _check(name, declaration, part, examples)
    return parts


def _read(declaration: OwnFiles, place: Path, part: str) -> Examples:
    """Examples of one part of own files: 'train', 'test', or 'all' if the files have no parts."""
    if isinstance(declaration, OwnImages):
        from dprepro.pipeline.data.own import images  # imports Pillow, which training alone doesn't need

        folder = place if part == "all" else place / part
        return images.read(folder, declaration.classes, declaration.shape, declaration.resize)
    ending = declared.ending(declaration)
    if not place.is_dir():
        path = place
    else:
        path = place / f"all{ending}" if part == "all" else place / f"{part}{ending}"
    if isinstance(declaration, OwnArrays):
        return npz.read(path, declaration.inputs, declaration.labels)
    if isinstance(declaration, OwnTable):
        return tables.read(
            path,
            declaration.label,
            declaration.classes,
            declaration.columns,
            declaration.target,
            declaration.unit,
        )
    assert isinstance(declaration, OwnTexts)
    return texts.read(path, declaration.text, declaration.label, declaration.classes, declaration.unit)


def _split(name: str, declaration: OwnFiles, examples: Examples) -> dict[str, Examples]:
    count = len(examples.labels)
    assert declaration.test is not None
    if declaration.test >= count:
        raise UserError(
            f"{PARAMS}: own.{name}.test: {declaration.test}; allowed: less than the {count} examples"
        )
    people = examples.people
    order = permutation_of(count, declaration.seed, people)
    test, train = order[: declaration.test], order[declaration.test :]
    if people is not None:
        train = without_people_of(test, train, people)
    return {
        part: Examples(
            examples.inputs[which], examples.labels[which], None if people is None else people[which]
        )
        for part, which in (("train", np.sort(train)), ("test", np.sort(test)))
    }


def _check(name: str, declaration: OwnFiles, part: str, examples: Examples) -> None:
    """Make sure that examples have the declared type, shape, range and labels; clip features in place."""
    inputs, labels, where = examples.inputs, examples.labels, f"{declaration.path}: its {part} part"
    if not len(labels):
        raise UserError(f"{where} has no examples")
    if (
        isinstance(declaration, OwnArrays)
        and declaration.public_network is None
        and (inputs.dtype == np.float32) != isinstance(declaration, OwnFeatures)
    ):
        kind = "features" if isinstance(declaration, OwnFeatures) else "npz"
        raise UserError(f"{where} has {inputs.dtype}; own.{name}.kind in {PARAMS} says {kind!r}")
    if declaration.example_shape is not None and inputs.shape[1:] != declaration.example_shape:
        there, due = ("x".join(map(str, shape)) for shape in (inputs.shape[1:], declaration.example_shape))
        raise UserError(f"{where} has examples of {there}; own.{name}.shape in {PARAMS} says {due}")
    if isinstance(declaration, OwnFeatures) and declaration.range is not None:
        low, high = declaration.range
        if not declaration.clip and not low <= inputs.min() <= inputs.max() <= high:
            raise UserError(
                f"{where} has values from {inputs.min():g} to {inputs.max():g}, beyond own.{name}.range in "
                f"{PARAMS}, {low:g} to {high:g}; `clip: true` moves them to its end"
            )
        np.clip(inputs, low, high, out=inputs)
    if declaration.number_range is not None:
        return
    if not 0 <= labels.min() <= labels.max() < len(declaration.classes):
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise UserError(
            f"{where} has the label {wrong}; allowed: 0 to {len(declaration.classes) - 1}, "
            f"for own.{name}.classes"
        )
    absent = np.flatnonzero(np.bincount(labels, minlength=len(declaration.classes)) == 0)
    if part == "train" and len(absent):
        raise UserError(
            f"{where} has no example of {declaration.classes[absent[0]]!r}, of own.{name}.classes"
        )
