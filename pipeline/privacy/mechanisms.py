"""The mechanism that touches private data. The object that adds the noise also says what it spends."""

from dataclasses import dataclass

from torch import Tensor

from pipeline.privacy.gradients import Bounds, Tensors
from pipeline.privacy.randomness import Streams
from pipeline.privacy.spending import Spending


@dataclass(frozen=True)
class GaussianMechanism:
    """Gaussian noise on a sum of clipped vectors, for each of R replicas.

    One example moves part g of the sum by at most ``distance`` C_g, `sensitivity` times its clipping bound
    (`pipeline.privacy.spending`). The parts' noise has standard deviation
    ``distance`` C_g z sqrt(G) / p_g with sum p_g^2 = G, so that all of them together have multiplier z
    (Nguyen et al. 2023, section 3.2 and footnote 4).
    """

    spendings: tuple[Spending, ...]  # z, and how batches are drawn
    distance: float

    def release(
        self, sums: Tensors, bounds: Bounds, streams: Streams, step: int, shares: Tensor | None = None
    ) -> Tensors:
        """``sums`` (R, ...) each, plus noise by their ``bounds`` (R, ...); ``shares`` (R, G): p, or all 1."""
        sizes = [value[0].numel() for value in sums.values()]
        deviations = self.deviations(bounds, shares)
        parts = streams.normal(step, sum(sizes)).split(sizes, dim=1)
        return {
            # in place: nobody else sees the numbers that were drawn
            name: part.mul_(own[:, None]).reshape(value.shape).add_(value)
            for own, part, (name, value) in zip(deviations.T, parts, sums.items(), strict=True)
        }

    def deviations(self, bounds: Bounds, shares: Tensor | None = None) -> Tensor:
        """(R, T) standard deviation of the noise in every entry of each tensor."""
        multipliers = bounds.limits.new_tensor([spending.noise_multiplier for spending in self.spendings])
        noise = self.distance * multipliers[:, None] * bounds.limits
        if shares is None:
            noise = noise * bounds.limits.shape[-1] ** 0.5
        else:
            noise = noise * shares.square().sum(-1, keepdim=True).sqrt() / shares
        return (bounds.members @ noise[..., None])[..., 0] / bounds.weights
