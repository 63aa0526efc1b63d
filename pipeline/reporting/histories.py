"""Validation accuracies during training, from `reports/histories/ROW.csv`."""

from pathlib import Path

import pandas as pd

from pipeline.results.histories import ACCURACY, read_history
from pipeline.results.records import HISTORY_COLUMNS


def curves(path: Path | None, level: str) -> pd.DataFrame:
    """Validation accuracies, 0 to 1, at a level: a line per epoch, a column per seed; empty without history.

    Raises:
        UserError: the file is not a history.
    """
    lines = pd.DataFrame(read_history(path) if path else [], columns=HISTORY_COLUMNS)
    lines = lines[(lines["level"] == level) & (lines["metric"] == ACCURACY)]
    return lines.pivot(index="epoch", columns="seed", values="value")
