"""`dprepro account KEY`: epsilon of declared settings, without training."""

from typing import Annotated

import typer

from dprepro.stages.answers import accounted


def account(key: Annotated[str, typer.Argument(help="A key of `accounts` in params.yaml.")]) -> None:
    """Compute the privacy ledger of an entry under `accounts` in params.yaml, without training."""
    from dprepro.pipeline import params
    from dprepro.pipeline.ledgers import rows

    path = rows.account(key, params.load())
    print(f"{key}: accounted, {path}")
    for line in accounted(key):
        print(f"  {line}")
