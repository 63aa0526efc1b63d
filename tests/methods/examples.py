"""A few random examples of the shapes that rows have."""

from pathlib import Path

import numpy as np
import torch

from pipeline.data.catalog import catalog
from pipeline.data.prepared import Prepared, Split
from pipeline.methods.base import Execution
from pipeline.methods.registry import build_net
from pipeline.models.model import Model
from pipeline.params import Row, Settings

CPU = Execution(torch.device("cpu"), replicas_at_once=1, physical=64)
SAMPLE = 6
Shape = tuple[int, ...] | None


def shape_of(row: Row, settings: Settings) -> Shape:
    """Of the row's images as stored, (C, H, W), or of texts that are word vectors; None for other texts."""
    split = settings.split(row.data)
    if split.text is not None and split.text.vectors is not None:
        return split.text.stored_shape
    return catalog()[settings.raw[split.raw].of or split.raw].shape


def made_up(model: Model, shape: Shape, folder: Path) -> Prepared:
    """A few random examples, the last far from the others, and weights to start from if wanted."""
    generator = np.random.default_rng(0)
    if shape is None:
        inputs = generator.integers(1, 50, (SAMPLE, 12), dtype=np.int32)
        inputs[-1] = 7
    else:
        inputs = generator.integers(0, 256, (SAMPLE, *shape), dtype=np.uint8)
        inputs[-1] = 255 * (inputs[-1] > 127)
    split = Split(inputs, np.arange(SAMPLE) % 4)
    manifest = {
        "classes": list("abcd"),
        "digests": {},
        "raw": {},
        **({"text": {"vocabulary": 50}} if shape is None else {}),
    }
    data = Prepared("made up", dict.fromkeys(("train", "public"), split), manifest)
    if model.trainable == "all":
        return data
    start = folder / "start.npz"
    net = build_net(model, data.input_shape, 20)
    np.savez(start, **{name: value.numpy() for name, value in net.state_dict().items()})
    return Prepared(data.name, data.splits, manifest, start)
