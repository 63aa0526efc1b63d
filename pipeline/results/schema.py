"""Schema of the recorded files of a row: trainings, accuracies, ledgers, audit; and of their join.

Each file is the output of a separate DVC stage, because each needs less than the one before: training needs
the data, measuring needs the weights, and a ledger needs only the trainings. A training has one line, written
once, with everything about it but its accuracies; so files of two machines merge line by line.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import repeat
from math import inf, isfinite
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from dprepro.accountants.laplace import Releases
from dprepro.accountants.records import AccountantEpsilon, NeighboringRelation, Risk, SampledGaussian
from dprepro.errors import counted, shown
from dprepro.fields import (
    LARGEST,
    Finite,
    Isolation,
    Key,
    Noise,
    NotNegative,
    Plain,
    Probability,
    Strict,
    omitted,
)
from dprepro.pipeline.files import digest_json
from dprepro.pipeline.methods.spending import Guarantee, Statement

ACCOUNTING = "accounting"  # method in the record of an account
# A training has converged if its last validation accuracy is above this multiple of chance.
CONVERGED = 1.5
GUESS, GUESS_ERROR = "no better than guessing", 0.05


def _level(text: str) -> str:
    """Check a level's name, which must not contain a path, because it becomes part of a file's name."""
    if not text.isprintable() or {"/", "\\"} & set(text):
        raise ValueError(f"{shown(text)}; allowed: the name of a level")
    return text


def _measured(value: float) -> float:
    """Check a measured value, which may be NaN or infinite: a training may diverge."""
    if isfinite(value) and abs(value) > LARGEST:
        raise ValueError(f"{value:g}; allowed: {-LARGEST:g} to {LARGEST:g}")
    return value


Level = Annotated[str, Field(min_length=1, max_length=150), AfterValidator(_level)]
Whole = Annotated[int, Field(ge=0, le=10**12)]
Seed = Whole
Measured = Annotated[float, AfterValidator(_measured)]
Time = Annotated[float, Field(ge=0, le=1e11)]  # Unix time, or seconds
# metrics of `pipeline.training.evaluation`; 'test_accuracy_NAME' belongs to a variant of the test
Metric = Annotated[
    str, Field(pattern=r"^(validation_accuracy|converged|noise_[a-z]+|test_accuracy(_[a-z0-9_.]+)?)$")
]
Versions = dict[Plain, Plain]
TrainingKey = tuple[str, int]  # level and seed, which identify a row's training


class Released(Strict):
    """Laplace noise on a quantity, and its epsilon."""

    quantity: Plain  # 'relevances', 'inputs', 'labels'
    claimed: NotNegative  # epsilon by the paper's own accounting
    # epsilon by the proven sensitivity of the quantity; None: nothing bounds it
    epsilon_upper: NotNegative | None
    # standard deviation on a coordinate: smallest, median, largest
    noise: tuple[NotNegative, NotNegative, NotNegative]
    span: NotNegative  # largest less smallest exact value


EXAMPLE = "one training example"  # the unit of privacy, unless the data declare people


def unit_of(group: int | None) -> str:
    """Unit of privacy in words; ``group`` as in `SampledGaussian`."""
    if group is None:
        return EXAMPLE
    return f"one person with at most {counted(group, 'training example')}"


class Ledger(Strict):
    """Privacy of a training: claimed epsilon, bounds, and uncovered uses of private data."""

    # the mechanism as run, as dp-accounting's DpEvent; None: nothing is private
    event: Plain | None
    # z: standard deviation of the noise, divided by the distance of neighbouring data sets' sums
    noise_multiplier: NotNegative | None
    # q: share of the examples in a batch; for Poisson samples, the expected share
    sampling_rate: Probability | None
    sampling: Plain | None = None  # 'poisson', 'fixed', 'replacement', 'shuffled' or 'allocation'
    steps: Whole
    delta: Probability | None
    unit: Plain = EXAMPLE
    neighbouring: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    claimed: NotNegative | None  # epsilon as the paper would state it; None: no claim (infinity)
    claimed_by: Plain | None  # the accountant behind the claim
    noise: Noise = "float32"  # kind of noise that ran; has no meaning for an account
    isolation: Isolation | None = None  # as in `TrainingRecord`
    # upper bound for the mechanism as run; None: there is none, see `reasons`
    epsilon_upper: NotNegative | None
    accountant: Plain | None  # accountant behind `epsilon_upper`
    reasons: tuple[Statement, ...] = ()  # why `epsilon_upper` is None
    # epsilons of the same event by all accountants and libraries
    accountants: tuple[AccountantEpsilon, ...] = ()
    not_covered: tuple[Statement, ...] = ()  # uses of private data that no epsilon here covers
    mu: NotNegative | None = None  # of Gaussian DP, by the claim's central limit theorem
    # (type I error, least type II error) of any attacker on the mechanism as run; a lower bound
    tradeoff: tuple[tuple[Probability, Probability], ...] = ()
    releases: tuple[Released, ...] = ()  # of a mechanism that adds noise to data once, not to gradients
    # the protected part of an example, and the attacker, if `unit` alone is not precise
    protects: Statement | None = None
    # (step, epsilon) at the steps of the history: upper bounds, as `epsilon_upper`
    spent: tuple[tuple[Whole, NotNegative], ...] = ()
    # lower bound on epsilon of the mechanism as run, computed without training for the pair of neighbouring
    # data sets that `epsilon_lower_by` names
    epsilon_lower: NotNegative | None = None
    epsilon_lower_by: Statement | None = None
    # of the best membership attack; None: nothing is proven, or the ledger is older than this field
    risk: Risk | None = None


FLOATING_POINT = "floating_point"  # the attack on arithmetic, which is reported separately
FINAL_MODEL = "final_model"  # the attack on the network alone, which `dprepro audit ROW` leaves out


class EpsilonBound(Strict):
    """Lower bound on epsilon from an attack."""

    # 'errors', 'gaussian', 'one_run', 'one_run_curve', 'coordinates': see `dprepro.auditing.epsilon_bounds`;
    # 'computed': see `pipeline.audits.pair`; 'labels': from the labels alone; 'repeats', 'order': see
    # `pipeline.audits.mechanism`
    by: Plain
    epsilon: NotNegative
    assumes_gaussian: bool = False


class Attack(Strict):
    """Attack on a row's code at one level: attacked mechanism, accounted epsilon, and lower bounds."""

    level: Level
    # 'canaries', 'crowd', 'pair', 'opposites', 'shared', `FLOATING_POINT`, `FINAL_MODEL`: see the modules of
    # `pipeline.audits`
    attack: Plain
    sees: Plain  # the attacker's view, such as 'every step'
    event: Plain  # the mechanism as it ran for the audit
    noise: Noise = "float32"  # its kind of noise
    delta: Probability
    epsilon_upper: NotNegative | None  # of that mechanism, which may have fewer steps than the row's
    whole: bool  # whether the attacked mechanism has all examples and steps of the row
    confidence: Probability
    trials: tuple[Whole, Whole]  # number without the record, number with it
    bounds: tuple[EpsilonBound, ...]
    # bounds of a perfect attacker with as many trials; (): not computed
    could_show: tuple[EpsilonBound, ...] = ()
    seconds: Time  # of processor time
    # digest of the attacked training (`records.training_digest`); None: an attack on code
    training: Plain | None = omitted(None)

    @property
    def epsilon(self) -> float:
        """Largest lower bound among those without assumptions on the mechanism; 0 without such a bound."""
        return max((bound.epsilon for bound in self.bounds if not bound.assumes_gaussian), default=0.0)

    @property
    def largest(self) -> float:
        """Largest lower bound, including bounds that assume a Gaussian mechanism; 0 without a bound."""
        return max((bound.epsilon for bound in self.bounds), default=0.0)


class Provenance(Strict):
    """Origin of trainings that were trained together: settings, code, data and machine. Never rewritten."""

    config: Plain  # digest of the row's settings
    # digest of the row's plan and settings (`Settings.plan_digest`); None: exploratory
    plan: Plain | None = None
    # versions of the 'method' and the 'model' (`pipeline.identity.validity`); 0: before versions existed
    made_by: dict[Plain, Whole]
    revision: Plain | None  # last git commit of code or settings; None outside a checkout
    dirty: bool | None  # whether the checkout had uncommitted changes
    data: dict[Plain, Plain]  # digest of each prepared array
    declared: Plain | None = None  # digest of the data's declaration; None: trained before this field existed
    examples: Whole  # N: training examples
    edition: dict[Plain, Plain]  # edition by raw data set
    versions: Versions  # python and the packages that compute
    device: Plain  # e.g. 'cpu (Xeon, 2 threads)', 'cuda (NVIDIA H200)'
    reproducible: bool  # True: DP noise was seeded, and no guarantee holds
    command: Plain
    adopted: Plain | None = None  # the pack with the trainings; None: trained here


class OfTraining(Strict):
    """Record of one training of a row, or of one level of an account."""

    level: Level  # as text, e.g. 'epsilon=3'; 'epsilon=inf'
    seed: Seed

    @property
    def key(self) -> TrainingKey:
        """Level and seed, which identify the training in its row."""
        return self.level, self.seed


class TrainingSpent(Strict):
    """Spending of one training by the mechanism that ran."""

    spending: SampledGaussian | NotNegative  # mechanism of a step, or the pure epsilon of a single release
    steps: Whole
    delta: Probability

    @classmethod
    def of(cls, ran: "Guarantee | TrainingRecord", steps: int) -> "TrainingSpent | None":
        """Spending of a training of ``steps`` steps; None if no bound on the training's epsilon holds."""
        spending = ran.spending.epsilon if isinstance(ran.spending, Releases) else ran.spending
        if ran.broken or spending is None or spending == inf:
            return None
        return cls(spending=spending, steps=steps, delta=ran.delta or 0.0)


class Replaced(Strict):
    """Trainings without a record of their own. Results were seen, so the privacy loss stays."""

    trainings: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    spent: TrainingSpent | None  # by each of them; None: no known bound


class Candidate(Strict):
    """Trainings of one candidate of a search: the same settings, one training per seed."""

    level: Level
    settings: dict[str, Any]  # values of the grid
    seeds: Annotated[int, Field(ge=1, le=10_000)]
    validation_accuracy: tuple[Probability, ...]  # one per seed
    seconds: Time  # of all its trainings
    spent: TrainingSpent | None = None  # by each training, if noise was not seeded; None: nothing bounds it

    @model_validator(mode="after")
    def _has_an_accuracy_per_seed(self) -> "Candidate":
        if len(self.validation_accuracy) != self.seeds:
            raise ValueError(f"{len(self.validation_accuracy)} accuracies of {self.seeds} seeds")
        return self


def best(candidates: Sequence[Candidate]) -> dict[str, dict[str, Any]]:
    """For each level, settings with the highest mean accuracy; the first if several are equal."""
    levels = dict.fromkeys(candidate.level for candidate in candidates)
    return {
        level: max(
            (candidate for candidate in candidates if candidate.level == level),
            key=lambda candidate: fmean(candidate.validation_accuracy),
        ).settings
        for level in levels
    }


class SearchRecord(Strict):
    """`reports/searches/NAME.json`: candidates of a search, their accuracies, and the choice per level."""

    name: Key
    row: Key
    judged_on: Plain
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1)]
    chosen: dict[Level, dict[str, Any]]
    provenance: Provenance
    replaced: tuple[Replaced, ...] = ()  # trainings of earlier records under this name
    # digest of everything that decides the candidates' results; None: recorded before this field existed
    definition: Plain | None = None

    @model_validator(mode="after")
    def _chose_the_best(self) -> "SearchRecord":
        expected = best(self.candidates)
        for level in {**expected, **self.chosen}:
            if self.chosen.get(level) != expected.get(level):
                raise ValueError(f"chosen: {shown(level)}: not the candidate with the highest accuracy")
        return self

    def spent(self) -> Iterator[TrainingSpent | None]:
        """Spending of each training of the search; None if nothing bounds the spending."""
        for candidate in self.candidates:
            spent = None if self.provenance.reproducible else candidate.spent
            yield from repeat(spent, candidate.seeds)


class RecordFile(Strict):
    """A record file, or a line of one. Fields at their default are left out, except the schema version."""

    schema_version: Literal[3, 4] = 3

    @model_validator(mode="before")
    @classmethod
    def _require_version(cls, content: Any, info: ValidationInfo) -> Any:
        if info.mode == "json" and isinstance(content, dict) and "schema_version" not in content:
            raise ValueError("schema_version: missing")
        return content

    @model_serializer(mode="wrap")
    def _with_version(self, others: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"schema_version": self.schema_version, **others(self)}


Point = tuple[Whole, NotNegative, Measured]  # step, epoch, value


class TrainingRecord(RecordFile, OfTraining):
    """Line of `reports/trainings/ROW.jsonl`: one training. Only ``replaced`` may change later."""

    schema_version: Literal[4] = 4
    row: Key
    model: dict[str, Any]
    method: Plain
    data: Key
    settings: dict[str, Any]  # of the method, in full
    steps: Whole
    spending: SampledGaussian | Releases | None  # None: no private mechanism at all
    delta: Probability | None
    claimed_by: Plain | None
    broken: tuple[Statement, ...]  # reasons why no epsilon holds for the training as it ran
    not_covered: tuple[Statement, ...]  # uses of private data outside the mechanism
    protects: Statement | None = None
    noise: Noise = "float32"  # kind of noise; float32 before this field existed
    # reason why a clipped gradient depends on its example alone; None: there is none, nothing is clipped, or
    # the training was trained before this field existed
    isolation: Isolation | None = None
    weights: Plain | None  # digest of the file of its weights; None: trained before this field existed
    # fingerprint of the frozen tensors (`pipeline.identity.frozen`); (): none, or trained before this field
    # existed
    frozen: tuple[Measured, ...] = ()
    seconds: Time  # from first to last step, of all trainings that ran together
    # processor time, as an equal share of that of the trainings that ran together; None: not recorded
    cpu_seconds: Time | None = None
    started: Time
    ended: Time
    origin: Provenance
    curves: dict[Plain, tuple[Point, ...]] = Field(default_factory=dict)  # by metric
    # True: no result of the row any more, because its settings, data or code changed; its privacy loss stays
    replaced: bool = False

    @model_validator(mode="after")
    def _ends_after_it_started(self) -> "TrainingRecord":
        if self.started > self.ended:
            raise ValueError(f"started: {self.started:g}; allowed: at most 'ended', {self.ended:g}")
        return self

    @property
    def identity(self) -> str:
        """Digest that identifies this training among all trainings of its row, on any machine."""
        return digest_json([self.level, self.seed, self.weights, self.started, self.ended])

    @property
    def spent(self) -> TrainingSpent | None:
        """Spending; None if nothing bounds it, as with seeded noise."""
        return None if self.origin.reproducible else TrainingSpent.of(self, self.steps)


class UnrecordedTrainings(RecordFile, Replaced):
    """Line of `reports/trainings/ROW.jsonl`: trainings that left no line of their own."""

    schema_version: Literal[4] = 4
    row: Key


class RowTrainings(Strict):
    """Content of `reports/trainings/ROW.jsonl`: the trainings of a row."""

    row: Key
    trainings: Annotated[tuple[TrainingRecord, ...], Field(min_length=1)]
    replaced: tuple[TrainingRecord | Replaced, ...] = ()  # no results any more

    @property
    def model(self) -> dict[str, Any]:
        """Model of the first training."""
        return self.trainings[0].model

    @property
    def method(self) -> str:
        """Method of the first training."""
        return self.trainings[0].method

    @property
    def data(self) -> str:
        """Prepared data set of the first training."""
        return self.trainings[0].data

    @property
    def origins(self) -> tuple[Provenance, ...]:
        """Origins of the trainings, each once."""
        found: list[Provenance] = []
        for training in self.trainings:
            if training.origin not in found:
                found.append(training.origin)
        return tuple(found)

    def replaced_spent(self) -> Iterator[TrainingSpent | None]:
        """Spending of each replaced training; None if nothing bounds it."""
        for gone in self.replaced:
            yield from (
                [gone.spent] if isinstance(gone, TrainingRecord) else repeat(gone.spent, gone.trainings)
            )

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Mean seconds of a training at each level. Trainings that ran together share their time."""
        together = Counter(training.started for training in self.trainings)
        times: dict[str, list[float]] = {}
        for training in self.trainings:
            times.setdefault(training.level, []).append(training.seconds / together[training.started])
        return {level: fmean(of_level) for level, of_level in times.items()}


def is_guess(right: int, examples: int, most_frequent: int) -> bool:
    """Return whether a classifier with ``right`` answers may be no better than the most frequent class.

    It is better if the probability of so many right answers by guessing is at most 5 %, for answers that are
    each right with probability ``most_frequent`` / ``examples``. Examples of one class alone don't tell.
    """
    from scipy.special import bdtrc  # imported here, so that predictions don't wait for it

    if right == 0 or most_frequent == examples:
        return right == 0
    return float(bdtrc(right - 1, examples, most_frequent / examples)) > GUESS_ERROR


class Scores(Strict):
    """Scores on test examples of own data, besides accuracy. None: undefined for these examples."""

    auc: Probability | None  # area under the ROC curve, mean over classes of one against the rest
    f1: Probability  # mean over classes
    log_loss: NotNegative | None  # mean, in nats
    calibration_error: Probability | None  # expected calibration error of the predicted classes
    recall: tuple[Probability | None, ...]  # of each class
    confusion: tuple[tuple[Whole, ...], ...] | None  # examples by class, then by predicted class

    @property
    def over_all(self) -> dict[str, float | None]:
        """Scores over all classes, by name."""
        return self.model_dump(exclude={"recall", "confusion"})

    @property
    def base_rate(self) -> float | None:
        """Share of the examples that are of the most frequent class; None without a confusion matrix."""
        counts = [sum(of_class) for of_class in self.confusion or ()]
        return max(counts) / sum(counts) if counts else None

    @property
    def guess(self) -> str:
        """Words on an accuracy that guessing has too; '' if there are none."""
        if self.confusion is None or self.base_rate is None:  # more classes than such a matrix has
            known = [share for share in self.recall if share is not None]
            return GUESS if known and fmean(known) <= CONVERGED / len(known) else ""
        counts = [sum(of_class) for of_class in self.confusion]
        right = sum(of_class[number] for number, of_class in enumerate(self.confusion))
        if not is_guess(right, sum(counts), max(counts)):
            return ""
        return f"{GUESS}: {100 * self.base_rate:.1f} % are of the most frequent class"

    @property
    def words(self) -> str:
        """Scores over all classes, in one line of text."""
        names = {"auc": "AUC", "f1": "macro F1"}
        return ", ".join(
            f"{names.get(name, name.replace('_', ' '))} {value:.3f}"
            for name, value in self.over_all.items()
            if value is not None
        )


class Errors(Strict):
    """Errors of a numeric target on test examples of own data, in the target's units."""

    rmse: NotNegative  # root of the mean squared error
    mae: NotNegative  # mean absolute error
    r2: Finite | None  # coefficient of determination

    @property
    def over_all(self) -> dict[str, float | None]:
        """All errors, by name."""
        return self.model_dump()

    @property
    def guess(self) -> str:
        """Words on errors that the targets' mean has too; '' if there are none."""
        return f"{GUESS} the mean" if self.r2 is not None and self.r2 <= 0 else ""

    @property
    def words(self) -> str:
        """All errors, in one line of text."""
        r2 = "" if self.r2 is None else f", R² {self.r2:.3f}"
        return f"RMSE {self.rmse:.4g}, MAE {self.mae:.4g}{r2}"


class EvaluationRecord(RecordFile, OfTraining):
    """Line of `reports/evaluations/ROW.jsonl`: measured accuracies of one training's weights."""

    schema_version: Literal[4] = 4
    row: Key
    weights: Plain | None  # digest of the measured file
    measured_by: Whole  # version of measuring
    metrics: dict[Metric, NotNegative]  # shares in [0, 1]: test_accuracy, validation_accuracy, ...
    scores: Scores | Errors | None = omitted(None)  # of own data
    # of public data: packed errors on the test split (`records.packed`); None: measured before this field
    # existed, or the method has noise at test time
    test_errors: Annotated[str, Field(max_length=1_000_000, pattern=r"^[A-Za-z0-9+/=]*$")] | None = omitted(
        None
    )

    @model_validator(mode="after")
    def _possible(self) -> "EvaluationRecord":
        if "test_accuracy" not in self.metrics:
            raise ValueError("metrics: lacks test_accuracy")
        for name, value in self.metrics.items():
            if value > 1 and ("accuracy" in name or name == "converged"):
                raise ValueError(f"metrics: {name}: {value}; allowed: 0 to 1")
        return self


class RowEvaluations(Strict):
    """Content of `reports/evaluations/ROW.jsonl`: measured accuracies of each training."""

    row: Key
    trainings: tuple[EvaluationRecord, ...] = ()

    @property
    def by_key(self) -> dict[TrainingKey, EvaluationRecord]:
        """Measured accuracies by level and seed."""
        return {training.key: training for training in self.trainings}


class LedgerEntry(Strict):
    """Ledger of trainings of one level with equal privacy, or of one level of an account."""

    level: Level
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    ledger: Ledger
    # of an account: its settings at this level, and metrics for the paper's tables and figures
    settings: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[Plain, Measured] = Field(default_factory=dict)


class Composition(Strict):
    """Composition of all private trainings of a row and its searches."""

    epsilon: NotNegative  # an upper bound
    delta: Probability
    unit: Plain = omitted(EXAMPLE)
    neighbouring: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    by: Plain  # method of the bound
    trainings: Whole  # private trainings of the row
    searched: Whole  # private trainings of the searches
    replaced: Whole = 0  # replaced private trainings of the row and the searches
    left_out: Whole  # trainings without a bound, which are not composed

    @property
    def total(self) -> int:
        """Number of composed trainings."""
        return self.trainings + self.searched + self.replaced


class Ledgers(RecordFile):
    """`reports/ledgers/LINE.json`: ledgers of a row's trainings or of an account's levels, each once."""

    schema_version: Literal[4] = 4
    row: Key
    config: Plain  # digest of the account's settings, or of the name of the row's search
    versions: Versions  # of Python and the accounting libraries
    entries: tuple[LedgerEntry, ...]
    composition: Composition | None = None  # if the row has several private trainings

    @model_validator(mode="after")
    def _has_each_once(self) -> "Ledgers":
        if len(self.by_training) != sum(len(entry.seeds) for entry in self.entries):
            raise ValueError("entries: the same training twice")
        return self

    @cached_property
    def by_training(self) -> dict[TrainingKey, Ledger]:
        """Ledger of each training."""
        return {(entry.level, seed): entry.ledger for entry in self.entries for seed in entry.seeds}


class TrainingResult(OfTraining):
    """Joined record of one training."""

    settings: dict[str, Any]  # of the method at this level
    metrics: dict[str, float]
    ledger: Ledger
    scores: Scores | Errors | None = omitted(None)
    seconds: float = 0.0
    started: float | None = None  # None: nothing ran
    ended: float | None = None
    origin: int = 0  # index in the record's `origins`
    measured_by: int | None = None  # version of measuring
    attacks: tuple[Attack, ...] = ()  # on the code of its level
    noise: Noise = "float32"

    @property
    def attacked(self) -> float | None:
        """Largest lower bound by an attack on the whole mechanism; None without such an attack."""
        return max((attack.epsilon for attack in self.attacks if attack.whole), default=None)

    @property
    def shown(self) -> float | None:
        """Largest lower bound on epsilon: `attacked`, or the ledger's computed one; None without either."""
        bounds = (self.attacked, self.ledger.epsilon_lower)
        return max((bound for bound in bounds if bound is not None), default=None)


class Record(Strict):
    """Joined record of a row or an account, for the report and MLflow."""

    row: str
    paper: str
    table: str
    label: str
    data: str
    model: dict[str, Any]
    method: str
    budget: str
    search: str | None
    trainings: tuple[TrainingResult, ...]
    history: str | None  # digest of reports/trainings/ROW.jsonl; None: an account
    origins: tuple[Provenance, ...]
    composition: Composition | None = None

    @property
    def provenance(self) -> Provenance:
        """Origin of the first training; `origins` has all."""
        return self.origins[0]

    def digest(self) -> str:
        """Digest of the whole record."""
        return digest_json(self.model_dump(mode="json"))


class Audit(RecordFile):
    """`reports/audits/ROW.json`: attacks on a row's code; in `models/`, attacks on its final models."""

    schema_version: Literal[3] = 3
    row: Key
    made_by: dict[Plain, Whole]  # versions of the attacked 'method' and 'model', and of the 'audit'
    versions: Versions
    attacks: tuple[Attack, ...]
    why_none: Statement | None = None  # reason why there is nothing to attack
