"""Training a row again, and the difference from its record.

A rerun trains and measures in a separate folder, ``.dprepro/reruns/ROW``, with the layout of a laboratory.
Records, weights and `dvc.lock` stay unchanged. Row and rerun have equal seeds, so their initial weights are
equal. Samples and noise are drawn anew unless the row is `reproducible`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Literal

from scipy.special import stdtrit

from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.identity.frozen import valid_trainings
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.reporting.verdict import LEVEL, Mean, SeedValues
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import RowEvaluations
from dprepro.pipeline.results.weights import duration
from dprepro.pipeline.training.evaluation import evaluate
from dprepro.pipeline.training.loop import Show
from dprepro.pipeline.training.rows import missing, train

RERUNS = Path(".dprepro/reruns")
Verdict = Literal["same", "no difference found", "differs", "undecided"]


@dataclass(frozen=True)
class Difference:
    """Test accuracies of one level in percent: as recorded, and of trainings with the same settings since."""

    level: str
    before: SeedValues
    after: SeedValues

    @property
    def mean(self) -> Mean:
        """Mean after minus mean before, with a 95 % interval.

        Both are accuracies of the same training, so their spreads are pooled (Student's two-sample interval).
        For a single new training it is the prediction interval of one more training, around the old mean.
        """
        samples = [tuple(each.by_seed.values()) for each in (self.before, self.after)]
        value, freedom = fmean(samples[1]) - fmean(samples[0]), sum(map(len, samples)) - 2
        if freedom == 0:
            return Mean(value, None, 1)
        squares = sum((each - fmean(sample)) ** 2 for sample in samples for each in sample)
        error = sqrt(squares / freedom * sum(1 / len(sample) for sample in samples))
        return Mean(value, float(stdtrit(freedom, (1 + LEVEL) / 2)) * error, min(map(len, samples)))

    @property
    def verdict(self) -> Verdict:
        """'same' if each new accuracy is its seed's recorded one; else by whether 0 is in the interval."""
        if self.after.by_seed.items() <= self.before.by_seed.items():
            return "same"
        if self.mean.half_width is None:
            return "undecided"
        return "differs" if abs(self.mean.value) > self.mean.half_width else "no difference found"


def rerun(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    show: Show,
    say: Callable[[str], None],
    *,
    level: str | None = None,
    seeds: int | None = None,
    checkpoint_every: float = 60.0,
    workers: int = 1,
) -> list[Difference]:
    """Train trainings of a recorded row again and compare their test accuracies with the record's.

    A killed rerun continues; valid trainings of an earlier rerun are not trained again. ``say`` prints a line
    before the training. ``level``: the only level to train, by name or value: 'epsilon=3' or '3'. ``seeds``:
    number of the first seeds of each level to train; None: all in the record. The other arguments are those
    of `train`.

    Return a difference for each level, in the row's order.

    Raises:
        UserError: the row has no valid and measured record, or the record lacks the level or a seed.
    """
    run, evaluation, row = records.read_run(key), records.read_evaluation(key), settings.row(key)
    if run is None or not evaluation.trainings:
        raise UserError(f"{key}: no record to compare with; `dprepro train {key}` and `evaluate` make one")
    standing = {key: each.weights for key, each in valid_trainings(run, row, data).items()}
    if not standing:
        raise UserError(f"{key}: its record was made from other settings, data or versions than are here")
    measured = RowEvaluations(
        row=key,
        trainings=tuple(each for each in evaluation.trainings if standing.get(each.key) == each.weights),
    )
    if not measured.trainings:
        raise UserError(
            f"{key}: its record has only weights that are not measured; run `dprepro evaluate {key}` first"
        )
    asked = _asked(key, row, measured, level, seeds)
    scratch = RERUNS / key
    declared = settings.model_copy(update={"rows": {**settings.rows, key: asked}})
    if wanted := missing(asked, records.read_run(key, scratch), data, scratch):
        say(f"{key}: {len(wanted)} to train, {duration(run, [each.level for each in wanted])}")
    train(key, declared, data, execution, show, checkpoint_every, scratch, workers)
    evaluate(key, declared, data, execution, scratch)
    return list(differences(measured, records.read_evaluation(key, scratch)))


def _asked(key: str, row: Row, measured: RowEvaluations, level: str | None, seeds: int | None) -> Row:
    """Copy of ``row`` with only the levels and seeds to train again."""
    wanted = []
    named = {row.level(each) for each in row.resolved}
    if level is not None and level not in named:
        level = next((each for each in named if _value(each) == _value(level) is not None), level)
    for entry, resolved in zip(row.levels, row.resolved, strict=True):
        name = row.level(resolved)
        known = {training.seed for training in measured.trainings if training.level == name}
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
        names = ", ".join(dict.fromkeys(training.level for training in measured.trainings))
        raise UserError(f"{key}: --level {level}: not in its record; allowed: {names}")
    return Row.model_validate(row.model_dump() | {"levels": wanted})


def _value(level: str) -> float | None:
    """Number of a level: 3.0 for 'epsilon=3' or '3'; None: it has none."""
    try:
        return float(level.rpartition("=")[2])
    except ValueError:
        return None


def replaced(before: RowEvaluations, after: RowEvaluations) -> Iterator[Difference]:
    """Differences by level between an evaluation and those of its replacement that were trained anew."""
    weights = {training.key: training.weights for training in before.trainings}
    anew = [each for each in after.trainings if weights.get(each.key, each.weights) != each.weights]
    return differences(before, after.model_copy(update={"trainings": tuple(anew)}))


def differences(before: RowEvaluations, after: RowEvaluations) -> Iterator[Difference]:
    """Differences in test accuracy between two evaluations of a row, for each level that both have."""
    recorded, again = _by_level(before), _by_level(after)
    for level in again:
        if level in recorded:
            yield Difference(level, recorded[level], again[level])


def _by_level(evaluation: RowEvaluations) -> dict[str, SeedValues]:
    values: dict[str, dict[int, float]] = {}
    for training in evaluation.trainings:
        values.setdefault(training.level, {})[training.seed] = 100 * training.metrics["test_accuracy"]
    return {level: SeedValues.of(each) for level, each in values.items()}
