"""Preparation of raw files in ``data/prepared/NAME``: splits, and a manifest for comparisons.

The manifest has no mean, variance or other statistic of pixels: statistics for normalisation must come from
public data. Its counts of classes and of repeated examples do describe private data. The counts are for
readers, and no training uses them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dprepro.errors import UserError
from dprepro.pipeline.data import digits, formats
from dprepro.pipeline.data.catalog import DIGITS, OFFICIAL, STAND_INS, SYNTHETIC, Entry
from dprepro.pipeline.data.formats import Examples
from dprepro.pipeline.data.own import sets as own_sets
from dprepro.pipeline.data.prepared import MANIFEST, PREPARED
from dprepro.pipeline.data.raw import RAW, check, entry_of
from dprepro.pipeline.data.splits import RULE, Selection, check_disjoint, content_keys, duplicates, select
from dprepro.pipeline.files import digest_file, digest_json, replacing_folder, write_text, writing
from dprepro.pipeline.params import PARAMS, Data, Settings, pick

OWN_RULE = (
    f"{RULE}; where own data have no test part, it is the first `test` examples in the permutation of the "
    "declaration's seed"
)


UNIT_RULE = (
    "of each person, the first `at_most` examples of a file; permutations are of people, and no person is in "
    "two splits"
)


@dataclass(frozen=True)
class RawSet:
    """Raw data set read from ``data/raw``, after a comparison with its declaration."""

    entry: Entry
    edition: str
    files: dict[str, str]  # name -> sha256 digest
    parts: dict[str, Examples]  # train, test; each in the official order


def load(name: str, settings: Settings, root: Path = Path()) -> RawSet:
    """Read ``data/raw/NAME``; raises the errors of `check`, and a UserError for files of another form."""
    edition, files = check(name, settings, root)
    entry, folder = entry_of(name, settings), root / RAW / name
    if (declaration := settings.own.get(name)) is not None:
        return RawSet(entry, edition, files, own_sets.parts(name, declaration, folder, root))
    layout = entry.edition(OFFICIAL if edition in STAND_INS else edition)
    parts = {
        part: formats.read(entry.format, [folder / file.name for file in which])
        for part, which in (("train", layout.train), ("test", layout.test))
    }
    return RawSet(entry, edition, files, parts)


def prepare(name: str, settings: Settings, root: Path = Path()) -> dict[str, Any]:
    """Split raw data, the catalogue's or the user's own, into ``data/prepared/NAME``; return the manifest.

    Equal raw files and settings give equal bytes. ``name`` is a key of ``data`` in params.yaml.

    Raises:
        UserError: another command makes this data set, raw files are missing or wrong, sizes don't fit, or
            the folder can't be written.
    """
    if (stage := settings.stage_of(name)) != "prepare":
        raise UserError(f"{name}: is made from a trained row; run `dprepro {stage} {name}`")
    data = pick(settings.data, name, "data set")
    sets = {key: load(key, settings, root) for key in dict.fromkeys((data.raw, data.public.raw))}
    _check_kinds(name, data, sets)
    keys = {
        (key, part): content_keys(examples.inputs)
        for key, each in sets.items()
        for part, examples in each.parts.items()
    }
    people = {(key, part): each.people for key, of in sets.items() for part, each in of.parts.items()}
    selections, passed_over = select(name, data, keys, people)
    check_disjoint(selections, keys, people)
    source = settings.own.get(data.raw)
    target, unit = (source.number_range, source.unit) if source else (None, None)
    with replacing_folder(root / PREPARED / name) as building:
        manifest = {
            "name": name,
            "rule": OWN_RULE if settings.own_of(name) else RULE,
            "seed": data.seed,
            "raw": {key: _origin(each, settings) for key, each in sets.items()},
            "classes": list(sets[data.raw].entry.classes),
            "public": {
                "raw": data.public.raw,
                "part": data.public.part,
                "classes": list(sets[data.public.raw].entry.classes),
                "passed_over": passed_over,  # candidates that have the content of a private example
            },
            "counts": {split: len(chosen.indices) for split, chosen in selections.items()},
            "balance": {split: _balance(chosen, sets) for split, chosen in selections.items()},
            "duplicates": duplicates(selections, keys),
            **_write_arrays(building, data, sets, selections),
            **({"target": target} if target else {}),
            **({"unit": unit.model_dump(), "rule": f"{OWN_RULE}; {UNIT_RULE}"} if unit else {}),
        }
        content = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        write_text(building / MANIFEST, content)
    return manifest


def _check_kinds(name: str, data: Data, sets: dict[str, RawSet]) -> None:
    """Make sure that public and private examples have the same form, and that only texts have `text`."""
    private, public = sets[data.raw].entry, sets[data.public.raw].entry
    if (private.shape, private.features is None) != (public.shape, public.features is None):
        raise UserError(
            f"{PARAMS}: data.{name}.public.raw: {public.key!r} has {_kind(public)}, "
            f"but {private.key!r} has {_kind(private)}"
        )
    if private.shape is None and data.text is None:
        raise UserError(f"{PARAMS}: data.{name}.text: missing; {private.key!r} has {_kind(private)}")
    if private.shape is not None and data.text is not None:
        raise UserError(f"{PARAMS}: data.{name}.text: not allowed; {private.key!r} has {_kind(private)}")


def _kind(entry: Entry) -> str:
    what = "texts" if entry.shape is None else "images of " if entry.features is None else "features of "
    return what + "x".join(map(str, entry.shape or ()))


def _write_arrays(
    folder: Path, data: Data, sets: dict[str, RawSet], selections: dict[str, Selection]
) -> dict[str, Any]:
    """Write inputs, labels and indices of every split; return the manifest entries of these arrays."""
    about: dict[str, Any] = {}
    encoder: Callable[[np.ndarray], np.ndarray] | None = None
    if data.text is not None:
        from dprepro.pipeline.data.text import Encoder, VectorEncoder  # imports torch

        if data.text.vectors is not None:
            encoder = vectors = VectorEncoder(data.text.tokens, data.text.vectors)
            about["text"] = vectors.about()
        else:
            encoder = words = Encoder.of(_examples(selections["train"], sets)[0], data.text)
            about["text"] = words.write(folder / "vocabulary.txt")
    digests = {}
    # one split after the other, because features of many images need much memory
    for split, chosen in selections.items():
        inputs, labels = _examples(chosen, sets)
        arrays = {
            "inputs": encoder(inputs) if encoder else inputs,
            "labels": labels,
            "indices": chosen.indices.astype(np.int64),
        }
        about["input_shape"] = list(arrays["inputs"].shape[1:])
        for kind, array in arrays.items():
            path = folder / f"{split}.{kind}.npy"
            with writing(path):
                np.save(path, array, allow_pickle=False)
            digests[f"{split}.{kind}"] = digest_file(path)
    if (features := sets[data.raw].entry.features) is not None:
        about["features"] = {"range": features.range, "clip": features.clip}
        if features.network is not None:
            about["features"]["network"] = features.network
    return {**about, "digests": digests}


def _examples(chosen: Selection, sets: dict[str, RawSet]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels of a split, in its order."""
    part = sets[chosen.raw].parts[chosen.part]
    return part.inputs[chosen.indices], part.labels[chosen.indices]


def _balance(chosen: Selection, sets: dict[str, RawSet]) -> list[int]:
    """Number of examples of each class; with a numeric target, only the number of all examples."""
    labels = sets[chosen.raw].parts[chosen.part].labels[chosen.indices]
    if labels.dtype == np.float32:  # a numeric target
        return [len(labels)]
    return np.bincount(labels, minlength=len(sets[chosen.raw].entry.classes)).tolist()


def _origin(each: RawSet, settings: Settings) -> dict[str, Any]:
    """Manifest entry of a raw data set."""
    declaration = settings.own.get(each.entry.key)
    encoding = declaration.encoding if declaration else None
    title, licence = {
        DIGITS: (digits.TITLE, digits.LICENCE),
        SYNTHETIC: (f"synthetic stand-in for {each.entry.title}", "made by this project, Apache-2.0"),
    }.get(each.edition, (each.entry.title, each.entry.licence))
    return {
        "title": title,
        "edition": each.edition,
        "note": None if each.edition in STAND_INS else each.entry.edition(each.edition).note,
        "licence": licence,
        "files": each.files,
        **({"encoding": digest_json(encoding)} if encoding else {}),
        **({"declared": settings.own_digest(each.entry.key)} if declaration else {}),
    }
