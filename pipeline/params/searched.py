"""Settings chosen by searches, read from reports/searches/NAME.json: params.yaml need not repeat them."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dprepro.errors import shown
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.params.documents import read_record
from dprepro.pipeline.params.schema import Row
from dprepro.pipeline.params.settings import Settings
from dprepro.problems import problem_lines

SEARCHES = Path("reports/searches")

# best settings by search and level
Choices = Mapping[str, Mapping[str, dict[str, Any]]]


class Judged(BaseModel):
    """Candidate of a search: its settings and validation accuracies."""

    model_config = ConfigDict(frozen=True)

    level: str
    settings: dict[str, Any]  # values of the grid
    seeds: Annotated[int, Field(ge=1)]
    validation_accuracy: tuple[Annotated[float, Field(ge=0, le=1)], ...]  # one per seed

    @model_validator(mode="after")
    def _has_an_accuracy_per_seed(self) -> "Judged":
        if len(self.validation_accuracy) != self.seeds:
            raise ValueError(f"{len(self.validation_accuracy)} accuracies of {self.seeds} seeds")
        return self


def best(candidates: Sequence[Judged]) -> dict[str, dict[str, Any]]:
    """For each level, settings with the highest mean accuracy; the first if several are equal."""
    levels = dict.fromkeys(candidate.level for candidate in candidates)
    return {
        level: max(
            (candidate for candidate in candidates if candidate.level == level),
            key=lambda candidate: fmean(candidate.validation_accuracy),
        ).settings
        for level in levels
    }


class Choice(BaseModel):
    """Fields of a search's record that decide settings of rows; `SearchRecord` has all other fields."""

    model_config = ConfigDict(frozen=True)

    candidates: Annotated[tuple[Judged, ...], Field(min_length=1)]
    chosen: dict[str, dict[str, Any]]  # by level

    @model_validator(mode="after")
    def _chose_the_best(self) -> "Choice":
        expected = best(self.candidates)
        for level in {**expected, **self.chosen}:
            if self.chosen.get(level) != expected.get(level):
                raise ValueError(f"chosen: {shown(level)}: not the candidate with the highest accuracy")
        return self


def read_choices(root: Path) -> Choices:
    """Settings chosen by the recorded searches in ``root``, by search and level.

    Raises:
        UserError: a file is no record of a search, or its choice does not follow from its accuracies.
    """
    return {path.stem: read_record(path, Choice).chosen for path in sorted((root / SEARCHES).glob("*.json"))}


def with_choices(settings: Settings, choices: Choices) -> Settings:
    """``settings``, in which every level of a row has the values that the row's search chose for it.

    Raises:
        ValueError: a declared value differs from the choice, or the choice isn't allowed any more. The
            message is 'key: reason'.
    """
    rows = {
        key: _with_choice(key, row, choices.get(row.search or "", {})) for key, row in settings.rows.items()
    }
    return settings.model_copy(update={"rows": rows})


def _with_choice(key: str, row: Row, choice: Mapping[str, dict[str, Any]]) -> Row:
    levels = []
    for level, settings in zip(row.levels, row.resolved, strict=True):
        chosen = choice.get(row.level(settings), {})
        for name, value in chosen.items():
            if level.get(name, value) != value:
                raise ValueError(
                    f"rows.{key}: {name} is {level[name]!r} at {row.level(settings)!r}, where search "
                    f"{row.search!r} chose {value!r}"
                )
        levels.append(level | chosen)
    if levels == row.levels:
        return row
    try:
        return Row.model_validate({**row.model_dump(exclude_unset=True), "levels": levels})
    except ValidationError as problem:
        why = "; ".join(line.lstrip(".") for line in problem_lines(problem))
        raise ValueError(f"rows.{key}: search {row.search!r} chose {why}") from problem


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
