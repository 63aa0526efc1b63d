"""Initial weights and relevances of a training, read from its prepared data."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from dprepro.clipping.normalization import BatchStatistics
from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import PREPARED, Prepared
from dprepro.pipeline.methods.base import Relevances
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import fresh_net
from dprepro.pipeline.params import PARAMS, Settings

NORM_LAYERS = (BatchStatistics, nn.GroupNorm, nn.LayerNorm)


def read_arrays(path: Path) -> dict[str, torch.Tensor]:
    """Arrays by name, on the CPU, of a file that `join` wrote; the caller has compared its digest."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def check_joined(data: Prepared, settings: Settings) -> None:
    """Make sure that prepared data have the start and the relevances declared in params.yaml.

    Raises:
        UserError: start or relevances differ; the message names the command that makes the declared ones.
    """
    start = settings.start_digest(data.name) if data.name in settings.starts else None
    relevance = settings.relevance_digest(data.name) if data.name in settings.relevances else None
    for part, wanted, what in (
        ("start", start, "weights of another pretraining"),
        ("relevance", relevance, "other relevances"),
    ):
        if data.manifest.get(part, {}).get("config") != wanted:
            raise UserError(
                f"{PREPARED / data.name}: {what} than {PARAMS} has now; "
                f"run `dprepro {settings.stage_of(data.name)} {data.name}`"
            )


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
    tensors = read_arrays(path)
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


def read_relevance(data: Prepared, device: torch.device | None = None) -> Relevances | None:
    """Relevances in prepared data, on ``device`` (default: the CPU); None if the data have none."""
    if data.relevance is None:
        return None
    mean = read_arrays(data.relevance)["mean"].to(device or torch.device("cpu"))
    return Relevances(mean, *data.relevance_source)
