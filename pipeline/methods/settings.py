"""Settings that all methods share; they are under `settings` and `levels` of a row.

A method's own settings are in its folder, `pipeline/methods/ROOM/settings.py`. None of these modules imports
torch, so params.yaml can be read without it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from dprepro.accountants.laplace import Releases
from dprepro.accountants.records import (
    NeighboringRelation,
    SampledGaussian,
    batches_of_epoch,
    relation_of,
    sensitivity,
)
from dprepro.errors import UserError
from dprepro.fields import Count, Delta, NotNegative, Passes, Positive, Sampling, Share, Strict, omitted
from dprepro.pipeline.extensions import cached, extensions
from dprepro.pipeline.methods.spending import CURVES, NOISELESS, Guarantee, Sizes, Statement

if TYPE_CHECKING:
    from dprepro.pipeline.methods.base import Method, Task

# Attack of an audit (`pipeline.audits.rows`). 'canaries': for methods that clip each example. 'crowd': for
# clipped means. 'opposites': for Laplace noise on data, drawn once. 'shared': for noise that a batch's
# examples share.
Attack = Literal["canaries", "crowd", "opposites", "shared"]


@dataclass(frozen=True)
class Circumstances:
    """Data and model of a row, for checks of its settings."""

    normalization: str
    data: str  # name of the prepared data set
    examples: int  # number of examples in the training split
    public: int  # number of examples in the public split
    raw: str  # raw data set of the training split
    public_raw: str  # raw data set of the public split
    one_set: bool  # whether both raw data sets are editions of one data set, with the same labels
    no_images: Literal["texts", "features"] | None  # kind of the inputs; None: images
    relevances: bool  # whether the data have relevances
    with_relevances: tuple[str, ...]  # names of all prepared data sets with relevances
    classes: int | None = None  # number of classes of own data; None: as in the catalogue
    group: int | None = None  # as in `SampledGaussian`


class MethodSettings(Strict):
    """Settings of every method. The settings.py of a method's room has a subclass (`method_settings`)."""

    method: ClassVar[str]  # its name in params.yaml
    trained_by: ClassVar[str]  # the training class, 'MODULE.CLASS' of the room
    # version of the method's numbers: raise it if the same settings would give other numbers, because this
    # room or the engine changed
    version: ClassVar[int]
    # Normalisations that the method can train. `batch_bn` and `public_bn` name the source of a private
    # network's statistics; `running_bn` is ordinary batch norm, with running averages. `response` is local
    # response normalisation of each example.
    normalizations: ClassVar[tuple[str, ...]]
    axis: ClassVar[str]  # the setting that names a row's levels unless the row says otherwise
    scalable: ClassVar[bool] = False  # whether a row can simulate another at a fraction of its cost
    title: ClassVar[str]  # name in figures
    noiseless: ClassVar[Statement] = NOISELESS  # reason why no epsilon holds without privacy
    unit_inputs: ClassVar[bool] = False  # whether its guarantee needs inputs between 0 and 1
    scales_inputs: ClassVar[bool] = False  # whether images are scaled by statistics of public images
    uses_relevances: ClassVar[bool] = False  # whether it uses the relevances of its data
    protects_people: ClassVar[bool] = False  # whether Poisson samples have a bound for a person's examples
    # settings that only earlier records have, each with the value at which such a record is valid
    retired: ClassVar[dict[str, Any]] = {}
    # names of a model's further tensors, besides parameters, weights before averaging and batch norm
    # statistics
    kept: ClassVar[frozenset[str]] = frozenset()
    # values that `dprepro new row` suggests, besides batch and delta; it asks for other settings without
    # default
    suggested_defaults: ClassVar[dict[str, Any]] = {"epochs": 8, "learning_rate": 0.01}
    suggested_share: ClassVar[int] = 8  # examples divided by the batch that `dprepro new row` suggests

    # examples of a step; for Poisson samples, the expected number
    batch: Count
    learning_rate: Positive
    # 'linear' and 'cosine' fall to zero; 'step' multiplies the learning rate by `gamma` at each milestone
    schedule: Literal["constant", "cosine", "linear", "step"] = "constant"
    warmup: Share = omitted(0.0)  # first share of the steps, in which the learning rate rises linearly
    milestones: tuple[Share, ...] = omitted((0.5, 0.75))  # as shares of the steps after the warm-up
    gamma: Positive = omitted(0.1)

    @classmethod
    def training_class(cls) -> type["Method"]:
        """Training class of the method, which imports torch."""
        module, name = cls.trained_by.split(".")
        package = cls.__module__.rpartition(".")[0]
        trainer: type[Method] = getattr(import_module(f"{package}.{module}"), name)
        return trainer

    def build_method(self, task: "Task", normalization: str) -> "Method":
        """Training method of a task; ``normalization`` is that of the task's network."""
        return self.training_class()(task, self, normalization)

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> Self:
        """Settings as recorded by a run, without those that the method no longer has (`retired`).

        Raises:
            ValidationError: a setting is unknown, or a retired one has another value than in `retired`.
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
        """Return whether gradients are clipped and noised."""
        return False

    @property
    def attack(self) -> Attack:
        """Kind of attack with which an audit tests the method's releases."""
        return "canaries"

    @property
    def drawn(self) -> Sampling:
        """Sampling of batches: the setting `sampling`; 'poisson' for methods without this setting."""
        sampling: Sampling = getattr(self, "sampling", "poisson")
        return sampling

    @property
    def joined(self) -> int:
        """Number of batches of an epoch that contain a given example: the setting `participations`, or 1."""
        return int(getattr(self, "participations", 1))

    @property
    def add_or_remove(self) -> bool:
        """True if neighbouring data sets add or remove an example; False if they replace one."""
        return relation_of(self.drawn) is NeighboringRelation.ADD_OR_REMOVE_ONE

    def population(self, examples: int) -> int:
        """N for sampling, steps and noise: the setting `nominal_examples`, or ``examples`` without it."""
        return getattr(self, "nominal_examples", None) or examples

    def batches_of_epoch(self, examples: int) -> int:
        """Number of batches of an epoch over ``examples`` with 'sampling: allocation'."""
        return batches_of_epoch(self.population(examples), self.batch, self.joined)

    def shortened(self, batch: int, steps: int) -> Self:
        """Settings of the same mechanism for an audit: ``steps`` steps, each on all ``batch`` examples."""
        return self.for_audit(images=True).changed({"batch": batch, "epochs": float(steps), "steps": steps})

    def for_audit(self, images: bool) -> Self:
        """Settings without options that make an audit slower and are no part of the mechanism.

        Audits call this function, so they need not know the names of a method's settings.

        Args:
            images: True if the row's own network trains on images; False for canaries, which can't be
                augmented, cropped or normalised.
        """
        return self

    def changed(self, changes: dict[str, Any]) -> Self:
        """Copy with the ``changes``; a change is ignored if the method has no setting of its name."""
        applicable = {name: value for name, value in changes.items() if name in type(self).model_fields}
        return self.model_copy(update=applicable)

    def needs_public(self, normalization: str) -> bool:
        """Return whether the method uses public examples, for example for the scale of its inputs."""
        return normalization == "public_bn"

    @property
    def uses_network(self) -> bool:
        """Return whether the spending depends on `Sizes.network`."""
        return False

    @property
    def distance(self) -> float:
        """Largest distance between the sums of neighbouring data sets, in units of the clipping bound."""
        return sensitivity(relation_of(self.drawn))

    def parts(self, sizes: Sizes) -> int:
        """Number of parts of the gradient that are clipped and noised separately."""
        return 1

    def noise_multiplier(self, sizes: Sizes) -> float:
        """Standard deviation of the noise, divided by `distance` times clipping bound; by default ``sigma``.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        settings: Any = self
        return float(settings.sigma)

    def spending(self, sizes: Sizes) -> SampledGaussian | Releases:
        """Spending of a private training: the mechanism of each step, or the releases before the first step.

        Training, ledger and audits use this function; the noise of a training is computed from its result.

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
            group=sizes.group,
        )

    @property
    def claim(self) -> tuple[float, str]:
        """Delta and accountant of the claimed epsilon: accountant 'rdp', or 'pld' for allocated batches."""
        settings: Any = self
        return settings.delta, "pld" if self.drawn == "allocation" else "rdp"

    def broken(self, normalization: str) -> tuple[Statement, ...]:
        """Reasons why the accounted epsilon doesn't hold with this normalisation."""
        return ()

    def guarantee(self, sizes: Sizes, normalization: str) -> Guarantee:
        """Spending of a training, and statements about it.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        if not self.private:
            return Guarantee(None, None, None, broken=(self.noiseless,))
        delta, claimed_by = self.claim
        if (sizes.group or 1) > 1:
            claimed_by = "pld"  # the only accountant
        broken = self.broken(normalization)
        return Guarantee(self.spending(sizes), delta, claimed_by, broken, not_covered=(CURVES,))

    def total_steps(self, examples: int) -> int:
        """Number of steps for a training split of ``examples``."""
        raise NotImplementedError

    def logs_after(self, steps_done: int, examples: int) -> bool:
        """Return whether the history gets a line after ``steps_done`` steps; the loop adds one at the end."""
        raise NotImplementedError

    def rate_at(self, step: int, steps: int) -> float:
        """Learning rate of step ``step`` (from 0) of ``steps`` steps."""
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
        """Shape of the network's inputs for examples stored in the given shape."""
        return stored

    def simulates(self, target: Self) -> bool:
        """Return whether these settings simulate ``target`` at a fraction of its cost."""
        return False

    def problem(self, circumstances: Circumstances) -> str | None:
        """Reason why the settings don't fit the row, as 'key of the row: reason'; None if they fit."""
        normalization, data = circumstances.normalization, circumstances.data
        if no_bound := self._people_problem(circumstances):
            return no_bound
        if normalization not in self.normalizations:
            return (
                f"model.normalization: {normalization!r} does not work with method {self.method!r}; "
                f"allowed: {', '.join(self.normalizations)}"
            )
        if not circumstances.public and self.needs_public(normalization):
            return (
                f"data: {data!r} has no public examples, which {self.method!r} with normalisation "
                f"{normalization!r} looks at; allowed: data with some (`public` in the --schema of "
                "`dprepro new data`)"
            )
        if self.schedule == "step" and not ("milestones" in self.model_fields_set and self.milestones):
            return "settings.milestones: missing; 'schedule: step' needs shares of the steps, as [0.5, 0.75]"
        for name in ("milestones", "gamma"):
            if self.schedule != "step" and name in self.model_fields_set:
                return f"settings.{name}: allowed with 'schedule: step' alone; schedule is {self.schedule!r}"
        if circumstances.no_images and getattr(self, "augment", "none") != "none":
            return (
                f"settings.augment: is for images, and {data!r} has {circumstances.no_images}; allowed: none"
            )
        if self.batch > self.population(circumstances.examples):
            nominal = "nominal_examples" in self.model_fields_set
            whole = "'nominal_examples'" if nominal else f"the training split of {data!r}"
            return (
                f"settings.batch: {self.batch} is larger than {whole}; "
                f"allowed: 1 to {self.population(circumstances.examples)}"
            )
        return self._allocation_problem(circumstances) or self._delta_problem(circumstances)

    def _people_problem(self, circumstances: Circumstances) -> str | None:
        """Reason why there is no bound for a person's examples; None if there is one, or none is needed."""
        if not self.private or circumstances.group is None:
            return None
        if self.protects_people and self.drawn == "poisson":
            return None
        able = " or ".join(name for name, each in method_settings().items() if each.protects_people)
        return (
            f"method: {self.method!r} with 'sampling: {self.drawn}' has no bound for all examples of a "
            f"person, the unit of {circumstances.data!r}; allowed: {able} with 'sampling: poisson'"
        )

    def _allocation_problem(self, circumstances: Circumstances) -> str | None:
        """Reason why batches can't be allocated; None if they can."""
        if self.drawn != "allocation":
            if self.joined == 1:
                return None
            return f"settings.participations: {self.joined}; allowed without 'sampling: allocation': 1"
        if self.batches_of_epoch(circumstances.examples) > self.joined:
            return None
        examples = self.population(circumstances.examples)
        return (
            f"settings.batch: {self.batch} of {examples} examples puts each into all {self.joined} batches "
            "of an epoch; allowed with 'sampling: allocation': smaller batches"
        )

    def _delta_problem(self, circumstances: Circumstances) -> str | None:
        """Reason why a private training's delta is too large for so many examples; None if it isn't.

        With a delta of 1/N or more, a training that publishes one of its N examples at random would count as
        private.
        """
        delta = getattr(self, "delta", 0.0)
        if not self.private or delta < 1 / circumstances.examples:
            return None
        return f"settings.delta: {delta} means nothing; allowed: below 1/{circumstances.examples}"


class EpochSettings(MethodSettings):
    """Settings of a method that trains for a number of passes over the training examples."""

    epochs: Passes

    def total_steps(self, examples: int) -> int:
        """Number of steps T that make `epochs` passes over ``examples`` in expectation.

        With allocated batches, a pass has a whole number of batches.
        """
        if self.drawn == "allocation":
            return max(1, round(self.epochs * self.batches_of_epoch(examples) / self.joined))
        return max(1, round(self.epochs * self.population(examples) / self.batch))

    def logs_after(self, steps_done: int, examples: int) -> bool:
        """Return whether a pass ends with step ``steps_done``."""
        examples = self.population(examples)
        return steps_done * self.batch // examples > (steps_done - 1) * self.batch // examples

    def epoch_at(self, step: int, steps: int) -> int:
        """Number of whole passes before step ``step`` of ``steps`` steps."""
        return int(step * self.epochs / steps)


class DescentSettings(MethodSettings):
    """Settings of DP-SGD: descent along noisy sums of the clipped gradients of single examples."""

    protects_people: ClassVar[bool] = True

    clip: Positive = 1.0  # C: L2 bound of one example's gradient
    delta: Delta = 1e-5
    # 'allocation' puts each example into `participations` random batches of an epoch, independently of others
    sampling: Literal["poisson", "allocation"] = "poisson"
    participations: Count = 1
    optimizer: Literal["sgd", "adam"] = "sgd"  # post-processing of noisy gradients costs no privacy
    momentum: Share = 0.0  # sgd only
    weight_decay: NotNegative = 0.0  # decoupled from the gradient, as in AdamW
    # factor of an example's loss before clipping, one per class; declared, not computed from private data
    class_weights: tuple[Positive, ...] = omitted(())

    def problem(self, circumstances: Circumstances) -> str | None:
        """Reason why the settings don't fit the row, as 'key of the row: reason'; None if they fit."""
        if self.optimizer == "adam" and self.momentum > 0:
            return f"settings.momentum: {self.momentum}; allowed with 'optimizer: adam', which has its own: 0"
        rises = len(self.milestones) if self.schedule == "step" and self.gamma > 1 else 0
        largest = self.learning_rate * math.prod([self.gamma] * rises)
        if largest * self.weight_decay >= 1:
            return (
                f"settings.weight_decay: {self.weight_decay} times the learning rate {largest} "
                "leaves nothing of the weights; allowed: a product below 1"
            )
        if self.class_weights and circumstances.normalization == "batch_bn":
            return "settings.class_weights: not allowed with normalization 'batch_bn'; allowed: none"
        count, classes = len(self.class_weights), circumstances.classes
        if count and classes == 1:
            return "settings.class_weights: the data have a numeric target; allowed: none"
        if count and classes is not None and count != classes:
            return f"settings.class_weights: {count} numbers; allowed: {classes}, in the order of classes"
        return super().problem(circumstances)


@cached
def method_settings() -> dict[str, type[MethodSettings]]:
    """Settings class of each method, by its name in params.yaml, in alphabetical order.

    They are those in the settings.py of each folder of a method. A settings class names its training class,
    which is imported by name, so no method imports the code of another method.

    Raises:
        UserError: two methods have the same name.
    """
    declared: dict[str, type[MethodSettings]] = {}
    for package in extensions("methods").values():
        module = package.load()
        for settings in vars(module).values():
            if not isinstance(settings, type) or not issubclass(settings, MethodSettings):
                continue
            # without imported classes, and without base classes, which have no name
            if settings.__module__ == module.__name__ and "method" in vars(settings):
                if settings.method in declared:
                    raise UserError(
                        f"{package.path}: a second method {settings.method!r}; allowed: another name"
                    )
                declared[settings.method] = settings
    return dict(sorted(declared.items()))
