"""All results in one table, which a reader can filter where scripts run."""

import pandas as pd

from pipeline.reporting.pages.environment import environment


def render(table: pd.DataFrame) -> str:
    """The page as HTML, of what `summary` gathers."""
    lines = [
        {name: None if pd.isna(value) else value for name, value in line.items()}
        for line in table.to_dict("records")
    ]
    choices = {
        name: sorted({str(line[name]) for line in lines if line[name]})
        for name in ("paper", "data", "method", "privacy")
    }
    return environment().get_template("results.html").render(lines=lines, choices=choices, up="")
