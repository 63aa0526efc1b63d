"""The files that git keeps of a row: what ran, what was measured, what it spends; and the three joined.

Each is a file and a DVC stage of its own, because each is made from less than the one before: training needs
the data, measuring the weights, and a ledger only what ran. Every file holds a row's replicas one by one:
they may come from different machines and times. Whatever reads one reads it through this schema.
"""

from collections.abc import Iterator
from itertools import repeat
from math import inf
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from pipeline.errors import shown
from pipeline.fields import Key, NotNegative, Strict
from pipeline.files import digest_json
from pipeline.params.searched import Choice, Judged
from pipeline.privacy.laplace import Releases
from pipeline.privacy.parameters import Isolation, Noise
from pipeline.privacy.risk import Risk
from pipeline.privacy.sampled_gaussian import NeighboringRelation, Relation, SampledGaussian
from pipeline.privacy.statements import Statement

ACCOUNTING = "accounting"  # the method of a record that nothing was trained for
# A replica has converged when its last validation accuracy is above so many times chance.
CONVERGED = 1.5


def _plain(text: str) -> str:
    if not text.isprintable() or {"<", ">"} & set(text):
        raise ValueError(f"{shown(text)}; allowed: characters that can be printed, without < and >")
    return text


def _level(text: str) -> str:
    """Check a level's name: it becomes part of a file's name, so it must not contain a path."""
    if not text.isprintable() or {"/", "\\"} & set(text):
        raise ValueError(f"{shown(text)}; allowed: the name of a level")
    return text


Plain = Annotated[str, Field(max_length=10_000), AfterValidator(_plain)]  # shown to people as it is
Level = Annotated[str, Field(min_length=1, max_length=150), AfterValidator(_level)]
Seed = Annotated[int, Field(ge=0)]
Whole = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, le=1)]
# what measuring gives (`pipeline.training.evaluation`); 'test_accuracy_NAME' is a variant's
Metric = Annotated[
    str, Field(pattern=r"^(validation_accuracy|converged|noise_[a-z]+|test_accuracy(_[a-z0-9_.]+)?)$")
]
Versions = dict[Plain, Plain]
ReplicaKey = tuple[str, int]  # level and seed, which tell a row's replicas apart


class AccountantEpsilon(Strict):
    """An epsilon computed by one accountant of one library."""

    accountant: Plain  # e.g. 'pld (dp-accounting 0.6.0)'
    epsilon: NotNegative | None  # None: the accountant could not tell; `note` says why
    note: Plain | None = None


class Released(Strict):
    """Laplace noise on a quantity, and what it buys."""

    quantity: Plain  # 'relevances', 'inputs', 'labels'
    claimed: NotNegative  # epsilon by the method's own reckoning
    # by how far one example really moves the quantity; None: nothing bounds it
    epsilon_upper: NotNegative | None
    # standard deviation on a coordinate: least, median, largest
    noise: tuple[NotNegative, NotNegative, NotNegative]
    span: NotNegative  # of the exact values: how far they lie apart


class Ledger(Strict):
    """What privacy a replica really buys."""

    # the mechanism as run, in the words of dp-accounting's DpEvent; None where nothing is private
    event: Plain | None
    # z: standard deviation of the noise over the distance that a neighbouring data set moves a release by
    noise_multiplier: NotNegative | None
    # q: share of the examples in a batch, expected where it is a Poisson sample
    sampling_rate: Probability | None
    sampling: Plain | None = None  # how a batch is drawn: 'poisson', 'fixed', 'replacement', 'shuffled'
    steps: Whole
    delta: Probability | None
    unit: Plain = "one training example"
    neighbouring: Relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    claimed: NotNegative | None  # epsilon as the paper would state it; None: no claim (infinity)
    claimed_by: Plain | None  # the accountant behind the claim
    noise: Noise = "float32"  # that ran; of an account, which runs nothing, it says nothing
    isolation: Isolation | None = None  # as of `Trained`
    # true upper bound of the mechanism as run; None: there is none, see `reasons`
    epsilon_upper: NotNegative | None
    accountant: Plain | None  # that computed `epsilon_upper`
    reasons: tuple[Statement, ...] = ()  # why `epsilon_upper` is None
    # what other accountants and libraries say of the same event
    accountants: tuple[AccountantEpsilon, ...] = ()
    not_covered: tuple[Statement, ...] = ()  # data uses that no epsilon here covers
    mu: NotNegative | None = None  # of the Gaussian DP that the claim's central limit theorem comes to
    # (type I error, least type II error) of any attacker on the mechanism as run; a lower bound
    tradeoff: tuple[tuple[Probability, Probability], ...] = ()
    releases: tuple[Released, ...] = ()  # of a mechanism that noises data, once, instead of gradients
    # what of whom, and from whom, where the unit alone does not tell
    protects: Statement | None = None
    # (step, epsilon) after the steps that the history has lines of: an upper bound, as `epsilon_upper`
    spent: tuple[tuple[Whole, NotNegative], ...] = ()
    # an epsilon that the mechanism as run exceeds on the pair of neighbouring data sets that
    # `epsilon_lower_by` names: a lower bound beside `epsilon_upper`, computed, with nothing trained
    epsilon_lower: NotNegative | None = None
    epsilon_lower_by: Statement | None = None
    # of the best membership attack; None: nothing is proven, or the ledger is older than this
    risk: Risk | None = None


FLOATING_POINT = "floating_point"  # the attack on arithmetic, which is told apart from the others
FINAL_MODEL = (
    "final_model"  # the attack on the network alone, which is no part of what `dprepro audit ROW` tries
)


class Bound(Strict):
    """An epsilon that an attack shows, at least."""

    # 'errors', 'gaussian', 'one_run', 'one_run_curve': see `pipeline.audits.bounds`; 'computed', of a pair;
    # 'labels', of these alone; 'coordinates', of one release; 'repeats', 'order': see
    # `pipeline.audits.mechanism`
    by: Plain
    epsilon: NotNegative
    assumes_gaussian: bool = False


class Attack(Strict):
    """An attack on a row's code at one level, what it was accounted for, and what it shows."""

    level: Level
    # 'canaries', 'crowd', 'pair', 'opposites', 'shared', `FLOATING_POINT`, `FINAL_MODEL`: as the docstrings
    # of modules in `pipeline.audits` have them
    attack: Plain
    # the attacker: 'every step', 'the first and the last model', 'one release', 'what was released'
    sees: Plain
    event: Plain  # the mechanism as it ran for the audit
    noise: Noise = "float32"  # that it had
    delta: Probability
    epsilon_upper: NotNegative | None  # of that mechanism, which may have fewer steps than the row's
    whole: bool  # whether that is the row's own, with all its examples and steps
    confidence: Probability
    trials: tuple[Whole, Whole]  # without the record, with it
    bounds: tuple[Bound, ...]
    could_show: tuple[Bound, ...] = ()  # by a perfect attacker with as many trials; (): not computed
    seconds: NotNegative  # of processor time

    @property
    def epsilon(self) -> float:
        """The largest that assumes nothing of the mechanism."""
        return max((bound.epsilon for bound in self.bounds if not bound.assumes_gaussian), default=0.0)

    @property
    def largest(self) -> float:
        """The largest of all."""
        return max((bound.epsilon for bound in self.bounds), default=0.0)


class Provenance(Strict):
    """What made the numbers of replicas that were trained in one go. History: it is never rewritten."""

    config: Plain  # digest of the row's settings
    # digest of the row's plan and settings (`Settings.plan_digest`); None: exploratory
    plan: Plain | None = None
    # versions of the 'method' and the 'model' (`pipeline.identity.versions`); 0: of code from before those
    made_by: dict[Plain, Whole]
    revision: Plain | None  # last git commit of code or settings; None outside a checkout
    dirty: bool | None  # whether the checkout had uncommitted changes
    data: dict[Plain, Plain]  # digest of each prepared array
    declared: Plain | None = None  # digest of the data's declaration; None: trained before this was noted
    examples: Whole  # N: training examples
    edition: dict[Plain, Plain]  # raw data set -> edition it was taken in
    versions: Versions  # python and the packages that compute
    device: Plain  # e.g. 'cpu (Xeon, 2 threads)', 'cuda (NVIDIA H200)'
    reproducible: bool  # True: DP noise was seeded, and no guarantee holds
    command: Plain
    adopted: Plain | None = None  # where the replicas were trained, when not here


class OfReplica(Strict):
    """What a file keeps of one replica of its row, or of one level of its account."""

    level: Level  # as text, e.g. 'epsilon=3'; 'epsilon=inf'
    seed: Seed

    @property
    def key(self) -> ReplicaKey:
        """Which replica of the row it is."""
        return self.level, self.seed


class TrainingSpent(Strict):
    """What one training spends, as its mechanism said when it ran."""

    spending: SampledGaussian | NotNegative  # or the pure epsilon of what was released at once
    steps: Whole
    delta: Probability


class Replaced(Strict):
    """Trainings that no longer stand in a record: their results were seen, so they stay spent."""

    trainings: Annotated[int, Field(ge=1, strict=True)]
    spent: TrainingSpent | None  # by each of them; None: no known bound
    # `Trained.identity` of those that have one, so that records of two machines count a training once
    identities: tuple[Plain, ...] = ()

    @model_validator(mode="after")
    def _counts_all(self) -> "Replaced":
        if len(set(self.identities)) != len(self.identities) or len(self.identities) > self.trainings:
            raise ValueError("identities: one per training at most, each once")
        return self


class Candidate(Judged):
    """Trainings of one candidate of a search: the same settings, one training per seed."""

    model_config = Strict.model_config

    level: Level
    seconds: NotNegative  # of all its trainings
    spent: TrainingSpent | None = None  # by each training if noise was not seeded; None: nothing bounds it


class SearchRecord(Choice):
    """`reports/searches/NAME.json`: candidates of a search, their accuracies, and the choice per level."""

    model_config = Strict.model_config

    name: Key
    row: Key
    judged_on: Plain
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1)]
    chosen: dict[Level, dict[str, Any]]
    provenance: Provenance
    replaced: tuple[Replaced, ...] = ()  # trainings of earlier records under this name
    # digest of all that decides the candidates' results; None: recorded before it was noted
    definition: Plain | None = None

    def spent(self) -> Iterator[TrainingSpent | None]:
        """Spending of each training; None where nothing bounds it."""
        for candidate in self.candidates:
            spent = None if self.provenance.reproducible else candidate.spent
            yield from repeat(spent, candidate.seeds)


class Trained(OfReplica):
    """What ran for one replica, and what its mechanism says that it spends."""

    settings: dict[str, Any]  # of the method, in full
    steps: Whole
    spending: SampledGaussian | Releases | None  # None: no private mechanism at all
    delta: Probability | None
    claimed_by: Plain | None
    broken: tuple[Statement, ...]  # why nothing is spent, or why its epsilon does not hold for what ran
    not_covered: tuple[Statement, ...]  # uses of private data that the mechanism leaves out
    protects: Statement | None = None
    noise: Noise = "float32"  # how it was made, where there is any; all was float32 before this was noted
    # the reason why examples don't meet in a clipped sum; None: they do, or nothing is clipped, or it was
    # trained before this was noted
    isolation: Isolation | None = None
    weights: Plain | None  # digest of the file of its weights; None: from before each had its own
    # fingerprint of the tensors that training left as `build` gave them (`pipeline.models.frozen`); (): none,
    # or trained before this was noted
    frozen: tuple[float, ...] = ()
    seconds: NotNegative  # from first to last step, of all replicas that were trained together
    # of processor time, an equal share of what those took; None: trained before it was noted
    cpu_seconds: NotNegative | None = None
    started: NotNegative  # Unix time
    ended: NotNegative
    origin: Whole  # its place among the run's `origins`

    @property
    def identity(self) -> str:
        """Digest that identifies this training among all trainings of its row, on any machine."""
        return digest_json([self.level, self.seed, self.weights, self.started, self.ended])

    @property
    def spent(self) -> TrainingSpent | None:
        """What it spends if its noise wasn't seeded; None where nothing bounds that."""
        if self.broken:
            return None
        if isinstance(self.spending, SampledGaussian):
            return TrainingSpent(spending=self.spending, steps=self.steps, delta=self.delta or 0.0)
        if self.spending is None or self.spending.epsilon == inf:
            return None
        return TrainingSpent(spending=self.spending.epsilon, steps=self.steps, delta=0.0)


R = TypeVar("R", bound=OfReplica)


class Kept(Strict):
    """A file of its own. What is at its default is left out of it, but for the version of its form."""

    schema_version: Literal[3] = 3

    @model_validator(mode="before")
    @classmethod
    def _says_its_version(cls, content: Any, info: ValidationInfo) -> Any:
        if info.mode == "json" and isinstance(content, dict) and "schema_version" not in content:
            raise ValueError("schema_version: missing; allowed: 3")
        return content

    @model_serializer(mode="wrap")
    def _with_version(self, others: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"schema_version": self.schema_version, **others(self)}


def _each_once(replicas: tuple[R, ...]) -> tuple[R, ...]:
    if len({replica.key for replica in replicas}) != len(replicas):
        raise ValueError("the same one twice")
    return replicas


class Run(Kept):
    """`reports/runs/ROW.json`: what ran, replica by replica, and what made it."""

    row: Key
    model: dict[str, Any]
    method: Plain
    data: Key
    replicas: Annotated[tuple[Trained, ...], AfterValidator(_each_once)]
    origins: tuple[Provenance, ...]
    history: Plain  # digest of reports/histories/ROW.csv
    replaced: tuple[Replaced, ...] = ()  # trainings of the row that no longer stand

    @model_validator(mode="after")
    def _belongs_together(self) -> "Run":
        if not self.replicas:
            raise ValueError("replicas: none")
        if any(replica.origin >= len(self.origins) for replica in self.replicas):
            raise ValueError("replicas: one has no origin")
        return self

    def origin(self, replica: Trained) -> Provenance:
        """What made a replica."""
        return self.origins[replica.origin]

    def seconds_of(self, replica: Trained) -> float:
        """Processor seconds of a training run; its share of its group's seconds where none were recorded."""
        if replica.cpu_seconds is not None:
            return replica.cpu_seconds
        together = [other for other in self.replicas if other.started == replica.started]
        return replica.seconds / len(together)

    def spent(self, replica: Trained) -> TrainingSpent | None:
        """What a replica spends; None where nothing bounds it."""
        return None if self.origin(replica).reproducible else replica.spent


class Evaluated(OfReplica):
    """What was measured of one replica's weights."""

    weights: Plain | None  # digest of the file that was measured
    measured_by: Whole  # version of measuring
    metrics: dict[Metric, float]  # shares in [0, 1]: test_accuracy, validation_accuracy, ...

    @model_validator(mode="after")
    def _possible(self) -> "Evaluated":
        for name, value in self.metrics.items():
            if not (0 <= value <= 1 if "accuracy" in name or name == "converged" else 0 <= value < inf):
                raise ValueError(f"metrics: {name}: {value}; allowed: 0 to 1")
        return self


class Evaluation(Kept):
    """`reports/evaluations/ROW.json`: what was measured."""

    row: Key
    replicas: Annotated[tuple[Evaluated, ...], AfterValidator(_each_once)]


class Entry(OfReplica):
    """The ledger of one replica, or of one level of an account."""

    ledger: Ledger
    # of an account: its settings at this level, and what the paper prints or draws of such
    settings: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[Plain, float] = Field(default_factory=dict)


class Composition(Strict):
    """What all private trainings of a row, and of the search behind it, spend together."""

    epsilon: NotNegative  # an upper bound
    delta: Probability
    neighbouring: Relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    by: Plain  # how it was found
    trainings: Whole  # private replicas of the row
    searched: Whole  # private trainings of its search
    replaced: Whole = 0  # of both, private trainings whose results others replaced
    left_out: Whole  # trainings without a bound, which are not in it

    @property
    def total(self) -> int:
        """Number of trainings that are composed."""
        return self.trainings + self.searched + self.replaced


class Ledgers(Kept):
    """`reports/ledgers/LINE.json`: what a row's replicas, or an account's levels, really buy."""

    row: Key
    config: Plain  # digest of what params.yaml says of the account, or of the row's search
    versions: Versions  # of Python and the libraries that did
    replicas: Annotated[tuple[Entry, ...], AfterValidator(_each_once)]
    composition: Composition | None = None  # where the row's trainings spend more than each alone


class Replica(OfReplica):
    """All that is known of one replica, joined."""

    settings: dict[str, Any]  # the method's settings at this level
    metrics: dict[str, float]
    ledger: Ledger
    seconds: float = 0.0
    started: float | None = None  # None: nothing ran
    ended: float | None = None
    origin: int = 0  # its place among the record's `origins`
    measured_by: int | None = None  # version of measuring
    attacks: tuple[Attack, ...] = ()  # on the code of its level
    noise: Noise = "float32"


class Record(Strict):
    """A row or an account with everything that is known of it. MLflow and the report are drawn from these."""

    row: str
    paper: str
    table: str
    label: str
    data: str
    model: dict[str, Any]
    method: str
    budget: str
    search: str | None
    replicas: tuple[Replica, ...]
    history: str | None  # digest of reports/histories/ROW.csv; None: accounting alone, nothing was trained
    origins: tuple[Provenance, ...]
    composition: Composition | None = None

    @property
    def provenance(self) -> Provenance:
        """What made the first replica; `origins` has the others'."""
        return self.origins[0]

    def digest(self) -> str:
        """Digest of the whole record."""
        return digest_json(self.model_dump(mode="json"))


class Audit(Kept):
    """`reports/audits/ROW.json`: what attacks on a row's code show; in `models/`, on its own trainings."""

    row: Key
    made_by: dict[str, int]  # versions of the 'method' and 'model' that were attacked, and of the 'audit'
    versions: Versions
    attacks: tuple[Attack, ...]
    why_none: Statement | None = None  # why there is nothing to attack
