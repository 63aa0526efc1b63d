"""A record as runs: what each is called, says and holds, before MLflow is told of any."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from mlflow.entities import Dataset, Metric

from pipeline.errors import UserError
from pipeline.files import digest_file, digest_json
from pipeline.params import Settings
from pipeline.reporting.judging.guarantees import guarantee
from pipeline.reporting.judging.intervals import mean
from pipeline.reporting.papers import Paper
from pipeline.results import records
from pipeline.results.records import ACCOUNTING, Provenance, Record, Replica
from pipeline.rounding import rounded_down, rounded_up
from pipeline.tracking import data_sets, naming
from pipeline.tracking.describing import ACCURACY, by_level, of_level, of_row, privacy

# Part of every digest: raised when runs are written differently, it replaces those of older versions.
FORMAT = 2
LONGEST = 500  # of a parameter's text, in every store MLflow has
DIGITS, MEAN_DIGITS = 4, 6  # significant, as far as a column shows them; the row's files have all
HALF_WIDTH = f"{ACCURACY}_half_width"  # of the 95 % interval over seeds
PARENT = "mlflow.parentRunId"
# What curves are drawn of. The report has those of norms and of relevances; here each would be a chart.
CURVES = ("train_loss", "validation_accuracy", "gradient_norm", "clipped_share")
# of what was measured, beside every metric of an account, which has few
MEASURED = (ACCURACY, "validation_accuracy")
Curves = dict[tuple[str, int], list[tuple[str, int, float]]]  # (level, seed) -> (metric, step, value)


@dataclass(frozen=True)
class Drawn:
    """A run as it is to be, with those below it."""

    name: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: list[Metric]
    started: int | None  # milliseconds of Unix time; None: nothing ran
    ended: int | None
    data_set: Dataset | None
    below: tuple["Drawn", ...] = ()
    digests: dict[str, Any] = field(default_factory=dict)  # a row's: of all that its numbers come from

    @property
    def runs(self) -> int:
        """How many, with those below."""
        return 1 + sum(one.runs for one in self.below)

    @cached_property
    def digest(self) -> str:
        """Digest of all that is drawn, so that a better word replaces the old one as a new number does."""
        return digest_json([FORMAT, _content(self)])


def draw(record: Record, paper: Paper, settings: Settings, root: Path) -> Drawn:
    """The run of a row, with a run for each level and each seed below it.

    Raises:
        UserError: the history is not the one the record was written with.
    """
    return _Drawing(record, paper, settings, _curves(record, root)).row()


@dataclass(frozen=True)
class _Drawing:
    record: Record
    paper: Paper
    settings: Settings
    curves: Curves

    def row(self) -> Drawn:
        record = self.record
        return Drawn(
            name=naming.row_name(record, self.paper, self.settings),
            tags={
                **self._tags("row", record.replicas),
                "mlflow.note.content": of_row(record, self.paper, self.settings),
            },
            params=_texts(self._row_params()),
            metrics=[Metric(*one, _ended(record.replicas) or 0, 0) for one in _means(record.replicas)],
            started=_started(record.replicas),
            ended=_ended(record.replicas),
            data_set=self._data_set(record.replicas[0]),
            below=tuple(self._level(replicas) for replicas in by_level(record.replicas).values()),
            digests=_digests(record),
        )

    def _level(self, replicas: Sequence[Replica]) -> Drawn:
        """A level's run; of a level with one seed that seed's own."""
        if len(replicas) == 1:
            return self._replica(replicas[0], "level")
        record, first = self.record, replicas[0]
        ended = _ended(replicas)
        shared = {
            name: value
            for name, value in naming.flat(first.settings).items()
            if all(naming.flat(one.settings).get(name) == value for one in replicas)
        }
        return Drawn(
            name=naming.level_name(record, self.paper, self.settings, first.level),
            tags={
                **self._tags("level", replicas),
                "level": first.level,
                "seeds": str(len(replicas)),
                "mlflow.note.content": of_level(record, replicas, self.paper, self.settings),
            },
            params=_texts({**self._row_params(), **shared, "level": first.level}),
            metrics=[
                Metric(name, value, ended or 0, 0)
                for name, value in {**_mean(replicas), **self._spent(replicas)}.items()
            ],
            started=_started(replicas),
            ended=ended,
            data_set=self._data_set(first),
            below=tuple(self._replica(one, "seed") for one in replicas),
        )

    def _replica(self, replica: Replica, kind: str) -> Drawn:
        record = self.record
        seed = None if record.method == ACCOUNTING else replica.seed
        return Drawn(
            name=naming.level_name(record, self.paper, self.settings, replica.level, seed),
            tags={
                **self._tags(kind, [replica]),
                "level": replica.level,
                **({} if seed is None else {"seed": str(seed)}),
                **({"seeds": "1"} if kind == "level" and seed is not None else {}),
                "mlflow.note.content": of_level(record, [replica], self.paper, self.settings),
            },
            params=_texts(
                {
                    **self._row_params(),
                    **naming.flat(replica.settings),
                    "level": replica.level,
                    **({} if seed is None else {"seed": seed}),
                }
            ),
            metrics=list(self._points(replica)),
            started=_milliseconds(replica.started),
            ended=_milliseconds(replica.ended),
            data_set=self._data_set(replica),
        )

    def _points(self, replica: Replica) -> Iterator[Metric]:
        """Curves, then what the replica ended with."""
        curves = [
            *self.curves[replica.level, replica.seed],
            *(("epsilon_spent", step, value) for step, value in replica.ledger.spent),
        ]
        last = max((step for _, step, _ in curves), default=0)
        # Only start and end are known: steps in between are taken as equally long. An account has neither.
        started, ended = replica.started or 0.0, replica.ended or 0.0
        pace = (ended - started) / max(last, 1)
        for name, step, value in curves:
            if isfinite(value):
                yield Metric(name, value, _milliseconds(started + step * pace) or 0, step)
        final = {**self._measured(replica), **self._spent([replica])}
        for name, value in final.items():
            if isfinite(value):
                yield Metric(naming.metric_name(name), value, _milliseconds(replica.ended) or 0, last)

    def _measured(self, replica: Replica) -> dict[str, float]:
        if self.record.method == ACCOUNTING:
            return replica.metrics
        found = {name: value for name, value in replica.metrics.items() if name in MEASURED}
        return {**found, "seconds": replica.seconds}

    def _tags(self, kind: str, replicas: Sequence[Replica]) -> dict[str, str]:
        """What runs can be searched by; `row` is what `publishing` knows them by."""
        record = self.record
        made = record.origins[replicas[0].origin]
        tags = {
            "row": record.row,
            "kind": kind,
            "paper": record.paper,
            "table": record.table,
            "label": record.label,
            "budget": record.budget,
            "privacy": privacy(record, replicas),
            "reproducible": naming.canonical(made.reproducible),
            "mlflow.source.name": made.command,
            "mlflow.source.type": "LOCAL",
        }
        if record.method != ACCOUNTING:
            tags["device"] = made.device
        if made.revision is not None:
            tags["mlflow.source.git.commit"] = made.revision
        if made.adopted is not None:
            tags["adopted"] = made.adopted
        return tags

    def _row_params(self) -> dict[str, Any]:
        record = self.record
        tested = data_sets.tested_on(record, self.settings)
        return {
            "method": record.method,
            "data": record.data,
            **({"data_set": tested} if tested else {}),
            **naming.flat(record.model, "model."),
        }

    def _data_set(self, replica: Replica) -> Dataset | None:
        return data_sets.trained_on(self.record, self.record.origins[replica.origin], self.settings)

    def _spent(self, replicas: Sequence[Replica]) -> dict[str, float]:
        """The epsilons that hold for every one of them; a bound that does not hold is none."""
        ledger = guarantee(replicas, self.record.provenance.reproducible).ledger
        shown = [one.ledger.shown for one in replicas if one.ledger.shown is not None]
        shown += [attack.epsilon for one in replicas for attack in one.attacks if attack.whole]
        least = max(shown, default=None)
        # nine digits first: 3 * 0.92 is no reason for 2.761
        found = {
            "epsilon_claimed": None if ledger.claimed is None else _rounded(ledger.claimed, DIGITS),
            "epsilon_proven": None
            if ledger.accounted is None
            else rounded_up(_rounded(ledger.accounted, 9), DIGITS),
            "epsilon_shown": None if least is None else rounded_down(_rounded(least, 9), DIGITS),
            "mu": ledger.mu,
        }
        return {name: float(value) for name, value in found.items() if value is not None}


def _mean(replicas: Sequence[Replica]) -> dict[str, float]:
    """Means over seeds of what was measured, and half the width of the accuracy's 95 % interval."""
    found = {
        name: fmean(one.metrics[name] for one in replicas)
        for name in MEASURED
        if all(name in one.metrics for one in replicas)
    }
    found = {name: _rounded(value, MEAN_DIGITS) for name, value in found.items()}
    half = mean([one.metrics[ACCURACY] for one in replicas]).half if ACCURACY in found else None
    return found if half is None else {**found, HALF_WIDTH: _rounded(half, DIGITS)}


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _means(replicas: Iterable[Replica]) -> Iterator[tuple[str, float]]:
    """A row's metrics, by level: ``test_accuracy/epsilon 3`` and half the width of its interval."""
    for level, own in by_level(list(replicas)).items():
        found = _mean(own)
        for name in (ACCURACY, HALF_WIDTH):
            if name in found:
                yield f"{name}/{naming.metric_name(naming.level_text(level))}", found[name]


def _digests(record: Record) -> dict[str, Any]:
    """Of all that a row's numbers come from."""
    return {
        "record": record.digest(),
        "history": record.history,
        "origins": [_origin(made) for made in record.origins],
        "measured by": sorted({one.measured_by for one in record.replicas if one.measured_by}),
    }


def _origin(made: Provenance) -> dict[str, Any]:
    wanted = {"config", "code", "parts", "revision", "dirty", "data", "edition", "versions"}
    return made.model_dump(mode="json", include=wanted)


def _curves(record: Record, root: Path) -> Curves:
    """The row's history; nothing where there is none."""
    found: Curves = defaultdict(list)
    path = records.history_path(record.row, root)
    if not path.exists():
        return found
    if digest_file(path) != record.history:
        raise UserError(
            f"{path}: does not belong to {records.run_path(record.row, root)}; "
            f"`git checkout {path}` brings the right one back"
        )
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["metric"] in CURVES:
                found[line["level"], int(line["seed"])].append(
                    (line["metric"], int(line["step"]), float(line["value"]))
                )
    return found


def _texts(params: dict[str, Any]) -> dict[str, str]:
    return {name: naming.canonical(value)[:LONGEST] for name, value in params.items()}


def _content(drawn: Drawn) -> dict[str, Any]:
    return {
        "name": drawn.name,
        "tags": drawn.tags,
        "params": drawn.params,
        "metrics": [[one.key, one.value, one.timestamp, one.step] for one in drawn.metrics],
        "times": [drawn.started, drawn.ended],
        "data set": None if drawn.data_set is None else json.dumps(drawn.data_set.to_dictionary()),
        "digests": drawn.digests,
        "below": [_content(one) for one in drawn.below],
    }


def _started(replicas: Iterable[Replica]) -> int | None:
    return _milliseconds(min((one.started for one in replicas if one.started), default=None))


def _ended(replicas: Iterable[Replica]) -> int | None:
    return _milliseconds(max((one.ended for one in replicas if one.ended), default=None))


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(1000 * seconds)
