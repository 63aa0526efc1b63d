"""Settings of the Laplace mechanisms."""

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field

from dprepro.accountants.laplace import Laplace, Releases
from dprepro.fields import Count, Epsilon, Positive, Share
from dprepro.pipeline.methods.settings import Attack, Circumstances, EpochSettings
from dprepro.pipeline.methods.spending import (
    CURVES,
    Guarantee,
    NetworkSizes,
    RelevanceSizes,
    Sizes,
    Statement,
    statement,
)

SHARED = statement("shared_noise")
# Smallest relevance of a feature, as in the authors' code; a feature with relevance 0 would get infinite
# noise
LEAST_RELEVANCE = 1e-5
POWER = 4  # exponent of relevances in the authors' code


def _sensitivity(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    if value is None or value in ("maps", "neurons") or number:
        return value
    # one message instead of one for each type
    raise ValueError(f"{value!r} is not allowed: 'maps', 'neurons' or a number above 0")


Sensitivity = Annotated[Literal["maps", "neurons"] | Positive | None, BeforeValidator(_sensitivity)]


class IlmSettings(EpochSettings):
    """Identical Laplace mechanism (Phan et al. 2017, appendix C): the same noise on every feature."""

    method: ClassVar[str] = "ilm"
    trained_by: ClassVar[str] = "perturbed.Perturbed"
    version: ClassVar[int] = 1
    normalizations: ClassVar[tuple[str, ...]] = ("none", "layer", "group", "response", "batch_bn")
    axis: ClassVar[str] = "epsilon"
    title: ClassVar[str] = "ILM (Phan et al.)"
    unit_inputs: ClassVar[bool] = True
    retired: ClassVar[dict[str, Any]] = {"exact": "nothing"}
    kept: ClassVar[frozenset[str]] = frozenset({"low", "high", "bias_factor"})
    suggested_defaults: ClassVar[dict[str, Any]] = {"epochs": 8, "learning_rate": 0.0003, "variant": "sound"}

    # claimed epsilon of all releases together; `.inf` trains without noise. Below .001, rounding to float32
    # would leave nothing of an image
    epsilon: Annotated[Epsilon, Field(ge=1e-3)]
    # 'paper': Algorithm 1 to the letter. Noise is independent for every example and drawn once; its scale is
    # 1/|L| of the full one. 'code': as in the authors' code. All examples of a batch have the same noise,
    # drawn anew at each step. 'sound': as 'paper', but with the scale of an example's full sensitivity.
    variant: Literal["paper", "code", "sound"]
    # |h0| in Delta_h0 = 2 |h0| d: number of the first layer's feature 'maps', or of its 'neurons'. A number
    # is Delta_h0 itself. Unused in 'sound'
    sensitivity: Sensitivity = None
    noise_batch: Count | None = None  # |L| in the noise's scale; None: the batch
    loss_share: Annotated[float, Field(gt=0, lt=1)] = 0.5  # epsilon_3 / epsilon; inputs get the rest
    limit: Positive | None = None  # noisy inputs are clamped to [-limit, limit]
    optimizer: Literal["adam", "sgd"] = "adam"

    @property
    def private(self) -> bool:
        """Return whether noise is added: an infinite epsilon means none."""
        return math.isfinite(self.epsilon)

    @property
    def attack(self) -> Attack:
        """Attack 'shared' if the examples of a batch share their noise; otherwise 'opposites'."""
        return "shared" if self.variant == "code" else "opposites"

    def shortened(self, batch: int, steps: int) -> Self:
        """Settings for an audit on small batches; variant 'paper' keeps `scale_batch`, and so its noise."""
        small = super().shortened(batch, steps)
        return small.changed({"noise_batch": self.scale_batch}) if self.variant == "paper" else small

    @property
    def input_share(self) -> float:
        """Share of the inputs in the claimed epsilon: epsilon_2 / epsilon."""
        return 1 - self.loss_share

    @property
    def scale_batch(self) -> int:
        """Batch size |L| in the noise's scale."""
        return self.noise_batch or self.batch

    @property
    def uses_network(self) -> bool:
        """Return whether the spending depends on sizes of the network: True if there is noise."""
        return self.private

    def input_scale(self, network: NetworkSizes) -> float:
        """Float32 scale b of the noise on each input if all features have the same scale; 0 without noise.

        b is Delta_h0 / (|L| epsilon_2) (line 13 of Algorithm 1). Delta_h0 of |h0| hidden neurons on d
        features is 2 |h0| d (Lemma 3); |L| is `scale_batch`. In 'sound' the sensitivity is d instead, the
        largest L1 distance of two images with d features in [0, 1].
        """
        if self.variant == "sound":
            sensitivity = float(network.features)
        elif isinstance(self.sensitivity, float):
            sensitivity = self.sensitivity / self.scale_batch
        else:
            hidden = network.maps if self.sensitivity == "maps" else network.neurons
            sensitivity = 2.0 * hidden * network.features / self.scale_batch
        return float(np.float32(sensitivity / (self.input_share * self.epsilon)))

    def loss_scale(self, network: NetworkSizes) -> float:
        """Float32 scale b of the noise on each coefficient of the loss; 0 without noise.

        b is Delta_F / (|L| epsilon_3) (line 19 of Algorithm 1). Delta_F of M classes and |h_k| units is
        M (|h_k| + |h_k|^2 / 4) (Lemma 5); |L| is `scale_batch`. In 'sound' the sensitivity is 2 instead,
        because another label moves two coefficients by 1 each.
        """
        sensitivity = 2.0
        if self.variant != "sound":
            sensitivity = network.classes * (network.units + network.units**2 / 4) / self.scale_batch
        return float(np.float32(sensitivity / (self.loss_share * self.epsilon)))

    def spending(self, sizes: Sizes) -> Releases:
        """Spending of the inputs and the labels, which are released once for a training of any length."""
        assert sizes.network is not None, "measured where the settings use it"
        network, distance = sizes.network, None if self.variant == "code" else 1.0
        ratios = self.feature_ratios(sizes)
        scales = np.float32(self.input_scale(network)) / (
            np.ones(1, np.float32) if ratios is None else ratios
        )
        inputs = Laplace(
            quantity="inputs",
            claimed=self.input_share * self.epsilon,
            distance=distance,
            scales=tuple(scales.tolist()),
            repeats=network.features if ratios is None else 1,
            span=1.0,
        )
        labels = Laplace(
            quantity="labels",
            claimed=self.loss_share * self.epsilon,
            distance=distance,
            scales=(self.loss_scale(network),),
            repeats=2,  # coefficients 1/2 - y of the old and the new class
            span=1.0,
        )
        return Releases(laplace=(*self.relevance_releases(sizes), inputs, labels))

    def feature_ratios(self, sizes: Sizes) -> np.ndarray | None:
        """(d,) float32 ratios beta_j: shares of the d features in epsilon_2, times d; None: equal shares."""
        return None

    def relevance_releases(self, sizes: Sizes) -> tuple[Laplace, ...]:
        """Releases of relevances; none in `ilm`."""
        return ()

    @property
    def claim(self) -> tuple[float, str]:
        """Delta 0, and the accountant 'laplace' of the claimed epsilon."""
        return 0.0, "laplace"

    def broken(self, normalization: str) -> tuple[Statement, ...]:
        """Statement that noise shared by a batch's examples doesn't hide their differences ('code')."""
        return (SHARED,) if self.variant == "code" else ()

    def guarantee(self, sizes: Sizes, normalization: str) -> Guarantee:
        """Spending of the releases, and a statement on what is protected, and from whom."""
        guarantee = super().guarantee(sizes, normalization)
        if guarantee.spending is None:
            return guarantee
        # relevances of private images are averaged by a curator, who sees every image
        trust = "curated" if sizes.relevances else "local"
        # an example with 1/|L| of the noise spends |L| times epsilon
        epsilon_kind = "claimed" if self.variant == "sound" else "accounted"
        return replace(
            guarantee,
            # curves are computed from the release, except in 'code'
            not_covered=(CURVES,) if guarantee.broken else (),
            protects=statement("nobody" if guarantee.broken else f"{trust}_at_{epsilon_kind}"),
        )

    def problem(self, circumstances: Circumstances) -> str | None:
        """Reason why the settings don't fit the row, as 'key of the row: reason'; None if they fit."""
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
    """Adaptive Laplace mechanism (Phan et al. 2017, Algorithm 1): less noise on relevant features."""

    method: ClassVar[str] = "adlm"
    trained_by: ClassVar[str] = "adlm.Adlm"
    version: ClassVar[int] = 1
    title: ClassVar[str] = "AdLM (Phan et al.)"
    uses_relevances: ClassVar[bool] = True

    relevance_share: Share = 0.25  # epsilon_1 / epsilon
    note_relevance: bool = False  # whether the history gets every feature's noisy relevance (Figure 3)

    @property
    def input_share(self) -> float:
        """Share of the inputs in the claimed epsilon: epsilon_2 / epsilon."""
        return super().input_share - self.relevance_share

    def scaled(self, mean: Any) -> Any:
        """(d,) relevances before noise (line 2); 'code' scales them to [0, 1] and raises them to a power."""
        if self.variant != "code":
            return mean
        least = mean.min()
        return ((mean - least) / (mean.max() - least).clip(LEAST_RELEVANCE)) ** POWER

    def ratios(self, noisy: Any) -> Any:
        """Ratios d |R_j| / sum |R_j| (Eq. 16) of relevances R = ``noisy`` (..., d), an array or tensor.

        Values below `LEAST_RELEVANCE` count as `LEAST_RELEVANCE`: values of |R_j|, or of R_j in 'code'.
        """
        size = (noisy if self.variant == "code" else abs(noisy)).clip(LEAST_RELEVANCE)
        ratios = noisy.shape[-1] * size / size.sum(-1, keepdims=True)
        return ratios.clip(LEAST_RELEVANCE) if self.variant == "code" else ratios

    def feature_ratios(self, sizes: Sizes) -> np.ndarray | None:
        """(d,) `ratios` of the training's noisy relevances."""
        relevances, _ = _measured(sizes)
        return relevances.ratios

    def relevance_distance(self, sizes: Sizes) -> float:
        """Largest change of a mean of |D| relevances in [0, 1] by one example: 1 / |D|, or 1 if ``informed``.

        A network that was trained on the example (``informed``) may change with it. Then the relevances of
        all examples change too.
        """
        relevances, _ = _measured(sizes)
        return 1.0 if relevances.informed else 1 / relevances.examples

    def relevance_scale(self, sizes: Sizes) -> float:
        """Scale b of the noise on an average relevance: Delta_R / epsilon_1 (Alg. 1, line 6).

        Delta_R of d relevances averaged over |D| examples is 2 d / |D| (Lemma 1). In 'sound' it is d times
        `relevance_distance`.
        """
        relevances, network = _measured(sizes)
        if not self.private:
            return 0.0
        if self.variant == "sound":
            sensitivity = network.features * self.relevance_distance(sizes)
        else:
            sensitivity = 2 * network.features / relevances.examples
        return sensitivity / (self.relevance_share * self.epsilon)

    def relevance_releases(self, sizes: Sizes) -> tuple[Laplace, ...]:
        """Release of the average relevances."""
        relevances, network = _measured(sizes)
        mean = Laplace(
            quantity="relevances",
            claimed=self.relevance_share * self.epsilon,
            # in 'code' the averages are scaled to [0, 1], so one example may move one of them far
            distance=None if self.variant == "code" else self.relevance_distance(sizes),
            scales=(self.relevance_scale(sizes),),
            repeats=network.features,
            span=relevances.span,
        )
        return (mean,)

    def problem(self, circumstances: Circumstances) -> str | None:
        """Reason why the settings don't fit the row, as 'key of the row: reason'; None if they fit."""
        if not circumstances.relevances:
            return (
                f"data: method {self.method!r} needs data of 'relevances', not {circumstances.data!r}; "
                f"there are: {', '.join(circumstances.with_relevances) or 'none'}"
            )
        if self.relevance_share == 0:
            return "settings.relevance_share: 0; allowed: above 0"
        if self.input_share < 1e-9:  # 1 - .7 - .3 is 6e-17
            return (
                f"settings.relevance_share: {self.relevance_share} leaves the inputs nothing; allowed: below "
                f"{1 - self.loss_share:g}"
            )
        return super().problem(circumstances)


def _measured(sizes: Sizes) -> tuple[RelevanceSizes, NetworkSizes]:
    assert sizes.relevances is not None, "checked when params are read"
    assert sizes.network is not None, "measured where the settings use it"
    return sizes.relevances, sizes.network
