"""What the settings of every method share: the `settings` and `levels` of a row.

A method's own settings stand in its room, `pipeline/methods/ROOM/settings.py`. None of these modules needs
torch, so that params.yaml is read without it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pipeline.fields import Count, Passes, Positive, Share, Strict, omitted
from pipeline.methods.spending import CURVES, NOISELESS, Guarantee, Sizes
from pipeline.privacy.laplace import Releases
from pipeline.privacy.parameters import Sampling
from pipeline.privacy.sampled_gaussian import (
    NeighboringRelation,
    SampledGaussian,
    batches_of_epoch,
    relation_of,
    sensitivity,
)
from pipeline.privacy.statements import Statement

# Settings in which replicas of any method may differ though they share a step
VARYING = frozenset(
    {"learning_rate", "schedule", "warmup", "milestones", "gamma", "clip", "sigma", "epsilon", "delta"}
)


# 'canaries', where each example is clipped by itself; 'crowd', where means are; 'opposites', where data get
# Laplace noise once; 'shared', where the examples of a batch have one noise (`pipeline.audits.rows`)
Attack = Literal["canaries", "crowd", "opposites", "shared"]


@dataclass(frozen=True)
class Circumstances:
    """What a row trains besides its settings, as far as these may not fit it."""

    normalization: str
    data: str  # name of the prepared data set
    examples: int  # of its training split
    public: int  # examples of its public split
    raw: str  # the raw data set it is made of
    public_raw: str  # that of its public split
    one_set: bool  # whether these two are editions of one set, whose labels mean the same
    no_images: Literal["texts", "features"] | None  # what the inputs are where they are no images
    relevances: Literal["train", "public"] | None  # of whose examples relevances come with it
    with_relevances: tuple[str, ...]  # all data that come with relevances
    classes: int | None = None  # of own data; None: the catalogue has their number


class MethodSettings(Strict):
    """What every method has: declared by the settings.py of its room, where `method_settings` finds it."""

    method: ClassVar[str]  # its name in params.yaml
    trained_by: ClassVar[str]  # the class that trains with these settings, 'MODULE.CLASS' of the room
    # Of the numbers it makes: raised where the same settings would give other numbers, whether this room or
    # the engine is why
    version: ClassVar[int]
    # The normalisations that it can train. `batch_bn` and `public_bn` are answers to where a private
    # network's statistics come from; `running_bn` is ordinary batch norm, with running averages.
    # `response` is local response normalisation, each example's own.
    normalizations: ClassVar[tuple[str, ...]]
    axis: ClassVar[str]  # the setting that names a row's levels unless the row says otherwise
    scalable: ClassVar[bool] = False  # whether a row can foretell another at a fraction of its cost
    title: ClassVar[str]  # for people, as in the key of a figure
    noiseless: ClassVar[Statement] = NOISELESS  # why no epsilon holds where nothing is private
    unit_inputs: ClassVar[bool] = False  # whether its guarantee is for inputs between 0 and 1
    scales_inputs: ClassVar[bool] = False  # whether images are scaled by the public ones
    uses_relevances: ClassVar[bool] = False  # whether it looks at relevances that come with its data
    # More settings in which replicas that share a step may differ; any other decides what is computed
    varying: ClassVar[frozenset[str]] = frozenset()
    # Settings that records of earlier code have, each with the one value at which they stand
    retired: ClassVar[dict[str, Any]] = {}
    # Names of a model's tensors besides parameters, weights before averaging and statistics of batch norm
    kept: ClassVar[frozenset[str]] = frozenset()
    # what `dprepro new row` begins with, beside batch and delta; whatever else has no default is asked for
    beginnings: ClassVar[dict[str, Any]] = {"epochs": 8, "learning_rate": 0.01}

    # examples of a step; DP-SGD's is the expected size of a Poisson batch
    batch: Count
    learning_rate: Positive
    # 'linear' and 'cosine' fall to zero; 'step' multiplies the learning rate by `gamma` at each milestone
    schedule: Literal["constant", "cosine", "linear", "step"] = "constant"
    warmup: Share = omitted(0.0)  # share of the steps in which the learning rate rises linearly, at first
    milestones: tuple[Share, ...] = omitted((0.5, 0.75))  # shares of the steps after the warm-up
    gamma: Positive = omitted(0.1)

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> Self:
        """Settings as a run recorded them, without those that are retired.

        Raises:
            ValidationError: a setting is unknown, or retired and at another value than the one that stands.
        """
        return cls.model_validate(
            {
                name: value
                for name, value in settings.items()
                if name not in cls.retired or value != cls.retired[name]
            }
        )

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noised."""
        return False

    @property
    def attack(self) -> Attack:
        """Which attack there is on its release."""
        return "canaries"

    @property
    def drawn(self) -> Sampling:
        """The way in which batches are drawn: `sampling` of the settings, 'poisson' where they have none."""
        sampling: Sampling = getattr(self, "sampling", "poisson")
        return sampling

    @property
    def joined(self) -> int:
        """Batches of an epoch that an example is allocated to: `participations` of the settings, or one."""
        return int(getattr(self, "participations", 1))

    @property
    def add_or_remove(self) -> bool:
        """True where neighbouring data sets differ in one example more; else one is replaced."""
        return relation_of(self.drawn) is NeighboringRelation.ADD_OR_REMOVE_ONE

    def population(self, examples: int) -> int:
        """N for sampling, steps and noise: `nominal_examples` of the settings, or all ``examples``."""
        return getattr(self, "nominal_examples", None) or examples

    def shortened(self, batch: int, steps: int) -> Self:
        """The same mechanism over ``steps`` batches of ``batch``, all examples each: what an audit trains."""
        return self.for_audit(images=True).changed({"batch": batch, "epochs": float(steps), "steps": steps})

    def for_audit(self, images: bool) -> Self:
        """These settings without the options that make an audit dearer and are no part of the mechanism.

        The hook by which an audit asks a method: audits name no setting of one, and settings no audit.

        Args:
            images: whether the row's own network trains on images; else on canaries, which can't be
                augmented, cropped or normalised.
        """
        return self

    def changed(self, changes: dict[str, Any]) -> Self:
        """With those of the ``changes`` whose settings there are."""
        applicable = {name: value for name, value in changes.items() if name in type(self).model_fields}
        return self.model_copy(update=applicable)

    def needs_public(self, normalization: str) -> bool:
        """Whether it looks at public examples, as for the scale of its inputs."""
        return normalization == "public_bn"

    @property
    def uses_network(self) -> bool:
        """Whether the spending depends on `Sizes.network`."""
        return False

    @property
    def distance(self) -> float:
        """Distance of neighbouring data sets' sums, in clipping bounds."""
        return sensitivity(relation_of(self.drawn))

    def parts(self, sizes: Sizes) -> int:
        """Parts of the gradient that are clipped and noised each on its own."""
        return 1

    def noise_multiplier(self, sizes: Sizes) -> float:
        """Standard deviation of the noise over the clipping bound: of a method with noise, its ``sigma``.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        settings: Any = self
        return float(settings.sigma)

    def spending(self, sizes: Sizes) -> SampledGaussian | Releases:
        """Spending of a private training: of each step, or of all that is released at once.

        Training, ledger and audits take it from here. The noise that a training adds is computed from it.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        return self.spending_at(self.noise_multiplier(sizes), sizes)

    def spending_at(self, noise_multiplier: float, sizes: Sizes) -> SampledGaussian:
        """Spending of a step at a noise multiplier."""
        return SampledGaussian(
            sampling=self.drawn,
            noise_multiplier=noise_multiplier,
            examples=self.population(sizes.examples),
            batch=self.batch,
            participations=self.joined,
        )

    @property
    def claim(self) -> tuple[float, str]:
        """Delta of the claim, and its accountant: the paper's, or one with a bound for allocation."""
        settings: Any = self
        return settings.delta, "pld" if self.drawn == "allocation" else "rdp"

    def broken(self, normalization: str) -> tuple[Statement, ...]:
        """Reasons why the accounted epsilon doesn't hold with this normalisation."""
        return ()

    def guarantee(self, sizes: Sizes, normalization: str) -> Guarantee:
        """Spending of a training, and all that is said about it.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        if not self.private:
            return Guarantee(None, None, None, broken=(self.noiseless,))
        delta, claimed_by = self.claim
        broken = self.broken(normalization)
        return Guarantee(self.spending(sizes), delta, claimed_by, broken, not_covered=(CURVES,))

    @property
    def batching_key(self) -> tuple[Any, ...]:
        """Replicas with the same values here can share a step."""
        varying = VARYING | self.varying
        return (*(value for name, value in self if name not in varying), self.private)

    def passes_per_step(self, circumstances: Circumstances) -> int:
        """Examples that a step takes forward and backward: what training costs, beside the network."""
        return self.batch

    def total_steps(self, examples: int) -> int:
        """Number of steps over so many training examples."""
        raise NotImplementedError

    def logs_after(self, steps_done: int, examples: int) -> bool:
        """Whether the history gets a line after ``steps_done`` steps; it always gets one after the last."""
        raise NotImplementedError

    def rate_at(self, step: int, steps: int) -> float:
        """Learning rate of one of ``steps`` steps."""
        rising = round(self.warmup * steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        step, steps = step - rising, steps - rising
        factor = 1.0
        if self.schedule == "cosine":
            factor = 0.5 * (1 + math.cos(math.pi * step / steps))
        elif self.schedule == "linear":
            factor = 1 - step / steps
        elif self.schedule == "step":
            factor = self.gamma ** sum(step >= milestone * steps for milestone in self.milestones)
        return self.learning_rate * factor

    def input_shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the network's inputs, of examples stored in that shape."""
        return stored

    def simulates(self, target: Self) -> bool:
        """Whether training with these foretells ``target`` at a fraction of its cost."""
        return False

    def problem(self, circumstances: Circumstances) -> str | None:
        """What doesn't fit, as 'key of the row: why'; None where all does."""
        normalization, data = circumstances.normalization, circumstances.data
        if normalization not in self.normalizations:
            return (
                f"model.normalization: {normalization!r} does not work with method {self.method!r}; "
                f"allowed: {', '.join(self.normalizations)}"
            )
        if not circumstances.public and self.needs_public(normalization):
            return (
                f"data: {data!r} has no public examples, which {self.method!r} with normalisation "
                f"{normalization!r} looks at; allowed: data with some (`dprepro new data --public N` or "
                "`--public-from OTHER`)"
            )
        for name in ("milestones", "gamma"):
            if self.schedule != "step" and name in self.model_fields_set:
                return f"settings.{name}: allowed with 'schedule: step' alone; schedule is {self.schedule!r}"
        if circumstances.no_images and getattr(self, "augment", "none") != "none":
            return (
                f"settings.augment: is for images, and {data!r} has {circumstances.no_images}; allowed: none"
            )
        if self.batch > self.population(circumstances.examples):
            return (
                f"settings.batch: {self.batch} is larger than the training split of {data!r}; "
                f"allowed: 1 to {self.population(circumstances.examples)}"
            )
        return None


class EpochSettings(MethodSettings):
    """Of a method whose length is told in passes over the training examples."""

    epochs: Passes

    def total_steps(self, examples: int) -> int:
        """Number of steps T that make `epochs` passes over ``examples``, in expectation.

        Of allocated batches a pass has whole ones alone.
        """
        examples = self.population(examples)
        if self.drawn == "allocation":
            batches = batches_of_epoch(examples, self.batch, self.joined)
            return max(1, round(self.epochs * batches / self.joined))
        return max(1, round(self.epochs * examples / self.batch))

    def logs_after(self, steps_done: int, examples: int) -> bool:
        """Whether a pass ends with step ``steps_done``."""
        examples = self.population(examples)
        return steps_done * self.batch // examples > (steps_done - 1) * self.batch // examples

    def epoch_at(self, step: int, steps: int) -> int:
        """Whole passes before one of ``steps`` steps."""
        return int(step * self.epochs / steps)


def momentum_problem(optimizer: str, momentum: float) -> str | None:
    """Why an optimiser can't have this momentum; None where it can."""
    if optimizer == "adam" and momentum > 0:
        return f"settings.momentum: {momentum}; allowed with 'optimizer: adam', which has its own: 0"
    return None


def decay_problem(learning_rate: float, weight_decay: float) -> str | None:
    """Reason why weights can't decay by so much; None where they can."""
    if learning_rate * weight_decay < 1:
        return None
    return (
        f"settings.weight_decay: {weight_decay} times the learning rate {learning_rate} leaves nothing of "
        "the weights; allowed: a product below 1"
    )


def class_weights_problem(weights: Sequence[float], circumstances: Circumstances) -> str | None:
    """Reason why the loss can't have these weights of classes; None where it can."""
    if weights and circumstances.normalization == "batch_bn":
        return "settings.class_weights: not allowed with normalization 'batch_bn'; allowed: none"
    classes = circumstances.classes
    if weights and classes is not None and len(weights) != classes:
        return f"settings.class_weights: {len(weights)} numbers; allowed: {classes}, in the order of classes"
    return None


def allocation_problem(settings: MethodSettings, circumstances: Circumstances) -> str | None:
    """Reason why batches can't be allocated as ``settings`` say; None where they can."""
    if settings.drawn != "allocation":
        if settings.joined == 1:
            return None
        return f"settings.participations: {settings.joined}; allowed without 'sampling: allocation': 1"
    examples = settings.population(circumstances.examples)
    if batches_of_epoch(examples, settings.batch, settings.joined) > settings.joined:
        return None
    return (
        f"settings.batch: {settings.batch} of {examples} examples puts each into all "
        f"{settings.joined} batches of an epoch; allowed with 'sampling: allocation': smaller batches"
    )


def delta_problem(delta: float, circumstances: Circumstances) -> str | None:
    """Why ``delta`` means nothing for so many examples; None where it does.

    One example's share or more would allow publishing somebody's example outright.
    """
    if delta < 1 / circumstances.examples:
        return None
    return f"settings.delta: {delta} means nothing; allowed: below 1/{circumstances.examples}"
