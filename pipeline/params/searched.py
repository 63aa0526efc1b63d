"""Candidates of a search, and the values that it chose, which `dprepro search` writes into params.yaml."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from dprepro.checking import problem_lines
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.params.schema import Row
from dprepro.pipeline.params.settings import Settings

# best settings by search and level
Choices = Mapping[str, Mapping[str, dict[str, Any]]]


def candidates(name: str, settings: Settings) -> Iterator[tuple[dict[str, Any], MethodSettings]]:
    """Candidates of the search ``name`` at each level: values of the grid, and settings with these values.

    Raises:
        ValueError: a candidate can't be trained. The message is 'key: reason'.
    """
    search = settings.searches[name]
    row = settings.row(search.row)
    for values in itertools.product(*search.grid.values()):
        assignment = dict(zip(search.grid, values, strict=True))
        for level in search.levels or row.levels:
            try:
                configured = row.configured(level, search.settings, assignment)
            except ValidationError as problem:
                raise ValueError(
                    f"searches.{name}: {'; '.join(problem_lines(problem, row.own_settings))}"
                ) from problem
            if misfit := configured.problem(settings.circumstances(row)):
                raise ValueError(f"searches.{name}: {misfit}")
            yield assignment, configured


def with_chosen(choices: Choices, row: Row) -> list[dict[str, Any]]:
    """Levels of ``row``, with the values that its search chose."""
    chosen, levels = choices.get(row.search or "", {}), zip(row.levels, row.resolved, strict=True)
    return [level | chosen.get(row.level(settings), {}) for level, settings in levels]


def differing(name: str, chosen: Mapping[str, dict[str, Any]], settings: Settings) -> str | None:
    """First difference between the values that the search ``name`` chose and the rows that name it.

    None: there is none.
    """
    for key, row in settings.rows.items():
        for configured in row.resolved if row.search == name else ():
            level = row.level(configured)
            for setting, value in chosen.get(level, {}).items():
                if (declared := getattr(configured, setting)) != value:
                    return (
                        f"rows.{key}: {setting} is {declared!r} at {level!r}, where search {name!r} chose "
                        f"{value!r}"
                    )
    return None
