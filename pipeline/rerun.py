"""Training a row again, and the difference from its record.

A rerun trains and measures in a separate folder, ``.dprepro/reruns/ROW``, with the layout of a laboratory.
Records, weights and `dvc.lock` stay unchanged. Row and rerun have equal seeds, so their initial weights are
equal. Samples and noise are drawn anew unless the row is `reproducible`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.identity.standing import Standing
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.reporting.judging.intervals import Mean, contrast, mean
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Evaluation
from dprepro.pipeline.training.evaluation import evaluate
from dprepro.pipeline.training.loop import Show
from dprepro.pipeline.training.rows import train

RERUNS = Path(".dprepro/reruns")
Verdict = Literal["same", "no difference found", "differs", "undecided"]


@dataclass(frozen=True)
class Accuracy:
    """Test accuracies of a level's seeds."""

    by_seed: Mapping[int, float]

    @property
    def mean(self) -> Mean:
        """Mean over seeds."""
        return mean(tuple(self.by_seed.values()))


@dataclass(frozen=True)
class Difference:
    """Test accuracies of one level in two trainings, in percent, for the seeds that both have."""

    level: str
    before: Accuracy
    after: Accuracy

    @property
    def mean(self) -> Mean:
        """Mean over seeds of the accuracy after minus the accuracy before, with its 95 % interval."""
        return contrast([(1.0, "", self.after), (-1.0, "", self.before)])

    @property
    def verdict(self) -> Verdict:
        """'same' if each seed's accuracies are equal; otherwise by whether 0 is in the interval of `mean`."""
        if self.before.by_seed == self.after.by_seed:
            return "same"
        if self.mean.half is None:
            return "undecided"
        return "differs" if abs(self.mean.value) > self.mean.half else "no difference found"


def rerun(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Show,
    *,
    level: str | None = None,
    seeds: int | None = None,
    checkpoint_every: float = 60.0,
    workers: int = 1,
) -> list[Difference]:
    """Train replicas of a recorded row again and compare their test accuracies with the record's.

    A killed rerun continues; valid replicas of an earlier rerun are not trained again. ``level``: name of the
    only level to train, such as 'epsilon=3'. ``seeds``: number of the first seeds of each level to train;
    None: all in the record. The other arguments are those of `train`.

    Return a difference for each level, in the row's order.

    Raises:
        UserError: the row has no valid and measured record, or the record lacks the level or a seed.
    """
    run, evaluation, row = records.read_run(key), records.read_evaluation(key), settings.row(key)
    if run is None or evaluation is None:
        raise UserError(f"{key}: no record to compare with; `dprepro train {key}` and `evaluate` make one")
    standing = {replica.key: replica.weights for replica in Standing(row, data).of(run)}
    if not standing:
        raise UserError(f"{key}: its record was made from other settings, data or versions than are here")
    measured = Evaluation(
        row=key,
        replicas=tuple(each for each in evaluation.replicas if standing.get(each.key) == each.weights),
    )
    if not measured.replicas:
        raise UserError(
            f"{key}: its record has only weights that are not measured; run `dprepro evaluate {key}` first"
        )
    asked = _asked(key, row, measured, level, seeds)
    scratch = RERUNS / key
    declared = settings.model_copy(update={"rows": {**settings.rows, key: asked}})
    train(key, declared, data, execution, show, checkpoint_every, scratch, workers)
    evaluate(key, declared, data, execution, scratch)
    again = records.read_evaluation(key, scratch)
    assert again is not None, "it was just written"
    return list(differences(measured, again))


def _asked(key: str, row: Row, measured: Evaluation, level: str | None, seeds: int | None) -> Row:
    """Copy of ``row`` with only the levels and seeds to train again."""
    wanted = []
    for entry, resolved in zip(row.levels, row.resolved, strict=True):
        name = row.level(resolved)
        known = {replica.seed for replica in measured.replicas if replica.level == name}
        if known and level in (None, name):
            if seeds is not None and seeds > len(known):
                raise UserError(
                    f"{key}: --seeds {seeds}: {name} has {len(known)} in its record; allowed: at most that"
                )
            _, first = row.trainings[0]
            count = seeds or len(known)
            if lacking := sorted({*range(first, first + count)} - known):
                raise UserError(
                    f"{key}: {name}, seed {lacking[0]}: not in its record, and a rerun takes a level's first "
                    f"seeds; run `dprepro train {key}` and `dprepro evaluate {key}` first"
                )
            wanted.append({**entry, "seeds": count})
    if not wanted:
        names = ", ".join(dict.fromkeys(replica.level for replica in measured.replicas))
        raise UserError(f"{key}: --level {level}: not in its record; allowed: {names}")
    return Row.model_validate(row.model_dump() | {"levels": wanted})


def replaced(before: Evaluation, after: Evaluation) -> Iterator[Difference]:
    """Differences between an evaluation and its replacement by level, for seeds that were trained anew."""
    weights = {replica.key: replica.weights for replica in before.replicas}
    anew = [each for each in after.replicas if weights.get(each.key, each.weights) != each.weights]
    return differences(before, after.model_copy(update={"replicas": tuple(anew)}))


def differences(before: Evaluation, after: Evaluation) -> Iterator[Difference]:
    """Differences in test accuracy between two evaluations of a row by level, for common seeds."""
    known = {replica.key: replica for replica in before.replicas}
    pairs = [(known[replica.key], replica) for replica in after.replicas if replica.key in known]
    for level in dict.fromkeys(replica.level for _, replica in pairs):
        both = [pair for pair in pairs if pair[0].level == level]
        yield Difference(
            level,
            *(
                Accuracy({pair[side].seed: 100 * pair[side].metrics["test_accuracy"] for pair in both})
                for side in (0, 1)
            ),
        )
