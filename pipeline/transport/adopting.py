"""Import of a pack's trainings whose settings, data and versions are those of this checkout.

DVC accepts any file of the workspace as a result, so only these checks keep out results of other settings,
data or versions. Valid trainings here are kept; the pack's trainings of the same level and seed count as
replaced trainings. Ledgers are computed anew.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dprepro.errors import UserError
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.declaration import data_here
from dprepro.pipeline.files import (
    clear_leftovers,
    digest_file,
    place,
    temporary_path,
    write_bytes,
    writing,
)
from dprepro.pipeline.identity.frozen import frozen_changed, valid_trainings
from dprepro.pipeline.identity.plan import lacks
from dprepro.pipeline.identity.validity import reason_invalid, reason_unmeasured
from dprepro.pipeline.ledgers.compared import check_search
from dprepro.pipeline.ledgers.declared import contradictions
from dprepro.pipeline.ledgers.rows import row_ledgers
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.methods.spending import RELEVANCES
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting.wording import words
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import (
    Replaced,
    RowEvaluations,
    RowTrainings,
    TrainingRecord,
)
from dprepro.pipeline.results.weights import RUNS, repeated, weights_path
from dprepro.pipeline.training.checkpoints import checkpoint_lock
from dprepro.pipeline.training.not_covered import data_uses, declared_uses
from dprepro.pipeline.transport import archive, dvclock
from dprepro.pipeline.transport.networks import check_network

STAGING = Path(".dprepro")


@dataclass(frozen=True)
class Adopted:
    """Result of adopting one row."""

    row: str
    trainings: int  # taken from the pack
    packed: int  # trainings of the pack
    notes: tuple[str, ...]


def adopt(settings: Settings, source: Path) -> list[Adopted]:
    """Check all rows of a pack against this checkout, place their files, and sign complete rows in dvc.lock.

    A row with missing trainings is not signed (`dvclock.sign`): DVC would treat a signed row as complete.

    Raises:
        UserError: a file is damaged, settings, data or versions differ, or a row is being trained here. Then
            no file has been placed.
    """
    with _staging(source) as staged, ExitStack() as locks:
        packed = archive.unpack(source, settings, staged)
        for row in packed:  # otherwise a training that ends now would be missing in the merged record
            settings.row(row)  # raises for an unknown row
            locks.enter_context(checkpoint_lock(records.CHECKPOINTS / row))
        weights = {row: (staged / RUNS / row).exists() for row in packed}
        origin = f"{source.name} ({digest_file(source)})"
        searches = _searches(staged)
        merged = [_merged(settings, row, staged, origin) for row in packed]
        for record in records.search_records(staged):
            with _subject(f"{records.search_path(record.name)}: not adopted"):
                if record.name in settings.searches:
                    check_search(record, settings)
        _place(staged / "merged", [*searches, *(part for _, parts in merged for part in parts)])
    complete = [row for row in packed if not lacks(settings, row)]
    signed = dvclock.sign(settings, [stage for row in complete for stage in dvclock.stages_of(row)])
    notes = {row: _notes(settings, row, signed, row in complete, weights[row]) for row in packed}
    return [replace(each, notes=(*each.notes, *notes[each.row])) for each, _ in merged]


@contextmanager
def _staging(source: Path) -> Iterator[Path]:
    """Yield a temporary folder on the disk of the results, so that files are placed by renaming.

    Errors name the pack ``source`` and not this folder.
    """
    with writing(STAGING):
        STAGING.mkdir(exist_ok=True)
        clear_leftovers(STAGING / "adopt")
        folder = temporary_path(STAGING / "adopt")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        except UserError as problem:
            raise UserError(str(problem).replace(f"{folder}/", f"{source}: ")) from problem
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
    """Merge the row's trainings of this checkout and of the pack ``origin``; write them to ``staged``/merged.

    Return the written files too. The notes are lines about trainings of the pack that are not imported.

    Raises:
        UserError: a training was made from other settings, data or versions, or the pack contradicts itself.
    """
    declared, data, here = settings.row(row), data_here(row, settings), records.read_run(row)
    incoming, measured = records.read_run(row, staged), records.read_evaluation(row, staged).by_key
    with _subject(f"{row}: not adopted"):
        if incoming is None:
            raise UserError("all of its trainings are replaced ones")
        wrong = {
            why
            for each in incoming.trainings
            if (why := reason_invalid(each, declared, data, frozen_changed))
        }
        unmeasured = {reason_unmeasured(measured.get(each.key), each) for each in incoming.trainings}
        wrong |= {why for why in unmeasured if why == "measuring version"}
        if wrong:
            raise UserError(f"made from other {', '.join(sorted(wrong))}")
        if any(each.origin.examples != settings.split(declared.data).train for each in incoming.trainings):
            raise UserError("trained on another number of examples")
        for training, what in contradictions(incoming, settings):
            name = f"{training.level}, seed {training.seed}"
            raise UserError(f"{name}: {what}: not what its settings come to")
        records.check_measured(incoming, measured)
        for training in incoming.trainings:
            with _subject(f"{training.level}, seed {training.seed}"):
                _check_statements(training, settings)
                if (path := weights_path(row, *training.key, staged)).exists():
                    if digest_file(path) != training.weights:
                        raise UserError("its weights are not the ones that were trained")
                    check_network(path, training, settings)
        if twins := repeated(incoming.trainings, staged):
            raise UserError(twins)
    keep = valid_trainings(here, declared, data)
    new = [each for each in incoming.trainings if each.key not in keep]
    made = keep | {
        each.key: each.model_copy(update={"origin": each.origin.model_copy(update={"adopted": origin})})
        for each in new
    }
    order = [(declared.level(level), seed) for level, seed in declared.trainings]
    trainings = tuple(made[key] for key in order if key in made)
    target = staged / "merged"
    records.write(
        RowTrainings(row=row, trainings=trainings, replaced=_replaced(here, incoming, trainings)), target
    )
    known = {key: each for key, each in records.read_evaluation(row).by_key.items() if key in keep}
    known |= {each.key: measured[each.key] for each in new}
    records.write(
        RowEvaluations(row=row, trainings=tuple(known[key] for key in order if key in known)), target
    )
    # a row's ledger also composes the searches whose records name the row
    for path in records.SEARCHES.glob("*.json"):
        write_bytes(target / path, path.read_bytes())
    row_ledgers(row, settings, target)
    weights = [path for each in new if (staged / (path := weights_path(row, *each.key))).exists()]
    for path in weights:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (staged / path).rename(target / path)
    # the trainings last, because they have the digests of the weights
    texts = (records.evaluation_path, records.ledger_path, records.run_path)
    kept = tuple(_kept_line(each, keep[each.key]) for each in incoming.trainings if each.key in keep)
    parts = [*weights, *(path(row) for path in texts)]
    return Adopted(row, len(new), len(incoming.trainings), kept), parts


def _kept_line(incoming: TrainingRecord, here: TrainingRecord) -> str:
    """Line about a training of the pack that is not imported, because this checkout has a valid one."""
    name = f"{incoming.level}, seed {incoming.seed}"
    if incoming.identity == here.identity:
        return f"{name}: here already"
    ended = datetime.fromtimestamp(incoming.ended, UTC).date()
    return (
        f"{name}: kept the one of here, which stands; the pack's is another training, ended {ended} on "
        f"{incoming.origin.device}, whose spending counts as that of a replaced one"
    )


def _replaced(
    here: RowTrainings | None, incoming: RowTrainings, standing: Iterable[TrainingRecord]
) -> tuple[TrainingRecord | Replaced, ...]:
    """Replaced trainings of the merged record: those of both records, and those that the merge leaves out.

    Trainings without a line of their own are summed. But if all lines of the pack are known here, the pack
    was adopted before or was made from this record; then these count only as far as they are more than here.
    """
    runs = [here, incoming] if here else [incoming]
    lines = {
        each.identity: each
        for run in runs
        for each in (*run.trainings, *run.replaced)
        if isinstance(each, TrainingRecord)
    }
    for each in standing:
        lines.pop(each.identity, None)
    mine, theirs = (
        Counter({each.spent: each.trainings for each in run.replaced if isinstance(each, Replaced)})
        if run
        else Counter()
        for run in (here, incoming)
    )
    known = {each.identity for each in here.trainings} if here else set()
    known |= {each.identity for each in here.replaced if isinstance(each, TrainingRecord)} if here else set()
    again = all(each.identity in known for each in incoming.trainings)
    counts = mine | theirs if again else mine + theirs
    return (*lines.values(), *(Replaced(trainings=number, spent=spent) for spent, number in counts.items()))


def _check_statements(training: TrainingRecord, settings: Settings) -> None:
    """Compare a training's statements on private data with those that its settings and data require.

    Raises:
        UserError: a statement is missing or unknown.
    """
    config = method_settings()[training.method].recorded(training.settings)
    weights = settings.row(training.row).model.network
    recorded = {use.key for use in training.not_covered}
    if prepared.manifest_here(training.data) is None:
        expected = declared_uses(training.data, config, settings, weights)
        if recorded & RELEVANCES:  # params.yaml alone requires both; a training has one
            expected -= RELEVANCES
    else:
        expected = {use.key for use in data_uses(prepared.load(training.data), config, weights)}
    if missing := expected - recorded:
        raise UserError(f"not_covered lacks {min(missing)!r}: not what its settings come to")
    for statement in (*training.broken, *training.not_covered, *filter(None, [training.protects])):
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


def _notes(
    settings: Settings, row: str, signed: frozenset[str], complete: bool, weights: bool
) -> Iterator[str]:
    """Remarks on an adopted row. ``complete``: no training is missing. ``weights``: the pack has weights."""
    name = settings.rows[row].data
    if prepared.manifest_here(name) is None:
        yield f"data {name!r} is not prepared here and could not be compared"
    if not dvclock.available():
        yield "there is no DVC pipeline here: nothing is signed, and `dvc repro` will train it again"
    elif not complete:
        yield "other trainings are still missing: it is not signed, and `dvc repro` will train them"
    elif not signed.issuperset(dvclock.stages_of(row)):
        yield (
            "its data or weights are not here: it is not signed, and `dvc repro` will train it again; with "
            f"both here, `dvc commit --force {' '.join(dvclock.stages_of(row))}` signs it"
        )
    if not weights:
        yield "came without weights: it can't be evaluated again until it is trained again"
