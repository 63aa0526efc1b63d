"""Poisson samples of several replicas, whose sizes differ: padded, masked, and summed piece by piece."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline.methods.base import Execution, over_replicas
from pipeline.privacy.gradients import Bounds, Clipper, Tensors


class Piece(NamedTuple):
    """Some examples of every replica's sample; L is the same for all of them."""

    chosen: Tensor  # (R, L) positions in the training split
    mask: Tensor  # (R, L) 1 for examples that are there, 0 for padding
    places: slice  # where in the samples they stand


def padded(samples: list[np.ndarray], at_once: int, device: torch.device) -> Iterator[Piece]:
    """Samples padded to the longest, in pieces of at most ``at_once`` examples of a replica."""
    longest = max(1, max(len(sample) for sample in samples))
    pieces = math.ceil(longest / at_once)
    size = math.ceil(longest / pieces)
    index = torch.zeros(len(samples), pieces * size, dtype=torch.long)
    mask = torch.zeros(index.shape)
    for row, sample in enumerate(samples):
        index[row, : len(sample)] = torch.from_numpy(sample)
        mask[row, : len(sample)] = 1
    index, mask = index.to(device), mask.to(device)
    for start in range(0, pieces * size, size):
        places = slice(start, start + size)
        yield Piece(index[:, places], mask[:, places], places)


class BatchSum(NamedTuple):
    """The clipped sums of whole samples, and what stays in the laboratory."""

    sums: Tensors  # (R, ...) each
    norms: Tensor  # (R, L) gradient norms before clipping
    losses: Tensor  # (R, L)
    mask: Tensor  # (R, L)

    def metrics(self, limits: Tensor) -> Tensors:
        """(R,) means over the samples' examples; ``limits`` (R,) is what their gradients were clipped to."""
        over = (self.norms > limits[:, None]).float()
        return {
            # not a product: padding may be infinite, and 0 times infinity is not 0
            name: torch.where(self.mask > 0, value, 0.0).sum(1) / self.mask.sum(1).clamp_min(1)
            for name, value in (
                ("train_loss", self.losses),
                ("gradient_norm", self.norms),
                ("clipped_share", over),
            )
        }


def clipped_sums(
    clipper: Clipper,
    tensors: Tensors,
    batches: Iterable[tuple[Tensor, Tensor, Tensor]],
    bounds: Bounds,
    execution: Execution,
) -> BatchSum:
    """Sums over all ``batches`` of inputs (R, L, ...), labels and masks (R, L); one part is clipped."""
    clipped_sum = over_replicas(clipper, execution)
    sums: Tensors = {}
    norms, losses, masks = [], [], []
    for inputs, labels, mask in batches:
        part = clipped_sum(tensors, inputs, labels, mask, bounds)
        sums = {name: value + sums[name] if sums else value for name, value in part.sums.items()}
        norms.append(part.norms[..., 0])
        losses.append(part.losses)
        masks.append(mask)
    return BatchSum(sums, torch.cat(norms, 1), torch.cat(losses, 1), torch.cat(masks, 1))
