"""What searches chose: it stands in their results under reports/searches, and is not typed in params.yaml."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipeline.errors import UserError, shown
from pipeline.params.problems import problem_lines
from pipeline.params.schema import Row
from pipeline.params.settings import Settings

SEARCHES = Path("reports/searches")

# of each search, of each level it tried: the settings that were best there
Choices = Mapping[str, Mapping[str, dict[str, Any]]]
_CHOSEN = TypeAdapter(dict[str, dict[str, Any]])


def read_choices(root: Path) -> Choices:
    """What the committed results of searches say, for the params.yaml in ``root``.

    Raises:
        UserError: a file is damaged.
    """
    choices = {}
    for path in sorted((root / SEARCHES).glob("*.json")):
        try:
            chosen = json.loads(path.read_bytes())["chosen"]
            choices[path.stem] = _CHOSEN.validate_python(chosen)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
            why = shown(str(problem).splitlines()[0])
            raise UserError(f"{path}: not the results of a search: {why}") from problem
    return choices


def with_choices(settings: Settings, choices: Choices) -> Settings:
    """Every level of a row with what the row's search chose there; the others as they are typed.

    Raises:
        ValueError: something else is typed, or what was chosen is no setting any more; 'key: why'.
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
