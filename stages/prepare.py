"""`dprepro prepare`: raw files into splits, in data/prepared."""

from typing import Annotated

import typer


def prepare(
    name: Annotated[str, typer.Argument(help="A key of 'data' in params.yaml, such as mnist.")],
) -> None:
    """Split raw data into training, validation, test and public examples, and write a manifest."""
    from dprepro.pipeline.data.prepare import prepare as run
    from dprepro.pipeline.data.prepared import PREPARED
    from dprepro.pipeline.files import digest_json
    from dprepro.pipeline.params import load

    manifest = run(name, load())
    counts = ", ".join(f"{split} {count}" for split, count in manifest["counts"].items())
    editions = ", ".join(f"{raw} {about['edition']}" for raw, about in manifest["raw"].items())
    print(f"{PREPARED / name}: {counts}; editions: {editions}; {digest_json(manifest['digests'])}")
