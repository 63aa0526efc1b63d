"""`dprepro export ROW FOLDER`."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    row: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml, measured and accounted for.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    level: Annotated[
        str | None, typer.Option(help="One of the row's, such as epsilon=3, where it has several.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the training; else the level's first.")] = None,
) -> None:
    """Write a trained network for others: its weights, and a model card with a privacy statement."""
    from pipeline import params
    from pipeline.export.folder import export as write
    from pipeline.export.privacy_statement import headline

    exported = write(row, level, seed, folder, params.load())
    print(f"{row}: {exported.level}, seed {exported.seed}: exported to {folder}")
    print(f"  {headline(exported.privacy)}")
    if "vocabulary.txt" in exported.files:
        print("  vocabulary.txt has words of the private training texts, which no epsilon covers")
