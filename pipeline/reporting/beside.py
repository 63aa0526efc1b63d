"""Results of the laboratories beside this one that params.yaml names, as their own reports have them.

Their summaries and papers' files are read and nothing else, so that no code of theirs is loaded here.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from pipeline.errors import UserError, reading
from pipeline.params import PAPERS, Settings
from pipeline.reporting import papers, vocabulary


@dataclass(frozen=True)
class Beside:
    """A mean accuracy of another laboratory at an epsilon that is proven there."""

    label: str  # the paper, and the line of its table
    data: str
    epsilon: float
    percent: float


def read(settings: Settings, root: Path = Path()) -> list[Beside]:
    """Every level there that decides a verdict and has a bound.

    Raises:
        UserError: a laboratory has no summary, or it is not one.
    """
    return [result for path in settings.summaries for result in _of_laboratory(root / path)]


def _of_laboratory(path: Path) -> Iterator[Beside]:
    unbounded = {vocabulary.PRIVACY[state].text for state in ("none", "none_proven")}
    with reading(path, "run `dprepro report` there"):
        content = path.read_bytes()
    try:
        lines = list(csv.DictReader(content.decode().splitlines()))
    except (UnicodeDecodeError, csv.Error) as problem:
        raise _no_summary(path) from problem
    for line in lines:
        try:
            judged = line["metric"] == "test_accuracy" and line["decides"] == "True"
            if judged and line["proven"] and line["privacy"] not in unbounded:
                paper = papers.short(papers.load(line["paper"], path.parents[1] / PAPERS))
                numbers = float(line["proven"]), float(line["ours"])
                if not all(map(isfinite, numbers)):
                    raise ValueError(f"{numbers}")
                yield Beside(f"{paper}, {line['line']}, run here", line["data"], *numbers)
        except (KeyError, TypeError, ValueError) as problem:
            raise _no_summary(path) from problem


def _no_summary(path: Path) -> UserError:
    return UserError(f"{path}: no summary of a report; run `dprepro report` there")
