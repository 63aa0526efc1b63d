"""Features of images, computed by a public network of torchvision without its last linear layer.

Each image's features are a function of that image alone. The network is never trained, so features are
computed once, before training.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import nn

from dprepro.pipeline.models.adapters import last_linear
from dprepro.pipeline.models.pretrained import Scaled, declared_tensors, loaded, tensors_in, untrained
from dprepro.pipeline.params.own import PublicNetwork

PASS = 32  # images per pass


def width(architecture: str) -> int:
    """Number of features of an image.

    Raises:
        UserError: torchvision has no such classifier of images, or is not installed.
    """
    return last_linear(untrained(architecture))[1].in_features


def features(images: np.ndarray, network: PublicNetwork, root: Path) -> np.ndarray:
    """Features, float32 (N, D), of images uint8 (N, C, H, W) by the declared network.

    Equal images have equal features, bit by bit, because all passes have the same size. Otherwise rounding
    could hide that a public example equals a private one (`pipeline.data.splits`).

    Args:
        images: grey images get three equal channels; other sizes are scaled to the network's.
        network: declaration of the network.
        root: folder of params.yaml.

    Raises:
        UserError: the file of weights is missing, is not the declared one, or holds another network.
    """
    return _computed(images, network, _declared(network, root), PASS)


@lru_cache(1)
def _exported(architecture: str, content: bytes, path: Path) -> nn.Module:
    return _without_last(loaded(architecture, tensors_in(content, path), path))


def computed(images: np.ndarray, network: PublicNetwork, content: bytes, path: Path) -> np.ndarray:
    """Features, float32 (N, D), by the exported weights in ``content``, which were read from ``path``.

    Raises:
        UserError: the weights are of another network.
    """
    return _computed(images, network, _exported(network.architecture, content, path))


@torch.no_grad()
def _computed(images: np.ndarray, network: PublicNetwork, net: nn.Module, fewest: int = 0) -> np.ndarray:
    """Features of ``images``, in passes that are padded to ``fewest`` images."""
    scaled, found = Scaled(network), [np.empty((0, network.features), np.float32)]
    for start in range(0, len(images), PASS):
        inputs = torch.from_numpy(np.array(images[start : start + PASS])).float() / 255
        count = len(inputs)
        inputs = torch.cat([inputs, inputs[:1].expand(max(0, fewest - count), *inputs.shape[1:])])
        found.append(net(scaled(inputs)).flatten(1)[:count].numpy())
    return np.concatenate(found)


def exported(network: PublicNetwork, root: Path) -> bytes:
    """Weights of the network without its last linear layer, as a safetensors file.

    Raises:
        UserError: for the reasons of `features`.
    """
    return safetensors.torch.save(_declared(network, root).state_dict())


def _declared(network: PublicNetwork, root: Path) -> nn.Module:
    return _without_last(loaded(network.architecture, declared_tensors(network, root), network.weights))


def _without_last(net: nn.Module) -> nn.Module:
    net.set_submodule(last_linear(net)[0], nn.Identity())
    return net.eval()
