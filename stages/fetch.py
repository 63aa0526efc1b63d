"""`dprepro fetch`: raw files, checked, into data/raw."""

from pathlib import Path
from typing import Annotated

import typer

Mirror = Annotated[
    Path | None,
    typer.Option(
        envvar="DPREPRO_MIRROR",
        help="A folder with the official files, which are copied instead of downloaded. Checksums are "
        "compared, so the results are the same.",
    ),
]


def fetch(
    name: Annotated[str, typer.Argument(help="A key of 'raw' or 'own' in params.yaml, such as mnist.")],
    mirror: Mirror = None,
) -> None:
    """Download, copy or generate the raw files of a data set, or copy your own files; compare checksums."""
    from dprepro.pipeline.data.fetch import fetch as run
    from dprepro.pipeline.files import digest_json
    from dprepro.pipeline.params import load

    done = run(name, load(), mirror=mirror)
    print(f"{done.folder}: {len(done.files)} files, edition {done.edition}, {digest_json(done.files)}")
