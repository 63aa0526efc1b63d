"""Public initial weights: a copy of a prepared data set with the weights of a row trained on public data.

For the entry NAME of ``starts``, ``data/prepared/NAME/`` is a copy of a prepared data set's folder with one
more file, ``start.npz``. It has the parameters and running statistics of one training, by name. If the entry
has `features`, inputs are the outputs of the network's frozen part, and the file has only the other tensors.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from dprepro.errors import UserError
from dprepro.pipeline.data import prepared
from dprepro.pipeline.methods.base import as_input
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.params import PARAMS, Settings, pick
from dprepro.pipeline.pretrained import joining as joined

NOTE = "weights to start from, trained on other data than the private ones here, without regard to privacy"
FEATURES = "features"  # name of the part of a network before its linear layers
PASS = 500  # images per pass


def make_start(name: str, settings: Settings, root: Path = Path()) -> Path:
    """Write ``data/prepared/NAME``: a prepared data set and the weights of a row's first training.

    Raises:
        UserError: data are not prepared; the row is not trained, or was trained with other settings or data,
            or on private examples of this data set; or, for features, its weights lack tensors of the frozen
            part or have others; or the folder can't be written.
    """
    start = pick(settings.starts, name, "start")
    source = prepared.load(start.data, root)
    before = joined.trained_row(start.row, settings, root)
    shared = joined.shared_examples([before.data], source)
    if private := shared["train"] + shared["validation"]:
        raise UserError(
            f"{PARAMS}: starts.{name}.row: {start.row!r} was trained with {private} of the examples that are "
            f"private in {start.data!r}; allowed: rows on other data"
        )
    weights, inputs = before.weights(), {}
    if start.features:
        net = build_net(settings.rows[start.row].model, source.input_shape, source.classes)
        part, prefix = net.get_submodule(FEATURES).eval(), f"{FEATURES}."
        frozen = {key: value for key, value in weights.items() if key.startswith(prefix)}
        expected = {f"{prefix}{key}": value.shape for key, value in part.state_dict().items()}
        for key, shape in expected.items():
            if key not in frozen or frozen[key].shape != shape:
                raise UserError(
                    f"{before.path}: {key}: not kept with the weights, or for images of another shape; "
                    f"allowed: rows on images like those of {start.data!r}, with normalization none, layer, "
                    "group, response or running_bn"
                )
        part.load_state_dict({key.removeprefix(prefix): value for key, value in frozen.items()})
        inputs = {split: _features(part, examples.inputs) for split, examples in source.splits.items()}
        weights = {key: value for key, value in weights.items() if key not in frozen}
    about = {
        **before.about(settings.start_digest(name)),
        "test_examples_seen": shared["test"],
        "note": NOTE,
    }
    arrays = {key: value.numpy() for key, value in weights.items()}
    return joined.join(name, source, "start", arrays, about, root, inputs)


@torch.no_grad()
def _features(part: nn.Module, images: np.ndarray) -> np.ndarray:
    """(N, F) float32 outputs of a network's ``part`` for (N, C, H, W) images as stored."""
    passes = (torch.from_numpy(np.array(images[at : at + PASS])) for at in range(0, len(images), PASS))
    return np.concatenate([part(as_input(each)).numpy() for each in passes])
