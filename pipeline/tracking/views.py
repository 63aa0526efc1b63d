"""Views of MLflow's runs table: filter, columns and order, kept in the store so that a link opens them.

If a person shares a view, MLflow keeps it in a tag of the experiment. These views are kept in the same way,
because a link alone can't choose columns. MLflow's page for several experiments reads the views of the first
one. Epsilons are comparable only at the same neighbouring relation, delta and data set, so these three are
columns beside the epsilons.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from dprepro.pipeline.reporting import verdict

TAG = "mlflow.sharedViewState."
# Without this, MLflow shows the pages of its tools for language models.
TRAINING = "workflowType=machine_learning"
_RESULTS = "tags.kind = 'level'"  # a line for each row and level: its mean over seeds, or its only seed
# columns in their order, each with its width in pixels
_NAME = "attributes.`Run Name`"
_COLUMNS = {
    "metrics.`test_accuracy`": 110,
    "metrics.`test_accuracy_half_width`": 170,
    "metrics.`epsilon_proven`": 120,
    "metrics.`epsilon_shown`": 120,
    "metrics.`epsilon_claimed`": 120,
    "params.`delta`": 70,
    "params.`neighbouring`": 120,
    "params.`data_set`": 80,
    "tags.`privacy`": 150,
    "tags.`budget`": 80,
}


@dataclass(frozen=True)
class View:
    """A saved view of the runs table."""

    key: str
    shows: str  # in words
    filter: str


def _verdict(status: verdict.Privacy) -> str:
    return f"{_RESULTS} and tags.privacy = '{status}'"


VIEWS = (
    View("results", "every result, the most accurate first", _RESULTS),
    View(
        "best-at-3-on-mnist",
        "the best on MNIST at a proven epsilon of at most 3 at delta 1e-5, of adding or removing one example",
        f"{_RESULTS} and metrics.epsilon_proven <= 3 and metrics.delta <= 0.00001"
        " and params.neighbouring = 'add or remove one' and params.data_set = 'mnist'",
    ),
    View("no-proven-bound", "claimed privacy without a proven bound", _verdict("not proven")),
    View("spends-more", "a lower bound above the claimed ε", _verdict("exceeded")),
)


def tags() -> dict[str, str]:
    """Tags of an experiment that store the views."""
    return {TAG + view.key: json.dumps(_state(view)) for view in VIEWS}


def link(view: View, experiments: Sequence[str], address: str) -> str:
    """Address that opens ``view`` of the experiments with these ids, on the server at ``address``."""
    shown = f"viewStateShareKey={view.key}&{TRAINING}"
    if len(experiments) == 1:  # the page for several experiments would show no runs of a single one
        return f"{address}/#/experiments/{experiments[0]}/runs?{shown}"
    return f"{address}/#/compare-experiments/s?experiments={quote(json.dumps(list(experiments)))}&{shown}"


def _state(view: View) -> dict[str, object]:
    """State of a view as MLflow's page stores it; omitted entries keep the page's defaults."""
    return {
        "searchFilter": view.filter,
        "orderByKey": "metrics.`test_accuracy`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(_COLUMNS),
        "columnOrder": [_NAME, *_COLUMNS],
        "columnWidths": {_NAME: 400, **_COLUMNS},
    }
