"""Settings of the Laplace mechanisms."""

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field

from pipeline.fields import Count, Positive, Share
from pipeline.methods.settings import Attack, Circumstances, EpochSettings
from pipeline.methods.spending import CURVES, Guarantee, NetworkSizes, RelevanceSizes, Sizes
from pipeline.privacy.laplace import Laplace, Releases
from pipeline.privacy.parameters import Epsilon
from pipeline.privacy.statements import Statement, statement

SHARED, INFORMED = statement("shared_noise"), statement("exact_relevances")
# Smallest relevance of a feature, as in the authors' code; a feature with relevance 0 would get infinite
# noise
LEAST_RELEVANCE = 1e-5
POWER = 4  # exponent of relevances in that code


def _sensitivity(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    if value is None or value in ("maps", "neurons") or number:
        return value
    # one line instead of one for each type
    raise ValueError(f"{value!r} is not allowed: 'maps', 'neurons' or a number above 0")


Sensitivity = Annotated[Literal["maps", "neurons"] | Positive | None, BeforeValidator(_sensitivity)]


def _float32(value: float) -> float:
    """Scale of the noise, rounded to float32."""
    return float(np.float32(value))


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
    varying: ClassVar[frozenset[str]] = frozenset({"sensitivity", "noise_batch", "loss_share"})
    beginnings: ClassVar[dict[str, Any]] = {"epochs": 8, "learning_rate": 0.0003, "variant": "sound"}

    # claimed epsilon of all releases together; `.inf` trains without noise. Below a thousandth, nothing of an
    # image would be left in float32
    epsilon: Annotated[Epsilon, Field(ge=1e-3)]
    # 'paper': Algorithm 1 to the letter: independent noise for every example, at 1/|L| of the scale, drawn
    # once. 'code': as in the authors' code: the same noise for all examples of a batch, drawn anew at each
    # step. 'sound': independent noise for every example, at the scale of its full sensitivity, drawn once.
    variant: Literal["paper", "code", "sound"]
    # Delta_h0 = 2 |h0| d, with |h0| the feature maps or the neurons of the first layer; or Delta_h0 itself;
    # unused in 'sound'
    sensitivity: Sensitivity = None
    noise_batch: Count | None = None  # |L| in the noise's scale; None: the batch
    loss_share: Annotated[float, Field(gt=0, lt=1)] = 0.5  # epsilon_3 / epsilon; the inputs have the rest
    limit: Positive | None = None  # noisy inputs are clamped to plus and minus this
    optimizer: Literal["adam", "sgd"] = "adam"

    @property
    def private(self) -> bool:
        """Return whether noise is added: an infinite epsilon means none."""
        return math.isfinite(self.epsilon)

    @property
    def attack(self) -> Attack:
        """'shared' if the examples of a batch share noise, else 'opposites'."""
        return "shared" if self.variant == "code" else "opposites"

    def shortened(self, batch: int, steps: int) -> Self:
        """Same mechanism over short batches with each example's noise, which 'paper' divides by |L|."""
        small = super().shortened(batch, steps)
        return small.changed({"noise_batch": self.scale_batch}) if self.variant == "paper" else small

    @property
    def input_share(self) -> float:
        """epsilon_2 / epsilon: the inputs' share of the claimed epsilon."""
        return 1 - self.loss_share

    @property
    def scale_batch(self) -> int:
        """|L| in the noise's scale."""
        return self.noise_batch or self.batch

    @property
    def uses_network(self) -> bool:
        """Return whether the spending depends on sizes of the network: always with noise."""
        return self.private

    def input_scale(self, network: NetworkSizes) -> float:
        """Scale b of the noise on each input if all features have the same; 0 without noise."""
        return _float32(self._input_sensitivity(network) / (self.input_share * self.epsilon))

    def loss_scale(self, network: NetworkSizes) -> float:
        """Scale b of the noise on each coefficient of the loss; 0 without noise."""
        return _float32(self._loss_sensitivity(network) / (self.loss_share * self.epsilon))

    def _input_sensitivity(self, network: NetworkSizes) -> float:
        """Sensitivity over epsilon_2: Delta_h0 / |L| (line 13), or the distance of two images.

        Delta_h0 of |h0| hidden neurons on d features is 2 |h0| d (Lemma 3).
        """
        if self.variant == "sound":
            return float(network.features)
        if isinstance(self.sensitivity, float):
            return self.sensitivity / self.scale_batch
        hidden = network.maps if self.sensitivity == "maps" else network.neurons
        return 2.0 * hidden * network.features / self.scale_batch

    def _loss_sensitivity(self, network: NetworkSizes) -> float:
        """Sensitivity over epsilon_3: Delta_F / |L| (line 19), or 2: a label moves two coefficients by 1.

        Delta_F of M classes over |h_k| units is M (|h_k| + |h_k|^2 / 4) (Lemma 5).
        """
        if self.variant == "sound":
            return 2.0
        return network.classes * (network.units + network.units**2 / 4) / self.scale_batch

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
            repeats=2,  # 1/2 - y of the class before and the class after
            span=1.0,
        )
        return Releases(laplace=(*self.relevance_releases(sizes), inputs, labels))

    def feature_ratios(self, sizes: Sizes) -> np.ndarray | None:
        """(d,) float32 beta_j: each feature's share of epsilon_2, times d; None: equal shares."""
        return None

    def relevance_releases(self, sizes: Sizes) -> tuple[Laplace, ...]:
        """Releases of relevances: none, unless a method uses some."""
        return ()

    @property
    def claim(self) -> tuple[float, str]:
        """Delta 0 and the Laplace mechanism, whose epsilon is pure."""
        return 0.0, "laplace"

    def broken(self, normalization: str) -> tuple[Statement, ...]:
        """Statement about noise that the examples of a batch share, which doesn't hide their differences."""
        return (SHARED,) if self.variant == "code" else ()

    def guarantee(self, sizes: Sizes, normalization: str) -> Guarantee:
        """Spending of the releases, with a statement on the protected part, of whom and from whom."""
        guarantee = super().guarantee(sizes, normalization)
        if guarantee.spending is None:
            return guarantee
        # a curator, who sees every image, averages private images' relevances
        trust = "curated" if sizes.relevances and not sizes.relevances.public else "local"
        # with 1/|L| of the noise on an example, the spending is |L| times epsilon
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
    varying: ClassVar[frozenset[str]] = IlmSettings.varying | {"relevance_share"}

    relevance_share: Share = 0.25  # epsilon_1 / epsilon
    note_relevance: bool = False  # the noisy relevance of every feature into the history (Figure 3)

    @property
    def input_share(self) -> float:
        """epsilon_2 / epsilon: the inputs' share of the claimed epsilon."""
        return super().input_share - self.relevance_share

    def scaled(self, mean: Any) -> Any:
        """(d,) relevances before noise (line 2); in 'code' they are scaled and raised to a power."""
        if self.variant != "code":
            return mean
        least = mean.min()
        return ((mean - least) / (mean.max() - least).clip(LEAST_RELEVANCE)) ** POWER

    def ratios(self, noisy: Any) -> Any:
        """(..., d) beta_j = d |R_j| / sum |R_j| (Eq. 16) of noisy relevances (..., d), array or tensor."""
        size = (noisy if self.variant == "code" else abs(noisy)).clip(LEAST_RELEVANCE)
        ratios = noisy.shape[-1] * size / size.sum(-1, keepdims=True)
        return ratios.clip(LEAST_RELEVANCE) if self.variant == "code" else ratios

    def feature_ratios(self, sizes: Sizes) -> np.ndarray | None:
        """(d,) `ratios` of the training's relevances, or of public ones, which have no noise."""
        relevances, _ = _measured(sizes)
        if relevances.ratios is not None or relevances.mean is None:
            return relevances.ratios
        ratios: np.ndarray = self.ratios(self.scaled(relevances.mean).astype(np.float32))
        return ratios

    def relevance_distance(self, sizes: Sizes) -> float:
        """Largest change of a mean of numbers in [0, 1] by one example.

        A network that was trained on the example may change with it, and so every example's relevances.
        """
        relevances, _ = _measured(sizes)
        return 1.0 if relevances.informed else 1 / relevances.examples

    def relevance_scale(self, sizes: Sizes) -> float:
        """Scale b of the noise on a relevance: Delta_R / epsilon_1 (line 6), in 'sound' of the full Delta_R.

        Delta_R of d relevances averaged over |D| examples is 2 d / |D| (Lemma 1).
        """
        relevances, network = _measured(sizes)
        if relevances.public or not self.private:
            return 0.0
        if self.variant == "sound":
            sensitivity = network.features * self.relevance_distance(sizes)
        else:
            sensitivity = 2 * network.features / relevances.examples
        return sensitivity / (self.relevance_share * self.epsilon)

    def relevance_releases(self, sizes: Sizes) -> tuple[Laplace, ...]:
        """Releases of the mean relevances; none for relevances of public images, which have no noise."""
        relevances, network = _measured(sizes)
        if relevances.public:
            return ()
        mean = Laplace(
            quantity="relevances",
            claimed=self.relevance_share * self.epsilon,
            # scaled to [0, 1] after averaging, as in 'code', a mean may jump
            distance=None if self.variant == "code" else self.relevance_distance(sizes),
            scales=(self.relevance_scale(sizes),),
            repeats=network.features,
            span=relevances.span,
        )
        return (mean,)

    def guarantee(self, sizes: Sizes, normalization: str) -> Guarantee:
        """Guarantee as of `ilm`; none if public relevances carry noiseless data of private images."""
        guarantee = super().guarantee(sizes, normalization)
        relevances, _ = _measured(sizes)
        if guarantee.spending is None or not (relevances.public and relevances.informed):
            return guarantee
        return replace(guarantee, broken=(*guarantee.broken, INFORMED), protects=None)

    def problem(self, circumstances: Circumstances) -> str | None:
        """Reason why the settings don't fit the row, as 'key of the row: reason'; None if they fit."""
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


def _measured(sizes: Sizes) -> tuple[RelevanceSizes, NetworkSizes]:
    assert sizes.relevances is not None, "checked when params are read"
    assert sizes.network is not None, "measured where the settings use it"
    return sizes.relevances, sizes.network
