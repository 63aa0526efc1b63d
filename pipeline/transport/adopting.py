"""Take in the rows of a pack, if they were made from the same settings, data and code as there are here.

DVC signs whatever lies in the workspace, so the checks made here are all that stands between a record and
numbers made from something else.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pipeline.data import prepared
from pipeline.errors import UserError, writing
from pipeline.files import digest_file
from pipeline.params import Settings
from pipeline.results import records
from pipeline.results.records import Record
from pipeline.transport import archive, dvclock
from pipeline.transport.archive import RUNS, Manifest, PackedRow
from pipeline.transport.packing import behind, code, code_digest, stages

STAGING = Path(".dprepro")


@dataclass(frozen=True)
class Adopted:
    """A row taken in, and what the person should know about it."""

    row: str
    notes: tuple[str, ...]


def adopt(settings: Settings, source: Path) -> list[Adopted]:
    """Check every row of a pack against this checkout, place them all, and have DVC sign them.

    Raises:
        UserError: a file is damaged, or settings, data or code differ; nothing has then been placed.
    """
    with _staging() as staged:
        manifest = archive.read(source, staged)
        for row in manifest.rows:
            record = records.read(row, staged)
            assert record is not None  # a pack without it has been refused
            _check(settings, manifest.rows[row], row, record, records.history_path(row, staged))
            origin = f"{source.name} ({digest_file(source)})"
            made = record.provenance.model_copy(update={"adopted": origin})
            records.write(record.model_copy(update={"provenance": made}), staged)
        _place(staged, [part for row in manifest.rows for part in _parts(settings, row, manifest.rows[row])])
    return _sign(settings, manifest)


@contextmanager
def _staging() -> Iterator[Path]:
    """A folder on the disk of the results, so that placing them is renaming."""
    with writing(STAGING):
        STAGING.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="adopt-", dir=STAGING) as folder:
            yield Path(folder)


def _check(settings: Settings, packed: PackedRow, row: str, record: Record, history: Path) -> None:
    """Refuse a row whose settings, code or data are not those of this checkout."""
    if record.row != row or record.history != digest_file(history):
        raise UserError(f"{row}: not adopted: the record belongs to another row or another history")
    made = record.provenance
    here = behind(settings, row)
    if made.config != settings.row_digest(row):
        differing = [
            f"{key} is {packed.settings.get(key)} there, {here.get(key)} here"
            for key in _differing(packed.settings, here)
        ]
        _refuse(row, "settings", differing)
    if made.code != code_digest(settings.rows[row]):
        _refuse(row, "code", _differing(packed.code, code(settings.rows[row])))
    name = settings.rows[row].data
    if _has_data(name):
        digests = prepared.load(name).digests
        if made.data != digests:
            _refuse(row, f"data {name!r}", _differing(made.data, digests))
    elif _same_by_lock(settings, row, packed) is False:
        _refuse(row, f"data {name!r}", ["its digest in dvc.lock"])


def _differing(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    return [key for key in sorted(there | here) if there.get(key) != here.get(key)]


def _refuse(row: str, kind: str, differing: list[str]) -> NoReturn:
    # Nothing differs by name when the pack was written by a version that took its digests otherwise.
    raise UserError(f"{row}: not adopted: made from other {kind}: {'; '.join(differing) or 'by digest'}")


def _has_data(name: str) -> bool:
    return (prepared.PREPARED / name / "manifest.json").exists()


def _same_by_lock(settings: Settings, row: str, packed: PackedRow) -> bool | None:
    """Whether both machines' DVC locks mean the same data; None: one of them doesn't say."""
    name = settings.rows[row].data
    folder = prepared.PREPARED / name
    here = dvclock.output(f"{settings.stage_of(name)}@{name}", folder)
    there = dvclock.dependency(packed.lock, f"train@{row}", folder)
    return None if here is None or there is None else here == there


def _parts(settings: Settings, row: str, packed: PackedRow) -> list[Path]:
    """What of a row is placed."""
    parts = [records.path(row), records.history_path(row)]
    # Without the data here DVC takes over the pack's signature, and that is of the whole run folder: one
    # without weights would look changed and be trained again, while one that isn't there is let be.
    if packed.weights or _has_data(settings.rows[row].data):
        parts.append(RUNS / row)
    return parts


def _place(staged: Path, parts: list[Path]) -> None:
    """Move all parts to where they belong, or none."""
    with ExitStack() as undo:
        for part in parts:
            part.parent.mkdir(parents=True, exist_ok=True)
            if part.exists():
                old = staged / "replaced" / part
                old.parent.mkdir(parents=True, exist_ok=True)
                part.rename(old)
                undo.callback(old.rename, part)
            (staged / part).rename(part)
            undo.callback(part.rename, staged / part)
        undo.pop_all()


def _sign(settings: Settings, manifest: Manifest) -> list[Adopted]:
    """Have DVC take the placed rows for its own results, so that it doesn't train them again."""
    if dvclock.available():
        with_data = [row for row in manifest.rows if _has_data(settings.rows[row].data)]
        if with_data:
            dvclock.commit([stage for row in with_data for stage in stages(row)])
        for row in manifest.rows.keys() - with_data:
            # DVC refuses to sign without the data, so the signature made there is taken over.
            dvclock.take_over(manifest.rows[row].lock, records.path(row))
    return [Adopted(row, tuple(_notes(settings, row, packed))) for row, packed in manifest.rows.items()]


def _notes(settings: Settings, row: str, packed: PackedRow) -> Iterator[str]:
    name = settings.rows[row].data
    if not _has_data(name) and _same_by_lock(settings, row, packed) is None:
        yield f"data {name!r} is not prepared here and could not be compared"
    if not dvclock.available():
        yield "there is no DVC here: nothing is signed, and `dvc repro` will train it again"
    elif not _has_data(name) and not packed.lock:
        yield (
            "nothing is signed, as DVC needs the data or a pack from a checkout where `dvc repro` ran: "
            f"`dprepro {settings.stage_of(name)} {name}` and adopt again, or `dvc repro` will train it again"
        )
    if not packed.weights:
        yield f"came without weights: evaluate@{row} can't be repeated until it is trained again"
