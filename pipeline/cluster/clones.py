"""A machine's own clone of a revision, made once, in which its workers train: `$DPREPRO_WORK`, or below /tmp.

It has the coordinator's data by `dvc pull`, of which only the coordinator's lock knows, and its records of
rows whose replicas are partly there.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from pipeline.cluster.slot import dies_with, first_on_the_path
from pipeline.errors import UserError, writing
from pipeline.files import beside, digest, digest_json, write_text

WORK = "DPREPRO_WORK"
STATE = Path(".dprepro")
# variables by which git tells its hooks of a checkout: another than is meant here
OF_A_HOOK = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY"}


@dataclass(frozen=True)
class Source:
    """What machines clone."""

    url: str
    revision: str
    inside: str  # the folder of params.yaml in it; '' at its top


@dataclass(frozen=True)
class Data:
    """Prepared data, as far as the coordinator's lock tells of them."""

    stage: str  # of DVC: 'prepare@mnist'
    folder: str
    lock: str  # text of a dvc.lock that holds this stage alone


def clone(source: Source) -> Path:
    """The clone's top folder on this machine; made where there is none.

    Raises:
        UserError: git can't; the line says why.
    """
    base = _work()
    folder = base / source.revision
    with FileLock(base / f"{source.revision}.lock"):
        if not folder.exists():
            for left in base.glob(f".{source.revision}.*"):
                shutil.rmtree(left, ignore_errors=True)  # of one that was killed
            building = beside(folder)
            try:
                fetch(source, building)
                building.rename(folder)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return folder


def fetch(source: Source, folder: Path) -> None:
    """Make a clone of one revision without its history."""
    run(["git", "init", "--quiet", str(folder)])
    run(["git", "fetch", "--quiet", "--depth", "1", source.url, source.revision], folder)
    run(["git", "checkout", "--quiet", "--detach", source.revision], folder)


def pull(folder: Path, data: Data) -> None:
    """Have prepared data in the clone's ``folder`` of params.yaml, as the coordinator's lock has them.

    Raises:
        UserError: DVC can't; the line says why.
    """
    mark = folder / STATE / "pulled" / Path(data.folder).name
    wanted = digest(data.lock.encode())
    with FileLock(_made(folder / STATE) / "pull.lock"):
        if (folder / data.folder).exists() and mark.exists() and mark.read_text() == wanted:
            return
        write_text(folder / "dvc.lock", data.lock)
        run([sys.executable, "-m", "dvc", "pull", "--force", data.stage], folder)
        write_text(mark, wanted)


def take_over(folder: Path, row: str, records: Sequence[tuple[str, str | None]]) -> None:
    """Write the coordinator's records of a row, path and text, None: it has none.

    Once: what this machine adds to them since, and couldn't hand back, stays.
    """
    mark = folder / STATE / "given" / row
    wanted = digest_json(list(records))
    if mark.exists() and mark.read_text() == wanted:
        return
    for name, text in records:
        if text is None:
            (folder / name).unlink(missing_ok=True)
        else:
            write_text(folder / name, text)
    write_text(mark, wanted)


def run(command: Sequence[str], folder: Path = Path(), modules: Path | None = None) -> str:
    """What a command prints. ``modules``: a folder whose modules come before all others.

    Raises:
        UserError: it failed; the first line that it printed as an error says why, or else the last one.
    """
    around = {key: value for key, value in os.environ.items() if key not in OF_A_HOOK}
    around["GIT_TERMINAL_PROMPT"] = "0"
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**around, **first_on_the_path(modules)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            preexec_fn=dies_with(os.getpid()),
        )
    except OSError as problem:
        raise UserError(f"{command[0]}: {problem.strerror or problem}") from problem
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}").splitlines()
        # git and DVC go on with advice
        told = next((line for line in lines if line.lower().startswith(("error:", "fatal:"))), lines[-1])
        raise UserError(f"{' '.join(command).removeprefix(f'{sys.executable} -m ')}: {told}")
    return done.stdout


def _made(folder: Path) -> Path:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _work() -> Path:
    """The folder of this machine's clones.

    Raises:
        UserError: it can't be written, or is somebody else's, who could change the code that runs.
    """
    named = os.environ.get(WORK)
    folder = Path(named or Path(tempfile.gettempdir()) / f"dprepro-{os.getuid()}").absolute()
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UserError(f"{folder}: belongs to somebody else; name another folder by {WORK}")
    return folder
