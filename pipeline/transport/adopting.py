"""Take in the replicas of a pack that were made from the settings, data and versions that there are here.

DVC signs whatever lies in the workspace, so the checks made here are all that stands between a record and
numbers made from something else. Replicas that stand here already stay; ledgers are computed anew.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.data import prepared
from pipeline.errors import UserError
from pipeline.files import Damaged, beside, check_file, digest_file, place, write_bytes, write_text, writing
from pipeline.identity.plan import lacks
from pipeline.identity.standing import Standing, measured_otherwise
from pipeline.ledgers.declared import contradictions
from pipeline.ledgers.rows import row_ledgers
from pipeline.params import Settings
from pipeline.results import records
from pipeline.results.histories import history_csv, read_history
from pipeline.results.schema import Evaluated, Evaluation, ReplicaKey, Trained
from pipeline.results.weights import weights_path
from pipeline.transport import archive, dvclock

STAGING = Path(".dprepro")


@dataclass(frozen=True)
class Adopted:
    """A row taken in, and what the person should know about it."""

    row: str
    replicas: int  # that were taken in
    notes: tuple[str, ...]


def adopt(settings: Settings, source: Path) -> list[Adopted]:
    """Check every row of a pack against this checkout, place them all, and have DVC sign whole ones.

    A row whose other replicas are still to be trained is not signed: DVC would take it for done.

    Raises:
        UserError: a file is damaged, or settings, data or versions differ; nothing has then been placed.
    """
    with _staging() as staged:
        packed = archive.read(source, staged).rows
        origin = f"{source.name} ({digest_file(source)})"
        merged = [_merged(settings, row, staged, origin) for row in packed]
        _place(staged / "merged", [part for each in merged for part in each.parts])
    whole = [row for row in packed if not lacks(settings, row)]
    signed = dvclock.sign(settings, [stage for row in whole for stage in dvclock.stages_of(row)])
    notes = {row: _notes(settings, row, signed, row in whole, packed[row].weights) for row in packed}
    return [Adopted(each.row, each.taken, tuple(notes[each.row])) for each in merged]


@dataclass(frozen=True)
class _Merged:
    """A row as it will be, staged."""

    row: str
    taken: int
    parts: tuple[Path, ...]


@contextmanager
def _staging() -> Iterator[Path]:
    """A folder on the disk of the results, so that placing them is renaming."""
    with writing(STAGING):
        STAGING.mkdir(exist_ok=True)
        folder = beside(STAGING / "adopt")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _merged(settings: Settings, row: str, staged: Path, origin: str) -> _Merged:
    """Stage the row with its replicas of here and there under ``merged``.

    Raises:
        UserError: nothing of it was made from what is here, or the pack contradicts itself.
    """
    there, evaluation = records.read_run(row, staged), records.read_evaluation(row, staged)
    declared = settings.row(row)
    if there is None or evaluation is None:
        raise UserError(f"{row}: not adopted: the pack lacks what ran, or what was measured")
    try:
        check_file(records.history_path(row, staged), there.history)
    except Damaged as problem:
        raise UserError(f"{row}: not adopted: its training curves belong to another run") from problem
    here = records.read_run(row)
    stands = Standing.here(row, settings)
    wrong = {why for replica in there.replicas if (why := stands.why_not(there, replica))}
    if any(measured_otherwise(replica) for replica in evaluation.replicas):
        wrong.add("measuring version")
    if wrong:
        raise UserError(f"{row}: not adopted: made from other {', '.join(sorted(wrong))}")
    measured = {replica.key: replica for replica in evaluation.replicas}
    for replica in there.replicas:
        if there.origin(replica).examples != settings.split(declared.data).train:
            raise UserError(f"{row}: not adopted: trained on another number of examples")
        _check(row, replica, measured, staged)
    if differing := next(contradictions(there, settings), None):
        replica, what = differing
        raise UserError(
            f"{row}: not adopted: {replica.level}, seed {replica.seed}: {what}: not what its settings come to"
        )
    keep = stands.of(here)
    names = {replica.key for replica in keep}
    new = [replica for replica in there.replicas if replica.key not in names]
    target = staged / "merged"
    taken = {replica.key for replica in new}
    lines = [line for line in read_history(records.history_path(row)) if line[:2] in names] if here else []
    lines += [line for line in read_history(records.history_path(row, staged)) if line[:2] in taken]
    history = records.history_path(row, target)
    write_text(history, history_csv(lines))
    made = {replica.key: (replica, here.origin(replica)) for replica in keep} if here else {}
    for replica in new:
        made[replica.key] = (replica, there.origin(replica).model_copy(update={"adopted": origin}))
    order = [(declared.level(level), seed) for level, seed in declared.trainings]
    replicas, origins = records.with_origins(made[key] for key in order if key in made)
    gone = [here.spent(replica) for replica in here.replicas if replica.key not in names] if here else []
    past = [run.replaced for run in (here, there) if run]
    run = there.model_copy(
        update={
            "replicas": replicas,
            "origins": origins,
            "history": digest_file(history),
            "replaced": records.with_replaced(past, gone),
        }
    )
    records.write(run, target)
    before = records.read_evaluation(row)
    known = {replica.key: replica for replica in before.replicas} if before else {}
    known = {key: known[key] for key in names if key in known} | {key: measured[key] for key in taken}
    ordered = tuple(known[key] for key in order if key in known)
    records.write(Evaluation(row=row, replicas=ordered), target)
    if declared.search is not None and (searched := records.search_path(declared.search)).exists():
        write_bytes(target / searched, searched.read_bytes())  # a row's ledger tells of its search
    row_ledgers(row, settings, target)
    parts = []
    for replica in new:
        path = weights_path(row, *replica.key)
        if (staged / path).exists():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (staged / path).rename(target / path)
            parts.append(path)
    # the run last: it vouches for the others
    texts = (records.history_path, records.evaluation_path, records.ledger_path, records.run_path)
    return _Merged(row, len(new), (*parts, *(path(row) for path in texts)))


def _check(row: str, replica: Trained, measured: dict[ReplicaKey, Evaluated], staged: Path) -> None:
    """Refuse a replica that was not measured with its weights, or came with others."""
    where = f"{row}: not adopted: {replica.level}, seed {replica.seed}"
    if replica.key not in measured or measured[replica.key].weights != replica.weights:
        raise UserError(f"{where}: was not measured with the weights that it says")
    path = weights_path(row, *replica.key, staged)
    try:
        if path.exists():
            check_file(path, replica.weights)
    except Damaged as problem:
        raise UserError(f"{where}: its weights are not the ones that were trained") from problem


def _place(staged: Path, parts: list[Path]) -> None:
    """Move all parts to where they belong, or none. What was there stays until what replaces it is there."""
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


def _notes(settings: Settings, row: str, signed: bool, whole: bool, weights: bool) -> Iterator[str]:
    """What whoever adopted ``row`` should know."""
    name = settings.rows[row].data
    if prepared.manifest_here(name) is None:
        yield f"data {name!r} is not prepared here and could not be compared"
    if not signed:
        yield "there is no DVC pipeline here: nothing is signed, and `dvc repro` will train it again"
    elif not whole:
        yield "other replicas are still to be trained: it is not signed, and `dvc repro` will train them"
    if not weights:
        yield "came without weights: it can't be evaluated again until it is trained again"
