"""Addresses in the MLflow page that `dprepro ui` opens."""

import json
from urllib.parse import quote

HOST, PORT = "127.0.0.1", 5000


def runs(experiments: list[str], row: str | None = None, address: str = f"http://{HOST}:{PORT}") -> str:
    """MLflow's list of the runs of some experiments, ready to compare; ``row`` leaves only a row's."""
    wanted = [] if row is None else ["searchFilter=" + quote(f'tags.row = "{row}"')]
    if len(experiments) == 1:  # the page for several would show nothing of a single one's runs
        return f"{address}/#/experiments/{experiments[0]}/runs" + "".join(f"?{part}" for part in wanted)
    return f"{address}/#/compare-experiments/s?" + "&".join(
        [f"experiments={quote(json.dumps(experiments))}", *wanted]
    )


def row(key: str, experiments: int) -> str:
    """The runs of a row.

    MLflow finds experiments by number alone, and numbers depend on the order they were made in. `publish`
    makes one for each of the laboratory's papers, so that all numbers together always hold the row.
    """
    return runs([str(number) for number in range(1, experiments + 1)], key)
