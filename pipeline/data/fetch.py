"""Raw files into ``data/raw/NAME``, the same bytes whichever way they came."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.data import download, mirror, synthetic
from pipeline.data.catalog import SYNTHETIC, Entry
from pipeline.data.own import sets
from pipeline.data.raw import RAW, asked_edition, entry_of, write_source
from pipeline.errors import UserError
from pipeline.files import digest_json, replacing_folder
from pipeline.params import OWN, PARAMS, OwnFiles, Raw, Settings, pick

DOWNLOADS = Path(".dprepro/downloads")  # outside DVC's outs, which are deleted before a stage runs


@dataclass(frozen=True)
class Fetched:
    """The raw files that `fetch` brought, and of which edition they are."""

    folder: Path
    edition: str
    files: dict[str, str]  # name -> sha256 digest

    @property
    def digest(self) -> str:
        """One digest for all the files."""
        return digest_json(self.files)


def fetch(name: str, settings: Settings, root: Path = Path(), folder: Path | None = None) -> Fetched:
    """Bring the raw data set ``name``, a key of ``raw`` or ``own`` in params.yaml, to ``data/raw/NAME``.

    ``folder`` is a mirror to use instead of what params.yaml says; synthetic and own files ignore it.

    Raises:
        UserError: no place has the right bytes, or they can't be written.
    """
    wanted = pick(settings.raw, name, "raw data set")
    target = root / RAW / name
    if isinstance(wanted, OwnFiles):
        with replacing_folder(target) as building:
            sets.collect(name, wanted, root, building)
            files = write_source(building, name, OWN)
        return Fetched(target, OWN, files)
    entry, edition = entry_of(name, settings), asked_edition(name, settings)
    with replacing_folder(target) as building:
        if edition == SYNTHETIC:
            _make(entry, wanted, building)
        elif place := folder or settings.source.folder:
            mirror.collect(entry, entry.edition(edition), place, building)
        else:
            download.collect(entry, entry.edition(edition), root / DOWNLOADS / name, building)
        files = write_source(building, name, edition)
    return Fetched(target, edition, files)


def _make(entry: Entry, wanted: Raw, target: Path) -> None:
    """Synthetic files of the declared counts."""
    if wanted.train is None or wanted.test is None:
        lacking = "train" if wanted.train is None else "test"
        raise UserError(f"{PARAMS}: raw.{entry.key}.{lacking}: missing; source 'synthetic' needs a count")
    synthetic.write(entry, wanted.train, wanted.test, target)
