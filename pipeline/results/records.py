"""The record: what evaluation says of a row. MLflow and the report are drawn from records alone."""

from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.fields import Strict
from pipeline.files import digest_json, write_text

RECORDS = Path("reports/records")
HISTORIES = Path("reports/histories")
SEARCHES = Path("reports/searches")
ACCOUNTING = "accounting"  # the method of a record that nothing was trained for
RELEVANCE = "relevance/"  # before the metrics of a history that are a picture's: CHANNEL/ROW/COLUMN
HISTORY_COLUMNS = ("level", "seed", "step", "epoch", "metric", "value")


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
    accounted: float | None  # true upper bound of the mechanism as run; None: there is none, see `reason`
    accountant: str | None  # that computed `accounted`
    reason: str | None = None  # why `accounted` is None
    opinions: tuple[Opinion, ...] = ()  # what other accountants and libraries say of the same event
    uncounted: tuple[str, ...] = ()  # data uses that no epsilon here covers
    mu: float | None = None  # of the Gaussian DP that the claim's central limit theorem comes to
    # (type I error, least type II error) of any attacker on the mechanism as run; a lower bound
    tradeoff: tuple[tuple[float, float], ...] = ()
    releases: tuple[Released, ...] = ()  # of a mechanism that noises data, once, instead of gradients
    protects: str | None = None  # what of whom, and from whom, where the unit alone does not tell
    audited: float | None = None  # lower bound found by attacks, once audits exist


class Replica(Strict):
    """One (level, seed) of a row."""

    level: str  # as text, e.g. 'epsilon=3'; 'epsilon=inf'
    seed: int
    settings: dict[str, Any]  # the method's settings at this level
    metrics: dict[str, float]  # shares in [0, 1]: test_accuracy, validation_accuracy, ...
    ledger: Ledger
    seconds: float  # of training, shared by the replicas trained together
    started: float  # Unix time
    ended: float


class Provenance(Strict):
    """What made the numbers."""

    config: str  # digest of the row's settings
    code: str  # digest of the sources that train and evaluate
    revision: str | None  # git commit; None outside a checkout
    dirty: bool | None  # whether the checkout had uncommitted changes
    data: dict[str, str]  # digest of each prepared array
    examples: int  # N: training examples
    edition: dict[str, str]  # raw data set -> edition it was taken in
    versions: dict[str, str]  # python and the packages that compute
    device: str  # e.g. 'cpu (Xeon, 2 threads)', 'cuda (NVIDIA H200)'
    reproducible: bool  # True: DP noise was seeded, and no guarantee holds
    command: str
    adopted: str | None = None  # where the row was trained, when not here


class Record(Strict):
    """One row's results: `reports/records/ROW.json`."""

    schema_version: Literal[1] = 1
    row: str
    paper: str
    table: str
    label: str
    data: str
    model: dict[str, Any]
    method: str
    budget: str
    search: str | None
    replicas: list[Replica]
    history: str | None  # digest of reports/histories/ROW.csv; None: accounting alone, nothing was trained
    provenance: Provenance

    def digest(self) -> str:
        """Digest of the whole record."""
        return digest_json(self.model_dump(mode="json"))


def path(row: str, root: Path = Path()) -> Path:
    """Where a row's record lies."""
    return root / RECORDS / f"{row}.json"


def history_path(row: str, root: Path = Path()) -> Path:
    """Where a row's training curves lie: CSV with `HISTORY_COLUMNS`, one value a line."""
    return root / HISTORIES / f"{row}.csv"


def search_path(name: str, root: Path = Path()) -> Path:
    """Where the results of a search for hyper-parameters lie."""
    return root / SEARCHES / f"{name}.json"


def write(record: Record, root: Path = Path()) -> Path:
    """Write the record and return its path."""
    target = path(record.row, root)
    write_text(target, record.model_dump_json(indent=2) + "\n")
    return target


def read(row: str, root: Path = Path()) -> Record | None:
    """The row's record, or None when the row has not been run.

    Raises:
        UserError: the file is there but is not a record.
    """
    source = path(row, root)
    if not source.exists():
        return None
    try:
        return Record.model_validate_json(source.read_text())
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{source}: not a record: {where}: {first['msg']}") from problem
