"""Put the results of rows into one file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.fields import Strict
from pipeline.files import digest_file
from pipeline.identity import provenance
from pipeline.params import Row, Settings
from pipeline.results import records
from pipeline.transport import archive, dvclock
from pipeline.transport.archive import RUNS, WEIGHTS, Manifest, PackedRow


def pack(settings: Settings, rows: list[str], target: Path, weights: bool = True) -> None:
    """Write records, histories and run folders of ``rows`` to ``target``.

    Raises:
        UserError: a row has not been evaluated, or by other settings or code than there are now.
    """
    packed = {row: _pack_row(settings, row, weights) for row in dict.fromkeys(rows)}
    archive.write(target, Manifest(rows=packed))


def code(row: Row) -> dict[str, str]:
    """Digest of each source that decides the row's numbers."""
    root, sources = provenance.PIPELINE.parent, provenance.sources(row.method, row.model.name)
    return {path.relative_to(root).as_posix(): digest_file(path) for path in sources}


def code_digest(row: Row) -> str:
    """One digest of them all, as in the row's record."""
    return provenance.code_digest(row.method, row.model.name)


def behind(settings: Settings, row: str) -> dict[str, Any]:
    """The parts of params.yaml a row stands on, flat, each under its name there."""
    own = settings.row(row)
    joined = settings.derived.get(own.data)
    name = joined.data if joined else own.data
    data = settings.data[name]
    parts: dict[str, Strict] = {f"rows.{row}": own, f"data.{name}": data}
    parts |= {f"raw.{raw}": settings.raw[raw] for raw in (data.raw, data.public.raw)}
    before: dict[str, Any] = {}
    if joined:
        parts[f"{settings.stage_of(own.data)}s.{own.data}"] = joined
        before = behind(settings, joined.row)
    return before | dict(_flat({key: part.model_dump(mode="json") for key, part in parts.items()}))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    else:
        yield name, value


def stages(row: str) -> list[str]:
    """Names of the DVC stages that make a row's results."""
    return [f"train@{row}", f"evaluate@{row}"]


def _pack_row(settings: Settings, row: str, weights: bool) -> PackedRow:
    parts = behind(settings, row)
    record = records.read(row)
    if record is None:
        raise UserError(
            f"{records.path(row)}: missing; run `dprepro train {row}` and `dprepro evaluate {row}`"
        )
    for kind, recorded, current in (
        ("settings", record.provenance.config, settings.row_digest(row)),
        ("code", record.provenance.code, code_digest(settings.rows[row])),
    ):
        if recorded != current:
            raise UserError(
                f"{records.path(row)}: made by other {kind} than there are now; train {row} again"
            )
    heavy = RUNS / row / WEIGHTS
    if weights and not heavy.exists():
        raise UserError(f"{heavy}: missing; --without-weights packs the row without")
    run = [path for path in (RUNS / row).rglob("*") if path.is_file() and (weights or path != heavy)]
    try:
        paths = [records.path(row), records.history_path(row), *sorted(run)]
        files = {path.as_posix(): digest_file(path) for path in paths}
    except FileNotFoundError as problem:
        raise UserError(f"{problem.filename}: missing; run `dprepro evaluate {row}`") from problem
    return PackedRow(
        files=files,
        weights=weights,
        settings=parts,
        code=code(settings.rows[row]),
        lock=dvclock.vouched(stages(row)),
    )
