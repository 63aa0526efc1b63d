"""Settings of DP-SGD."""

import math
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

from dprepro.fields import Count, Epsilon, NotNegative, omitted
from dprepro.pipeline.methods.settings import Circumstances, DescentSettings, EpochSettings
from dprepro.pipeline.methods.spending import Sizes, Statement, statement

JOINT = statement("joint_statistics")


class DpsgdSettings(DescentSettings, EpochSettings):
    """DP-SGD (Abadi et al. 2016) with noise for a target epsilon."""

    method: ClassVar[str] = "dpsgd"
    trained_by: ClassVar[str] = "method.Dpsgd"
    version: ClassVar[int] = 1
    normalizations: ClassVar[tuple[str, ...]] = (
        *("none", "layer", "group", "response"),
        *("batch_bn", "public_bn"),
    )
    axis: ClassVar[str] = "epsilon"
    title: ClassVar[str] = "DP-SGD (Davody et al.; the others' baseline)"
    noiseless: ClassVar[Statement] = statement("no_clipping_no_noise")
    retired: ClassVar[dict[str, Any]] = {
        **{"activation_range": 8.0, "statistics_share": 0.5, "statistics_weight": 1.0, "averaging": 0.1}
    }
    # From a search of 96 settings of private logistic regression (batches of N/8 to N, 8 to 100 epochs, step
    # sizes .25 to 8, clip 1), judged on validation data of iris, wine, breast cancer, digits and 1,000 MNIST
    # images, six splits of each. Mean accuracy at epsilon 1, 3 and 8: 82, 89 and 91 % with these; 81, 87 and
    # 89 % with N/8, 8 epochs and step size 1; at most 83, 90 and 93 %. No convolutional network was searched.
    suggested_defaults: ClassVar[dict[str, Any]] = {"epochs": 20, "learning_rate": 2.0, "clip": 1.0}
    suggested_share: ClassVar[int] = 2

    # target of the noise calibration by `accountant`; `.inf` trains without clipping and noise
    epsilon: Epsilon
    accountant: Literal["rdp", "pld"] = "rdp"
    # Public number in place of N for sampling rate, steps and noise; then N itself stays private
    nominal_examples: Count | None = omitted(None)
    weight_decay: NotNegative = omitted(0.0)

    @property
    def private(self) -> bool:
        """Return whether gradients are clipped and noised."""
        return math.isfinite(self.epsilon)

    def for_audit(self, images: bool) -> Self:
        """Settings without class weights and `nominal_examples`; on images also with plain SGD."""
        plain = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0} if images else {}
        return self.changed({"class_weights": (), "nominal_examples": None, **plain})

    def noise_multiplier(self, sizes: Sizes) -> float:
        """Noise multiplier whose epsilon is the target, by the `accountant` of the settings.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        from dprepro.accountants.calibration import noise_for

        rate, steps = self.batch / self.population(sizes.examples), self.total_steps(sizes.examples)
        if self.drawn == "allocation" or (sizes.group or 1) > 1:
            return _least_noise(self, sizes, steps)
        return noise_for(self.epsilon, self.delta, rate, steps, self.accountant)

    @property
    def claim(self) -> tuple[float, str]:
        """Delta of the target epsilon, and the accountant that calibrates the noise."""
        return self.delta, self.accountant

    def broken(self, normalization: str) -> tuple[Statement, ...]:
        """Statement that the statistics of a joint batch mix examples (Davody et al., Algorithm 1)."""
        return (JOINT,) if normalization == "batch_bn" else ()

    def needs_public(self, normalization: str) -> bool:
        """Return whether the statistics of batch norm use public examples."""
        return normalization in ("public_bn", "batch_bn")

    def problem(self, circumstances: Circumstances) -> str | None:
        """Reason why the settings don't fit the row, as 'key of the row: reason'; None if they fit."""
        if self.private and self.drawn == "allocation" and self.accountant == "rdp":
            return "settings.accountant: 'rdp' has no bound for 'sampling: allocation'; allowed: pld"
        several = (circumstances.group or 1) > 1
        if self.private and several and self.accountant == "rdp":
            return "settings.accountant: 'rdp' has no bound for several examples of a person; allowed: pld"
        return super().problem(circumstances)


@lru_cache(maxsize=64)
def _least_noise(settings: DpsgdSettings, sizes: Sizes, steps: int) -> float:
    """Least noise multiplier of ``steps`` steps with these settings."""
    from dprepro.accountants.calibration import least_noise

    return least_noise(
        settings.epsilon, settings.delta, steps, lambda noise: settings.spending_at(noise, sizes)
    )
