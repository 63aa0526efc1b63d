"""Choosing hyper-parameters on validation data, on the record.

Every candidate is trained on the training split and judged on the validation split; the test split is never
read. What was tried, how it did and what it spent goes to ``reports/searches/NAME.json``. What these runs
spend is in no row's epsilon, and every ledger says so.
"""

import itertools
import shutil
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.files import digest_json, write_json
from pipeline.methods.base import Execution, Guarantee
from pipeline.methods.settings import MethodSettings
from pipeline.models.model import Model
from pipeline.params import PARAMS, Row, Search, Settings, pick
from pipeline.pretrained.joining import check_joined
from pipeline.privacy.laplace import Releases
from pipeline.results import records
from pipeline.results.schema import CandidateSpent
from pipeline.training.checkpoints import CHECKPOINTS, checkpoint_lock
from pipeline.training.loop import Context, Group, Replica, Show
from pipeline.training.rows import provenance_of
from pipeline.training.side_by_side import train_replicas

# The row's own seeds stay unseen until its settings are fixed.
FIRST_SEED = 1000


def search(
    name: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Show,
    root: Path = Path(),
    workers: int = 1,
) -> Path:
    """Run a search and write its results; an interrupted one continues from its checkpoint.

    Raises:
        UserError: a candidate is not a valid setting.
    """
    definition = pick(settings.searches, name, "search")
    check_joined(data, settings)
    row = settings.row(definition.row)
    source = provenance_of(definition.row, settings, data, execution)
    identity = digest_json([definition.model_dump(mode="json"), source.config, source.made_by, source.data])
    checkpoint = root / CHECKPOINTS / f"search-{name}-{identity[7:19]}"
    candidates: list[dict[str, Any]] = []
    with checkpoint_lock(checkpoint):
        for number, (model, choices) in enumerate(_by_model(name, definition, settings)):
            replicas = [
                Replica(f"{row.level(configured)}/{index}", FIRST_SEED + seed, configured)
                for index, (_, configured) in enumerate(choices)
                for seed in range(definition.seeds)
            ]
            context = Context(
                model, row.method, row.reproducible, data, execution, show,
                checkpoint / str(number), checkpoint_every=60,
            )  # fmt: skip
            groups = train_replicas(replicas, context, workers)
            accuracies, seconds = _final_accuracies(groups), _seconds(groups)
            recorded_spending = {
                member.key: candidate_spent(group.method.guarantee(index), group.steps)
                for group in groups
                for index, member in enumerate(group.replicas)
            }
            for index, (values, configured) in enumerate(choices):
                level = row.level(configured)
                keys = [(f"{level}/{index}", FIRST_SEED + seed) for seed in range(definition.seeds)]
                candidates.append(
                    {
                        "level": level,
                        "settings": values,
                        "seeds": definition.seeds,
                        "validation_accuracy": [accuracies[key] for key in keys],
                        "seconds": round(sum(seconds[key] for key in keys), 1),
                        "spent": recorded_spending[keys[0]],
                    }
                )
    best: dict[str, Any] = {}
    for candidate in sorted(
        candidates, key=lambda candidate: fmean(candidate["validation_accuracy"]), reverse=True
    ):
        best.setdefault(candidate["level"], candidate)
    target = records.search_path(name, root)
    write_json(
        target,
        {
            "name": name,
            "row": definition.row,
            "judged_on": f"validation split of {row.data} ({len(data.splits['validation'])} examples)",
            "candidates": candidates,
            "chosen": {candidate["level"]: best[candidate["level"]]["settings"] for candidate in candidates},
            "provenance": source.model_dump(mode="json"),
        },
    )
    shutil.rmtree(checkpoint, ignore_errors=True)
    return target


def _seconds(groups: list[Group]) -> dict[tuple[str, int], float]:
    """Each replica's share of the time that those trained with it took, by (level, seed)."""
    return {member.key: group.seconds / len(group.replicas) for group in groups for member in group.replicas}


def candidate_spent(guarantee: Guarantee, steps: int) -> dict[str, Any] | None:
    """What a training of ``steps`` steps spends, as it is recorded; None where nothing bounds it."""
    mechanism = guarantee.spending
    spending = mechanism.epsilon if isinstance(mechanism, Releases) else mechanism
    if guarantee.broken or spending is None or spending == inf:
        return None
    record = CandidateSpent(spending=spending, steps=steps, delta=guarantee.delta or 0.0)
    return record.model_dump(mode="json", exclude_defaults=True)


def _by_model(
    name: str, definition: Search, settings: Settings
) -> list[tuple[Model, list[tuple[dict, MethodSettings]]]]:
    """Candidates as (values tried, full settings), gathered by the model they train."""
    row = settings.row(definition.row)
    by_model: dict[Model, list[tuple[dict, MethodSettings]]] = {}
    for values in itertools.product(*definition.grid.values()):
        assignment = dict(zip(definition.grid, values, strict=True))
        parts = {
            key.removeprefix("model."): value for key, value in assignment.items() if key.startswith("model.")
        }
        changes = {key: value for key, value in assignment.items() if not key.startswith("model.")}
        try:
            model = Model.model_validate({**row.model.model_dump(), **parts})
            # what the row's method can't train is refused in the words of the row
            candidate = Row.model_validate({**row.model_dump(), "model": model.model_dump()})
            for level in definition.levels or row.levels:
                configured = row.configured(level, definition.settings, changes)
                if problem := configured.problem(settings.circumstances(candidate)):
                    raise UserError(f"{PARAMS}: searches.{name}: {problem}")
                by_model.setdefault(model, []).append((assignment, configured))
        except ValidationError as problem:
            error = problem.errors()[0]
            location = ".".join(map(str, error["loc"]))
            raise UserError(
                f"{PARAMS}: searches.{name}: {location}: {error['input']!r}: {error['msg']}"
            ) from problem
    return list(by_model.items())


def _final_accuracies(groups: list[Group]) -> dict[tuple[str, int], float]:
    """Validation accuracy after the last step, by (level, seed)."""
    return {
        (level, seed): value
        for group in groups
        for level, seed, step, _, metric, value in group.history
        if metric == "validation_accuracy" and step == group.steps
    }
