"""`dprepro pack`: export rows for another machine."""

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
            help="Leave the models out: a smaller file; its rows can be adopted but not evaluated again.",
        ),
    ] = False,
) -> None:
    """Write records, curves and models of rows into one file, for `dprepro adopt` in another checkout."""
    from pipeline.params import load
    from pipeline.transport import pack as run

    run(load(), rows, output, weights=not without_weights)
    print(f"{output}: {len(set(rows))} rows, {output.stat().st_size / 1e6:.1f} MB")
