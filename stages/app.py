"""The `dprepro` command: one sub-command a stage. Heavy libraries are imported inside the commands."""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from pipeline.errors import Stopped, UserError, printable
from pipeline.files import clear_leftovers
from stages.account import account
from stages.audit import audit
from stages.compare import compare
from stages.epsilon import epsilon
from stages.evaluate import evaluate
from stages.fetch import fetch
from stages.identity import identity
from stages.ledger import ledger
from stages.new import new
from stages.pack import adopt, pack
from stages.plan import plan
from stages.prepare import prepare
from stages.publish import publish
from stages.relevance import relevance
from stages.report import report
from stages.repro import repro
from stages.search import search
from stages.start import start
from stages.status import status
from stages.tan import tan
from stages.train import train
from stages.ui import ui
from stages.verify import verify

# Threads that wait actively take the processor from whoever else needs it: on a busy machine a row took nine
# times as long. It must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Reproduce four papers on differentially private deep learning, with a privacy ledger.",
)
for command in (
    identity,
    plan,
    status,
    fetch,
    prepare,
    search,
    repro,
    train,
    start,
    relevance,
    evaluate,
    ledger,
    account,
    epsilon,
    compare,
    audit,
    publish,
    report,
    ui,
    pack,
    adopt,
    verify,
):
    app.command()(command)
app.add_typer(new, name="new")
app.add_typer(tan, name="tan")
MOST_LINES = 50  # of an error message


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
    """Clear what commands that were killed left half written."""
    clear_leftovers()


def main() -> None:
    """Run the command line. What a person should know is a line each, and the status tells which.

    1: a `UserError`. 130 and 143: Ctrl-C or TERM ended the command.
    """
    try:
        app(prog_name="dprepro")
    except UserError as problem:
        _end(str(problem), 1)
    except Stopped as problem:
        _end(str(problem), problem.status)


def _end(text: str, status: int) -> None:
    lines = text.split("\n")
    more = [f"{len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    for line in [*lines[:MOST_LINES], *more]:
        print(f"dprepro: {printable(line)}", file=sys.stderr)
    sys.exit(status)
