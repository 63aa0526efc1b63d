"""All results in one table, which a reader can filter where scripts run."""

from collections.abc import Sequence

import pandas as pd

from pipeline.reporting.gather import PaperResult
from pipeline.reporting.pages.environment import environment
from pipeline.reporting.summary import summary


def render(papers: Sequence[PaperResult]) -> str:
    """The page as HTML."""
    table = summary(papers)
    lines = [
        {name: None if pd.isna(value) else value for name, value in line.items()}
        for line in table.to_dict("records")
    ]
    choices = {
        name: sorted({line[name] for line in lines if line[name]})
        for name in ("paper", "data", "method", "privacy")
    }
    return environment().get_template("results.html").render(lines=lines, choices=choices, up="")
