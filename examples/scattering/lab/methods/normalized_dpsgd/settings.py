"""Settings of DP-SGD on inputs normalised by noisy statistics."""

from typing import Any, ClassVar, Literal, Self

from dprepro.accountants.records import SampledGaussian
from dprepro.fields import Delta, Positive, Share
from dprepro.pipeline.methods.settings import EpochSettings
from dprepro.pipeline.methods.spending import Sizes

SUMMED = ("mean", "square")  # sums over the inputs that are released before the first step


class NormalizedDpsgdSettings(EpochSettings):
    """DP-SGD after one noisy release of the inputs' means and variances (Tramèr and Boneh 2021)."""

    method: ClassVar[str] = "normalized_dpsgd"
    trained_by: ClassVar[str] = "method.NormalizedDpsgd"
    version: ClassVar[int] = 1
    title: ClassVar[str] = "DP-SGD on inputs normalised by noisy statistics"
    normalizations: ClassVar[tuple[str, ...]] = ("none",)
    axis: ClassVar[str] = "epsilon"
    suggested_defaults: ClassVar[dict[str, Any]] = {"epochs": 8, "learning_rate": 1.0, "clip": 0.1}

    momentum: Share = 0.0
    clip: Positive = 1.0  # L2 bound of one example's gradient
    epsilon: Positive  # of statistics and steps together; the steps' noise is calibrated by `accountant`
    delta: Delta = 1e-5
    accountant: Literal["rdp", "pld"] = "pld"
    # standard deviation of the noise on the sum of means, and on the sum of squares, divided by the largest
    # effect of one example on the sum; null: inputs are not normalised
    statistics_noise: Positive | None = 8.0

    @property
    def private(self) -> bool:
        """Return True."""
        return True

    def for_audit(self, images: bool) -> Self:
        """Settings without statistics, and without momentum for attacks with images.

        An attack that compares two data sets needs sums that differ by one example, so both need the same
        normalisation. Canaries must reach the network unchanged.
        """
        return self.changed({"statistics_noise": None, **({"momentum": 0.0} if images else {})})

    @property
    def first_release(self) -> float | None:
        """Noise multiplier of the joint release of both sums of the statistics; None without statistics."""
        return self.statistics_noise and self.statistics_noise / len(SUMMED) ** 0.5

    def noise_multiplier(self, sizes: Sizes) -> float:
        """Noise multiplier of the steps, at which steps and statistics together spend the target epsilon.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        from dprepro.accountants.calibration import noise_for

        rate, steps = self.batch / sizes.examples, self.total_steps(sizes.examples)
        return noise_for(self.epsilon, self.delta, rate, steps, self.accountant, self.first_release)

    def spending(self, sizes: Sizes) -> SampledGaussian:
        """Spending of the statistics and of each step."""
        return SampledGaussian(
            sampling="poisson",
            noise_multiplier=self.noise_multiplier(sizes),
            examples=sizes.examples,
            batch=self.batch,
            first_release=self.first_release,
        )

    @property
    def claim(self) -> tuple[float, str]:
        """Delta of the target, and the accountant of the noise's calibration."""
        return self.delta, self.accountant
