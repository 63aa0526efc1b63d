"""Import of a pack's replicas whose settings, data and versions are those of this checkout.

DVC accepts any file of the workspace as a result, so only these checks keep out results of other settings,
data or versions. Valid replicas here are kept; the pack's replicas of the same level and seed count as
replaced trainings. Ledgers are computed anew.
"""

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dprepro.errors import UserError
from dprepro.pipeline.data import prepared
from dprepro.pipeline.files import (
    clear_leftovers,
    digest_file,
    place,
    temporary_path,
    write_bytes,
    write_text,
    writing,
)
from dprepro.pipeline.identity.plan import lacks
from dprepro.pipeline.identity.standing import Standing, measured_otherwise
from dprepro.pipeline.ledgers.declared import contradictions
from dprepro.pipeline.ledgers.rows import row_ledgers
from dprepro.pipeline.methods.rooms import method_settings
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting.vocabulary import words
from dprepro.pipeline.results import records
from dprepro.pipeline.results.histories import Line, curve_difference, history_csv, read_history
from dprepro.pipeline.results.schema import Evaluated, Evaluation, Replaced, ReplicaKey, Run, Trained
from dprepro.pipeline.results.weights import weights_path
from dprepro.pipeline.training.checkpoints import CHECKPOINTS, checkpoint_lock
from dprepro.pipeline.training.not_covered import RELEVANCES, data_uses, declared_uses
from dprepro.pipeline.transport import archive, dvclock
from dprepro.pipeline.transport.networks import check_network

STAGING = Path(".dprepro")


@dataclass(frozen=True)
class Adopted:
    """Result of adopting one row."""

    row: str
    replicas: int  # taken from the pack
    packed: int  # replicas of the pack
    notes: tuple[str, ...]


def adopt(settings: Settings, source: Path) -> list[Adopted]:
    """Check all rows of a pack against this checkout, place their files, and sign complete rows in dvc.lock.

    A row with missing replicas is not signed (`dvclock.sign`): DVC would treat a signed row as complete.

    Raises:
        UserError: a file is damaged, settings, data or versions differ, or a row is being trained here. Then
            no file has been placed.
    """
    with _staging() as staged, ExitStack() as locks:
        packed = archive.read(source, staged).rows
        for row in packed:  # otherwise a training that ends now would be missing in the merged record
            settings.row(row)  # raises for an unknown row
            locks.enter_context(checkpoint_lock(CHECKPOINTS / row))
        origin = f"{source.name} ({digest_file(source)})"
        searches = _searches(staged)
        merged = [_merged(settings, row, staged, origin) for row in packed]
        _place(staged / "merged", [*searches, *(part for _, parts in merged for part in parts)])
    whole = [row for row in packed if not lacks(settings, row)]
    signed = dvclock.sign(settings, [stage for row in whole for stage in dvclock.stages_of(row)])
    notes = {row: _notes(settings, row, signed, row in whole, packed[row].weights) for row in packed}
    return [replace(each, notes=(*each.notes, *notes[each.row])) for each, _ in merged]


@contextmanager
def _staging() -> Iterator[Path]:
    """Yield a temporary folder on the disk of the results, so that files are placed by renaming."""
    with writing(STAGING):
        STAGING.mkdir(exist_ok=True)
        clear_leftovers(STAGING / "adopt")
        folder = temporary_path(STAGING / "adopt")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _subject(name: str) -> Iterator[None]:
    """Put ``name`` before the message of a `UserError` in the block."""
    try:
        yield
    except UserError as problem:
        raise UserError(f"{name}: {problem}") from problem


def _searches(staged: Path) -> list[Path]:
    """Write the searches that this checkout lacks to ``staged``/merged, and return their paths.

    Raises:
        UserError: a file is no record of a search, or this checkout has another record of it.
    """
    lacking = []
    for file in sorted((staged / records.SEARCHES).glob("*.json")):
        path, content = file.relative_to(staged), file.read_bytes()
        records.read_search(file.stem, staged)  # raises for another form
        if not path.exists():
            write_bytes(staged / "merged" / path, content)
            lacking.append(path)
        elif path.read_bytes() != content:
            raise UserError(
                f"{path}: the pack has another record of this search, whose trainings no ledger here would "
                "count; allowed: the same file there and here"
            )
    return lacking


def _merged(settings: Settings, row: str, staged: Path, origin: str) -> tuple[Adopted, list[Path]]:
    """Merge the row's replicas of this checkout and of the pack ``origin``; write them to ``staged``/merged.

    Return the written files too. The notes are lines about replicas of the pack that are not imported.

    Raises:
        UserError: a replica was made from other settings, data or versions, or the pack contradicts itself.
    """
    declared, stands, here = settings.row(row), Standing.here(row, settings), records.read_run(row)
    there, evaluation = records.read_run(row, staged), records.read_evaluation(row, staged)
    assert there is not None, "a pack has it"
    assert evaluation is not None, "a pack has it"
    measured = {replica.key: replica for replica in evaluation.replicas}
    with _subject(f"{row}: not adopted"):
        if digest_file(records.history_path(row, staged)) != there.history:
            raise UserError("its training curves belong to another run")
        curves = read_history(records.history_path(row, staged))
        wrong = {why for replica in there.replicas if (why := stands.why_not(there, replica))}
        if any(measured_otherwise(replica) for replica in evaluation.replicas):
            wrong.add("measuring version")
        if wrong:
            raise UserError(f"made from other {', '.join(sorted(wrong))}")
        if any(origin.examples != settings.split(declared.data).train for origin in there.origins):
            raise UserError("trained on another number of examples")
        for replica, what in contradictions(there, settings):
            name = f"{replica.level}, seed {replica.seed}"
            raise UserError(f"{name}: {what}: not what its settings come to")
        _check_replicas(row, there, measured, curves, settings, staged)
    keep = stands.of(here)
    names = {replica.key for replica in keep}
    new = [replica for replica in there.replicas if replica.key not in names]
    target = staged / "merged"
    taken = {replica.key for replica in new}
    lines = [line for line in read_history(records.history_path(row)) if line[:2] in names] if here else []
    lines += [line for line in curves if line[:2] in taken]
    history = records.history_path(row, target)
    write_text(history, history_csv(lines))
    made = {replica.key: (replica, here.origin(replica)) for replica in keep} if here else {}
    for replica in new:
        made[replica.key] = (replica, there.origin(replica).model_copy(update={"adopted": origin}))
    order = [(declared.level(level), seed) for level, seed in declared.trainings]
    replicas, origins = records.with_origins(made[key] for key in order if key in made)
    changes = {
        "replicas": replicas,
        "origins": origins,
        "history": digest_file(history),
        "replaced": _replaced(here, there, {replica.identity for replica in replicas}),
        "replaced_on": tuple(sorted({*there.replaced_on, *records.replaced_on(here, there.origins[0])})),
    }
    records.write(there.model_copy(update=changes), target)
    before = records.read_evaluation(row)
    known = {replica.key: replica for replica in before.replicas if replica.key in names} if before else {}
    known |= {key: measured[key] for key in taken}
    ordered = tuple(known[key] for key in order if key in known)
    records.write(Evaluation(row=row, replicas=ordered), target)
    # a row's ledger also composes the searches whose records name the row
    for path in records.SEARCHES.glob("*.json"):
        write_bytes(target / path, path.read_bytes())
    row_ledgers(row, settings, target)
    weights = [path for each in new if (staged / (path := weights_path(row, *each.key))).exists()]
    for path in weights:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (staged / path).rename(target / path)
    # the run last, because it has the digests of the others
    texts = (records.history_path, records.evaluation_path, records.ledger_path, records.run_path)
    kept = tuple(_kept_line(there, replica, keep) for replica in there.replicas if replica.key in names)
    parts = [*weights, *(path(row) for path in texts)]
    return Adopted(row, len(new), len(there.replicas), kept), parts


def _kept_line(there: Run, replica: Trained, standing: Iterable[Trained]) -> str:
    """Line about a replica of the pack that is not imported, because this checkout has a valid one."""
    name = f"{replica.level}, seed {replica.seed}"
    if replica.identity in {here.identity for here in standing}:
        return f"{name}: here already"
    ended = datetime.fromtimestamp(replica.ended, UTC).date()
    return (
        f"{name}: kept the one of here, which stands; the pack's is another training, ended {ended} on "
        f"{there.origin(replica).device}, whose spending counts as that of a replaced one"
    )


def _replaced(here: Run | None, there: Run, standing: Collection[str]) -> tuple[Replaced, ...]:
    """Replaced trainings of the merged record: those of both records, and replicas that the merge leaves out.

    ``standing``: identities of the merged replicas. Replaced trainings without identities are summed. But if
    all replicas of the pack are known here, the pack was adopted before or was made from this record; then
    its trainings without identities count only as far as they are more than those here.
    """
    runs = [here, there] if here else [there]
    gone = [
        (replica.identity, run.spent(replica))
        for run in runs
        for replica in run.replicas
        if replica.identity not in standing
    ]
    known = {replica.identity for replica in here.replicas} if here else set()
    known |= {identity for each in here.replaced for identity in each.identities} if here else set()
    earlier = [*here.replaced] if here else []
    if all(replica.identity in known for replica in there.replicas):
        gone += [(identity, each.spent) for each in there.replaced for identity in each.identities]
        counted = {each.spent: each.trainings - len(each.identities) for each in earlier}
        for each in there.replaced:
            if (more := each.trainings - len(each.identities) - counted.get(each.spent, 0)) > 0:
                earlier.append(Replaced(trainings=more, spent=each.spent))
    else:
        earlier += there.replaced
    return records.with_replaced(earlier, gone, standing)


def _check_replicas(
    row: str,
    there: Run,
    measured: dict[ReplicaKey, Evaluated],
    curves: list[Line],
    settings: Settings,
    staged: Path,
) -> None:
    """Compare each replica's evaluation, training curve and weights with its run.

    Raises:
        UserError: the files contradict each other, or the weights are not those of the row's network.
    """
    digests: dict[str, ReplicaKey] = {}
    for replica in there.replicas:
        with _subject(f"{replica.level}, seed {replica.seed}"):
            found = measured.get(replica.key)
            if found is None or found.weights != replica.weights:
                raise UserError("was not measured with the weights that it says")
            first = (
                replica.key if replica.weights is None else digests.setdefault(replica.weights, replica.key)
            )
            if first != replica.key:
                raise UserError(f"has the weights of {first[0]}, seed {first[1]}")
            if difference := curve_difference(found, curves):
                raise UserError(difference)
            _check_statements(replica, there, settings)
            path = weights_path(row, *replica.key, staged)
            if path.exists():
                if digest_file(path) != replica.weights:
                    raise UserError("its weights are not the ones that were trained")
                check_network(path, replica, there, settings)


def _check_statements(replica: Trained, there: Run, settings: Settings) -> None:
    """Compare a replica's statements on private data with those that its settings and data require.

    Raises:
        UserError: a statement is missing or unknown.
    """
    config = method_settings()[there.method].recorded(replica.settings)
    weights = settings.row(there.row).model.network
    if prepared.manifest_here(there.data) is None:
        expected = declared_uses(there.data, config, settings, weights)
    else:
        expected = {use.key for use in data_uses(prepared.load(there.data), config, weights)}
    recorded = {use.key for use in replica.not_covered}
    missing = expected - recorded
    if missing and not (missing < RELEVANCES):  # params.yaml alone requires both; a replica has one
        raise UserError(f"not_covered lacks {min(missing)!r}: not what its settings come to")
    for statement in (*replica.broken, *replica.not_covered, *filter(None, [replica.protects])):
        words(statement)


def _place(staged: Path, parts: list[Path]) -> None:
    """Move all staged files to their places. After an error, the old files are in place again."""
    with ExitStack() as undo:
        for part in parts:
            part.parent.mkdir(parents=True, exist_ok=True)
            if part.exists():
                old = staged / "replaced" / part
                old.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(part, old)
                undo.callback(os.replace, old, part)
            else:
                undo.callback(part.unlink, missing_ok=True)
            place(staged / part, part)
        undo.pop_all()


def _notes(settings: Settings, row: str, signed: frozenset[str], whole: bool, weights: bool) -> Iterator[str]:
    """Remarks on an adopted row. ``whole``: no replica is missing. ``weights``: the pack has weights."""
    name = settings.rows[row].data
    if prepared.manifest_here(name) is None:
        yield f"data {name!r} is not prepared here and could not be compared"
    if not dvclock.available():
        yield "there is no DVC pipeline here: nothing is signed, and `dvc repro` will train it again"
    elif not whole:
        yield "other replicas are still to be trained: it is not signed, and `dvc repro` will train them"
    elif not signed.issuperset(dvclock.stages_of(row)):
        folder = (prepared.PREPARED / name).as_posix()
        yield (
            f"{dvclock.LOCK} has no hash of {folder}: it is not signed, and `dvc repro` will train it again; "
            "prepare the data and adopt it again"
        )
    if not weights:
        yield "came without weights: it can't be evaluated again until it is trained again"
