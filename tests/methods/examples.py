"""A few random examples of the shapes that rows have."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from dprepro.pipeline.data.catalog import catalog
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.params import Row, Settings

CPU = Execution(torch.device("cpu"), physical=64)
SAMPLE = 6
TOKENS, VOCABULARY = 12, 50
Shape = tuple[int, ...] | None


def shape_of(row: Row, settings: Settings) -> Shape:
    """Of the row's images as stored, (C, H, W), or of texts that are word vectors; None for other texts."""
    split = settings.split(row.data)
    if split.text is not None and split.text.vectors is not None:
        return split.text.stored_shape
    return catalog()[settings.raw[split.raw].of or split.raw].shape


def random_data(shape: Shape, sizes: Mapping[str, int], classes: int) -> Prepared:
    """Splits of random examples of a shape, features where it has one dimension; None: texts."""
    generator = np.random.default_rng(0)

    def split(count: int) -> Split:
        inputs: np.ndarray
        if shape is None:
            inputs = generator.integers(1, VOCABULARY, (count, TOKENS), dtype=np.int32)
        elif len(shape) == 1:
            inputs = generator.random((count, *shape), dtype=np.float32)
        else:
            inputs = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
        return Split(inputs, np.arange(count) % classes)

    text = {"text": {"vocabulary": VOCABULARY}} if shape is None else {}
    splits = {name: split(count) for name, count in sizes.items()}
    stored = splits["train"].inputs.shape[1:]
    about = {"classes": [str(label) for label in range(classes)], "digests": {}, "raw": {}}
    return Prepared("made up", splits, {**about, "input_shape": stored, **text})


def with_start(data: Prepared, model: Model, folder: Path) -> Prepared:
    """The data with weights to start from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = build_net(model, data.input_shape, 20)
    start = folder / "start.npz"
    np.savez(start, **{name: value.numpy() for name, value in net.state_dict().items()})
    return replace(data, start=start)


def made_up(model: Model, shape: Shape, folder: Path) -> Prepared:
    """A few random examples, the last far from the others, and weights to start from if wanted."""
    data = random_data(shape, {"train": SAMPLE}, 4)
    inputs = data.splits["train"].inputs
    inputs[-1] = 7 if shape is None else 255 * (inputs[-1] > 127)
    data.splits["public"] = data.splits["train"]
    return data if model.trainable == "all" else with_start(data, model, folder)
