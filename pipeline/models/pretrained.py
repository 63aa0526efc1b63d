"""Classifier of torchvision with public weights from a declared file, trained as a whole or by adapters.

Batch norm keeps its stored statistics, so examples don't mix. The last linear layer is new.
"""

import io
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from dprepro.errors import UserError, reading, shown
from dprepro.pipeline.files import WEIGHTS_BYTES, digest
from dprepro.pipeline.models.adapters import add_adapters, last_linear
from dprepro.pipeline.models.model import Model, PublicWeights

VERSION = 1  # raise it if the same settings would give other numbers


class Scaled(nn.Module):
    """Layer that resizes and normalises images in [0, 1] of any size for a public network of 3 channels."""

    def __init__(self, network: PublicWeights):
        """``network`` gives the size, mean and standard deviation of the network's input images."""
        super().__init__()
        self.size = (network.size, network.size)
        self.register_buffer("mean", torch.tensor(network.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(network.std).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, S, S) network inputs from ``images`` (N, 1 or 3, H, W)."""
        images = images.expand(-1, 3, -1, -1)
        if images.shape[-2:] != self.size:
            images = nn.functional.interpolate(
                images, self.size, mode="bilinear", antialias=True, align_corners=False
            )
        return (images - self.get_buffer("mean")) / self.get_buffer("std")


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Network for images of ``shape`` (C, H, W), with adapters of `model.rank` or trained as a whole."""
    network = _network(model)
    return _assembled(
        model, loaded(network.architecture, declared_tensors(network), network.weights), classes
    )


def untrained_net(model: Model, classes: int) -> nn.Module:
    """Network of `build` with fresh weights, for tensors that an exported folder has."""
    return _assembled(model, untrained(_network(model).architecture), classes)


def _assembled(model: Model, net: nn.Module, classes: int) -> nn.Module:
    return nn.Sequential(Scaled(_network(model)), add_adapters(net, model.rank, classes)).eval()


def _network(model: Model) -> PublicWeights:
    assert model.network is not None, "checked with the model's settings"
    return model.network


def untrained(architecture: str) -> nn.Module:
    """Classifier of torchvision with fresh weights.

    Raises:
        UserError: torchvision has no classifier ``architecture``, or is not installed.
    """
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


def loaded(architecture: str, tensors: Mapping[str, Tensor], source: Path | str) -> nn.Module:
    """Network with the weights ``tensors`` of the file ``source``; its last linear layer stays untrained.

    Raises:
        UserError: the weights are another network's.
    """
    net = untrained(architecture)
    last, _ = last_linear(net)
    expected = {key: value for key, value in net.state_dict().items() if not key.startswith(f"{last}.")}
    for key, value in expected.items():
        if key not in tensors or tensors[key].shape != value.shape:
            raise UserError(f"{source}: no weights of {architecture}: {key} is missing or of another shape")
    net.load_state_dict({key: tensors[key] for key in expected}, strict=False)
    return net


def declared_tensors(network: PublicWeights, root: Path = Path()) -> dict[str, Tensor]:
    """Tensors by name from the file that a network declares, after a check of the file's digest.

    Raises:
        UserError: the file is missing or too large, has another digest, or has no tensors.
    """
    path = root / network.weights
    with reading(path, f"the weights of {network.architecture} belong there"):
        if path.stat().st_size > WEIGHTS_BYTES:
            raise UserError(f"{path}: larger than {WEIGHTS_BYTES >> 20} MB, which is the most of such a file")
        content = path.read_bytes()
    if (found := digest(content)) != network.digest:
        raise UserError(
            f"{path}: its digest is {found}, but params.yaml declares {network.digest}; put the declared "
            "file back, or declare the new one"
        )
    return tensors_in(content, path)


def tensors_in(content: bytes, path: Path) -> dict[str, Tensor]:
    """Tensors by name in ``content``, a safetensors file or a state dict of `torch.save`.

    Raises:
        UserError: the file is neither.
    """
    try:
        if path.suffix == ".safetensors":
            return dict(safetensors.torch.load(content))
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as problem:  # a damaged or a foreign file may raise any
        raise UserError(
            f"{path}: no weights: {shown(str(problem))}; allowed: safetensors, or a state dict"
        ) from problem
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{path}: no state dict; allowed: tensors by name")
    return found
