"""`dprepro ledger ROW`: bounds on epsilon for a trained row."""

from typing import Annotated

import typer

from dprepro.stages.answers import accounted


def ledger(
    row: Annotated[str, typer.Argument(help="A trained row: a key of `rows` in params.yaml.")],
) -> None:
    """Compute the privacy ledger of a row: bounds on epsilon for each training run. Needs no weights."""
    from dprepro.pipeline import params
    from dprepro.pipeline.ledgers.composition import privacy_budget
    from dprepro.pipeline.ledgers.rows import row_ledgers
    from dprepro.pipeline.ledgers.sentences import data_budget

    settings = params.load()
    print(f"{row}: accounted, {row_ledgers(row, settings)}")
    for line in accounted(row):
        print(f"  {line}")
    if budget := privacy_budget(settings.row(row).data, settings):
        print(f"  {data_budget(budget)}")
