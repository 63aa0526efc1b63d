"""`dprepro pack`: export rows for another machine, or as an artefact."""

from pathlib import Path
from typing import Annotated

import typer

OUTPUT = Path("rows.dprepro.tar.gz")


def pack(
    rows: Annotated[list[str], typer.Argument(help="Keys of 'rows' in params.yaml.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = OUTPUT,
    without_weights: Annotated[
        bool,
        typer.Option(
            "--without-weights",
            help="Omit the models. The rows of the smaller file can be adopted, but not evaluated again.",
        ),
    ] = False,
) -> None:
    """Write records, training curves and models of rows into one file, for `dprepro adopt` elsewhere."""
    from dprepro.errors import counted
    from dprepro.pipeline.params import load
    from dprepro.pipeline.transport.archive import pack as run

    settings = load()
    run(settings, rows, output, weights=not without_weights)
    print(f"{output}: {counted(len(set(rows)), 'row')}, {output.stat().st_size / 1e6:.1f} MB")
    if any(settings.split(settings.row(row).data).raw in settings.own for row in rows):
        print("It has exact curves and digests of your own data, which no epsilon covers: keep it inside.")
