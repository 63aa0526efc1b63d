"""`dprepro adopt`: import rows from another machine."""

from pathlib import Path
from typing import Annotated

import typer

from dprepro.errors import counted


def adopt(
    file: Annotated[Path, typer.Argument(help="A file written by `dprepro pack`.")],
) -> None:
    """Import rows from another machine, if settings, data and code versions are the same there and here."""
    from dprepro.pipeline.params import load
    from dprepro.pipeline.transport.adopting import adopt as run

    for adopted in run(load(), file):
        print(f"{adopted.row}: {adopted.trainings} of {counted(adopted.packed, 'training')} adopted")
        for note in adopted.notes:
            print(f"  {note}")
