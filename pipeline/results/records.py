"""What is kept of a row, in git: what ran, what was measured, what it spends; and the three joined.

Each is a file and a DVC stage of its own, with a digest of the code behind it, because each is made from less
than the one before: training needs the data, measuring the weights, and a ledger only what ran. Every file
holds a row's replicas one by one: they may come from different machines and times.
"""

from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from pipeline.errors import UserError, printable, reading
from pipeline.fields import Strict
from pipeline.files import digest_json, write_text
from pipeline.limits import RECORD_BYTES
from pipeline.params import Account, Row
from pipeline.params.searched import SEARCHES
from pipeline.privacy.laplace import Releases
from pipeline.privacy.spending import Spending
from pipeline.privacy.statements import Statement

RUNS = Path("reports/runs")
HISTORIES = Path("reports/histories")
EVALUATIONS = Path("reports/evaluations")
LEDGERS = Path("reports/ledgers")
AUDITS = Path("reports/audits")
ACCOUNTING = "accounting"  # the method of a record that nothing was trained for
RELEVANCE = "relevance/"  # before the metrics of a history that are a picture's: CHANNEL/ROW/COLUMN
HISTORY_COLUMNS = ("level", "seed", "step", "epoch", "metric", "value")
F = TypeVar("F", bound=Strict)


class Opinion(Strict):
    """An epsilon computed by one accountant of one library."""

    accountant: str  # e.g. 'pld (dp-accounting 0.6.0)'
    epsilon: float | None  # None: the accountant could not tell; `note` says why
    note: str | None = None


class Released(Strict):
    """Laplace noise on a quantity, and what it buys."""

    quantity: str  # 'relevances', 'inputs', 'labels'
    claimed: float  # epsilon by the method's own reckoning
    accounted: float | None  # by how far one example really moves the quantity; None: nothing bounds it
    noise: tuple[float, float, float]  # standard deviation on a coordinate: least, median, largest
    span: float  # of the exact values: how far they lie apart


class Ledger(Strict):
    """What privacy a replica really buys."""

    # the mechanism as run, in the words of dp-accounting's DpEvent; None where nothing is private
    event: str | None
    # z: standard deviation of the noise over the distance that a neighbouring data set moves a release by
    noise_multiplier: float | None
    sampling_rate: float | None  # q: share of the examples in a batch, expected where it is a Poisson sample
    sampling: str | None = None  # how a batch is drawn: 'poisson', 'fixed', 'replacement', 'shuffled'
    steps: int
    delta: float | None
    unit: str = "one training example"
    neighbouring: str = "add or remove one"  # or 'replace one'
    claimed: float | None  # epsilon as the paper would state it; None: no claim (infinity)
    claimed_by: str | None  # the accountant behind the claim
    accounted: float | None  # true upper bound of the mechanism as run; None: there is none, see `reasons`
    accountant: str | None  # that computed `accounted`
    reasons: tuple[Statement, ...] = ()  # why `accounted` is None
    opinions: tuple[Opinion, ...] = ()  # what other accountants and libraries say of the same event
    uncounted: tuple[Statement, ...] = ()  # data uses that no epsilon here covers
    mu: float | None = None  # of the Gaussian DP that the claim's central limit theorem comes to
    # (type I error, least type II error) of any attacker on the mechanism as run; a lower bound
    tradeoff: tuple[tuple[float, float], ...] = ()
    releases: tuple[Released, ...] = ()  # of a mechanism that noises data, once, instead of gradients
    # what of whom, and from whom, where the unit alone does not tell
    protects: Statement | None = None
    # (step, epsilon) after the steps that the history has lines of: an upper bound, where `accounted` is one
    spent: tuple[tuple[int, float], ...] = ()
    # an epsilon that the mechanism as run exceeds on the pair of neighbouring data sets that `shown_by`
    # names: a lower bound beside `accounted`, computed, with nothing trained
    shown: float | None = None
    shown_by: Statement | None = None

    @model_validator(mode="after")
    def _possible(self) -> "Ledger":
        for name in ("noise_multiplier", "claimed", "accounted", "shown", "mu"):
            if (value := getattr(self, name)) is not None and not value >= 0:
                raise ValueError(f"{name}: {value}; allowed: 0 or more")
        for name in ("sampling_rate", "delta"):
            if (value := getattr(self, name)) is not None and not 0 <= value <= 1:
                raise ValueError(f"{name}: {value}; allowed: 0 to 1")
        if self.steps < 0:
            raise ValueError(f"steps: {self.steps}; allowed: 0 or more")
        return self


class Bound(Strict):
    """An epsilon that an attack shows, at least."""

    # 'errors', 'gaussian', 'one_run', 'one_run_curve': see `pipeline.audits.bounds`; 'computed', of a pair;
    # 'labels', of these alone; 'repeats', 'order': see `pipeline.audits.mechanism`
    by: str
    epsilon: float
    assumes_gaussian: bool = False


class Attack(Strict):
    """An attack on a row's code at one level, what it was accounted for, and what it shows."""

    level: str
    attack: str  # 'canaries', 'crowd', 'pair', 'opposites', 'shared': a module's docstring has each
    sees: str  # the attacker: 'every step', 'the first and the last model', 'what was released'
    event: str  # the mechanism as it ran for the audit
    delta: float
    accounted: float | None  # of that mechanism, which may have fewer steps than the row's
    whole: bool  # whether that is the row's own, with all its examples and steps
    confidence: float
    trials: tuple[int, int]  # without the record, with it
    bounds: tuple[Bound, ...]
    seconds: float  # of processor time

    @property
    def epsilon(self) -> float:
        """The largest that assumes nothing of the mechanism."""
        return max((one.epsilon for one in self.bounds if not one.assumes_gaussian), default=0.0)

    @property
    def largest(self) -> float:
        """The largest of all."""
        return max((one.epsilon for one in self.bounds), default=0.0)


class Provenance(Strict):
    """What made the numbers of replicas that were trained in one go. History: it is never rewritten."""

    config: str  # digest of the row's settings
    # digest of the row's plan and settings (`Settings.plan_digest`); None: exploratory
    plan: str | None = None
    code: str  # digest of the code that trained
    # digests of that code's parts, 'engine', 'method' and 'model', to tell which has changed since
    parts: dict[str, str] = Field(default_factory=dict)
    revision: str | None  # git commit; None outside a checkout
    dirty: bool | None  # whether the checkout had uncommitted changes
    data: dict[str, str]  # digest of each prepared array
    examples: int  # N: training examples
    edition: dict[str, str]  # raw data set -> edition it was taken in
    versions: dict[str, str]  # python and the packages that compute
    device: str  # e.g. 'cpu (Xeon, 2 threads)', 'cuda (NVIDIA H200)'
    reproducible: bool  # True: DP noise was seeded, and no guarantee holds
    command: str
    adopted: str | None = None  # where the replicas were trained, when not here


class Trained(Strict):
    """What ran for one replica, and what its mechanism says that it spends."""

    level: str  # as text, e.g. 'epsilon=3'; 'epsilon=inf'
    seed: int
    settings: dict[str, Any]  # of the method, in full
    steps: int
    spending: Spending | Releases | None  # None: no private mechanism at all
    delta: float | None
    claimed_by: str | None
    broken: tuple[Statement, ...]  # why nothing is spent, or why its epsilon does not hold for what ran
    uncounted: tuple[Statement, ...]  # uses of private data that the mechanism leaves out
    protects: Statement | None = None
    # as it was accounted for when it ran, of a mechanism whose numbers were not kept; `spending` is then None
    accounted_then: Ledger | None = None
    weights: str | None  # digest of the file of its weights; None: from before each had its own
    seconds: float  # from first to last step, of all replicas that were trained together
    # of processor time, an equal share of what those took; None: trained before it was noted
    cpu_seconds: float | None = None
    started: float  # Unix time
    ended: float
    origin: int  # its place among the run's `origins`

    @model_validator(mode="after")
    def _possible(self) -> "Trained":
        _check_name(self.level, self.seed)
        times = (self.seconds, self.started, self.ended)
        if self.steps < 0 or self.origin < 0 or not all(isfinite(one) and one >= 0 for one in times):
            raise ValueError("steps, origin or times: below 0, or no numbers")
        return self


class Kept(Strict):
    """A file of its own. What is at its default is left out of it, but for the version of its form."""

    schema_version: Literal[2] = 2

    @model_serializer(mode="wrap")
    def _with_version(self, others: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"schema_version": self.schema_version, **others(self)}


class Run(Kept):
    """`reports/runs/ROW.json`: what ran."""

    row: str
    model: dict[str, Any]
    method: str
    data: str
    replicas: tuple[Trained, ...]
    origins: tuple[Provenance, ...]
    history: str  # digest of reports/histories/ROW.csv

    @model_validator(mode="after")
    def _belongs_together(self) -> "Run":
        names = [(one.level, one.seed) for one in self.replicas]
        if len(set(names)) != len(names) or not names:
            raise ValueError("replicas: the same one twice, or none")
        if any(one.origin >= len(self.origins) for one in self.replicas):
            raise ValueError("replicas: one has no origin")
        return self

    def origin(self, replica: Trained) -> Provenance:
        """What made a replica."""
        return self.origins[replica.origin]


class Evaluated(Strict):
    """What was measured of one replica's weights."""

    level: str
    seed: int
    weights: str | None  # digest of the file that was measured
    code: str  # digest of the code that measured
    metrics: dict[str, float]  # shares in [0, 1]: test_accuracy, validation_accuracy, ...

    @model_validator(mode="after")
    def _possible(self) -> "Evaluated":
        _check_name(self.level, self.seed)
        for name, value in self.metrics.items():
            if "accuracy" in name and not 0 <= value <= 1:
                raise ValueError(f"metrics: {name}: {value}; allowed: 0 to 1")
        return self


class Evaluation(Kept):
    """`reports/evaluations/ROW.json`: what was measured."""

    row: str
    replicas: tuple[Evaluated, ...]


class Entry(Strict):
    """The ledger of one replica, or of one level of an account."""

    level: str
    seed: int
    ledger: Ledger
    # of an account: its settings at this level, and what the paper prints or draws of such
    settings: dict[str, Any] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)


class Together(Strict):
    """What all private trainings of a row, and of the search behind it, spend together."""

    epsilon: float  # an upper bound
    delta: float
    by: str  # how it was found
    trainings: int  # private replicas of the row
    searched: int  # private trainings of its search
    left_out: int  # replicas and candidates without a bound, which are not in it


class Ledgers(Kept):
    """`reports/ledgers/LINE.json`: what a row's replicas, or an account's levels, really buy."""

    row: str
    config: str  # digest of what params.yaml says of the account, or of the row's search
    code: str  # digest of the code that accounted
    versions: dict[str, str]  # of Python and the libraries that did
    replicas: tuple[Entry, ...]
    together: Together | None = None  # where the row's trainings spend more than each alone


class Replica(Strict):
    """One (level, seed) of a row, joined."""

    level: str
    seed: int
    settings: dict[str, Any]  # the method's settings at this level
    metrics: dict[str, float]
    ledger: Ledger
    seconds: float = 0.0
    started: float | None = None  # None: nothing ran
    ended: float | None = None
    origin: int = 0  # its place among the record's `origins`
    measured_by: str | None = None  # digest of the code that measured
    attacks: tuple[Attack, ...] = ()  # on the code of its level


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
    together: Together | None = None

    @property
    def provenance(self) -> Provenance:
        """What made the first replica; `origins` has the others'."""
        return self.origins[0]

    def digest(self) -> str:
        """Digest of the whole record."""
        return digest_json(self.model_dump(mode="json"))


class Audit(Kept):
    """`reports/audits/ROW.json`: what attacks on a row's code show."""

    row: str
    code: str  # digest of the code that was attacked, and of the attacks
    versions: dict[str, str]
    attacks: tuple[Attack, ...]
    why_none: Statement | None = None  # why there is nothing to attack


def _check_name(level: str, seed: int) -> None:
    """A replica's name is part of its file's; made by others it must not lead anywhere."""
    if seed < 0 or not level.isprintable() or {"/", "\\"} & set(level) or not 0 < len(level) <= 150:
        raise ValueError("level or seed: not a replica's name")


def run_path(row: str, root: Path = Path()) -> Path:
    """Where it is kept what ran for a row."""
    return root / RUNS / f"{row}.json"


def history_path(row: str, root: Path = Path()) -> Path:
    """Where a row's training curves lie: CSV with `HISTORY_COLUMNS`, one value a line."""
    return root / HISTORIES / f"{row}.csv"


def evaluation_path(row: str, root: Path = Path()) -> Path:
    """Where it is kept what was measured of a row."""
    return root / EVALUATIONS / f"{row}.json"


def ledger_path(line: str, root: Path = Path()) -> Path:
    """Where a row's or an account's ledgers lie."""
    return root / LEDGERS / f"{line}.json"


def audit_path(row: str, root: Path = Path()) -> Path:
    """Where it is kept what attacks on a row's code show."""
    return root / AUDITS / f"{row}.json"


def read_audit(row: str, root: Path = Path()) -> Audit | None:
    """What attacks show; otherwise as `read_run`."""
    return _read(audit_path(row, root), Audit)


def search_path(name: str, root: Path = Path()) -> Path:
    """Where the results of a search for hyper-parameters lie."""
    return root / SEARCHES / f"{name}.json"


def write(kept: Run | Evaluation | Ledgers | Audit, root: Path = Path()) -> Path:
    """Write one of the four and return its path."""
    places = {Run: run_path, Evaluation: evaluation_path, Ledgers: ledger_path, Audit: audit_path}
    target = places[type(kept)](kept.row, root)
    write_text(target, kept.model_dump_json(indent=1, exclude_defaults=True) + "\n")
    return target


def read_run(row: str, root: Path = Path()) -> Run | None:
    """What ran for a row; None: nothing did.

    Raises:
        UserError: the file is there but is no run's.
    """
    return _read(run_path(row, root), Run)


def with_origins(
    made: Iterable[tuple[Trained, Provenance]],
) -> tuple[tuple[Trained, ...], tuple[Provenance, ...]]:
    """A run's replicas and origins from pairs of the two: each origin once, the first replica's first."""
    replicas: list[Trained] = []
    origins: list[Provenance] = []
    for one, origin in made:
        if origin not in origins:
            origins.append(origin)
        replicas.append(one.model_copy(update={"origin": origins.index(origin)}))
    return tuple(replicas), tuple(origins)


def read_evaluation(row: str, root: Path = Path()) -> Evaluation | None:
    """What was measured of a row; otherwise as `read_run`."""
    return _read(evaluation_path(row, root), Evaluation)


def read_ledgers(line: str, root: Path = Path()) -> Ledgers | None:
    """The ledgers of a row or an account; otherwise as `read_run`."""
    return _read(ledger_path(line, root), Ledgers)


def read(key: str, line: Row | Account, root: Path = Path()) -> Record | None:
    """Everything known of a row or an account, joined; None where nothing is known.

    A replica counts once it has been trained, measured and accounted for.

    Args:
        key: its key in params.yaml.
        line: what params.yaml says of it.
        root: the folder of params.yaml.

    Raises:
        UserError: a file is there but is not what it should be.
    """
    ledgers = read_ledgers(key, root)
    if ledgers is None:
        return None
    called: dict[str, Any] = {"row": key, "paper": line.paper, "table": line.table, "label": line.label}
    run = read_run(key, root)
    if run is None:
        return None if isinstance(line, Row) else _account(called, ledgers)
    assert isinstance(line, Row), "accounts leave no run"
    entries = {(one.level, one.seed): one.ledger for one in ledgers.replicas}
    audit = read_audit(key, root)
    attacks = audit.attacks if audit else ()
    evaluation = read_evaluation(key, root)
    measured = {(one.level, one.seed): one for one in evaluation.replicas} if evaluation else {}
    replicas = []
    for one in run.replicas:
        name = (one.level, one.seed)
        if name not in entries or name not in measured or measured[name].weights != one.weights:
            continue
        if _accounts_for_another(entries[name], one, run.origin(one)):
            raise UserError(
                f"{ledger_path(key, root)}: {one.level}, seed {one.seed}: accounts for another training than "
                f"{run_path(key, root)} says; run `dprepro ledger {key}`"
            )
        replicas.append(
            Replica(
                level=one.level,
                seed=one.seed,
                settings=one.settings,
                metrics=measured[name].metrics,
                ledger=entries[name],
                seconds=one.seconds,
                started=one.started,
                ended=one.ended,
                origin=one.origin,
                measured_by=measured[name].code,
                attacks=tuple(attack for attack in attacks if attack.level == one.level),
            )
        )
    if not replicas:
        return None
    return Record(
        **called,
        data=run.data,
        model=run.model,
        method=run.method,
        budget=line.budget,
        search=line.search,
        replicas=tuple(replicas),
        history=run.history,
        origins=run.origins,
        together=ledgers.together,
    )


def _accounts_for_another(ledger: Ledger, one: Trained, made: Provenance) -> bool:
    """Whether a ledger can't be that of a replica. `dprepro verify` computes it anew; this takes no time."""
    if one.spending is None:
        return False
    if ledger.accounted is not None and (one.broken or made.reproducible):
        return True
    if isinstance(one.spending, Releases):
        return ledger.steps != one.steps
    found = (ledger.steps, ledger.delta, ledger.noise_multiplier, ledger.sampling_rate)
    return found != (one.steps, one.delta, one.spending.noise_multiplier, one.spending.rate)


def _account(called: dict[str, Any], ledgers: Ledgers) -> Record:
    """The record of an account: nothing ran, and its settings say all."""
    replicas = tuple(
        Replica(level=one.level, seed=one.seed, settings=one.settings, metrics=one.metrics, ledger=one.ledger)
        for one in ledgers.replicas
    )
    made = Provenance(
        config=ledgers.config,
        code=ledgers.code,
        revision=None,
        dirty=None,
        data={},
        examples=replicas[0].settings["examples"],
        edition={},
        versions=ledgers.versions,
        device="none",
        reproducible=False,
        command=f"dprepro account {ledgers.row}",
    )
    return Record(
        **called,
        data="none",
        model={},
        method=ACCOUNTING,
        budget="full",
        search=None,
        replicas=replicas,
        history=None,
        origins=(made,),
    )


def _read(path: Path, kind: type[F]) -> F | None:
    if not path.exists():
        return None
    try:
        with reading(path):
            if path.stat().st_size > RECORD_BYTES:
                raise UserError(f"{path}: not what `dprepro` writes: larger than {RECORD_BYTES} bytes")
            return kind.model_validate_json(path.read_bytes())
    except ValidationError as problem:
        first = problem.errors(include_input=False)[0]
        where = printable(".".join(map(str, first["loc"])), 100)
        raise UserError(f"{path}: not what `dprepro` writes: {where}: {first['msg']}") from problem
