"""The candidates of a search: its grid at each level."""

import itertools
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from pipeline.methods.settings import MethodSettings
from pipeline.params.problems import problem_lines
from pipeline.params.settings import Settings


def candidates(name: str, settings: Settings) -> Iterator[tuple[dict[str, Any], MethodSettings]]:
    """Candidates of each level as (values tried, full settings).

    Raises:
        ValueError: one can't be trained; 'key: why'.
    """
    search = settings.searches[name]
    row = settings.row(search.row)
    for values in itertools.product(*search.grid.values()):
        assignment = dict(zip(search.grid, values, strict=True))
        for level in search.levels or row.levels:
            try:
                configured = row.configured(level, search.settings, assignment)
            except ValidationError as problem:
                raise ValueError(f"searches.{name}: {'; '.join(problem_lines(problem))}") from problem
            if misfit := configured.problem(settings.circumstances(row)):
                raise ValueError(f"searches.{name}: {misfit}")
            yield assignment, configured
