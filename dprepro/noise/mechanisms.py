"""Mechanisms that add noise to private data; a mechanism object also has the spending.

Secret noise is on a grid: values are rounded to multiples of a spacing, noise is drawn as an integer
(`dprepro.noise.rounded_noise`), and integers are added in float64, which is exact below 2^53. For a value
on the grid this equals adding real noise and then rounding. Rounding is post-processing, as is conversion to
float32. But rounding to the grid, and rounding while gradients are clipped and summed, add to the distance of
neighbouring sums. The noise is larger to cover this. It is assumed that an example's gradient has the same
numbers in every batch, and that the same pass gives the same sum again.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from math import ceil, log2
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dprepro.accountants.records import SampledGaussian
from dprepro.clipping.functional import Tensors
from dprepro.fields import Noise
from dprepro.noise.rounded_noise import BLOCK
from dprepro.noise.streams import Streams

if TYPE_CHECKING:
    from dprepro.clipping.limits import ClipLimits

# Rounding adds at most this share to a sensitivity
FINENESS = 2.0**-10
# Largest allowed error of a float32 sum, in the units of `roundings`; other sums are in float64.
# A sample may come in parts, and an added or removed example changes only its own part. Then the errors of
# all other parts are the same in neighbouring sums, and only the errors of one part count.
IN_FLOAT32 = 2**15
# Largest increase of the distance of neighbouring sums by rounding, divided by the sensitivity. Each of
# the two sums has the error above, and at most 2^-14 from norms of blocks of 1,024 entries
# (`layer_gradients.squares`), factors and deviations.
COMPUTING = 2 * IN_FLOAT32 * 2.0**-24 + 2.0**-13


@dataclass(frozen=True)
class GaussianMechanism:
    """Gaussian noise on a sum of clipped vectors.

    The sum has G parts (`ClipLimits`). One example moves part g by at most ``distance`` C_g, where C_g is the
    part's clipping bound and ``distance`` is a `sensitivity`. The noise of part g has standard deviation
    ``distance`` C_g z sqrt(G), so that all parts together have noise multiplier z (Nguyen et al. 2023,
    section 3.2).

    On a grid, the spacing in every tensor is a share r of the noise's standard deviation s. In units of s,
    neighbouring sums are at most 1 / z apart. Rounding of the sums adds c / z (c is `COMPUTING`). Rounding to
    the grid moves each of d coordinates by at most r / 2 in either sum, so it adds r sqrt(d). To keep the
    multiplier z, s is larger by the factor 1 / (1 - c - z r sqrt(d)).
    """

    spending: SampledGaussian  # z and sampling
    distance: float

    def release(self, sums: Tensors, bounds: "ClipLimits", streams: Streams, step: int) -> Tensors:
        """Add noise to the sums of a step.

        Args:
            sums: clipped sums by tensor.
            bounds: clipping bounds, public.
            streams: random streams.
            step: step of the noise; the noise of a step may be released once.

        Returns:
            Noisy sums of the same shapes, in float32.

        Raises:
            ValueError: the step's noise is in another release already.
        """
        streams.release_once(step)
        values = [value.flatten() for value in sums.values()]
        sizes = tuple(map(len, values))
        size = sum(sizes)
        scales = _scales(self, streams.noise, bounds, sizes)
        if streams.noise == "grid":
            noisy = _on_grid(values, streams.rounded_normal(step, size, self.bits(size)), scales)
        else:
            # in place, because the drawn numbers are not used again
            noisy = streams.normal(step, size).mul_(scales).add_(torch.cat(values))
        parts = noisy.split(list(sizes))
        return {name: part.view(value.shape) for part, (name, value) in zip(parts, sums.items(), strict=True)}

    def deviations(self, bounds: "ClipLimits") -> Tensor:
        """(T,) standard deviations of the noise in the entries of T tensors, without rounding."""
        multiplier = bounds.limits.new_tensor(self.spending.noise_multiplier)
        noise = self.distance * multiplier * bounds.limits * len(bounds.limits) ** 0.5
        return bounds.members @ noise

    def bits(self, size: int) -> int:
        """Smallest b >= 0 with z r sqrt(``size``) <= `FINENESS` for r = 2^-b as in the class."""
        return max(0, ceil(log2(self.spending.noise_multiplier * size**0.5 / FINENESS)))

    def spacings(self, bounds: "ClipLimits", size: int) -> Tensor:
        """(T,) float64 spacings of the grid for T tensors with ``size`` coordinates in all."""
        share = 2.0 ** -self.bits(size)  # r
        share_of_noise = share / (1 - (self.spending.noise_multiplier * size**0.5 * share + COMPUTING))
        # a tensor that is clipped to 0 has no noise, and is 0
        return (self.deviations(bounds).double() * share_of_noise).clamp_min(1e-300)


def roundings(vectors: int, at_once: int, sums: int = 1) -> int:
    """Bound on the errors of a float32 sum of clipped vectors, in units of 2^-24 times the clipping bound.

    In a pass of n vectors, each vector is rounded at most n + 1 times, by 2^-24 of its size: as a factor, as
    a product, and as a term of sums in any order. It is rounded once more as each further sum is added.

    Args:
        vectors: number of summed vectors.
        at_once: vectors of one pass.
        sums: number of passes' sums that float32 adds up.

    Returns:
        The bound.
    """
    return (min(vectors, at_once) + sums) * vectors


@lru_cache(maxsize=1)  # the steps of a training have the same bounds, at least for an epoch
def _scales(
    mechanism: GaussianMechanism, noise: Noise, bounds: "ClipLimits", sizes: tuple[int, ...]
) -> Tensor:
    """(D,) spacing, or deviation of float32 noise, of all D entries; on a CPU (1,) if all are equal."""
    scales = mechanism.spacings(bounds, sum(sizes)) if noise == "grid" else mechanism.deviations(bounds)
    # a GPU would wait for the comparison
    if scales.device.type == "cpu" and bool((scales == scales[0]).all()):
        return scales[:1]
    repeats = torch.tensor(sizes, device=scales.device)
    return scales.repeat_interleave(repeats, output_size=sum(sizes))


def _on_grid(values: list[Tensor], noise: Tensor, spacings: Tensor) -> Tensor:
    """(D,) ``values``, as one vector, on a grid of ``spacings`` plus ``noise`` times these, in float32."""
    if noise.device.type != "cpu":
        return torch.cat(values).double().div_(spacings).round_().add_(noise).mul_(spacings).float()
    # in place, if numbers are as long: the drawn numbers are not used again
    released = noise.view(torch.float32) if noise.dtype == torch.int32 else torch.empty(len(noise))
    # in blocks that stay in the CPU's cache; small tensors together, as an operation on one takes as long
    blocks: list[Tensor] = []
    at_once = BLOCK * torch.get_num_threads()
    for is_large, tensors in groupby(values, lambda value: len(value) >= at_once):
        for run in tensors if is_large else [torch.cat([*tensors])]:
            blocks += run.split(at_once)
    # with the inverses, a coordinate moves by up to 2^-52 of its size more than by a division, which for sums
    # of 2^18 examples and grids of 2^20 spacings in a clipping bound is 2^-14 of a spacing
    shared = [scales.expand(len(noise)) for scales in (spacings, 1 / spacings)]
    sizes = [*map(len, blocks)]
    for block in zip(blocks, *(part.split(sizes) for part in (released, noise, *shared)), strict=True):
        exact, place, integers, spacing, inverse = block
        # converts first, because a product of float32 and float64 takes twice as long; a copy, because
        # float64 sums are the caller's
        place.copy_(exact.to(torch.float64, copy=True).mul_(inverse).round_().add_(integers).mul_(spacing))
    return released


def release_laplace(
    values: Tensor, scales: Tensor, streams: Streams, step: int, purpose: str, spacing: float | None = None
) -> Tensor:
    """Add independent Laplace noise to values, once.

    On a grid, values are rounded before noise is added. With the default spacing, values in [0, 1], or values
    1/2 and -1/2, are never more than 1 apart after rounding. Grids with a spacing up to 1/2 contain the
    numbers 0, 1, 1/2 and -1/2. At spacing 1, the values 1/2 and -1/2 become 0. At larger spacings, all these
    values become 0. Other values may move further apart by up to one ``spacing``.

    Args:
        values: (N, d) rows of d numbers.
        scales: (d,) scale of each column; if all are 0, no noise is added.
        streams: random streams.
        step: step of the noise.
        purpose: name of the noise; each purpose has a separate stream.
        spacing: spacing of the grid; None: `laplace_spacings`.

    Returns:
        (N, d) noisy values in float32.
    """
    if streams.noise == "float32":
        noise = streams.laplace(step, values.numel(), purpose).reshape(values.shape)
        # in place, because this is the largest tensor
        return noise.mul_(scales).add_(values)
    scales_array, exact = scales.cpu().double().numpy(), values.cpu().numpy()
    if not scales_array.any():
        return values.to(torch.float32, copy=True)
    spacings = np.full_like(scales_array, spacing) if spacing else laplace_spacings(scales_array)
    released = np.empty(exact.shape, dtype=np.float32)
    for rows, integers in streams.rounded_laplace(step, len(exact), scales_array / spacings, purpose):
        integers += np.rint(exact[rows] / spacings)
        released[rows] = integers * spacings
    return torch.from_numpy(released).to(values.device)


def laplace_spacings(scales: np.ndarray) -> np.ndarray:
    """Grid spacing for each of ``scales``: a power of two; the scale is 2^20 to 2^21 times as large."""
    return np.ldexp(1.0, np.frexp(scales)[1] - 21)
