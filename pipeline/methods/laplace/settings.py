"""What the Laplace mechanisms can be told."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field

from pipeline.fields import Count, Positive, Share
from pipeline.methods.settings import Attack, Circumstances, EpochSettings
from pipeline.privacy.parameters import Epsilon


def _sensitivity(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    if value is None or value in ("maps", "neurons") or number:
        return value
    # one line instead of one for each of the kinds
    raise ValueError(f"{value!r} is not allowed: 'maps', 'neurons' or a number above 0")


Sensitivity = Annotated[Literal["maps", "neurons"] | Positive | None, BeforeValidator(_sensitivity)]


class IlmSettings(EpochSettings):
    """The identical Laplace mechanism (Phan et al. 2017, appendix C): the same noise on every feature."""

    method: ClassVar[str] = "ilm"
    trained_by: ClassVar[str] = "perturbed.Perturbed"
    version: ClassVar[int] = 1
    normalizations: ClassVar[tuple[str, ...]] = ("none", "layer", "group", "response", "batch_bn")
    axis: ClassVar[str] = "epsilon"
    title: ClassVar[str] = "ILM (Phan et al.)"
    unit_inputs: ClassVar[bool] = True
    retired: ClassVar[dict[str, Any]] = {"exact": "nothing"}
    kept: ClassVar[frozenset[str]] = frozenset({"low", "high", "bias_factor"})
    varying: ClassVar[frozenset[str]] = frozenset({"sensitivity", "noise_batch", "loss_share"})
    beginnings: ClassVar[dict[str, Any]] = {"epochs": 8, "learning_rate": 0.0003, "variant": "sound"}

    # As claimed, of all releases together; `.inf` trains on what is there, without noise. With less than a
    # thousandth nothing of an image would be left in float32
    epsilon: Annotated[Epsilon, Field(ge=1e-3)]
    # 'paper': Algorithm 1 to the letter: every example has noise of its own, at 1/|L| of the scale, drawn
    # once. 'code': as the authors' code: one noise for all examples of a batch, drawn anew at each step.
    # 'sound': every example has noise of its own, for all that it may differ by, drawn once.
    variant: Literal["paper", "code", "sound"]
    # Delta_h0 = 2 |h0| d, with |h0| the feature maps or the neurons of the first layer; or Delta_h0 itself.
    # 'sound' has no use for it
    sensitivity: Sensitivity = None
    noise_batch: Count | None = None  # |L| in the noise's scale; None: the batch
    loss_share: Annotated[float, Field(gt=0, lt=1)] = 0.5  # epsilon_3 / epsilon; the inputs have what is left
    limit: Positive | None = None  # noisy inputs are cut off at plus and minus this
    optimizer: Literal["adam", "sgd"] = "adam"

    @property
    def private(self) -> bool:
        """Whether anything is noised, which an infinite epsilon says not."""
        return math.isfinite(self.epsilon)

    @property
    def attack(self) -> Attack:
        """On what was released, or on what the examples of a batch share."""
        return "shared" if self.variant == "code" else "opposites"

    def shortened(self, batch: int, steps: int) -> Self:
        """With each example's noise as it was, which in 'paper' |L| divides."""
        small = super().shortened(batch, steps)
        return small.changed({"noise_batch": self.scale_batch}) if self.variant == "paper" else small

    @property
    def input_share(self) -> float:
        """epsilon_2 / epsilon: the inputs' share of what is claimed."""
        return 1 - self.loss_share

    @property
    def scale_batch(self) -> int:
        """|L| in the noise's scale."""
        return self.noise_batch or self.batch

    def problem(self, circumstances: Circumstances) -> str | None:
        """What doesn't fit, as 'key of the row: why'; None where all does."""
        if (self.sensitivity is None) != (self.variant == "sound"):
            return (
                f"settings.sensitivity: {self.sensitivity}; it goes with variants 'paper' and 'code', and "
                "only them"
            )
        if self.variant == "sound" and self.noise_batch is not None:
            return (
                f"settings.noise_batch: {self.noise_batch}; allowed with 'variant: sound', which has no |L|: "
                "null"
            )
        return super().problem(circumstances)


class AdlmSettings(IlmSettings):
    """The adaptive Laplace mechanism (Phan et al. 2017, Algorithm 1): less noise on relevant features."""

    method: ClassVar[str] = "adlm"
    trained_by: ClassVar[str] = "adlm.Adlm"
    version: ClassVar[int] = 1
    title: ClassVar[str] = "AdLM (Phan et al.)"
    uses_relevances: ClassVar[bool] = True
    varying: ClassVar[frozenset[str]] = IlmSettings.varying | {"relevance_share"}

    relevance_share: Share = 0.25  # epsilon_1 / epsilon
    note_relevance: bool = False  # the noisy relevance of every feature into the history (Figure 3)

    @property
    def input_share(self) -> float:
        """epsilon_2 / epsilon: the inputs' share of what is claimed."""
        return super().input_share - self.relevance_share

    def problem(self, circumstances: Circumstances) -> str | None:
        """What doesn't fit, as 'key of the row: why'; None where all does."""
        if circumstances.relevances is None:
            return (
                f"data: method {self.method!r} needs data of 'relevances', not {circumstances.data!r}; "
                f"there are: {', '.join(circumstances.with_relevances) or 'none'}"
            )
        # public relevances need no noise, and so no share of epsilon; others must have one
        public = circumstances.relevances == "public"
        if (self.relevance_share == 0) != public:
            return (
                f"settings.relevance_share: {self.relevance_share}; allowed with the "
                f"{'public' if public else 'private'} relevances of {circumstances.data!r}: "
                + ("0" if public else "above 0")
            )
        if self.input_share < 1e-9:  # 1 - .7 - .3 is 6e-17
            return (
                f"settings.relevance_share: {self.relevance_share} leaves the inputs nothing; allowed: below "
                f"{1 - self.loss_share:g}"
            )
        return super().problem(circumstances)
