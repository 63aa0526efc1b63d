"""The sample of a step of several replicas: which examples, or mini-sets of them, and what their sums are."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pipeline.privacy.gradients import Tensors


class Sample(NamedTuple):
    """Whose gradients a step of every replica clips: K examples each, or K mini-sets of S examples."""

    chosen: Tensor  # (R, K) or (R, K, S) positions in the training split
    mask: Tensor  # alike; 1 for examples that are there, 0 for padding

    def pieces(self, pass_size: int) -> Iterator[slice]:
        """Where along K to cut, so that pieces of about a size have ``pass_size`` at most."""
        count = self.chosen.shape[1]
        size = math.ceil(count / math.ceil(count / pass_size))
        return (slice(start, start + size) for start in range(0, count, size))


def padded(samples: list[np.ndarray], device: torch.device) -> Sample:
    """Samples whose sizes differ, padded to the longest, of at least one example."""
    longest = max(1, max(len(sample) for sample in samples))
    index = torch.zeros(len(samples), longest, dtype=torch.long)
    mask = torch.zeros(index.shape)
    for row, sample in enumerate(samples):
        index[row, : len(sample)] = torch.from_numpy(sample)
        mask[row, : len(sample)] = 1
    return Sample(index.to(device), mask.to(device))


class BatchSum(NamedTuple):
    """The clipped sums of whole samples, and what stays in the laboratory."""

    sums: Tensors  # (R, ...) each
    norms: Tensor  # (R, K, G) norms of each part of a gradient before clipping; of an unclipped sum G is 0
    losses: Tensor  # (R, K)
    mask: Tensor  # (R, K)
    limits: Tensor  # (R, G) that the parts were clipped to

    @property
    def gradient_norms(self) -> Tensor:
        """(R, K) norms of whole gradients."""
        return self.norms.norm(dim=2)

    def metrics(self) -> Tensors:
        """(R,) means over the samples' examples, or mini-sets."""
        columns = {"train_loss": self.losses}
        if self.norms.shape[2]:
            columns["gradient_norm"] = self.gradient_norms
            columns["clipped_share"] = (self.norms > self.limits[:, None]).float().mean(2)
        return {
            # not a product: padding may be infinite, and 0 times infinity is not 0
            name: torch.where(self.mask > 0, value, 0.0).sum(1) / self.mask.sum(1).clamp_min(1)
            for name, value in columns.items()
        }
