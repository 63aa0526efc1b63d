"""Features of images by a public network of torchvision, without its last linear layer.

Each image's features are a function of that image alone. The network is never trained, so features are
computed once, before training.
"""

import io
import pickle
from functools import lru_cache
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from pipeline.errors import UserError, reading, shown
from pipeline.files import digest
from pipeline.limits import WEIGHTS_BYTES
from pipeline.params.own import PublicNetwork

PASS = 32  # images at once


def width(architecture: str) -> int:
    """Number of features of an image.

    Raises:
        UserError: torchvision has no such classifier of images, or is not installed.
    """
    return _last_linear(_untrained(architecture))[1].in_features


def features(images: np.ndarray, network: PublicNetwork, root: Path) -> np.ndarray:
    """Features, float32 (N, D), of images uint8 (N, C, H, W) by the declared network.

    Args:
        images: grey images get three equal channels; other sizes are scaled to the network's.
        network: declaration of the network.
        root: folder of params.yaml.

    Raises:
        UserError: the file of weights is missing, is not the declared one, or holds another network.
    """
    return computed(images, network, _declared_weights(network, root), root / network.weights)


def _declared_weights(network: PublicNetwork, root: Path) -> bytes:
    """Content of a network's file after comparing its digest.

    Raises:
        UserError: the file is missing, too large or another one.
    """
    path = root / network.weights
    with reading(path, f"the weights of {network.architecture} belong there"):
        if path.stat().st_size > WEIGHTS_BYTES:
            raise UserError(f"{path}: larger than {WEIGHTS_BYTES >> 20} MB, which is the most of such a file")
        content = path.read_bytes()
    if (found := digest(content)) != network.digest:
        raise UserError(
            f"{path}: its digest is {found}, but params.yaml declares {network.digest}; put the declared "
            "file back, or declare the data anew"
        )
    return content


@torch.no_grad()
def computed(images: np.ndarray, network: PublicNetwork, content: bytes, path: Path) -> np.ndarray:
    """Features, float32 (N, D), by the weights in ``content``, read from ``path``.

    Raises:
        UserError: the weights are another network's.
    """
    net = _loaded(network.architecture, content, path)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (network.mean, network.std))
    found = []
    for start in range(0, len(images), PASS):
        inputs = torch.from_numpy(np.array(images[start : start + PASS])).float() / 255
        inputs = inputs.expand(-1, 3, -1, -1)
        if inputs.shape[-2:] != (network.size, network.size):
            size = (network.size, network.size)
            inputs = nn.functional.interpolate(
                inputs, size, mode="bilinear", antialias=True, align_corners=False
            )
        found.append(net((inputs - mean) / std).flatten(1).numpy())
    return np.concatenate(found) if found else np.empty((0, width(network.architecture)), np.float32)


def exported(network: PublicNetwork, root: Path) -> bytes:
    """Weights of the network without its last linear layer, as a safetensors file.

    Raises:
        UserError: as `features`.
    """
    content, path = _declared_weights(network, root), root / network.weights
    return safetensors.torch.save(_loaded(network.architecture, content, path).state_dict())


def _untrained(architecture: str) -> nn.Module:
    try:
        from torchvision import models
    except ImportError as problem:
        raise UserError(
            f"--network {architecture}: torchvision is not installed; `pip install 'dprepro[vision]'`"
        ) from problem
    known = models.list_models(module=models)
    if architecture not in known:
        raise UserError(f"network {shown(architecture)}; allowed: torchvision's {', '.join(known)}")
    net: nn.Module = models.get_model(architecture, weights=None)
    return net


def _last_linear(net: nn.Module) -> tuple[str, nn.Linear]:
    """Name and layer of a classifier's outputs."""
    found = [(name, layer) for name, layer in net.named_modules() if isinstance(layer, nn.Linear)]
    if not found:
        raise UserError(
            f"network {type(net).__name__}: has no linear layer; allowed: networks that end with one"
        )
    return found[-1]


@lru_cache(1)
def _loaded(architecture: str, content: bytes, path: Path) -> nn.Module:
    """Network with the weights of a file, without its last linear layer."""
    net = _untrained(architecture)
    name, _ = _last_linear(net)
    tensors = _tensors(content, path)
    wanted = {key: value.shape for key, value in net.state_dict().items() if not key.startswith(f"{name}.")}
    for key, shape in wanted.items():
        if key not in tensors or tensors[key].shape != shape:
            raise UserError(f"{path}: no weights of {architecture}: {key} is missing or of another shape")
    parent, _, child = name.rpartition(".")
    setattr(net.get_submodule(parent), child, nn.Identity())
    net.load_state_dict({key: tensors[key] for key in wanted})
    return net.eval()


def _tensors(content: bytes, path: Path) -> dict[str, Tensor]:
    """Tensors by name, of a safetensors file or a state dict of `torch.save`."""
    try:
        if path.suffix == ".safetensors":
            return dict(safetensors.torch.load(content))
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (
        safetensors.SafetensorError,
        pickle.UnpicklingError,
        RuntimeError,
        ValueError,
        EOFError,
    ) as problem:
        raise UserError(
            f"{path}: no weights: {shown(str(problem))}; allowed: safetensors, or a state dict"
        ) from problem
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{path}: no state dict; allowed: tensors by name")
    return found
