"""Reader of prepared data sets.

``data/prepared/NAME/`` has ``manifest.json`` and, for each split (train, validation, test, public),
``SPLIT.inputs.npy``, ``SPLIT.labels.npy`` and ``SPLIT.indices.npy``. Inputs are images, uint8 (N, C, H, W);
features, float32 (N, D) or (N, C, H, W); or texts, int32 token numbers (N, T) with 0 for padding, or float32
word vectors (N, 1, T, E). Labels are int64 (N,) classes, or float32 (N,) numbers, scaled to [0, 1] from the
range ``target`` of the manifest. A data set of ``starts`` also has ``start.npz``, public initial weights
(`pipeline.pretrained.starts`). Its inputs may be float32 (N, F), features by a frozen part of the public
network. A data set of ``relevances`` also has ``relevance.npz``, the relevance of each feature to a trained
network (`pipeline.pretrained.relevance`).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, NonNegativeInt

from dprepro.errors import UserError
from dprepro.fields import Count
from dprepro.pipeline.files import Damaged, check_file

if TYPE_CHECKING:
    from dprepro.pipeline.results.schema import Provenance

PREPARED = Path("data/prepared")
MANIFEST = "manifest.json"
START = "start.npz"
RELEVANCE = "relevance.npz"
SPLITS = ("train", "validation", "test", "public")


@dataclass(frozen=True)
class Features:
    """Declaration of examples that are stored as floats."""

    range: tuple[float, float] | None  # bounds of all values, known without a look at them
    clip: bool  # True: values beyond the range were moved to its end
    network: str | None = None  # description of the public network that computes the features


@dataclass(frozen=True)
class Split:
    """Inputs and labels of one split, in the same order."""

    inputs: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)


@dataclass(frozen=True)
class Prepared:
    """Prepared data set: its memory-mapped splits and its manifest."""

    name: str
    splits: dict[str, Split]  # empty for comparisons that need only the manifest
    manifest: dict[str, Any]
    start: Path | None = None  # file of public initial weights
    relevance: Path | None = None  # file of the features' relevances to a network

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of a network's input.

        (C, H, W) of images; (D,) or (C, H, W) of features; (T, V) of texts with a vocabulary of V words;
        (1, T, E) of texts as word vectors.
        """
        words = (self.manifest["text"]["vocabulary"],) if self.has_vocabulary else ()
        return (*self.manifest["input_shape"], *words)

    @property
    def has_vocabulary(self) -> bool:
        """Return whether inputs are token numbers of a vocabulary from the training texts."""
        return "vocabulary" in self.manifest.get("text", {})

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.manifest["classes"])

    @property
    def target(self) -> tuple[float, float] | None:
        """Range of a numeric target, which becomes [0, 1] in labels; None: labels are classes."""
        return self.manifest.get("target")

    @property
    def group(self) -> int | None:
        """Largest number of a person's examples; None: the unit of privacy is an example."""
        at_most: int | None = self.manifest.get("unit", {}).get("at_most")
        return at_most

    @property
    def digests(self) -> dict[str, str]:
        """Digest of each array, such as 'train.inputs', and of 'start' or 'relevance' if there is one."""
        return dict(self.manifest["digests"])

    @property
    def relevance_source(self) -> tuple[int, bool]:
        """Examples behind the relevances, and whether their network saw private ones."""
        about = self.manifest["relevance"]
        return about["examples"], about["informed"]

    def trained(self, origin: "Provenance") -> bool:
        """Return whether a training of this origin was on these arrays."""
        return origin.data == self.digests


@dataclass(frozen=True)
class Declared:
    """Declaration of a row's data, which are not prepared here."""

    digest: str  # `Settings.data_digest`
    examples: int  # of the training split
    edition: dict[str, str]  # by raw data set

    def trained(self, origin: "Provenance") -> bool:
        """Return whether a training of this origin was on data with this declaration."""
        if origin.declared is not None:
            return origin.declared == self.digest
        # a training from before this digest was recorded
        return (origin.examples, origin.edition) == (self.examples, self.edition)


def load(name: str, root: Path = Path()) -> Prepared:
    """Read ``data/prepared/NAME``; arrays are memory-mapped, each compared with its digest in the manifest.

    Raises:
        UserError: the data set is not prepared, or a file is missing or has another digest.
    """
    folder = root / PREPARED / name
    about = _manifest(folder)
    joined = {
        part: folder / file for part, file in (("start", START), ("relevance", RELEVANCE)) if part in about
    }
    splits = {}
    try:
        for part, path in joined.items():
            check_file(path, about["digests"].get(part))
        for split in SPLITS:
            arrays = []
            for kind in ("inputs", "labels"):
                path = folder / f"{split}.{kind}.npy"
                check_file(path, about["digests"].get(f"{split}.{kind}"))
                arrays.append(np.load(path, mmap_mode="r"))
            splits[split] = Split(*arrays)
    except FileNotFoundError as problem:
        raise _missing(problem, name) from problem
    # NumPy raises many kinds of exceptions for damaged files
    except (Damaged, OSError, ValueError, EOFError, TypeError, SyntaxError, TokenError) as problem:
        raise UserError(f"{path}: is not what was prepared; {_hint(about, name)}") from problem
    _check_shapes(folder, splits, about)
    return Prepared(name, splits, about, start=joined.get("start"), relevance=joined.get("relevance"))


def manifest_here(name: str) -> dict[str, Any] | None:
    """Manifest of the prepared data set ``name``; None if it isn't prepared here."""
    folder = PREPARED / name
    return _manifest(folder) if (folder / MANIFEST).exists() else None


class _Raw(BaseModel):
    """Raw data set in a manifest."""

    title: str
    edition: str
    files: dict[str, str]


class _Public(BaseModel):
    """Origin of the public split."""

    raw: str
    part: str


class _Text(BaseModel):
    """Texts in a manifest: their length in tokens, and vocabulary size or name of the word vectors."""

    tokens: Count
    vocabulary: Count | None = None
    vectors: str | None = None


class _Unit(BaseModel):
    """Unit of privacy in a manifest: a person, by the column that names people."""

    column: str
    at_most: Count


class _Joined(BaseModel):
    """Start (public initial weights) in a manifest, with the trained row that it comes from."""

    row: str
    data: str
    config: str
    test_examples_seen: NonNegativeInt


class _Relevance(_Joined):
    """Relevances in a manifest, with the trained row and the examples that they come from."""

    of: Literal["train", "public"]
    examples: Count
    informed: bool


class _Manifest(BaseModel):
    """Fields of a manifest that this module checks; a manifest has more, for readers."""

    classes: Annotated[list[str], Field(min_length=1)]
    counts: dict[Literal["train", "validation", "test", "public"], int]
    digests: dict[str, str]
    input_shape: Annotated[list[Count], Field(min_length=1)]
    public: _Public
    raw: dict[str, _Raw]
    seed: int
    text: _Text | None = None
    unit: _Unit | None = None
    features: Features | None = None
    start: _Joined | None = None
    relevance: _Relevance | None = None


def _manifest(folder: Path) -> dict[str, Any]:
    """Content of ``manifest.json``.

    Raises:
        UserError: the file is missing, or has another form.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        _Manifest.model_validate(manifest)
    except FileNotFoundError as problem:
        raise _missing(problem, folder.name) from problem
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(
            f"{path}: is not what was prepared; run `dprepro prepare {folder.name}` again"
        ) from problem
    return dict(manifest)


def _check_shapes(folder: Path, splits: dict[str, Split], about: dict[str, Any]) -> None:
    """Check that each input has a label, and that labels are classes or, with a target, in [0, 1]."""
    for name, split in splits.items():
        labels, inputs = split.labels, split.inputs
        enough = len(inputs) == len(labels) >= (name in ("train", "test"))
        fits = labels.ndim == 1 and enough and list(inputs.shape[1:]) == about["input_shape"]
        number = np.float32 if "target" in about else np.int64
        if not (fits and labels.dtype == number and inputs.dtype in (np.uint8, np.int32, np.float32)):
            raise UserError(
                f"{folder / name}.inputs.npy: no examples with labels; {_hint(about, folder.name)}"
            )
        # public examples may come from another data set with other classes
        most = 1 if "target" in about else len(about["classes"]) - 1
        if name != "public" and len(labels) and not 0 <= labels.min() <= labels.max() <= most:
            raise UserError(
                f"{folder / name}.labels.npy: no labels of its classes; {_hint(about, folder.name)}"
            )


def _missing(problem: FileNotFoundError, name: str) -> UserError:
    # `prepare` names the right command if another one makes the data set
    return UserError(f"{problem.filename}: missing; run `dprepro prepare {name}` first")


def _hint(about: dict[str, Any], name: str) -> str:
    stage = "start" if "start" in about else "relevance" if "relevance" in about else "prepare"
    return f"run `dprepro {stage} {name}` again"
