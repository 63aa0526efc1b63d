"""What each method can be told: the `settings` and `levels` of a row."""

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from pipeline.fields import Count, Positive, Strict

Share = Annotated[float, Field(ge=0, lt=1)]
Delta = Annotated[float, Field(gt=0, lt=1)]
# How a batch of m is drawn from the N. 'fixed': m different ones, anew each step. 'replacement': m
# independent draws. 'poisson': each with probability m / N. 'shuffled': on through a new order an epoch.
Sampling = Literal["fixed", "replacement", "poisson", "shuffled"]


def _epsilon(value: Any) -> Any:
    return math.inf if value in ("inf", "Infinity") else value


Epsilon = Annotated[float, BeforeValidator(_epsilon), Field(gt=0)]


def _sensitivity(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    if value is None or value in ("maps", "neurons") or number:
        return value
    # one line instead of one for each of the kinds
    raise ValueError(f"{value!r} is not allowed: 'maps', 'neurons' or a number above 0")


Sensitivity = Annotated[Literal["maps", "neurons"] | Positive | None, BeforeValidator(_sensitivity)]


class MethodSettings(Strict):
    """What every method has."""

    axis: ClassVar[str]  # the setting that names a row's levels unless the row says otherwise

    # examples of a step; DP-SGD's is the expected size of a Poisson batch
    batch: Count
    learning_rate: Positive
    schedule: Literal["constant", "cosine"] = "constant"

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noised."""
        return False

    @property
    def together(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        return (self.batch,)

    def total_steps(self, examples: int) -> int:
        """Number of steps over so many training examples."""
        raise NotImplementedError

    def noted(self, done: int, examples: int) -> bool:
        """Whether the history gets a line after ``done`` steps; it always gets one after the last."""
        raise NotImplementedError

    def rate_at(self, step: int, steps: int) -> float:
        """Learning rate of one of ``steps`` steps."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / steps)) if self.schedule == "cosine" else 1.0
        return self.learning_rate * cosine

    def input_shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the network's inputs, of examples stored in that shape."""
        return stored

    def misfit(self, data: str, examples: int) -> str | None:
        """What doesn't fit a training split of so many examples, as 'key: why'; None where all does."""
        if self.batch > examples:
            return (
                f"batch: {self.batch} is larger than the training split of {data!r}; allowed: 1 to {examples}"
            )
        return None


class EpochSettings(MethodSettings):
    """Of a method whose length is told in passes over the training examples."""

    epochs: Positive

    @property
    def together(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        return (*super().together, self.epochs)

    def total_steps(self, examples: int) -> int:
        """Number of steps T that make `epochs` passes over ``examples``, in expectation."""
        return max(1, round(self.epochs * examples / self.batch))

    def noted(self, done: int, examples: int) -> bool:
        """Whether a pass ends with step ``done``."""
        return done * self.batch // examples > (done - 1) * self.batch // examples

    def epoch_at(self, step: int, steps: int) -> int:
        """Whole passes before one of ``steps`` steps."""
        return int(step * self.epochs / steps)


class DpsgdSettings(EpochSettings):
    """DP-SGD (Abadi et al. 2016), the base of every private row."""

    axis: ClassVar[str] = "epsilon"

    momentum: Share = 0.0
    clip: Positive = 1.0  # C: L2 bound of one example's gradient
    # The target the noise is calibrated to by `accountant`; `.inf` trains without clipping and noise.
    epsilon: Epsilon
    delta: Delta = 1e-5
    accountant: Literal["rdp", "pld"] = "rdp"
    # public_bn only: weight `a` of the statistics' gradients in the joint clipped vector
    statistics_weight: Positive = 1.0
    # noisy_bn only: C', the width of the range that summed inputs are truncated to before they are averaged;
    # the share of 1 / noise^2 that the averages take; and alpha of Eqs. 9 and 10
    activation_range: Positive = 8.0
    statistics_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    averaging: Annotated[float, Field(gt=0, le=1)] = 0.1

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noised."""
        return math.isfinite(self.epsilon)

    @property
    def together(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        statistics = (self.statistics_weight, self.activation_range, self.statistics_share, self.averaging)
        return (*super().together, self.private, *statistics)

    def misfit(self, data: str, examples: int) -> str | None:
        """What doesn't fit a training split of so many examples, as 'key: why'; None where all does."""
        # such a delta would allow publishing somebody's example outright
        if self.private and self.delta >= 1 / examples:
            return f"delta: {self.delta} means nothing; allowed: below 1/{examples}"
        return super().misfit(data, examples)


class NoisyWeightsSettings(EpochSettings):
    """Training with Gaussian noise on the weights (Davody et al. 2020, section 2). Not private."""

    axis: ClassVar[str] = "sigma"

    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # standard deviation of every weight
    augment: Literal["none", "crop_flip"] = "none"  # of training images
    # alpha of Eqs. 9 and 10: share of a batch's own statistics in the running averages
    averaging: Annotated[float, Field(gt=0, le=1)] = 0.1
    # running_bn at test. 'running': the running averages, as the paper says. 'draw': measured on training
    # examples under the very noise that is tested.
    statistics: Literal["running", "draw"] = "running"
    draws: Count = 10  # of the noise at test, whose accuracies are averaged
    # lambda of the paper's scale invariance: a factor, at test, on every matrix and on the bias added to its
    # product
    scale: Positive = 1.0

    @property
    def together(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        return (*super().together, self.augment, self.statistics, self.draws)


class BatchClippingSettings(EpochSettings):
    """General Batch Clipping (Nguyen et al. 2023): clipped gradients of mini-sets, layer by layer."""

    axis: ClassVar[str] = "sigma"

    rate_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the learning rate, an epoch
    # What is clipped to what (sections 3.2, 3.3, B.2). 'full': the whole gradient to C. 'layerwise': each
    # layer to an even share, C / sqrt(L). 'adaptive': the paper's, C e_h / max e. 'zhang': e_h, whatever C.
    # 'multiplied': the whole gradient to C, its layers multiplied by max e / e_h. 'none': plain SGD.
    clipping: Literal["none", "full", "layerwise", "adaptive", "zhang", "multiplied"]
    clip: Positive = 0.095  # C, the master clipping constant
    clip_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # of C, an epoch
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # noise has std 2 C_h sigma
    # s: examples of a mini-set, whose mean gradient is clipped. None: the whole batch (BC); 1: each (IC)
    mini_set: Count | None = None
    sampling: Sampling = "fixed"
    layers: Literal["tensor", "module"] = "tensor"  # what a layer is
    # gathers the layers into so many groups of similar e_h, each clipped as one layer; None: doesn't
    groups: Count | None = None
    # The standard deviations are divided by p_h, with sum p_h^2 = L (footnote 4). 'equal': p_h = 1; 'least':
    # those that make the noise's total energy least.
    layer_noise: Literal["equal", "least"] = "equal"
    # Whose gradients' norms e_h averages over D_pub: examples' (section 3.3), or mini-sets', as are clipped
    norms: Literal["example", "mini_set"] = "example"
    public_examples: Count | None = None  # of D_pub that e_h and batch norm at test take; None: all
    note_norms: bool = False  # e_h of every layer into the history
    # Inside a mini-set: it is scanned in `local_steps` pieces by SGD with momentum, whose way is the gradient
    momentum: Share = 0.0
    local_steps: Count = 1
    # Rounds of a window, after which entries that noise alone may have moved are fixed (3.4); None: never
    sparsify: Count | None = None
    augment: Literal["none", "crop_flip"] = "none"  # of training images
    side: Count | None = None  # of crops in training, and of images at test, padded; None: as stored
    # batch_bn at test. 'public': the statistics of D_pub. 'running': averages of the mini-sets', as in the
    # paper, which no noise protects.
    statistics: Literal["public", "running"] = "public"
    averaging: Annotated[float, Field(gt=0, le=1)] = 0.1  # share of a step's statistics in these averages
    delta: Delta = 1e-5

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noised."""
        return self.clipping != "none" and self.sigma > 0

    @property
    def together(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        own = {"learning_rate", "schedule", "rate_decay", "clip", "clip_decay", "sigma", "averaging", "delta"}
        shared = (value for name, value in self if name not in own)
        return (*shared, self.private)

    @property
    def set_size(self) -> int:
        """s: examples of a mini-set."""
        return self.mini_set or self.batch

    @property
    def sets(self) -> int:
        """k: mini-sets of a batch."""
        return self.batch // self.set_size

    def rate_at(self, step: int, steps: int) -> float:
        """Learning rate of one of ``steps`` steps."""
        return super().rate_at(step, steps) * self.rate_decay ** self.epoch_at(step, steps)

    def clip_at(self, step: int, steps: int) -> float:
        """C of one of ``steps`` steps."""
        return self.clip * self.clip_decay ** self.epoch_at(step, steps)

    def input_shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the network's inputs, of examples stored in that shape."""
        return stored if self.side is None else (stored[0], self.side, self.side)

    def misfit(self, data: str, examples: int) -> str | None:
        """What doesn't fit a training split of so many examples, as 'key: why'; None where all does."""
        if self.batch % self.set_size:
            return f"mini_set: {self.mini_set} does not divide the batch; allowed: divisors of {self.batch}"
        if self.set_size % self.local_steps:
            return (
                f"local_steps: {self.local_steps} does not divide the mini-set; allowed: divisors of "
                f"{self.set_size}"
            )
        if self.local_steps > 1 and self.sampling == "poisson":
            # pieces of a set are cut by the longest set's length, so one example would change other sets too
            return f"local_steps: {self.local_steps}; allowed with 'sampling: poisson': 1"
        if self.momentum > 0 and self.local_steps == 1:
            return (
                f"momentum: {self.momentum} with one local step does nothing; allowed: 0, or more local_steps"
            )
        if self.clipping in ("none", "full", "multiplied"):
            only = f"with 'clipping: {self.clipping}', which has one part; allowed"
            if self.groups is not None:
                return f"groups: {self.groups} {only}: null"
            if self.layer_noise != "equal":
                return f"layer_noise: '{self.layer_noise}' {only}: 'equal'"
        if self.sparsify is not None and self.norms == "example":
            return "norms: 'example' counts fixed entries too; allowed with sparsify: 'mini_set'"
        if self.clipping == "none" and self.sigma > 0:
            return f"sigma: {self.sigma} without clipping protects nothing; allowed: 0 with 'clipping: none'"
        if self.private and self.delta >= 1 / examples:
            return f"delta: {self.delta} means nothing; allowed: below 1/{examples}"
        return super().misfit(data, examples)


class TanSettings(MethodSettings):
    """DP-SGD at a given noise level and number of steps (Sander et al. 2022)."""

    axis: ClassVar[str] = "batch"
    NOTES: ClassVar[int] = 10  # lines of a history; passes say little where B may be anything

    steps: Count  # S
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # noise on the clipped sum has std C sigma
    clip: Positive = 1.0  # C: L2 bound of one example's gradient
    delta: Delta = 1e-5
    # K: augmented copies of an example, whose gradients are averaged before clipping (appendix C), and of a
    # test image whose classes are voted on (AugTest)
    copies: Count = 1
    augment: Literal["none", "crop_flip", "crop_flip_jitter", "resized_crop", "simclr"] = "none"
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: Share = 0.0  # sgd only, as in torch: buffer = momentum buffer + (1 - dampening) gradient
    dampening: Share = 0.0
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # apart from the gradient (AdamW)
    # Largest decay of the weights' moving average, min(ema, (1 + t) / (10 + t)) after t steps; 0: no average
    ema: Share = 0.9999
    note_norms: bool = False  # a histogram of the gradients' norms into the history (Figure 7)

    @property
    def private(self) -> bool:
        """Whether gradients are noised; they are always clipped."""
        return self.sigma > 0

    @property
    def together(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        shared = (self.steps, self.copies, self.augment, self.optimizer, self.note_norms)
        return (*super().together, self.private, *shared)

    def simulates(self, whole: "TanSettings") -> bool:
        """Whether these are ``whole`` with batch and noise smaller by one factor (section 3.4)."""
        scaled = {"batch": whole.batch, "sigma": whole.sigma, "note_norms": whole.note_norms}
        same = self.model_copy(update=scaled) == whole
        exact = math.isclose(self.sigma * whole.batch, whole.sigma * self.batch, rel_tol=1e-6)
        return same and exact and self.private and self.batch < whole.batch

    def total_steps(self, examples: int) -> int:
        """S, whatever the number of examples."""
        return self.steps

    def noted(self, done: int, examples: int) -> bool:
        """Whether another tenth of the steps is done."""
        return done * self.NOTES // self.steps > (done - 1) * self.NOTES // self.steps

    def misfit(self, data: str, examples: int) -> str | None:
        """What doesn't fit a training split of so many examples, as 'key: why'; None where all does."""
        if self.augment == "none" and self.copies > 1:
            return (
                f"copies: {self.copies} of an example that is not augmented; allowed with 'augment: none': 1"
            )
        if self.optimizer == "adam" and self.momentum > 0:
            return f"momentum: {self.momentum}; allowed with 'optimizer: adam', which has its own: 0"
        if self.momentum == 0 and self.dampening > 0:
            return f"dampening: {self.dampening} without momentum only shrinks the rate; allowed: 0"
        if self.learning_rate * self.weight_decay >= 1:
            return (
                f"weight_decay: {self.weight_decay} times the learning rate {self.learning_rate} leaves "
                "nothing of the weights; allowed: a product below 1"
            )
        if self.private and self.delta >= 1 / examples:
            return f"delta: {self.delta} means nothing; allowed: below 1/{examples}"
        return super().misfit(data, examples)


class IlmSettings(EpochSettings):
    """The identical Laplace mechanism (Phan et al. 2017, appendix C): the same noise on every feature."""

    axis: ClassVar[str] = "epsilon"

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
    # For the laboratory: a quantity that is left without its noise, to see what the others' does
    exact: Literal["nothing", "inputs", "loss"] = "nothing"
    limit: Positive | None = None  # noisy inputs are cut off at plus and minus this
    optimizer: Literal["adam", "sgd"] = "adam"

    @property
    def private(self) -> bool:
        """Whether anything is noised."""
        return math.isfinite(self.epsilon)

    @property
    def input_share(self) -> float:
        """epsilon_2 / epsilon."""
        return 1 - self.loss_share

    @property
    def scale_batch(self) -> int:
        """|L| in the noise's scale."""
        return self.noise_batch or self.batch

    @property
    def together(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        return (*super().together, self.private, self.variant, self.limit, self.optimizer)

    def misfit(self, data: str, examples: int) -> str | None:
        """What doesn't fit a training split of so many examples, as 'key: why'; None where all does."""
        if (self.sensitivity is None) != (self.variant == "sound"):
            return f"sensitivity: {self.sensitivity}; it goes with variants 'paper' and 'code', and only them"
        if self.variant == "sound" and self.noise_batch is not None:
            return f"noise_batch: {self.noise_batch}; allowed with 'variant: sound', which has no |L|: null"
        if self.exact != "nothing" and not self.private:
            return f"exact: {self.exact!r}; allowed with 'epsilon: .inf', which noises nothing: 'nothing'"
        return super().misfit(data, examples)


class AdlmSettings(IlmSettings):
    """The adaptive Laplace mechanism (Phan et al. 2017, Algorithm 1): less noise on relevant features."""

    relevance_share: Annotated[float, Field(ge=0, lt=1)] = 0.25  # epsilon_1 / epsilon
    note_relevance: bool = False  # the noisy relevance of every feature into the history (Figure 3)

    @property
    def input_share(self) -> float:
        """epsilon_2 / epsilon."""
        return super().input_share - self.relevance_share

    @property
    def together(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        return (*super().together, self.note_relevance)

    def misfit(self, data: str, examples: int) -> str | None:
        """What doesn't fit a training split of so many examples, as 'key: why'; None where all does."""
        if self.input_share < 1e-9:  # 1 - .7 - .3 is 6e-17
            return f"relevance_share: {self.relevance_share} leaves the inputs nothing; allowed: below " + (
                f"{1 - self.loss_share:g}"
            )
        return super().misfit(data, examples)


METHOD_SETTINGS: dict[str, type[MethodSettings]] = {
    "adlm": AdlmSettings,
    "batch_clipping": BatchClippingSettings,
    "dpsgd": DpsgdSettings,
    "ilm": IlmSettings,
    "noisy_weights": NoisyWeightsSettings,
    "tan": TanSettings,
}


class AccountSettings(Strict):
    """A private training in the terms of its accounting alone."""

    # the setting that names levels unless the account says otherwise
    axis: ClassVar[str] = "noise_multiplier"

    sampling: Sampling = "poisson"
    examples: Count  # N
    batch: Count  # m; 'poisson': its expectation
    epochs: Positive | None = None  # passes; or `steps`
    steps: Count | None = None
    noise_multiplier: Positive  # standard deviation of the noise over how far one example moves a part
    parts: Count = 1  # L: of the gradient, each clipped and noised on its own
    # k: clipped vectors of a step; 'replacement' only, where an example may be in each of them
    sets: Count | None = None
    delta: Delta = 1e-5  # as claimed, even where it is above 1/N and so means little
    claimed_by: Literal["clt", "rdp"] = "clt"  # what the paper accounts by
    # 'rdp' only: order alpha whose Renyi divergence is told too, that of all steps
    order: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _means_something(self) -> "AccountSettings":
        if self.batch > self.examples:
            raise ValueError(f"batch: {self.batch} is larger than examples; allowed: 1 to {self.examples}")
        if (self.sets is None) == (self.sampling == "replacement"):
            raise ValueError(f"sets: {self.sets}; it goes with 'sampling: replacement', and only with it")
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("either 'epochs' or 'steps' tells the length; allowed: one of them")
        if self.order is not None and (self.claimed_by, self.sampling) != ("rdp", "poisson"):
            raise ValueError("order: goes with 'claimed_by: rdp' and 'sampling: poisson', and only with them")
        return self

    @property
    def total_steps(self) -> int:
        """T: `steps`, or those that make `epochs` passes."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None, "one of the two is there"
        return max(1, round(self.epochs * self.examples / self.batch))
