"""Samples of examples or mini-sets for one step, and sums over these samples."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dprepro.clipping.functional import Tensors
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.settings import MethodSettings


class Sample(NamedTuple):
    """Clipped units of one step: K examples, or K mini-sets of S examples."""

    chosen: Tensor  # (K,) or (K, S) positions in the training split
    mask: Tensor  # (K,); 0 for the one example in place of an empty sample, otherwise 1
    parts: tuple[int, ...] = ()  # sizes, along K, of parts that are summed separately; (): one part

    def pieces(self, pass_size: int) -> Iterator[tuple[slice, int]]:
        """Slices of the K units, of similar size up to ``pass_size``, each with the size of its part."""
        start = 0
        for count in self.parts or (len(self.chosen),):
            size = math.ceil(count / math.ceil(count / pass_size))
            for first in range(start, start + count, size):
                yield slice(first, min(first + size, start + count)), count
            start += count


class Pass(NamedTuple):
    """Examples that go through the network together."""

    place: slice  # of the sample's K units
    parts: tuple[int, ...]  # sizes of the parts that are summed separately
    in_float64: bool  # whether products and sums are in float64


def merged(passes: list[Pass], at_once: int) -> list[Pass]:
    """Merge neighbouring float32 passes into passes of several parts, of at most ``at_once`` examples."""
    larger = passes[:1]
    for following in passes[1:]:
        last = larger[-1]
        place = slice(last.place.start, following.place.stop)
        if last.in_float64 or following.in_float64 or place.stop - place.start > at_once:
            larger.append(following)
        else:
            larger[-1] = Pass(place, last.parts + following.parts, False)
    return larger


def parts_of(sample: np.ndarray, examples: int, parts: int) -> tuple[int, ...]:
    """Sizes of a sample's nonempty parts: the ``examples`` positions are divided into ``parts`` ranges.

    ``sample`` has positions in rising order; each range gives a part. An added or removed example changes
    only its own part. The last range has no end, because ``examples`` may be smaller than the true number.
    """
    edges = np.arange(parts + 1) * examples // parts
    edges[-1] = np.iinfo(edges.dtype).max
    sizes = np.diff(np.searchsorted(sample, edges))
    return tuple(sizes[sizes > 0].tolist())


def independent_sample(streams: Streams, settings: MethodSettings, step: int, examples: int) -> np.ndarray:
    """Positions in the batch of a step, a Poisson sample or an allocated batch."""
    if settings.drawn == "allocation":
        return streams.allocated(step, examples, settings.batches_of_epoch(examples), settings.joined)
    return streams.poisson(step, examples, settings.batch / settings.population(examples))


def padded(sample: np.ndarray, device: torch.device) -> Sample:
    """`Sample` of the positions ``sample``; an empty one gets one example of mask 0."""
    index = sample.astype(np.int64) if len(sample) else np.zeros(1, np.int64)
    mask = torch.full((len(index),), float(len(sample) > 0), dtype=torch.get_default_dtype(), device=device)
    return Sample(torch.from_numpy(index).to(device), mask)


class BatchSum(NamedTuple):
    """Clipped sums of whole samples (`Sample`), and private quantities that are not released."""

    sums: Tensors
    norms: Tensor  # (K, G) norms of each part of a gradient before clipping; G is 0 without clipping
    losses: Tensor  # (K,)
    mask: Tensor  # (K,)
    limits: Tensor  # (G,) clipping bounds of the parts

    @property
    def gradient_norms(self) -> Tensor:
        """(K,) norms of the whole gradients of K clipped units."""
        return self.norms.norm(dim=1)

    def metrics(self) -> Tensors:
        """Means () over examples or mini-sets: loss, gradient norm, share of clipped parts."""
        columns = {"train_loss": self.losses}
        if self.norms.shape[1]:
            columns["gradient_norm"] = self.gradient_norms
            columns["clipped_share"] = (self.norms > self.limits).float().mean(1)
        return {
            # not a product: padding may be infinite, and 0 times infinity is not 0
            name: torch.where(self.mask > 0, value, 0.0).sum() / self.mask.sum().clamp_min(1)
            for name, value in columns.items()
        }
