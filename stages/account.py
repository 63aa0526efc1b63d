"""`dprepro account KEY`: what settings would spend, with nothing trained."""

from typing import Annotated

import typer

from stages.answers import accounted


def account(key: Annotated[str, typer.Argument(help="A key of `accounts` in params.yaml.")]) -> None:
    """Account for a training without training it: its privacy ledger, as a record."""
    from pipeline import params
    from pipeline.ledgers import accounts

    path = accounts.account(key, params.load())
    print(f"{key}: accounted, {path}")
    for line in accounted(key):
        print(f"  {line}")
