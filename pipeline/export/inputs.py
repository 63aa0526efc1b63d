"""New files as inputs of a trained network, prepared like its training data."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from dprepro.errors import UserError, reading
from dprepro.fields import Strict, omitted
from dprepro.pipeline.data.own import images, npz, tables, texts, trunk
from dprepro.pipeline.data.own.files import IMAGES, check_regular
from dprepro.pipeline.data.prepared import PREPARED, Prepared
from dprepro.pipeline.files import OWN_BYTES, Damaged, read_checked
from dprepro.pipeline.params import (
    OwnArrays,
    OwnFeatures,
    OwnImages,
    OwnPictures,
    OwnTable,
    OwnTexts,
    Row,
    Settings,
)
from dprepro.pipeline.params.own import Columns, PublicNetwork
from dprepro.pipeline.params.schema import KnownVectors

if TYPE_CHECKING:
    from pandas import DataFrame

WEIGHTS: Final = "model.safetensors"
VOCABULARY: Final = "vocabulary.txt"
TRUNK: Final = "public-network.safetensors"
FileName = Literal["model.safetensors", "vocabulary.txt", "public-network.safetensors"]


class Given(NamedTuple):
    """Content of a file with inputs."""

    inputs: np.ndarray  # (N, ...) as stored in prepared data
    labels: Sequence[Any] = ()  # N names or numbers of classes; (): the file has no labels
    lines: "DataFrame | None" = None  # rows of a table


class Preparation(Strict):
    """Settings that turn the content of a file into inputs of a network."""

    array: str = "inputs"  # name of the array of inputs in an npz
    column: str = "text"  # name of the column of texts in a CSV
    label: str | None = None  # array or column of the classes, for files with classes
    resize: bool = False  # whether images are cropped to the centre and scaled
    clip: tuple[float, float] | None = None  # bounds to which features are clipped
    tokens: int | None = None  # length of texts in tokens; None: inputs are no texts
    vectors: KnownVectors | None = None  # public word vectors of texts
    columns: Columns | None = None  # of a table
    target: tuple[float, float] | None = omitted(None)  # range of a table's numeric target
    network: PublicNetwork | None = None  # public network whose features are the inputs
    channels: Literal[1, 3] = 3  # channels of the public network's images

    @property
    def needed_files(self) -> list[FileName]:
        """Files of an exported network that predictions need."""
        texts = self.tokens is not None and self.vectors is None
        needed: dict[FileName, bool] = {WEIGHTS: True, VOCABULARY: texts, TRUNK: self.network is not None}
        return [name for name, is_needed in needed.items() if is_needed]


def preparation_of(row: Row, data: Prepared, settings: Settings) -> Preparation:
    """Settings that prepare new files in the same way as the row's data."""
    source = settings.own.get(settings.split(row.data).raw)
    fields: dict[str, Any] = {}
    if isinstance(source, OwnFeatures) and source.clip:
        fields["clip"] = source.range
    if isinstance(source, OwnArrays):
        fields |= {"array": source.inputs, "label": source.labels}
    if isinstance(source, OwnTexts):
        fields |= {"column": source.text, "label": source.label}
    if isinstance(source, OwnTable):
        fields |= {"columns": source.columns, "label": source.label, "target": source.target}
    if isinstance(source, OwnPictures):
        fields |= {"network": source.network, "channels": source.shape[0]}
    if (text := settings.split(row.data).text) is not None:
        fields |= {"tokens": text.tokens, "vectors": text.vectors}
    return Preparation(**fields, resize=isinstance(source, OwnImages) and source.resize)


def vocabulary_of(data: Prepared) -> bytes | None:
    """Content of the data's vocabulary; None if they have none, as for images or word vectors.

    Raises:
        UserError: the file is missing, or has another digest.
    """
    if not data.has_vocabulary:
        return None
    path, again = PREPARED / data.name / VOCABULARY, f"run `dprepro prepare {data.name}` again"
    with reading(path, again):
        try:
            return read_checked(path, data.manifest["text"]["digest"])
        except Damaged as problem:
            raise UserError(f"{path}: is not what was prepared; {again}") from problem


def read_inputs(
    path: Path,
    shape: tuple[int, ...],
    floats: bool,
    preparation: Preparation,
    contents: Mapping[FileName, bytes],
) -> Given:
    """(N, ...) inputs of a file in the form of prepared data, and the file's labels if it has any.

    Args:
        path: an image, an npz with an array of images or features, a CSV with a column of texts, or a table.
        shape: (C, H, W) of the network's images or features.
        floats: whether the network takes features.
        preparation: preparation of files as inputs.
        contents: contents of the exported network's files, with those of `Preparation.needed_files`.

    Raises:
        UserError: the file is missing, of another type, or has an input that the network can't take.
    """
    network = preparation.network
    if network is not None:  # the file has images, whose features are computed at the end
        shape, floats = (preparation.channels, network.size, network.size), False
    ending = path.suffix.lower()
    takes: str
    allowed: tuple[str, ...]
    if preparation.tokens is not None:
        takes, allowed = "texts", (".csv",)
    elif preparation.columns is not None:
        takes, allowed = "tables", tuple(tables.FORMATS)
    elif not floats and shape[0] in (1, 3):
        takes, allowed = "images", (*IMAGES, ".npz")
    else:
        takes, allowed = "features" if floats else "images", (".npz",)
    if not path.exists():
        raise UserError(f"{path}: missing")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; allowed: files of type {', '.join(allowed)}")
    check_regular(path)
    if ending not in allowed:
        raise UserError(f"{path}: of unknown type; the network takes {takes}; allowed: {', '.join(allowed)}")
    if path.stat().st_size > OWN_BYTES:
        raise UserError(f"{path}: larger than {OWN_BYTES >> 30} GB, which is the most of a file")
    if preparation.tokens is not None:
        from dprepro.pipeline.data.text import (  # imports torchtext, which only texts need
            Encoder,
            VectorEncoder,
        )

        lines = texts.csv_frame(path)
        (sentences,) = texts.values(path, lines, preparation.column)
        encoder: Callable[[Sequence[str]], np.ndarray]
        if preparation.vectors is not None:
            encoder = VectorEncoder(preparation.tokens, preparation.vectors)
        else:
            encoder = Encoder.read(contents[VOCABULARY], preparation.tokens)
        return Given(encoder(sentences), tables.labels(lines, preparation.label))
    if preparation.columns is not None:
        lines = tables.frame(path)
        inputs = tables.encode(path, lines, preparation.columns)
        return Given(inputs, tables.labels(lines, preparation.label), lines)
    numbers: list[int] = []
    if ending != ".npz":
        channels, height, width = shape
        resize = preparation.resize or network is not None
        arrays = images.read_image(path, (channels, height, width), resize)[None]
    else:
        arrays = npz.read_inputs(path, preparation.array)
        if network is not None and arrays.ndim == 4:
            shape = (shape[0], *arrays.shape[2:])  # the public network scales images
        if arrays.shape[1:] != shape:
            there, due = ("x".join(map(str, sizes)) for sizes in (arrays.shape[1:], shape))
            raise UserError(f"{path}: {preparation.array!r} has examples of {there}; the network takes {due}")
        if (arrays.dtype == np.float32) != floats:
            due = "floats, which are features" if floats else "whole numbers, which are images"
            raise UserError(f"{path}: {preparation.array!r} is {arrays.dtype}; the network takes {due}")
        if preparation.clip is not None:
            arrays = arrays.clip(*preparation.clip)
        numbers = npz.read_labels(path, preparation.label, len(arrays)) if preparation.label else []
    if network is not None:
        arrays = trunk.computed(arrays, network, contents[TRUNK], Path(TRUNK))
    return Given(arrays, numbers)
