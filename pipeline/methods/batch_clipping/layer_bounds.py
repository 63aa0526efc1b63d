"""To what each layer is clipped: from expected gradient norms e_h to `Bounds` (Nguyen et al. 2023).

Everything here is computed from public examples and constants, so anyone may know it. Functions take one
replica's tensors.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pipeline.methods.batch_clipping.settings import BatchClippingSettings
from pipeline.models.normalization import BatchStatistics
from pipeline.privacy.gradients import Bounds

# Multiplication factors M / e_h (B.2) stay below this, so that a layer without a gradient has one.
LARGEST_FACTOR = 1000.0
TINY = 1e-12
KINDS: dict[type[nn.Module], str] = {
    nn.Conv2d: "conv",
    nn.Linear: "linear",
    BatchStatistics: "norm",
    nn.GroupNorm: "norm",
}


class Layers(NamedTuple):
    """What counts as a layer: each tensor of its own, or a module's together."""

    members: Tensor  # (T, L) 1 where a tensor belongs to a layer
    names: tuple[str, ...]  # of the layers, behind their kind: 'conv/0.weight'


def layers_of(net: nn.Module, tensors: list[str], unit: str) -> Layers:
    """The layers of a network whose trained tensors have these names; ``unit`` is 'tensor' or 'module'."""
    modules = dict(net.named_modules())
    owners = {name: name.rpartition(".")[0] for name in tensors}
    layer = {name: name if unit == "tensor" else owners[name] for name in tensors}
    kinds = {layer[name]: _kind(owners[name], modules[owners[name]]) for name in tensors}
    layers = list(kinds)
    members = torch.zeros(len(tensors), len(layers))
    for row, name in enumerate(tensors):
        members[row, layers.index(layer[name])] = 1
    return Layers(members, tuple(f"{kind}/{name}" for name, kind in kinds.items()))


def _kind(name: str, module: nn.Module) -> str:
    return "shortcut" if "shortcut" in name else KINDS.get(type(module), "other")


def parts_of(settings: BatchClippingSettings, layers: int) -> int:
    """L in the guarantee: parts that are clipped and noised each on its own."""
    if settings.clipping in ("none", "full", "multiplied"):
        return 1
    return layers if settings.groups is None else min(settings.groups, layers)


def needs_norms(settings: BatchClippingSettings) -> bool:
    """Whether clipping depends on e_h, or e_h is to be noted."""
    adaptive = settings.clipping in ("adaptive", "zhang", "multiplied")
    grouped = settings.groups is not None and settings.clipping == "layerwise"
    return adaptive or grouped or settings.note_norms


def expected_norms(norms: Tensor, members: Tensor) -> Tensor:
    """e (G,): the norm of each part, averaged over public gradients.

    Args:
        norms: (P, T) norm of each tensor of each of P gradients.
        members: (T, G) which part a tensor belongs to.
    """
    return (norms.square() @ members).sqrt().mean(0)


def bounds(
    settings: BatchClippingSettings, clip: Tensor, layers: Tensor, norms: Tensor | None, entries: Tensor
) -> tuple[Bounds, Tensor]:
    """Parts, what each is clipped to, and how the noise is shared among them.

    Args:
        settings: of the method; its C is not looked at.
        clip: () master clipping constant C of this epoch; infinite where nothing is clipped.
        layers: (T, L) which layer a tensor belongs to.
        norms: (P, T) norms of each tensor of public gradients; None where `needs_norms` says no.
        entries: (T,) number of each tensor's entries that are still trained.

    Returns:
        The bounds, and (G,) p of footnote 4 with sum p^2 = G.
    """
    tensors = len(layers)
    if settings.clipping in ("none", "full"):
        single_part = Bounds.whole(clip, tensors)
        return single_part, torch.ones_like(single_part.limits)
    if settings.clipping == "multiplied":
        assert norms is not None
        norm = expected_norms(norms, layers)
        factors = (norm.max() / norm.clamp_min(TINY)).clamp(1, LARGEST_FACTOR)
        single_part = Bounds.whole(clip, tensors)
        return single_part._replace(weights=layers @ factors), torch.ones_like(single_part.limits)
    members = layers
    if settings.groups is not None:
        assert norms is not None
        members = layers @ _grouped(expected_norms(norms, layers), parts_of(settings, layers.shape[1]))
    if settings.clipping == "layerwise":
        limits = (clip / math.sqrt(members.shape[1])).expand(members.shape[1])
    else:
        assert norms is not None
        norm = expected_norms(norms, members)
        limits = norm if settings.clipping == "zhang" else clip * norm / norm.max().clamp_min(TINY)
    return Bounds(members, limits, clip.new_ones(tensors)), _shares(settings, limits, entries @ members)


def _grouped(norm: Tensor, groups: int) -> Tensor:
    """(L, G): layers in the order of their e, cut into groups of equal number (B.2)."""
    group = norm.argsort().argsort() * groups // len(norm)
    return (group[:, None] == torch.arange(groups, device=norm.device)).to(norm)


def _shares(settings: BatchClippingSettings, limits: Tensor, entries: Tensor) -> Tensor:
    """(G,) p_g, by which the part's noise is divided; sum p^2 = G.

    'least': of all with the same guarantee, those with the least noise sum_g d_g (2 C_g sigma / p_g)^2 over
    d_g entries, which has p_g^2 in proportion to C_g sqrt(d_g).
    """
    if settings.layer_noise == "equal":
        return torch.ones_like(limits)
    weights = (limits * entries.sqrt()).clamp_min(TINY)
    return (weights / weights.mean()).sqrt()
