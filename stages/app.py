"""The `dprepro` command and its sub-commands. Heavy libraries are imported inside the sub-commands."""

import errno
import io
import os
import re
import sys
import warnings
from importlib import import_module
from importlib.metadata import requires, version
from typing import Annotated, Any

import typer

from dprepro.errors import Notice, Stopped, UserError, printable

# Actively waiting threads take processor time from other processes: on a busy machine a row took nine times
# as long. On an idle machine, a step of two threads takes up to a third longer if waiting threads sleep at
# once. So they wait for some microseconds first. Both variables must be set before torch is imported.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_python_shows = warnings.showwarning

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Reproduce papers on differentially private deep learning, with a privacy ledger of every result.",
)
# Commands by panel of `--help`. Each is a function or a `Typer` in the module of the same name.
COMMANDS = {
    "Project": "init new remove status plan repro",
    "Data": "fetch prepare start relevance",
    "Training": "search train evaluate rerun",
    "Privacy": "ledger audit account epsilon compare tan",
    "Results": "report publish ui export predict",
    "Transfer and checks": "pack adopt verify identity",
}
for panel, names in COMMANDS.items():
    for name in names.split():
        command = getattr(import_module(f"dprepro.stages.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(command)
MOST_LINES = 50  # of an error message
# packages that install modules with other names
BROUGHT_BY = {"PIL": "pillow", "markupsafe": "jinja2", "sqlalchemy": "mlflow"}


def _version(asked: bool) -> None:
    if asked:
        print(f"dprepro {version('dprepro')}")
        raise typer.Exit


@app.callback()
def before_any_command(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options of `dprepro` itself."""


def main() -> None:
    """Run the command line. An error prints its message and sets the exit status.

    Status 1: a `UserError`, a missing package, too little GPU memory, or a file that the system refuses.
    Status 130: Ctrl-C ended the command. Status 143: TERM ended it.
    """
    # names of files may have characters that the terminal can't show
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.simplefilter("once", Notice)
    warnings.showwarning = _show_warning
    try:
        try:
            app(prog_name="dprepro")
        finally:
            sys.stdout.flush()  # here, where an error is a line
    except UserError as problem:
        _end(str(problem), 1)
    except Stopped as problem:
        _end(str(problem), problem.status)
    except ModuleNotFoundError as problem:
        _end(_lacking(problem), 1)
    except RuntimeError as problem:
        if type(problem).__name__ != "OutOfMemoryError":  # torch's own, without its import
            raise
        _end("the GPU's memory is too small; lower --physical or --workers", 1)
    except UnicodeEncodeError as problem:
        around = problem.object[max(0, problem.start - 60) : problem.end + 60]
        _end(f"{around}: a name that is not UTF-8; rename the file or the folder", 1)
    except OSError as problem:  # such as a name that is too long, or a folder without permission
        if problem.filename is not None:
            _end(f"{os.fsdecode(problem.filename)}: {problem.strerror}", 1)
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that Python's last flush is no second error
        _end(f"output: {problem.strerror}", 1)


def _lacking(problem: ModuleNotFoundError) -> str:
    """Message about a missing package, with the extra of dprepro that installs it.

    Raises:
        ModuleNotFoundError: no extra installs the package.
    """
    module = (problem.name or "").partition(".")[0]
    package = BROUGHT_BY.get(module, module)
    for needed in requires("dprepro") or ():
        if extra := re.fullmatch(rf"{package}\b.*extra == ['\"](\w+)['\"]", needed):
            return f"{module}: not installed; `pip install 'dprepro[{extra[1]}]'` brings it"
    raise problem


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **others: Any) -> None:
    """Print a `Notice` as one line, and other warnings as Python does."""
    if issubclass(category, Notice):
        print(f"dprepro: {printable(str(message))}", file=sys.stderr)
    else:
        _python_shows(message, category, *where, **others)


def _end(text: str, status: int) -> None:
    lines = text.split("\n")
    more = [f"{len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    for line in [*lines[:MOST_LINES], *more]:
        print(f"dprepro: {printable(line)}", file=sys.stderr)
    sys.exit(status)
