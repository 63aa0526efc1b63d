"""Put the results of rows into one file."""

from pathlib import Path

from pipeline.errors import UserError
from pipeline.files import digest_file
from pipeline.params import Settings
from pipeline.results import records
from pipeline.results.weights import weights_path
from pipeline.transport import archive
from pipeline.transport.archive import Manifest, PackedRow


def pack(settings: Settings, rows: list[str], target: Path, weights: bool = True) -> None:
    """Write what ran and what was measured of ``rows``, and their ``weights`` if asked, to ``target``.

    Ledgers stay behind: they are computed anew where a pack is adopted.

    Raises:
        UserError: a row has not been trained or evaluated, weights are missing where all are asked for, or
            ``target`` is one of the files to pack.
    """
    if target.is_dir():
        raise UserError(f"{target}: is a folder; allowed: the name of a file to write")
    packed = {row: _packed(settings, row, weights) for row in dict.fromkeys(rows)}
    if target.resolve() in (Path(name).resolve() for row in packed.values() for name in row.files):
        raise UserError(f"{target}: is one of the files to pack; allowed: another file")
    archive.write(target, Manifest(rows=packed))


def _packed(settings: Settings, row: str, weights: bool) -> PackedRow:
    settings.row(row)
    run = records.read_run(row)
    if run is None:
        raise UserError(f"{records.run_path(row)}: missing; run `dprepro train {row}`")
    heavy = [weights_path(row, *replica.key) for replica in run.replicas] if weights else []
    if lacking := next((path for path in heavy if not path.exists()), None):
        raise UserError(f"{lacking}: missing; --without-weights packs the row without")
    try:
        files = {path.as_posix(): digest_file(path) for path in (*archive.always(row), *heavy)}
    except FileNotFoundError as problem:
        raise UserError(f"{problem.filename}: missing; run `dprepro evaluate {row}`") from problem
    return PackedRow(files=files, weights=weights)
