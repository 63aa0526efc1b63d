"""The `dprepro` command: one sub-command a stage. Heavy libraries are imported inside the commands."""

import os
import sys

import typer

from pipeline.errors import UserError
from stages.account import account
from stages.audit import audit
from stages.bench import bench
from stages.equivalence import equivalence
from stages.evaluate import evaluate
from stages.fetch import fetch
from stages.identity import identity
from stages.ledger import ledger
from stages.pack import adopt, pack
from stages.plan import plan
from stages.prepare import prepare
from stages.publish import publish
from stages.relevance import relevance
from stages.report import report
from stages.search import search
from stages.start import start
from stages.tan import tan
from stages.train import train
from stages.ui import ui

# Threads that wait actively take the processor from whoever else needs it: on a busy machine a row took nine
# times as long. It must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Reproduce four papers on differentially private deep learning, with a privacy ledger.",
)
for command in (
    identity,
    plan,
    fetch,
    prepare,
    search,
    train,
    start,
    relevance,
    evaluate,
    ledger,
    account,
    audit,
    publish,
    report,
    ui,
    pack,
    adopt,
    equivalence,
    bench,
):
    app.command()(command)
app.add_typer(tan, name="tan")


def main() -> None:
    """Run the command line; a `UserError` is printed as it is and ends with status 1."""
    try:
        app()
    except UserError as problem:
        for line in str(problem).splitlines():
            print(f"dprepro: {line}", file=sys.stderr)
        sys.exit(1)
