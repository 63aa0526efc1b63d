"""What DP-SGD on inputs that noisy statistics normalise can be told."""

from typing import Any, ClassVar, Literal

from pipeline.fields import Positive, Share
from pipeline.methods.settings import Circumstances, EpochSettings, delta_problem
from pipeline.privacy.parameters import Delta


class NormalizedDpsgdSettings(EpochSettings):
    """DP-SGD after one noisy release of the inputs' means and variances (Tramèr and Boneh 2021)."""

    method: ClassVar[str] = "normalized_dpsgd"
    trained_by: ClassVar[str] = "method.NormalizedDpsgd"
    version: ClassVar[int] = 1
    title: ClassVar[str] = "DP-SGD on inputs normalised by noisy statistics"
    normalizations: ClassVar[tuple[str, ...]] = ("none",)
    axis: ClassVar[str] = "epsilon"
    # An attack that compares two data sets takes a step's sums to differ by one example, which they do only
    # where both are normalised alike; and canaries must reach the network as they are.
    audited_without: ClassVar[dict[str, Any]] = {"momentum": 0.0, "statistics_noise": None}
    canaries_without: ClassVar[dict[str, Any]] = {"statistics_noise": None}
    beginnings: ClassVar[dict[str, Any]] = {"epochs": 8, "learning_rate": 1.0, "clip": 0.1}

    momentum: Share = 0.0
    clip: Positive = 1.0  # L2 bound of one example's gradient
    epsilon: Positive  # of statistics and steps together; the steps' noise is calibrated by `accountant`
    delta: Delta = 1e-5
    accountant: Literal["rdp", "pld"] = "pld"
    # standard deviation of the noise on the sum of means, and of squares, over what one example moves it by;
    # null: inputs stay as they are
    statistics_noise: Positive | None = 8.0

    @property
    def private(self) -> bool:
        """Always."""
        return True

    def problem(self, circumstances: Circumstances) -> str | None:
        """What doesn't fit, as 'key of the row: why'; None where all does."""
        return delta_problem(self.delta, circumstances) or super().problem(circumstances)
