"""Lines typed in a folder. `dprepro` and `dvc` run in forks of a process that has imported what they need.

A test that types `dprepro` or `dvc` ten times would spend most of its time on importing torch ten times.
Tests of signals and of start-up start real processes.

As a script, with another Python and its packages: answers lines of JSON, which `Installed` in
`tests/test_wheel.py` writes.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from io import FileIO, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

ROOT = Path(__file__).parents[1]
MAIN = {"dprepro": "dprepro.stages.app", "dvc": "dvc.cli"}  # modules whose `main` a command is
SLOW = (
    "torch", "torch.func", "torch.utils.flop_counter", "scipy.stats", "scipy.optimize", "scipy.signal",
    "dp_accounting.pld", "dp_accounting.rdp", "opacus.accountants.analysis.prv", "rich.progress",
    "ruamel.yaml", "dvc.cli", "dvc.repo", "dvc.commands.repro", "dvc_data.index", "mlflow.tracking",
    "mlflow.store.tracking.sqlalchemy_store", "matplotlib.figure", "matplotlib.backends.backend_svg",
)  # fmt: skip
# by command of `dprepro`: what is done before it, in its process
Before = Mapping[str, Callable[[], object]]


def environment(library: Path = ROOT) -> dict[str, str]:
    """That of a command which runs the code in ``library``.

    Without the variables of a git hook that runs the tests, and without somebody's MLflow.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "MLFLOW_"))}
    who = {f"GIT_{role}_{what}": "test" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return {**kept, **who, **threads, "PATH": path, "PYTHONPATH": str(library)}


def heed_ctrl_c() -> None:
    """In a new process: a shell has what it runs in the background, tests too, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def typed(line: str, folder: Path, library: Path = ROOT, fails: bool = False) -> str:
    """What a line says that is typed in a folder, where commands run the code in ``library``."""
    status, *said = answer(line, folder, environment(library))
    assert (status != 0) == fails, f"{line}\n{''.join(said)}"
    return "".join(said)


def answer(
    line: str, folder: Path, environment: Mapping[str, str], before: Before | None = None
) -> tuple[int, str, str]:
    """Status, standard output and standard error of a line that is typed in a folder."""
    words = shlex.split(line, comments=True)
    with TemporaryFile("w+", errors="replace") as output, TemporaryFile("w+", errors="replace") as noise:
        if words[0] in MAIN:
            _import_slow()
            streams = output.fileno(), noise.fileno()
            status = forked(partial(_become, words, folder, environment, before or {}), streams)
        else:
            done = subprocess.run(line, shell=True, cwd=folder, env=environment, stdout=output, stderr=noise)
            status = done.returncode
        for stream in (output, noise):
            stream.seek(0)
        return status, output.read(), noise.read()


@cache
def _import_slow() -> None:
    for name in SLOW:
        with suppress(ModuleNotFoundError):  # of an extra
            import_module(name)


def forked(work: Callable[[], int], streams: Sequence[int] = ()) -> int:
    """Status of ``work`` in a fork, with ``streams`` as standard output and error."""
    if (child := os.fork()) == 0:
        status = 70
        try:
            for number, stream in enumerate(streams, 1):
                os.dup2(stream, number)
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(words: Sequence[str], folder: Path, environment: Mapping[str, str], before: Before) -> int:
    """Run a command in this process, a fork; its status."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout, sys.stderr = (TextIOWrapper(FileIO(number, "w", closefd=False)) for number in (1, 2))
    sys.argv[:] = words
    try:
        _take_code(environment.get("PYTHONPATH"))
        if words[0] == "dprepro":
            before.get(words[1], lambda: None)()
        else:
            _take_streams_and_commands(before)
        code = import_module(MAIN[words[0]]).main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    return 1 if isinstance(code, str) else int(code or 0)


def _take_code(library: str | None) -> None:
    """Import the code in ``library`` from here on, and forget the laboratory of the test's process."""
    elsewhere = library is not None and Path(library) != ROOT
    if elsewhere:
        sys.path.insert(0, str(library))
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("lab", *(["dprepro"] if elsewhere else [])):
            del sys.modules[name]
    from dprepro.pipeline import extensions

    extensions._laboratory.clear()
    for kept in extensions._caches:
        kept.cache_clear()


def _take_streams_and_commands(before: Before) -> None:
    """Have DVC write to the streams of this process, and run a stage's command as a fork of it."""
    import logging

    from dvc import logger
    from dvc.stage import run
    from dvc.stage.exceptions import StageCmdFailedError

    for name in ("dvc", "dvc_objects", "dvc_data"):
        logging.getLogger(name).handlers.clear()
    logger.setup()

    def run_stage(_: object, line: str, *, cwd: str, env: Mapping[str, str], **__: Any) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        if status := forked(partial(_become, shlex.split(line), Path(cwd), env, before)):
            raise StageCmdFailedError(line, status)

    run._run = run_stage


def _answers() -> Iterator[str]:
    for line in sys.stdin:
        words, folder = json.loads(line)
        yield json.dumps(answer(words, Path(folder), dict(os.environ)))


if __name__ == "__main__":
    for told in _answers():
        print(told, flush=True)
