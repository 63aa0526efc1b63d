"""Paths of a row's record files, functions that read, write and compare them, and their join to one record.

In all functions ``root`` is the folder of params.yaml.
"""

import base64
import binascii
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from dprepro.accountants.laplace import Releases
from dprepro.errors import UserError
from dprepro.pipeline.files import digest_file, digest_json, write_text
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.params import Account, Model, Row, Settings
from dprepro.pipeline.params.documents import parse_lines, read_bytes, read_record
from dprepro.pipeline.results.schema import (
    ACCOUNTING,
    FINAL_MODEL,
    Attack,
    Audit,
    EvaluationRecord,
    Ledger,
    Ledgers,
    Provenance,
    Record,
    RecordFile,
    Replaced,
    RowEvaluations,
    RowTrainings,
    SearchRecord,
    TrainingKey,
    TrainingRecord,
    TrainingResult,
    TrainingSpent,
    UnrecordedTrainings,
)

TRAININGS = Path("reports/trainings")
EVALUATIONS = Path("reports/evaluations")
LEDGERS = Path("reports/ledgers")
AUDITS = Path("reports/audits")
SEARCHES = Path("reports/searches")
# of trainings; outside DVC's outputs, which DVC deletes before it runs a stage
CHECKPOINTS = Path(".dprepro/checkpoints")
ACCURACY = "validation_accuracy"
# Largest difference between a curve's end and the measured accuracy of the same weights, by rounding on two
# machines, or if each test draws new noise
ROUNDING, REDRAWN = 1e-3, 0.1
MOST_CLASSES = 256  # of packed predictions: a byte for each example
MOST_EXAMPLES = 10_000_000
# fields that a joined training takes from its training record
FROM_TRAINING = ("level", "seed", "settings", "seconds", "started", "ended", "noise")
F = TypeVar("F", Ledgers, Audit, SearchRecord)
L = TypeVar("L", bound=TrainingRecord | UnrecordedTrainings | EvaluationRecord)
TRAINING_LINE: TypeAdapter[TrainingRecord | UnrecordedTrainings] = TypeAdapter(
    Annotated[
        Annotated[TrainingRecord, Tag("training")] | Annotated[UnrecordedTrainings, Tag("unrecorded")],
        Discriminator(lambda line: "unrecorded" if "trainings" in line else "training"),
    ]
)
EVALUATED_LINE = TypeAdapter(EvaluationRecord)


def run_path(row: str, root: Path = Path()) -> Path:
    """Path of a row's trainings: a line for each."""
    return root / TRAININGS / f"{row}.jsonl"


def evaluation_path(row: str, root: Path = Path()) -> Path:
    """Path of a row's measured accuracies: a line for each training."""
    return root / EVALUATIONS / f"{row}.jsonl"


def ledger_path(line: str, root: Path = Path()) -> Path:
    """Path of the ledgers of a row or an account."""
    return root / LEDGERS / f"{line}.json"


def audit_path(row: str, root: Path = Path(), final_models: bool = False) -> Path:
    """Path of the attacks on a row's code, or on its final models."""
    return root / AUDITS / ("models" if final_models else "") / f"{row}.json"


def read_audit(row: str, root: Path = Path(), final_models: bool = False) -> Audit | None:
    """Attacks on a row's code or final models; None: there is no file. Errors as in `read_search`."""
    return _read(audit_path(row, root, final_models), Audit)


def read_attacks(row: str, root: Path = Path()) -> tuple[Attack, ...]:
    """Attacks on a row's code and on its final models; errors as in `read_search`."""
    audits = (read_audit(row, root, final_models) for final_models in (False, True))
    return tuple(attack for audit in audits if audit for attack in audit.attacks)


def training_digest(
    model: Model,
    settings: MethodSettings,
    data: Mapping[str, str],
    made_by: Mapping[str, int],
    reproducible: bool,
) -> str:
    """Digest of everything that decides a training but its seed.

    ``data`` has the digest of each prepared array. ``made_by`` has the versions of 'method' and 'model'.
    """
    changed = settings.model_dump(mode="json", exclude_defaults=True)
    return digest_json(
        [
            model.essence,
            settings.method,
            changed,
            dict(data),
            made_by.get("method"),
            made_by.get("model"),
            reproducible,
        ]
    )


def search_path(name: str, root: Path = Path()) -> Path:
    """Path of a search's record."""
    return root / SEARCHES / f"{name}.json"


def search_checkpoints(name: str, root: Path = Path()) -> Path:
    """Folder of a search's checkpoints, one folder for each definition of the search."""
    return root / CHECKPOINTS / f"search-{name}"


def write(
    kept: RowTrainings | RowEvaluations | Ledgers | Audit | SearchRecord,
    root: Path = Path(),
    final_models: bool = False,
) -> Path:
    """Write a record and return its path. ``final_models``: whether an audit is of a row's final models."""
    if isinstance(kept, RowTrainings | RowEvaluations):
        target = (run_path if isinstance(kept, RowTrainings) else evaluation_path)(kept.row, root)
        write_text(target, "".join(f"{_line(each)}\n" for each in _lines(kept)))
        return target
    if isinstance(kept, SearchRecord):
        target = search_path(kept.name, root)
    elif isinstance(kept, Audit):
        target = audit_path(kept.row, root, final_models)
    else:
        target = ledger_path(kept.row, root)
    write_text(target, kept.model_dump_json(indent=1, exclude_defaults=True) + "\n")
    return target


def _lines(kept: RowTrainings | RowEvaluations) -> Iterator[RecordFile]:
    yield from kept.trainings
    for gone in kept.replaced if isinstance(kept, RowTrainings) else ():
        if isinstance(gone, TrainingRecord):
            yield gone.model_copy(update={"replaced": True})
        else:
            yield UnrecordedTrainings(row=kept.row, trainings=gone.trainings, spent=gone.spent)


def _line(line: RecordFile) -> str:
    return line.model_dump_json(exclude_defaults=True)


def read_run(row: str, root: Path = Path()) -> RowTrainings | None:
    """Trainings of a row; None: nothing was trained.

    Raises:
        UserError: a line is no training of this row, or two lines are the same one, as after a merge of two
            machines' results.
    """
    path = run_path(row, root)
    return parse_run(path, read_bytes(path)) if path.exists() else None


def require_run(row: str, root: Path = Path()) -> RowTrainings:
    """Trainings of a row. Errors as in `read_run`, and a UserError if nothing was trained."""
    if (run := read_run(row, root)) is None:
        raise UserError(f"{run_path(row, root)}: not there; run `dprepro train {row}` first")
    return run


def parse_run(path: Path, content: bytes) -> RowTrainings | None:
    """Trainings in the ``content`` of the file ``path``; None: none is a result. Errors: `read_run`."""
    lines = _of_row(path, parse_lines(path, content, TRAINING_LINE))
    here = {line.key: line for line in lines if isinstance(line, TrainingRecord) and not line.replaced}
    gone: list[TrainingRecord | Replaced] = []
    for line in lines:
        if isinstance(line, UnrecordedTrainings):
            gone.append(Replaced(trainings=line.trainings, spent=line.spent))
        elif line.replaced:
            gone.append(line)
        elif line != here[line.key]:
            raise UserError(
                f"{path}: two trainings of {line.level}, seed {line.seed}; allowed: one that is not "
                '"replaced": true'
            )
    return RowTrainings(row=path.stem, trainings=tuple(here.values()), replaced=tuple(gone)) if here else None


def read_evaluation(row: str, root: Path = Path()) -> RowEvaluations:
    """Measured accuracies of a row; none if there is no file.

    Raises:
        UserError: a line is no accuracy of this row, or two lines are of the same weights and differ.
    """
    path = evaluation_path(row, root)
    if not path.exists():
        return RowEvaluations(row=row)
    lines = _of_row(path, parse_lines(path, read_bytes(path), EVALUATED_LINE))
    measured = {line.key: line for line in lines}
    for line in lines:
        if line != measured[line.key]:
            raise UserError(f"{path}: {line.level}, seed {line.seed}: the same one twice; allowed: one line")
    return RowEvaluations(row=row, trainings=tuple(measured.values()))


def _of_row(path: Path, lines: Sequence[L]) -> Sequence[L]:
    for line in lines:
        if line.row != path.stem:
            raise UserError(f"{path}: not what `dprepro` writes: row: {line.row}; allowed: {path.stem}")
    return lines


def with_replaced(earlier: Iterable[Replaced], gone: Iterable[TrainingSpent | None]) -> tuple[Replaced, ...]:
    """Replaced trainings without records of their own: ``earlier`` ones, and those that spent ``gone``."""
    counts: Counter[TrainingSpent | None] = Counter()
    for each in earlier:
        counts[each.spent] += each.trainings
    counts.update(gone)
    return tuple(Replaced(trainings=number, spent=spent) for spent, number in counts.items())


def read_search(name: str, root: Path = Path()) -> SearchRecord | None:
    """Record of a search; None: there is no file.

    Raises:
        UserError: the file is there but is no record of this search.
    """
    return _read(search_path(name, root), SearchRecord)


def search_records(root: Path = Path()) -> Iterator[SearchRecord]:
    """Records of all searches that ran, declared in params.yaml or not. Errors as in `read_search`."""
    for path in sorted((root / SEARCHES).glob("*.json")):
        if record := read_search(path.stem, root):
            yield record


def searches_of(root: Path = Path()) -> dict[str, list[str]]:
    """Names of the searches whose records name a row, by row; the row itself may name no search."""
    names: dict[str, list[str]] = {}
    for record in search_records(root):
        names.setdefault(record.row, []).append(record.name)
    return names


def row_searches(row: str, own: str | None, root: Path = Path()) -> list[str]:
    """Names of a row's ``own`` search and of each search whose record names the row."""
    return sorted({*searches_of(root).get(row, ()), *([own] if own else [])})


def definition_of(name: str, settings: Settings, source: Provenance) -> str:
    """Digest of everything that decides the candidates' results; ``source``: provenance of the trainings.

    Settings at their default don't count, so that a new setting invalidates no search, whose candidates would
    be trained and spent again.
    """
    definition, row = settings.searches[name], settings.row(settings.searches[name].row)
    # the row's settings are left out, because they include this search's own choice once it is recorded
    decisive: list[Any] = [definition.row, definition.seeds, row.model.essence, row.method]
    decisive += [row.reproducible, source.made_by, source.data]
    tried = [
        [row.level(configured), configured.model_dump(mode="json", exclude_defaults=True)]
        for _, configured in settings.candidates(name)
    ]
    return digest_json([decisive, tried])


def read_ledgers(line: str, root: Path = Path()) -> Ledgers | None:
    """Ledgers of a row or an account; None: there is no file. Errors as in `read_search`."""
    return _read(ledger_path(line, root), Ledgers)


def read(key: str, line: Row | Account, root: Path = Path()) -> Record | None:
    """Joined record of the row or account ``key``, with all trained, measured and accounted trainings.

    None: there is no such training.

    Raises:
        UserError: a file has another form, or belongs to another run.
    """
    ledgers = read_ledgers(key, root)
    if ledgers is None:
        return None
    called: dict[str, Any] = {"row": key, "paper": line.paper, "table": line.table, "label": line.label}
    run = read_run(key, root)
    if run is None:
        return None if isinstance(line, Row) else _account(called, ledgers, ledger_path(key, root))
    if not isinstance(line, Row):
        raise UserError(f"{run_path(key, root)}: {key} is an account, which leaves no run; delete the file")
    all_attacks = read_attacks(key, root)
    measured = read_evaluation(key, root).by_key
    trainings, origins = [], run.origins
    for training in run.trainings:
        ledger, accuracies = ledgers.by_training.get(training.key), measured.get(training.key)
        if ledger is None or accuracies is None or accuracies.weights != training.weights:
            continue
        if _accounts_for_another(ledger, training):
            raise UserError(
                f"{ledger_path(key, root)}: {training.level}, seed {training.seed}: accounts for another "
                f"training than {run_path(key, root)} says; run `dprepro ledger {key}`"
            )
        on_level = tuple(attack for attack in all_attacks if attack.level == training.level)
        stale = [attack for attack in on_level if _attacks_another(attack, line, training, ledger)]
        attacks = tuple(attack for attack in on_level if attack not in stale)
        if any(attack.attack == FINAL_MODEL for attack in stale):  # their results stay published
            uses = (*ledger.not_covered, statement("model_audit"))
            ledger = ledger.model_copy(update={"not_covered": uses})
        trainings.append(
            TrainingResult(
                **{name: getattr(training, name) for name in FROM_TRAINING},
                **{name: getattr(accuracies, name) for name in ("metrics", "scores", "measured_by")},
                origin=origins.index(training.origin),
                ledger=ledger,
                attacks=attacks,
            )
        )
    if not trainings:
        return None
    return Record(
        **called,
        data=run.data,
        model=run.model,
        method=run.method,
        budget=line.budget,
        search=line.search,
        trainings=tuple(trainings),
        history=digest_file(run_path(key, root)),
        origins=origins,
        composition=ledgers.composition,
    )


def _accounts_for_another(ledger: Ledger, training: TrainingRecord) -> bool:
    """Return True if a ledger has other steps, noise or sampling than a training, or an impossible bound."""
    if training.spending is None:
        return ledger.steps != training.steps or ledger.epsilon_upper is not None
    if (ledger.noise, ledger.isolation) != (training.noise, training.isolation):
        return True
    if ledger.epsilon_upper is not None and (training.broken or training.origin.reproducible):
        return True
    if isinstance(training.spending, Releases):
        return ledger.steps != training.steps
    accounted = (ledger.steps, ledger.delta, ledger.noise_multiplier, ledger.sampling_rate)
    return accounted != (
        training.steps,
        training.delta,
        training.spending.noise_multiplier,
        training.spending.rate,
    )


def _attacks_another(attack: Attack, row: Row, training: TrainingRecord, ledger: Ledger) -> bool:
    """Return True if an attack is on another training than that of ``training``.

    An attack on code is compared with the ledger if it is on a whole training with Gaussian noise. Laplace
    noise may have drawn scales.
    """
    if attack.attack != FINAL_MODEL:
        other = (attack.event, attack.delta) != (ledger.event, ledger.delta)
        return attack.whole and ledger.sampling_rate is not None and other
    made = training.origin
    try:
        settings = type(row.resolved[0]).recorded(training.settings)
        model = Model.model_validate(training.model)
    except ValidationError:  # params.yaml has another method by now
        return True
    if settings.method != training.method:
        return True
    return attack.training != training_digest(model, settings, made.data, made.made_by, made.reproducible)


def _account(called: dict[str, Any], ledgers: Ledgers, path: Path) -> Record:
    """Record of an account, which has settings and ledgers but no training."""
    trainings = tuple(
        TrainingResult(
            level=entry.level, seed=seed, settings=entry.settings, metrics=entry.metrics, ledger=entry.ledger
        )
        for entry in ledgers.entries
        for seed in entry.seeds
    )
    examples = trainings[0].settings.get("examples") if trainings else None
    if not isinstance(examples, int) or examples < 1:
        raise UserError(f"{path}: not an account's; run `dprepro account {ledgers.row}`")
    made = Provenance(
        config=ledgers.config,
        made_by={},
        revision=None,
        dirty=None,
        data={},
        examples=examples,
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
        trainings=trainings,
        history=None,
        origins=(made,),
    )


def _read(path: Path, kind: type[F]) -> F | None:
    if not path.exists():
        return None
    kept = read_record(path, kind)
    field, name = ("name", kept.name) if isinstance(kept, SearchRecord) else ("row", kept.row)
    if name != path.stem:
        raise UserError(f"{path}: not what `dprepro` writes: {field}: {name}; allowed: {path.stem}")
    return kept


def unmeasured(key: str) -> list[str]:
    """Levels and seeds of a row's trainings whose present weights have no measured accuracies."""
    run, measured = read_run(key), read_evaluation(key).by_key
    return [
        f"{trained.level}, seed {trained.seed}"
        for trained in (run.trainings if run else ())
        if trained.key not in measured or measured[trained.key].weights != trained.weights
    ]


def check_measured(run: RowTrainings, measured: Mapping[TrainingKey, EvaluationRecord]) -> None:
    """Compare a row's accuracies with its weights, with its curves and with the recorded errors of the test.

    Raises:
        UserError: a training differs, or has no accuracies.
    """
    for training in run.trainings:
        found = measured.get(training.key)
        problem: str | None = "accuracies of other weights than ran, or missing"
        if found is not None and found.weights == training.weights:
            problem = _curve_difference(found, training) or _errors_difference(found)
        if problem:
            name = f"{training.level}, seed {training.seed}"
            raise UserError(f"{evaluation_path(run.row)}: {name}: {problem}")


def _curve_difference(measured: EvaluationRecord, trained: TrainingRecord) -> str | None:
    """Message if the validation accuracy isn't its curve's last value, which is of the same weights."""
    value, curve = measured.metrics.get(ACCURACY), trained.curves.get(ACCURACY)
    if not curve:
        return None
    if value is None:
        return f"{ACCURACY} is missing"
    *_, end = curve[-1]
    tolerance = REDRAWN if "test_accuracy_draws_std" in measured.metrics else ROUNDING
    if isclose(value, end, abs_tol=tolerance):
        return None
    return f"{ACCURACY} is {value:g}, and its training curve ends at {end:g}"


def _errors_difference(measured: EvaluationRecord) -> str | None:
    """Message if the test accuracy isn't the share of right predictions, where these are recorded."""
    if measured.test_errors is None:
        return None
    try:
        share = float((errors_of(measured.test_errors) == 0).mean())
    except ValueError as problem:
        return f"test_accuracy: {problem}"
    recorded = measured.metrics["test_accuracy"]
    if isclose(share, recorded, abs_tol=1e-9):
        return None
    return f"test_accuracy: is {recorded:g}, and its predictions reach {share:g}"


def packed(predicted: np.ndarray, labels: np.ndarray, classes: int) -> str | None:
    """Wrong predictions of a network on the test split, as text.

    It has (predicted - right) mod classes of each test example; 0 is a right prediction. So accuracies and
    paired differences of two networks need neither weights nor data, and the predicted classes need only the
    test labels.

    Args:
        predicted: (N,) predicted classes.
        labels: (N,) classes.
        classes: number of classes; with too many for a byte each, the result is None.
    """
    if classes > MOST_CLASSES:
        return None
    errors = ((predicted.astype(np.int64) - labels) % classes).astype(np.uint8)
    return base64.b64encode(zlib.compress(errors.tobytes(), 9)).decode()


def errors_of(text: str) -> np.ndarray:
    """(N,) uint8: the errors that `packed` packed; 0 where the prediction is right.

    Raises:
        ValueError: it is no such text.
    """
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(base64.b64decode(text, validate=True), MOST_EXAMPLES)
    except (binascii.Error, zlib.error) as problem:
        raise ValueError(f"not packed errors: {problem}") from problem
    if not stream.eof or not content:
        raise ValueError("not packed errors: incomplete, empty or too large")
    return np.frombuffer(content, np.uint8)
