"""`dprepro pack` and `dprepro adopt`: rows trained on another machine come home."""

from pathlib import Path
from typing import Annotated

import typer


def pack(
    rows: Annotated[list[str], typer.Argument(help="Keys of 'rows' in params.yaml.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path(
        "rows.dprepro.tar.gz"
    ),
    without_weights: Annotated[
        bool,
        typer.Option(
            "--without-weights",
            help="Leave the models out: a smaller file, whose rows can be adopted but not evaluated again.",
        ),
    ] = False,
) -> None:
    """Put records, curves and models of rows into one file, to be adopted in another checkout."""
    from pipeline.params import load
    from pipeline.transport import pack as run

    run(load(), rows, output, "none" if without_weights else "all")
    print(f"{output}: {len(set(rows))} rows, {output.stat().st_size / 1e6:.1f} MB")


def adopt(
    file: Annotated[Path, typer.Argument(help="A file that `dprepro pack` wrote.")],
) -> None:
    """Take in rows trained elsewhere, if settings, data and versions are the same as here."""
    from pipeline.params import load
    from pipeline.transport import adopt as run

    for adopted in run(load(), file):
        print(f"{adopted.row}: adopted")
        for note in adopted.notes:
            print(f"  {note}")
