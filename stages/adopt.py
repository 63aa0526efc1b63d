"""`dprepro adopt`: rows trained on another machine come home."""

from pathlib import Path
from typing import Annotated

import typer


def adopt(
    file: Annotated[Path, typer.Argument(help="A file that `dprepro pack` wrote.")],
) -> None:
    """Take in rows trained elsewhere, if settings, data and versions are the same as here."""
    from pipeline.params import load
    from pipeline.transport import adopt as run

    for adopted in run(load(), file):
        print(f"{adopted.row}: {adopted.replicas} of {adopted.packed} replicas adopted")
        for note in adopted.notes:
            print(f"  {note}")
