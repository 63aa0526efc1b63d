"""Raw files into ``data/raw/NAME``, the same bytes whichever way they came."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.data import sources, synthetic
from pipeline.data.catalog import SYNTHETIC
from pipeline.data.own import sets
from pipeline.data.raw import RAW, asked_edition, entry_of, write_source
from pipeline.errors import UserError
from pipeline.files import digest_json, replacing_folder
from pipeline.params import OWN, PARAMS, OwnFiles, Settings, pick

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


def fetch(name: str, settings: Settings, root: Path = Path(), mirror: Path | None = None) -> Fetched:
    """Bring the raw data set ``name``, a key of ``raw`` or ``own`` in params.yaml, to ``data/raw/NAME``.

    ``mirror`` is a folder to take official files from instead of the network.

    Raises:
        UserError: no place has the right bytes, they can't be written, or synthetic ones have no count.
    """
    wanted, edition = pick(settings.raw, name, "raw data set"), asked_edition(name, settings)
    target = root / RAW / name
    with replacing_folder(target) as building:
        if isinstance(wanted, OwnFiles):
            edition = OWN
            sets.collect(name, wanted, root, building)
        elif edition == SYNTHETIC:
            if wanted.train is None or wanted.test is None:
                lacking = "train" if wanted.train is None else "test"
                raise UserError(f"{PARAMS}: raw.{name}.{lacking}: missing; source 'synthetic' needs a count")
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
