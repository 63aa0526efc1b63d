"""The `dprepro` command: one sub-command a stage. Heavy libraries are imported inside the commands."""

import sys

import typer

from pipeline.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Reproduce four papers on differentially private deep learning, with a privacy ledger.",
)


@app.callback()
def _root() -> None:
    """Keep sub-commands even while there is only one."""


def main() -> None:
    """Run the command line; a `UserError` is printed as it is and ends with status 1."""
    try:
        app()
    except UserError as problem:
        for line in str(problem).splitlines():
            print(f"dprepro: {line}", file=sys.stderr)
        sys.exit(1)
