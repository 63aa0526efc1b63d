"""Clipping bounds of a gradient."""

from typing import NamedTuple

from torch import Tensor


class ClipLimits(NamedTuple):
    """Clipping bounds of a gradient of T tensors: G parts, each with a bound.

    Each tensor belongs to one part.
    """

    members: Tensor  # (T, G) 1 if a tensor belongs to a part
    limits: Tensor  # (G,) L2 bound of each part

    def double(self) -> "ClipLimits":
        """The same bounds in float64; gradients are then multiplied and summed in float64 too."""
        return ClipLimits(*(part.double() for part in self))

    @classmethod
    def whole(cls, limit: Tensor, tensors: int) -> "ClipLimits":
        """Bounds of the whole gradient as one part, clipped to ``limit`` () (Abadi et al. 2016)."""
        return cls(limit.new_ones(tensors, 1), limit[None])
