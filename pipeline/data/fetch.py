"""Raw files into ``data/raw/NAME``, the same bytes whichever way they came.

The folder holds the canonical files (archives are unpacked) and ``source.json``: edition and checksums, and
nothing about where the files came from, so that a mirror and a download give DVC the same folder.
"""

from dataclasses import dataclass
from pathlib import Path

from pipeline.data import catalog, mirror, official, synthetic
from pipeline.data.catalog import SYNTHETIC, Entry
from pipeline.data.folders import replacing
from pipeline.errors import UserError
from pipeline.files import digest_file, digest_json, write_json
from pipeline.settings import PARAMS, Raw, Settings, pick

RAW = Path("data/raw")
DOWNLOADS = Path(".dprepro/downloads")  # outside DVC's outs, which are deleted before a stage runs


@dataclass(frozen=True)
class Fetched:
    """What `fetch` wrote."""

    folder: Path
    edition: str
    files: dict[str, str]  # name -> sha256 digest

    @property
    def digest(self) -> str:
        """One digest for all the files."""
        return digest_json(self.files)


def fetch(name: str, settings: Settings, root: Path = Path(), folder: Path | None = None) -> Fetched:
    """Bring the raw data set ``name`` to ``data/raw/NAME``.

    Args:
        name: a key of ``raw`` in params.yaml.
        settings: the whole of params.yaml.
        root: the folder that holds params.yaml.
        folder: a mirror to use instead of the network; a synthetic source ignores it.

    Raises:
        UserError: no place has the right bytes, or they can't be written.
    """
    raw = pick(settings.raw, name, "raw data set")
    entry = catalog.get(name)
    synthetic = settings.source.kind == SYNTHETIC
    target = root / RAW / name
    with replacing(target) as building:
        if synthetic:
            _make(entry, raw, building)
        else:
            _bring(entry, raw, building, folder or settings.source.folder, root)
        fetched = Fetched(
            folder=target,
            edition=SYNTHETIC if synthetic else raw.edition,
            files={path.name: digest_file(path) for path in sorted(building.iterdir())},
        )
        write_json(
            building / "source.json", {"data": name, "edition": fetched.edition, "files": fetched.files}
        )
    return fetched


def _bring(entry: Entry, raw: Raw, target: Path, folder: Path | None, root: Path) -> None:
    """Real files, from a mirror where there is one."""
    edition = entry.edition(raw.edition)
    if folder is not None:
        mirror.collect(entry, edition, folder, target)
        return
    official.collect(entry, edition, root / DOWNLOADS / entry.key, target)


def _make(entry: Entry, raw: Raw, target: Path) -> None:
    """Synthetic files of the declared counts."""
    if raw.train is None or raw.test is None:
        lacking = "train" if raw.train is None else "test"
        raise UserError(f"{PARAMS}: raw.{entry.key}.{lacking}: missing; source 'synthetic' needs a count")
    synthetic.write(entry, raw.train, raw.test, target)
