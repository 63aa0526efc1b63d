"""The mechanisms that touch private data. The object that adds the noise also says what it spends."""

from dataclasses import dataclass

import torch
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

from pipeline.privacy.gradients import Tensors
from pipeline.privacy.randomness import Streams


@dataclass(frozen=True)
class PoissonGaussian:
    """The Gaussian mechanism on a sum over a Poisson sample, for each of R replicas.

    Every example enters the sample with probability ``rate`` and its part of the sum has L2 norm at most
    ``clips[r]`` over all tensors together, so adding or removing one example moves the sum by at most that.
    """

    rate: float
    clips: tuple[float, ...]  # L2 bounds
    noise_multipliers: tuple[float, ...]  # z: noise has standard deviation z C in every coordinate

    def release(self, sums: Tensors, streams: Streams, step: int) -> Tensors:
        """``sums`` (R, ...) each, plus N(0, z^2 C^2)."""
        sizes = [value[0].numel() for value in sums.values()]
        scale = torch.tensor(
            [clip * multiplier for clip, multiplier in zip(self.clips, self.noise_multipliers, strict=True)]
        )
        noise = streams.normal(step, sum(sizes))
        noise = noise * scale.to(noise)[:, None]
        parts = noise.split(sizes, dim=1)
        return {
            name: value + part.reshape(value.shape)
            for (name, value), part in zip(sums.items(), parts, strict=True)
        }

    def event(self, replica: int, steps: int) -> DpEvent:
        """What ``steps`` releases of one replica spend."""
        return poisson_gaussian(self.rate, self.noise_multipliers[replica], steps)


def poisson_gaussian(rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    """``steps`` Gaussian mechanisms, each on a fresh Poisson sample."""
    return SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier)), steps)
