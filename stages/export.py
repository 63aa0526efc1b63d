"""`dprepro export ROW FOLDER`: a trained network with its model card."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    row: Annotated[str, typer.Argument(help="A row with accuracies and ledger: a key of `rows`.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    level: Annotated[
        str | None, typer.Option(help="A level of the row, such as epsilon=3; needed if the row has several.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the run; default: the level's first seed.")
    ] = None,
) -> None:
    """Export a trained network: its weights, and a model card with a privacy statement."""
    from dprepro.pipeline import params
    from dprepro.pipeline.export.folder import export as write
    from dprepro.pipeline.export.privacy_statement import headline
    from dprepro.pipeline.results import records
    from dprepro.pipeline.results.weights import require

    settings = params.load()
    settings.row(row)
    if (run := records.read_run(row)) and not folder.exists():
        asked = [each for each in run.trainings if level in (None, each.level) and seed in (None, each.seed)]
        require(run, asked)  # before the data, which a clone lacks too
    exported = write(row, level, seed, folder, settings)
    print(f"{row}: {exported.level}, seed {exported.seed}: exported to {folder}")
    print(f"  {headline(exported.privacy)}")
    measured = records.read_evaluation(row).by_key.get((exported.level, exported.seed))
    if measured and measured.scores is not None and measured.scores.guess:
        print(f"  {measured.scores.guess}")
    if "vocabulary.txt" in exported.files:
        print("  vocabulary.txt has words of the private training texts, which no epsilon covers")
