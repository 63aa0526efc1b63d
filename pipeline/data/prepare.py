"""Raw files -> ``data/prepared/NAME``: splits by a declared rule, and a manifest that lets anyone check them.

The rule. Both permutations come from the declared seed. The examples of the private raw data set's training
part are permuted. Public examples are taken first: the first ``count``, in permuted order, whose content
occurs nowhere else in the private raw data set; then train and validation take their counts from what is left,
in the same order. Test is the whole official test part. So no public example equals a private one, although
the official sets do repeat some of their own (the manifest counts them).

The manifest holds no mean, variance or other statistic of pixels: what a model normalises with must come from
public data. Counts of classes and of repeated examples do describe private data; they are there for whoever
checks the splits, and no training reads them.
"""

import json
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data import catalog, formats
from pipeline.data.catalog import SYNTHETIC, Entry
from pipeline.data.fetch import RAW
from pipeline.data.folders import replacing
from pipeline.data.formats import Examples
from pipeline.data.prepared import PREPARED, SPLITS
from pipeline.errors import UserError, writing
from pipeline.files import digest_file, write_text
from pipeline.settings import PARAMS, Data, Settings, pick

RULE = (
    "public: the first `count`, in the seed's permutation, whose content occurs nowhere else in the private raw "
    "data set; train, then validation: the rest of the official training part, in the seed's permutation; "
    "test: the whole official test part"
)


@dataclass(frozen=True)
class RawSet:
    """A raw data set as read from ``data/raw``."""

    entry: Entry
    edition: str
    files: dict[str, str]  # name -> digest
    parts: dict[str, Examples]  # train, test


@dataclass(frozen=True)
class Selection:
    """Which examples make up a split."""

    raw: str
    part: str
    indices: np.ndarray  # int64, positions in that part of that raw data set

    @property
    def members(self) -> set[tuple[str, str, int]]:
        """Each example's identity."""
        return {(self.raw, self.part, index) for index in self.indices.tolist()}


@dataclass(frozen=True)
class Written:
    """What `prepare` wrote."""

    folder: Path
    manifest: dict[str, Any]


def prepare(name: str, settings: Settings, root: Path = Path()) -> Written:
    """Split raw data into ``data/prepared/NAME``.

    Args:
        name: a key of ``data`` in params.yaml.
        settings: the whole of params.yaml.
        root: the folder that holds params.yaml.

    Raises:
        UserError: raw files are missing or wrong, sizes don't fit, or the folder can't be written.
    """
    data = pick(settings.data, name, "data set")
    raw = {key: _load(key, settings, root) for key in dict.fromkeys((data.raw, data.public.raw))}
    _check_kinds(name, data, raw)
    keys = {
        (key, part): _contents(examples) for key, each in raw.items() for part, examples in each.parts.items()
    }
    selections, skipped = select(name, data, keys)
    check_disjoint(selections)
    target = root / PREPARED / name
    with replacing(target) as building:
        shape, text = _write_splits(building, data, raw, selections)
        manifest = {
            "name": name,
            "rule": RULE,
            "seed": data.seed,
            "raw": {key: _origin(each) for key, each in raw.items()},
            "classes": list(raw[data.raw].entry.classes),
            "input_shape": shape,
            "counts": {split: len(chosen.indices) for split, chosen in selections.items()},
            "balance": {split: _balance(chosen, raw) for split, chosen in selections.items()},
            "public": {
                "raw": data.public.raw,
                "part": data.public.part,
                "classes": list(raw[data.public.raw].entry.classes),
                "skipped": skipped,  # candidates passed over because a private example has the same content
            },
            "duplicates": _duplicates(selections, keys),
            "digests": {
                path.name.removesuffix(".npy"): digest_file(path) for path in sorted(building.glob("*.npy"))
            },
        }
        if text is not None:
            manifest["text"] = text
        content = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        write_text(building / "manifest.json", content)
    return Written(target, manifest)


def select(
    name: str, data: Data, keys: dict[tuple[str, str], list[bytes]]
) -> tuple[dict[str, Selection], int]:
    """Apply the rule: which examples go where, and how many public candidates were passed over.

    Args:
        name: of the data set, for messages.
        data: the declared sizes.
        keys: the content of every example, as (raw, part) -> one key an example.

    Raises:
        UserError: a declared size doesn't fit; the line says what is there.
    """
    own, public = data.raw == data.public.raw, data.public
    if own and public.part == "test":
        raise UserError(f"{PARAMS}: data.{name}.public.part: 'test' is the test split; allowed: train")
    private = Counter(keys[data.raw, "train"] + keys[data.raw, "test"])
    # Of the data set's own examples each occurs once by being itself.
    allowed = 1 if own else 0
    order = _permutation(len(keys[data.raw, "train"]), data.seed)
    candidates = order if own else _permutation(len(keys[public.raw, public.part]), data.seed)
    fitting = np.array([private[keys[public.raw, public.part][index]] <= allowed for index in candidates])
    if fitting.sum() < public.count:
        raise UserError(
            f"{PARAMS}: data.{name}.public.count: {public.count}, but the {public.part} part of {public.raw!r} "
            f"has {fitting.sum()} examples that are not private too"
        )
    last = int(np.flatnonzero(fitting)[public.count - 1]) + 1  # candidates looked at
    chosen = candidates[:last][fitting[:last]]
    rest = order[~np.isin(order, chosen)] if own else order
    if data.train + data.validation > len(rest):
        taken = f", of which public takes {public.count}" if own else ""
        raise UserError(
            f"{PARAMS}: data.{name}: train {data.train} + validation {data.validation} is more than the "
            f"{len(order)} training examples of {data.raw!r}{taken}"
        )
    return {
        "train": Selection(data.raw, "train", rest[: data.train]),
        "validation": Selection(data.raw, "train", rest[data.train : data.train + data.validation]),
        "test": Selection(data.raw, "test", np.arange(len(keys[data.raw, "test"]))),
        "public": Selection(public.raw, public.part, chosen),
    }, last - public.count


def check_disjoint(selections: dict[str, Selection]) -> None:
    """Make sure that no example is in two splits.

    Raises:
        RuntimeError: one is: the rule above is broken, and privacy with it.
    """
    for (one, first), (other, second) in combinations(selections.items(), 2):
        if shared := first.members & second.members:
            raise RuntimeError(f"{one} and {other} share {len(shared)} examples")


def _permutation(count: int, seed: int) -> np.ndarray:
    """A permutation of ``range(count)`` from raw PCG64 output.

    NumPy promises that stream for ever; `Generator.permutation` may change between versions.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def _load(key: str, settings: Settings, root: Path) -> RawSet:
    """Read a raw data set after checking that its files are the ones fetched, in the edition asked for."""
    entry, folder = catalog.get(key), root / RAW / key
    again = f"run `dprepro fetch {key}`"
    try:
        source = json.loads((folder / "source.json").read_text())
        edition, files = str(source["edition"]), dict(source["files"])
    except FileNotFoundError as problem:
        raise UserError(f"{folder}: missing; {again} first") from problem
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UserError(f"{folder}/source.json: can't be read; {again} again") from problem
    asked = SYNTHETIC if settings.source.kind == SYNTHETIC else settings.raw[key].edition
    if edition != asked:
        raise UserError(
            f"{folder}: holds edition {edition!r}, but {PARAMS} asks for {asked!r}; {again} again"
        )
    layout = entry.edition(catalog.OFFICIAL if edition == SYNTHETIC else edition)
    for file in layout.files:
        path = folder / file.name
        if not path.is_file():
            raise UserError(f"{path}: missing; {again} again")
        expected = files.get(file.name) if edition == SYNTHETIC else file.checksum
        if digest_file(path) != expected:
            raise UserError(f"{path}: truncated or corrupt: not the bytes fetched; {again} again")
    parts = {
        part: formats.read(entry.format, [folder / file.name for file in which.files])
        for part, which in (("train", layout.train), ("test", layout.test))
    }
    return RawSet(entry, edition, files, parts)


def _check_kinds(name: str, data: Data, raw: dict[str, RawSet]) -> None:
    """Public examples must look like private ones, and text needs its settings."""
    private, public = raw[data.raw].entry, raw[data.public.raw].entry
    if private.shape != public.shape:
        raise UserError(
            f"{PARAMS}: data.{name}.public.raw: {public.key!r} has {_kind(public)}, "
            f"but {private.key!r} has {_kind(private)}"
        )
    if (private.shape is None) != (data.text is not None):
        needs = (
            "missing; a text data set needs it"
            if data.text is None
            else f"{private.key!r} has {_kind(private)}"
        )
        raise UserError(f"{PARAMS}: data.{name}.text: {needs}")


def _kind(entry: Entry) -> str:
    return "texts" if entry.shape is None else "images of " + "x".join(map(str, entry.shape))


def _contents(examples: Examples) -> list[bytes]:
    """A key for each example that two examples share exactly when their contents are identical."""
    contents = (
        (image.tobytes() for image in examples.images)
        if examples.images is not None
        else (text.encode() for text in examples.texts or ())
    )
    return [blake2b(content, digest_size=16).digest() for content in contents]


def _write_splits(
    folder: Path, data: Data, raw: dict[str, RawSet], selections: dict[str, Selection]
) -> tuple[list[int], dict[str, Any] | None]:
    """Write every array; return the shape of one input and the manifest's part about text."""
    encoder = about = None
    if data.text is not None:
        from pipeline.data.text import Encoder  # brings torch with it

        encoder = Encoder.of(_texts(selections["train"], raw), data.text)
        about = encoder.write(folder / "vocabulary.txt")
    shape: list[int] = []
    for split in SPLITS:
        chosen = selections[split]
        examples = raw[chosen.raw].parts[chosen.part]
        inputs = examples.images[chosen.indices] if encoder is None else encoder(_texts(chosen, raw))
        shape = list(inputs.shape[1:])
        for kind, array in (
            ("inputs", inputs),
            ("labels", examples.labels[chosen.indices]),
            ("indices", chosen.indices.astype(np.int64)),
        ):
            path = folder / f"{split}.{kind}.npy"
            with writing(path):
                np.save(path, np.ascontiguousarray(array), allow_pickle=False)
    return shape, about


def _texts(chosen: Selection, raw: dict[str, RawSet]) -> list[str]:
    texts = raw[chosen.raw].parts[chosen.part].texts or []
    return [texts[index] for index in chosen.indices]


def _origin(raw: RawSet) -> dict[str, Any]:
    """What the manifest says of a raw data set."""
    synthetic = raw.edition == SYNTHETIC
    return {
        "title": f"synthetic stand-in for {raw.entry.title}" if synthetic else raw.entry.title,
        "edition": raw.edition,
        "note": None if synthetic else raw.entry.edition(raw.edition).note,
        "licence": "made by this project, Apache-2.0" if synthetic else raw.entry.licence,
        "files": raw.files,
    }


def _balance(chosen: Selection, raw: dict[str, RawSet]) -> list[int]:
    """Examples of each class, in the order of the raw data set's classes."""
    labels = raw[chosen.raw].parts[chosen.part].labels[chosen.indices]
    return np.bincount(labels, minlength=len(raw[chosen.raw].entry.classes)).tolist()


def _duplicates(
    selections: dict[str, Selection], keys: dict[tuple[str, str], list[bytes]]
) -> dict[str, dict[str, int]]:
    """How often identical contents occur: repeats within each split, contents that two splits share."""
    contents = {
        split: [keys[chosen.raw, chosen.part][index] for index in chosen.indices]
        for split, chosen in selections.items()
    }
    return {
        "within": {split: len(each) - len(set(each)) for split, each in contents.items()},
        "between": {
            f"{one}, {other}": len(set(contents[one]) & set(contents[other]))
            for one, other in combinations(SPLITS, 2)
        },
    }
