"""Public weights to start from: a row trained on public data, joined with the data another row trains on.

``data/prepared/NAME/`` of an entry of ``starts`` is its prepared data set's folder with one file more,
``start.npz``: one replica's tensors by name, parameters and running statistics. Where the entry says
`features`, inputs are what the frozen part of that network makes of the images, and the tensors those of its
linear layers.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pipeline.data import prepared
from pipeline.data.prepared import PREPARED, Prepared
from pipeline.errors import UserError
from pipeline.methods.base import as_input
from pipeline.methods.registry import build_net
from pipeline.models.model import Model
from pipeline.models.normalization import BatchStatistics
from pipeline.params import PARAMS, Settings, pick
from pipeline.pretrained import joining as joined
from pipeline.privacy.gradients import Tensors

NOTE = "weights to start from, trained on other data than the private ones here, without regard to privacy"
FEATURES = "features"  # the part of a network that lies before its linear layers
PASS = 500  # images at once
NORM_LAYERS = (BatchStatistics, nn.GroupNorm, nn.LayerNorm)


def make_start(name: str, settings: Settings, root: Path = Path()) -> Path:
    """Write ``data/prepared/NAME``: a prepared data set and the weights of a row's first replica.

    Args:
        name: a key of ``starts`` in params.yaml.
        settings: the whole of params.yaml.
        root: the folder that holds params.yaml.

    Raises:
        UserError: data are not prepared; the row is not trained, or with other settings or data than those
            here, or with a private example of this data; or the folder can't be written.
    """
    start = pick(settings.starts, name, "start")
    source = prepared.load(start.data, root)
    before = joined.behind(start.row, settings, root)
    shared = joined.seen([before.data], source)
    if private := shared["train"] + shared["validation"]:
        raise UserError(
            f"{PARAMS}: starts.{name}.row: {start.row!r} was trained with {private} of the examples that are "
            f"private in {start.data!r}; allowed: rows on other data"
        )
    about = {
        **before.about(settings.start_digest(name)),
        "test_examples_seen": shared["test"],
        "note": NOTE,
    }
    return join_start(name, settings, source, before.weights(), about, root)


def join_start(
    name: str, settings: Settings, source: Prepared, weights: Tensors, about: dict[str, Any], root: Path
) -> Path:
    """Write ``data/prepared/NAME`` from ``weights`` of the row that it starts from; see `make_start`."""
    start, before = settings.starts[name], f"{FEATURES}."
    inputs: dict[str, np.ndarray] = {}
    if start.features:
        net = build_net(settings.rows[start.row].model, source.input_shape, source.classes)
        part = net.get_submodule(FEATURES).eval()
        frozen = {key: value for key, value in weights.items() if key.startswith(before)}
        part.load_state_dict({key.removeprefix(before): value for key, value in frozen.items()})
        inputs = {split: _features(part, examples.inputs) for split, examples in source.splits.items()}
        weights = {key: value for key, value in weights.items() if key not in frozen}
    arrays = {key: value.numpy() for key, value in weights.items()}
    return joined.join(name, source, "start", arrays, about, root, inputs)


@torch.no_grad()
def _features(part: nn.Module, images: np.ndarray) -> np.ndarray:
    """(N, F) float32: what ``part`` of a network makes of (N, C, H, W) images as stored."""
    passes = (torch.from_numpy(np.array(images[at : at + PASS])) for at in range(0, len(images), PASS))
    return np.concatenate([part(as_input(each)).numpy() for each in passes])


def features_shape(model: Model) -> tuple[int, ...]:
    """(F,), of what a network leaves to its linear layers."""
    return (import_module(f"pipeline.models.{model.name}").FEATURES,)


def check_start(data: Prepared, settings: Settings) -> None:
    """Make sure that prepared data have the weights to start from that params.yaml means, or none.

    Raises:
        UserError: they are those of another pretraining; the line says which command makes the right ones.
    """
    start = settings.starts.get(data.name)
    wanted = settings.start_digest(data.name) if start else None
    if data.manifest.get("start", {}).get("config") != wanted:
        raise UserError(
            f"{PREPARED / data.name}: weights of another pretraining than {PARAMS} has now; "
            f"run `dprepro {settings.stage_of(data.name)} {data.name}`"
        )


@dataclass(frozen=True)
class Found:
    """Weights to start from, and the file they come from."""

    path: Path
    tensors: Tensors


def read_start(path: Path) -> Found:
    """Read a ``start.npz``, onto the CPU.

    Raises:
        UserError: the file is missing or damaged.
    """
    return Found(path, joined.read_arrays(path))


def load_start(net: nn.Module, found: Found, which: str) -> None:
    """Put the weights ``found`` into ``net``, and freeze what is not trained from there on.

    Every tensor goes to its name when the shape is the same; another number of classes leaves the output
    layer with the fresh weights it has. Afterwards ``requires_grad`` is True for the parameters that
    `trainable` names and False for the others.

    Raises:
        UserError: they are another network's: a tensor that ``net`` has no place for, none that fits, or too
            few for the part that stays frozen.
    """
    tensors, places, learned = found.tensors, net.state_dict(), trainable(net, which)
    fitting = {
        name: value for name, value in tensors.items() if name in places and value.shape == places[name].shape
    }
    learning = {_layer(name) for name in learned}
    frozen = {name for name in places if _layer(name) not in learning}
    misfits = sorted((tensors.keys() - places.keys()) | (frozen - fitting.keys()))
    if not fitting:
        raise UserError(f"{found.path}: weights of another network: none fits")
    if misfits:
        raise UserError(
            f"{found.path}: weights of another network: {misfits[0]}: only in one of the two, or of other "
            "shapes"
        )
    net.load_state_dict(fitting, strict=False)
    for name, value in net.named_parameters():
        value.requires_grad_(name in learned)


def trainable(net: nn.Module, which: str) -> set[str]:
    """Names of the parameters that are trained.

    'all': every one. 'linear': those of the linear layers, and of the normalisation layers that come after
    the first linear one in the order of the network's modules.
    """
    if which == "all":
        return {name for name, _ in net.named_parameters()}
    found: set[str] = set()
    reached = False
    for name, layer in net.named_modules():
        reached = reached or isinstance(layer, nn.Linear)
        if reached and isinstance(layer, (nn.Linear, *NORM_LAYERS)):
            found |= {f"{name}.{key}" for key, _ in layer.named_parameters(recurse=False)}
    return found


def _layer(name: str) -> str:
    """The layer that a tensor belongs to."""
    return name.rpartition(".")[0]
