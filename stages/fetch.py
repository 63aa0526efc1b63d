"""`dprepro fetch`: raw files, checked, into data/raw."""

from pathlib import Path
from typing import Annotated

import typer


def fetch(
    name: Annotated[str, typer.Argument(help="A key of 'raw' or 'own' in params.yaml, such as mnist.")],
    mirror: Annotated[
        Path | None,
        typer.Option(
            envvar="DPREPRO_MIRROR",
            help="A folder with the official files, used instead of the network. Checksums are compared, "
            "so results don't depend on it.",
        ),
    ] = None,
) -> None:
    """Download, copy or make the raw files of a data set, with checksums; copy your own files."""
    from pipeline.data.fetch import fetch as run
    from pipeline.params import load

    done = run(name, load(), mirror=mirror)
    print(f"{done.folder}: {len(done.files)} files, edition {done.edition}, {done.digest}")
