"""Addresses in the MLflow page that `dprepro ui` opens."""

import json
from urllib.parse import quote

from pipeline.reporting import papers

HOST, PORT = "127.0.0.1", 5000


def compare(experiments: list[str], rows: str | None = None, address: str = f"http://{HOST}:{PORT}") -> str:
    """MLflow's comparison of several experiments; ``rows`` leaves only the runs of one row."""
    chosen = f"?experiments={quote(json.dumps(experiments))}"
    filtered = "" if rows is None else "&searchFilter=" + quote(f'tags.row = "{rows}"')
    return f"{address}/#/compare-experiments/s{chosen}{filtered}"


def row(key: str) -> str:
    """The runs of a row.

    MLflow finds experiments by number alone, and numbers depend on the order they were made in. `publish`
    makes one for every paper there is a file for, so that all numbers together always hold the row.
    """
    return compare([str(number) for number in range(1, len(papers.names()) + 1)], key)
