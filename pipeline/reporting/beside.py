"""Results of the laboratories beside this one that params.yaml names, as their own reports have them.

Their summaries and papers' files are read and nothing else, so that no code of theirs is loaded here.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pipeline.errors import UserError
from pipeline.params import PAPERS, Settings
from pipeline.reporting import papers, vocabulary


@dataclass(frozen=True)
class Beside:
    """A mean accuracy of another laboratory at an epsilon that is proven there."""

    label: str  # the paper, and the line of its table
    raw: str  # the raw data set
    epsilon: float
    percent: float


def read(settings: Settings, root: Path = Path()) -> list[Beside]:
    """Every level there that decides a verdict and has a bound.

    Raises:
        UserError: a laboratory has no summary, or it is not one.
    """
    return [result for path in settings.summaries for result in _of_laboratory(root / path)]


def _of_laboratory(path: Path) -> list[Beside]:
    unbounded = [vocabulary.PRIVACY[state].text for state in ("none", "none_proven")]
    numbers: dict[str, type] = {"proven": float, "ours": float, "decides": bool}
    try:
        lines = pd.read_csv(path, dtype=numbers)
        decided = lines[lines["decides"] & (lines["metric"] == "test_accuracy") & lines["proven"].notna()]
        results = decided[~decided["privacy"].isin(unbounded)].to_dict("records")
        names = {
            key: papers.short(papers.load(key, path.parents[1] / PAPERS)) for key in decided["paper"].unique()
        }
        return [
            Beside(
                f"{names[result['paper']]}, {result['line']}, run here",
                result["raw"],
                result["proven"],
                result["ours"],
            )
            for result in results
        ]
    except (OSError, KeyError, ValueError) as problem:
        raise UserError(f"{path}: no summary of a report; run `dprepro report` there") from problem
