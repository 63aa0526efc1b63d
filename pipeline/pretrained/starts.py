"""Public initial weights: a copy of a prepared data set with the weights of a row trained on public data.

For the entry NAME of ``starts``, ``data/prepared/NAME/`` is a copy of a prepared data set's folder with one
more file, ``start.npz``. It has the parameters and running statistics of one replica, by name. If the entry
has `features`, inputs are the outputs of the network's frozen part, and the file has only the other tensors.
"""

from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import nn

from dprepro.clipping.normalization import BatchStatistics
from dprepro.errors import UserError
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import as_input
from dprepro.pipeline.methods.registry import build_net, fresh_net
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.params import PARAMS, Settings, pick
from dprepro.pipeline.pretrained import joining as joined

NOTE = "weights to start from, trained on other data than the private ones here, without regard to privacy"
FEATURES = "features"  # name of the part of a network before its linear layers
PASS = 500  # images per pass
NORM_LAYERS = (BatchStatistics, nn.GroupNorm, nn.LayerNorm)


def make_start(name: str, settings: Settings, root: Path = Path()) -> Path:
    """Write ``data/prepared/NAME``: a prepared data set and the weights of a row's first replica.

    Args:
        name: a key of ``starts`` in params.yaml.
        settings: all settings of params.yaml.
        root: folder of params.yaml.

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


def features_shape(model: Model) -> tuple[int, ...]:
    """Shape (F,) of the features before a network's linear layers."""
    return (import_module(f"dprepro.pipeline.models.{model.name}").FEATURES,)


def initial_net(seed: int, model: Model, shape: tuple[int, ...], data: Prepared) -> nn.Module:
    """Network with the initial weights of a training's ``seed``, for inputs of ``shape``.

    Raises:
        UserError: for the reasons of `build_net` and `load_start`.
    """
    net = fresh_net(seed, model, shape, data.classes)
    if data.start is not None:
        load_start(net, data.start, model.trainable)
    return net


def load_start(net: nn.Module, path: Path, which: str) -> None:
    """Load the weights of the ``start.npz`` at ``path`` into a network, and freeze untrained parameters.

    A tensor is loaded if the network has one of the same name and shape. So for another number of classes,
    the output layer keeps its fresh weights. Afterwards ``requires_grad`` is True only for the parameters
    that `trainable` names for ``which``.

    Raises:
        UserError: the weights are of another network: the file has a tensor whose name the network lacks, no
            tensor of the file fits, or the file has no fitting tensor for one of the frozen part.
    """
    tensors = joined.read_arrays(path)
    places, learned = net.state_dict(), trainable(net, which)
    fitting = {
        name: value for name, value in tensors.items() if name in places and value.shape == places[name].shape
    }
    learning = {_layer(name) for name in learned}
    frozen = {name for name in places if _layer(name) not in learning}
    misfits = sorted((tensors.keys() - places.keys()) | (frozen - fitting.keys()))
    if not fitting:
        raise UserError(f"{path}: weights of another network: none fits")
    if misfits:
        raise UserError(
            f"{path}: weights of another network: {misfits[0]}: only in one of the two, or of other shapes"
        )
    net.load_state_dict(fitting, strict=False)
    for name, value in net.named_parameters():
        value.requires_grad_(name in learned)


def trainable(net: nn.Module, which: str) -> set[str]:
    """Names of the trained parameters, for a ``which`` of 'all' or 'linear'.

    'all': all parameters. 'linear': parameters of the linear layers, and of the normalisation layers that
    follow the first linear layer in the order of the network's modules.
    """
    if which == "all":
        return {name for name, _ in net.named_parameters()}
    names: set[str] = set()
    reached = False
    for name, layer in net.named_modules():
        reached = reached or isinstance(layer, nn.Linear)
        if reached and isinstance(layer, (nn.Linear, *NORM_LAYERS)):
            names |= {f"{name}.{key}" for key, _ in layer.named_parameters(recurse=False)}
    return names


def _layer(name: str) -> str:
    """Name of the layer of the tensor ``name``."""
    return name.rpartition(".")[0]
