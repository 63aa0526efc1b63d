"""Fetching of raw files into ``data/raw/NAME``, with equal bytes from any source."""

from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

from dprepro.errors import UserError, reading
from dprepro.pipeline.data import digits, sources, synthetic
from dprepro.pipeline.data.catalog import DIGITS, SYNTHETIC, catalog
from dprepro.pipeline.data.declaration import digest_of
from dprepro.pipeline.data.own import files as declared
from dprepro.pipeline.data.own import private, sets
from dprepro.pipeline.data.prepared import PREPARED
from dprepro.pipeline.data.raw import RAW, entry_of, write_source
from dprepro.pipeline.files import replacing_folder, writing
from dprepro.pipeline.params import PARAMS, OwnFiles, Settings, pick

DOWNLOADS = Path(".dprepro/downloads")  # outside DVC's outputs, which DVC deletes before a stage runs


@dataclass(frozen=True)
class Fetched:
    """Raw files from `fetch`, and their edition."""

    folder: Path
    edition: str
    files: dict[str, str]  # name -> sha256 digest


def fetch(name: str, settings: Settings, root: Path = Path(), mirror: Path | None = None) -> Fetched:
    """Fetch the raw data set ``name``, a key of ``raw`` or ``own`` in params.yaml, into ``data/raw/NAME``.

    ``mirror`` is a folder with official files, used instead of the network.

    Raises:
        UserError: no source has the right bytes, files can't be written, own files differ from their
            declaration or are tracked by git, or the number of synthetic examples is not declared.
    """
    wanted, edition = pick(settings.raw, name, "raw data set"), settings.edition(name)
    target = root / RAW / name
    with replacing_folder(target) as building:
        if isinstance(wanted, OwnFiles):
            _copy_own(name, wanted, root, building)
        elif edition == DIGITS:
            digits.write(entry_of(name, settings), building)
        elif edition == SYNTHETIC:
            if wanted.train is None or wanted.test is None:
                lacking = "train" if wanted.train is None else "test"
                raise UserError(f"{PARAMS}: raw.{name}.{lacking}: missing; synthetic examples need a count")
            synthetic.write(entry_of(name, settings), wanted.train, wanted.test, building)
        else:
            entry = entry_of(name, settings)
            layout = entry.edition(edition)
            if mirror:
                sources.from_mirror(entry, layout, mirror, building)
            else:
                sources.from_publishers(entry, layout, root / DOWNLOADS / name, building)
        files = write_source(building, name, edition)
    return Fetched(target, edition, files)


def _copy_own(name: str, declaration: OwnFiles, root: Path, target: Path) -> None:
    """Copy the user's files into ``target`` after a comparison with their declaration.

    Raises:
        UserError: the files differ from the declaration, git tracks them, the catalogue has data of that
            name, or the files can't be copied.
    """
    if name in catalog():
        raise UserError(f"{PARAMS}: own.{name}: the catalogue has data of that name; allowed: another name")
    private.ignore([RAW, PREPARED, Path(declaration.path)], root)
    private.refuse_tracked(private.tracked([Path(declaration.path)], root))
    files = declared.find(name, declaration, root)
    digest = digest_of(declared.digests(files))
    if digest != declaration.digest:
        raise UserError(
            f"{root / declaration.path}: its digest is {digest}, but {PARAMS} has own.{name}.digest: "
            f"{declaration.digest}; if it was meant to change, write the new one there"
        )
    # compare the contents with the declaration now, while the user is present
    sets.parts(name, declaration, root / declaration.path, root)
    for below, path in files.items():
        with reading(path), writing(target / below):
            (target / below).parent.mkdir(parents=True, exist_ok=True)
            copyfile(path, target / below)
