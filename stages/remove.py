"""`dprepro remove data` and `row`: entries of params.yaml without trainings, and copies of the data."""

from pathlib import Path
from typing import Annotated

import typer

remove = typer.Typer(no_args_is_help=True, help="Remove own data or a row without trainings.")


@remove.command()
def data(name: Annotated[str, typer.Argument(help="A key of `own` in params.yaml.")]) -> None:
    """Remove own data on which nothing was trained: declaration, link and copies. Your own files stay."""
    from shutil import rmtree

    from dprepro.errors import UserError
    from dprepro.pipeline.data.own.files import FOLDER
    from dprepro.pipeline.data.prepared import PREPARED
    from dprepro.pipeline.data.raw import RAW
    from dprepro.pipeline.ledgers.composition import refuse_trained_on
    from dprepro.pipeline.params import PARAMS, load, pick
    from dprepro.pipeline.params.adding import Adding

    settings, adding = load(), Adding()
    link = Path(pick(settings.own, name, "own data set").path)
    refuse_trained_on(name, settings)
    if using := [key for key, row in settings.rows.items() if name in settings.own_of(row.data)]:
        raise UserError(f"own.{name}: rows use it; before: `dprepro remove row {using[0]}`")
    adding.remove("data", name)
    adding.remove("own", name)
    adding.checked()
    adding.write()
    if link.parent == FOLDER and link.is_symlink():
        link.unlink()
    for copies in (RAW / name, PREPARED / name):
        rmtree(copies, ignore_errors=True)
    print(
        f"{name}: removed from {PARAMS}; your own files stay, and so do copies in DVC's cache (`dvc gc -w`)"
    )


@remove.command()
def row(name: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml.")]) -> None:
    """Remove a row of which nothing was trained. Records of trainings are never removed."""
    from dprepro.pipeline.ledgers.composition import refuse_trained
    from dprepro.pipeline.params import PARAMS, load
    from dprepro.pipeline.params.adding import Adding

    settings, adding = load(), Adding()
    settings.row(name)
    refuse_trained(name, settings)
    adding.remove("rows", name)
    adding.checked()
    adding.write()
    print(f"{name}: removed from {PARAMS}")
