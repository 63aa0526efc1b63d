"""Settings of DP-SGD at a given noise level."""

import math
from typing import Any, ClassVar, Literal, Self

from dprepro.fields import Count, NotNegative, Share
from dprepro.pipeline.methods.settings import Circumstances, DescentSettings


class TanSettings(DescentSettings):
    """DP-SGD at a given noise level and number of steps (Sander et al. 2022)."""

    method: ClassVar[str] = "tan"
    trained_by: ClassVar[str] = "method.Tan"
    version: ClassVar[int] = 1
    scales_inputs: ClassVar[bool] = True
    normalizations: ClassVar[tuple[str, ...]] = ("none", "layer", "group")
    axis: ClassVar[str] = "batch"
    title: ClassVar[str] = "DP-SGD by total noise (Sander et al.)"
    suggested_defaults: ClassVar[dict[str, Any]] = {"steps": 250, "learning_rate": 1.0, "clip": 1.0}
    scalable: ClassVar[bool] = True
    NOTES: ClassVar[int] = 10  # lines of a history; not one per pass, because B may have any size

    steps: Count  # S
    sigma: NotNegative  # noise on the clipped sum has std C sigma
    # K: number of augmented copies. Gradients of a training example's copies are averaged before clipping
    # (appendix C); the classes of a test image's copies are put to the vote (AugTest)
    copies: Count = 1
    augment: Literal["none", "crop_flip"] = "none"
    # sgd only, as in torch: buffer = momentum buffer + (1 - dampening) gradient
    dampening: Share = 0.0
    # Largest decay of the weights' moving average, min(ema, (1 + t) / (10 + t)) after t steps; 0: no average
    ema: Share = 0.9999
    note_norms: bool = False  # whether the history gets a histogram of gradient norms (Figure 7)

    @property
    def private(self) -> bool:
        """Return whether gradients are noised; they are always clipped."""
        return self.sigma > 0

    def for_audit(self, images: bool) -> Self:
        """Settings without augmentation, noted norms and class weights; on images also without momentum."""
        plain = {"augment": "none", "copies": 1, "note_norms": False, "class_weights": ()}
        return self.changed({**plain, **({"momentum": 0.0} if images else {})})

    def simulates(self, target: Self) -> bool:
        """Return whether only batch and noise differ from ``target``, smaller by one factor (section 3.4)."""
        scaled = {"batch": target.batch, "sigma": target.sigma, "note_norms": target.note_norms}
        equal_otherwise = self.model_copy(update=scaled) == target
        same_ratio = math.isclose(self.sigma * target.batch, target.sigma * self.batch, rel_tol=1e-6)
        return equal_otherwise and same_ratio and self.private and self.batch < target.batch

    def total_steps(self, examples: int) -> int:
        """The setting `steps`; it doesn't depend on ``examples``."""
        return self.steps

    def logs_after(self, steps_done: int, examples: int) -> bool:
        """Return whether ``steps_done`` completes another tenth of all steps."""
        return steps_done * self.NOTES // self.steps > (steps_done - 1) * self.NOTES // self.steps

    def needs_public(self, normalization: str) -> bool:
        """Return True: public examples set the scale of the inputs."""
        return True

    def problem(self, circumstances: Circumstances) -> str | None:
        """Reason why the settings don't fit the row, as 'key of the row: reason'; None if they fit."""
        if self.augment == "none" and self.copies > 1:
            return (
                f"settings.copies: {self.copies} of an example that is not augmented; allowed with 'augment: "
                "none': 1"
            )
        if self.momentum == 0 and self.dampening > 0:
            return f"settings.dampening: {self.dampening} without momentum only shrinks the rate; allowed: 0"
        return super().problem(circumstances)
