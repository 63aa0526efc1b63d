"""The view that a link opens: judged results, sorted by table.

A link alone can't choose columns in MLflow. If a person shares a view, MLflow keeps it in a tag of the
experiment; this view is kept in the same way.
"""

import json

TAG = "mlflow.sharedViewState."  # MLflow's own; no interface of MLflow writes it
KEY = "judged"
FILTER = "tags.judged = 'true'"
COLUMNS = (
    *("metrics.`accuracy_percent`", "metrics.`paper_percent`", "metrics.`difference`"),
    *("metrics.`epsilon_upper`", "metrics.`epsilon_lower`"),
    *("tags.`status`", "tags.`planned`", "tags.`table`", "tags.`line`", "tags.`level`"),
)
_NAME = "attributes.`Run Name`"


def tags() -> dict[str, str]:
    """Tag of an experiment that stores the view; omitted entries keep the page's defaults."""
    state = {
        "searchFilter": FILTER,
        "orderByKey": "tags.`table`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(COLUMNS),
        "columnOrder": [_NAME, *COLUMNS],
        "columnWidths": {_NAME: 300, **dict.fromkeys(COLUMNS, 100)},
    }
    return {TAG + KEY: json.dumps(state)}


def link(experiment: str, address: str) -> str:
    """Address that opens the view of an experiment on the server at ``address``."""
    # without the last part, MLflow shows the pages of its tools for language models
    return f"{address}/#/experiments/{experiment}/runs?viewStateShareKey={KEY}&workflowType=machine_learning"
