"""Choosing hyper-parameters on validation data, on the record.

Every candidate is trained on the training split and judged on the validation split; the test split is never
read. What was tried, how it did and what it spent goes to ``reports/searches/NAME.json``. What these runs
spend is in no row's epsilon, and every ledger says so.
"""

import json
import shutil
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from pipeline.data.prepared import Prepared
from pipeline.files import digest_json, write_json
from pipeline.methods.base import Execution, Guarantee
from pipeline.params import Settings, pick
from pipeline.params.candidates import candidates
from pipeline.params.schema import SEARCHED_SEED
from pipeline.pretrained.joining import check_joined
from pipeline.privacy.laplace import Releases
from pipeline.results import records
from pipeline.results.schema import ReplicaKey, TrainingSpent
from pipeline.training.checkpoints import CHECKPOINTS, checkpoint_lock
from pipeline.training.loop import Context, Group, Replica, Show
from pipeline.training.rows import check_inputs, provenance_of
from pipeline.training.side_by_side import train_replicas


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
        UserError: there is no such search, or the data don't fit.
    """
    definition = pick(settings.searches, name, "search")
    row = settings.row(definition.row)
    check_joined(data, settings)
    check_inputs(data, row.method)
    source = provenance_of(definition.row, settings, data, execution)
    identity = digest_json([definition.model_dump(mode="json"), source.config, source.made_by, source.data])
    checkpoint = root / CHECKPOINTS / f"search-{name}-{identity[7:19]}"
    choices = list(candidates(name, settings))
    # the row's seeds stay unseen until its settings are fixed
    seeds = range(SEARCHED_SEED, SEARCHED_SEED + definition.seeds)
    replicas = [
        Replica(f"{row.level(configured)}/{index}", seed, configured)
        for index, (_, configured) in enumerate(choices)
        for seed in seeds
    ]
    context = Context(
        row.model,
        row.method,
        row.reproducible,
        data,
        execution,
        show,
        checkpoint,
        checkpoint_every=60,
        final_only=True,  # the last accuracy judges a candidate, and measuring can cost more than training
    )
    trained: dict[ReplicaKey, _Outcome] = {}
    with checkpoint_lock(checkpoint):
        for group in train_replicas(replicas, context, workers):
            for index, member in enumerate(group.replicas):
                trained[member.key] = _Outcome(
                    _final_accuracy(group, member),
                    group.seconds / len(group.replicas),
                    candidate_spent(group.method.guarantee(index), group.steps),
                )
    tried: list[dict[str, Any]] = []
    for index, (values, configured) in enumerate(choices):
        level = row.level(configured)
        outcomes = [trained[f"{level}/{index}", seed] for seed in seeds]
        tried.append(
            {
                "level": level,
                "settings": values,
                "seeds": definition.seeds,
                "validation_accuracy": [outcome.accuracy for outcome in outcomes],
                "seconds": round(sum(outcome.seconds for outcome in outcomes), 1),
                "spent": outcomes[0].spent,
            }
        )
    best: dict[str, Any] = {}
    for candidate in sorted(
        tried, key=lambda candidate: fmean(candidate["validation_accuracy"]), reverse=True
    ):
        best.setdefault(candidate["level"], candidate)
    target = records.search_path(name, root)
    write_json(
        target,
        {
            "name": name,
            "row": definition.row,
            "judged_on": f"validation split of {row.data} ({len(data.splits['validation'])} examples)",
            "candidates": tried,
            "chosen": {candidate["level"]: best[candidate["level"]]["settings"] for candidate in tried},
            "provenance": source.model_dump(mode="json"),
            **_replaced(target),
        },
    )
    shutil.rmtree(checkpoint, ignore_errors=True)
    return target


def _replaced(record: Path) -> dict[str, Any]:
    """What trainings of the search spent by its earlier ``record``: they were seen, so they still count."""
    if not record.exists():
        return {}
    earlier = json.loads(record.read_bytes())
    before = records.candidates_replaced(earlier)
    replaced = records.with_replaced([before], records.candidates_spent(earlier))
    return {"replaced": [known.model_dump(mode="json", exclude_defaults=True) for known in replaced]}


class _Outcome(NamedTuple):
    """What came of one replica of a candidate."""

    accuracy: float  # on the validation split, after the last step
    seconds: float  # its share of the time that those trained with it took
    spent: dict[str, Any] | None


def candidate_spent(guarantee: Guarantee, steps: int) -> dict[str, Any] | None:
    """What a training of ``steps`` steps spends, as it is recorded; None where nothing bounds it."""
    mechanism = guarantee.spending
    spending = mechanism.epsilon if isinstance(mechanism, Releases) else mechanism
    if guarantee.broken or spending is None or spending == inf:
        return None
    record = TrainingSpent(spending=spending, steps=steps, delta=guarantee.delta or 0.0)
    return record.model_dump(mode="json", exclude_defaults=True)


def _final_accuracy(group: Group, member: Replica) -> float:
    """A replica's validation accuracy after the last step."""
    (accuracy,) = (
        value
        for level, seed, step, _, metric, value in group.history
        if (level, seed, step, metric) == (*member.key, group.steps, "validation_accuracy")
    )
    return float(accuracy)
