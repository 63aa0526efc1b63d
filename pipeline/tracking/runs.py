"""Runs of MLflow built from a record: their names, tags, settings, metrics and notes."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

from dprepro.accountants.records import Risk
from dprepro.pipeline.data.catalog import catalog
from dprepro.pipeline.files import digest_json
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting import vocabulary, wording
from dprepro.pipeline.reporting.judging.guarantees import State, guarantee
from dprepro.pipeline.reporting.judging.intervals import mean
from dprepro.pipeline.reporting.papers import Paper
from dprepro.pipeline.results import records
from dprepro.pipeline.results.histories import read_history
from dprepro.pipeline.results.schema import ACCOUNTING, Provenance, Record, Replica
from dprepro.pipeline.tracking import notes
from dprepro.pipeline.tracking.notes import ACCURACY, NOTE
from dprepro.rounding import rounded_down, rounded_up

FORMAT = 3  # part of every digest; a higher number replaces all published runs
LONGEST = 500  # characters of a parameter that every store of MLflow takes
DIGITS = 4  # digits of MLflow's columns, which would round bounds with more digits to the nearest
HALF_WIDTH = f"{ACCURACY}_half_width"  # of the 95 % interval over seeds
# metrics of the history with a curve; each is a chart in MLflow
CURVES = ("train_loss", "validation_accuracy", "gradient_norm", "clipped_share")
MEASURED = (ACCURACY, "validation_accuracy")  # of a row; an account has all its few metrics
WORST_FIRST: tuple[State, ...] = ("none_proven", "exceeds", "vacuous", "weaker", "huge", "holds", "none")
DIGEST_LENGTH = 16  # of a data set's digest; MLflow takes up to 36 letters, and digests.json has all
ORIGIN = {"config", "made_by", "revision", "dirty", "data", "edition", "versions"}

RELATION = {"neighbouring", "delta"}  # an epsilon means nothing without them

Point = tuple[str, int, float]  # metric, step, value


@dataclass(frozen=True)
class RunSpec:
    """Content of a run and of the runs below it."""

    name: str
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    metrics: tuple[tuple[str, float, int, int], ...] = ()  # name, value, milliseconds of Unix time, step
    started: int | None = None  # milliseconds of Unix time; None: nothing ran
    ended: int | None = None
    data_set: dict[str, str] | None = None  # the fields of MLflow's `Dataset`
    below: tuple["RunSpec", ...] = ()
    digests: dict[str, Any] = field(default_factory=dict)  # of the sources of its numbers
    files: tuple[Path, ...] = ()  # logged as artifacts

    def every(self) -> Iterator["RunSpec"]:
        """Yield this run and the runs below it."""
        yield self
        for run in self.below:
            yield from run.every()

    @property
    def last(self) -> dict[str, float]:
        """Value that MLflow shows of each metric: the latest, or the largest of equally late values."""
        points = sorted((step, time, value, name) for name, value, time, step in self.metrics)
        return {name: float(value) for _, _, value, name in points}

    @cached_property
    def digest(self) -> str:
        """Digest of the content without files. Any change of the content replaces a published run."""
        return digest_json([FORMAT, asdict(replace(self, files=()))])


def build_run(record: Record, paper: Paper, settings: Settings) -> RunSpec:
    """Build the run of a row, with runs of its levels and seeds below it."""
    places = (records.run_path, records.evaluation_path, records.ledger_path, records.audit_path)
    digests = {
        "record": record.digest(),
        "history": record.history,
        "origins": [made.model_dump(mode="json", include=ORIGIN) for made in record.origins],
        "measured by": sorted({replica.measured_by for replica in record.replicas if replica.measured_by}),
    }
    return replace(
        _Builder(record, paper, settings, _curves(record)).row(),
        digests=digests,
        files=tuple(kept for path in places if (kept := path(record.row)).exists()),
    )


@dataclass(frozen=True)
class _Builder:
    record: Record
    paper: Paper
    settings: Settings
    curves: dict[tuple[str, int], list[Point]]  # by level and seed

    def row(self) -> RunSpec:
        levels = _by_level(self.record.replicas)
        note = notes.row_note(self.record, self.paper, levels, data_set_title(self.record, self.settings))
        accuracies = {
            f"{name}/{replicas[0].level}": value
            for replicas in levels
            for name, value in self._values(replicas).items()
            if name in (ACCURACY, HALF_WIDTH)
        }
        if (every := self.record.composition) is not None:
            accuracies["epsilon_together"] = _bound(every.epsilon, rounded_up)
        return self._run("row", self.record.replicas, note, accuracies, tuple(map(self._level, levels)))

    def _level(self, replicas: Sequence[Replica], kind: str = "level") -> RunSpec:
        """Build the run of a level, with runs of its seeds below it if there are several."""
        note = notes.level_note(self.record, self.paper, replicas, data_set_title(self.record, self.settings))
        seeds = tuple(self._level([replica], "seed") for replica in replicas) if len(replicas) > 1 else ()
        return self._run(kind, replicas, note, self._values(replicas), seeds)

    def _run(
        self,
        kind: str,
        replicas: Sequence[Replica],
        note: str,
        values: dict[str, float],
        below: tuple[RunSpec, ...],
    ) -> RunSpec:
        record, first = self.record, replicas[0]
        made, trained = record.origins[first.origin], record.method != ACCOUNTING
        level = None if kind == "row" else first.level
        seed = first.seed if trained and level is not None and not below else None
        states = {
            guarantee(level_replicas, made.reproducible).state for level_replicas in _by_level(replicas)
        }
        tags = {
            "row": record.row,
            "kind": kind,
            "paper": record.paper,
            "table": record.table,
            "label": record.label,
            "budget": record.budget,
            "privacy": vocabulary.PRIVACY[min(states, key=WORST_FIRST.index)].text.lower(),
            "reproducible": canonical(made.reproducible),
            "seeds": str(len(replicas)) if trained and kind == "level" else None,
            "device": made.device if trained else None,
            "adopted": made.adopted,
            "mlflow.source.name": made.command,
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": made.revision,
            NOTE: note,
            "level": level,
            "seed": None if seed is None else str(seed),
        }
        params = {
            "method": record.method,
            "data": record.data,
            **flat_settings(record.model, "model."),
            **_shared(replicas, lambda replica: flat_settings(replica.settings)),
            **_shared(
                list(filter(_private, replicas)), lambda private: private.ledger.model_dump(include=RELATION)
            ),
        }
        params |= {"level": level, "seed": seed, "data_set": tested_on(record, self.settings)}
        started = min((replica.started for replica in replicas if replica.started), default=0.0)
        ended = max((replica.ended for replica in replicas if replica.ended), default=0.0)
        curves = [] if level is None or below else self._curve(first)
        return RunSpec(
            name=run_name(record, notes.place(record, self.paper), self.settings, level, seed),
            tags={name: value for name, value in tags.items() if value is not None},
            # settings of a method that do not apply to a row are None
            params={name: canonical(value)[:LONGEST] for name, value in params.items() if value is not None},
            metrics=tuple(_timed(curves, values, started, ended)),
            started=round(1000 * started) or None,
            ended=round(1000 * ended) or None,
            data_set=trained_on(record, made, self.settings),
            below=below,
        )

    def _curve(self, replica: Replica) -> list[Point]:
        spent = [("epsilon_spent", step, _bound(value, rounded_up)) for step, value in replica.ledger.spent]
        return [*self.curves[replica.level, replica.seed], *spent]

    def _values(self, replicas: Sequence[Replica]) -> dict[str, float]:
        """Metrics of a level: means over seeds, half the accuracy's interval, and valid bounds on epsilon."""
        account = self.record.method == ACCOUNTING
        measured = {
            name: _rounded(name, fmean(replica.metrics[name] for replica in replicas))
            for name in (replicas[0].metrics if account else MEASURED)
            if all(name in replica.metrics for replica in replicas)
        }
        accuracies = [replica.metrics[ACCURACY] for replica in replicas] if ACCURACY in measured else []
        ledger = guarantee(replicas, self.record.provenance.reproducible).ledger
        shown = [replica.shown for replica in replicas if replica.shown is not None]
        half = mean(accuracies).half if accuracies else None
        values = {
            **measured,
            **_scores(replicas),
            HALF_WIDTH: None if half is None else float(f"{half:.2g}"),
            "seconds": None if account else round(fmean(replica.seconds for replica in replicas)),
            "epsilon_claimed": ledger.claimed,
            "epsilon_proven": None
            if ledger.epsilon_upper is None
            else _bound(ledger.epsilon_upper, rounded_up),
            "epsilon_shown": _bound(max(shown), rounded_down) if shown else None,
            "delta": ledger.delta if any(map(_private, replicas)) else None,
            "mu": None if ledger.mu is None else _rounded("mu", ledger.mu),
            **(_risk(ledger.risk) if ledger.risk else {}),
        }
        return {name: value for name, value in values.items() if value is not None}


def _scores(replicas: Sequence[Replica]) -> dict[str, float | None]:
    """Means over seeds of the scores over all classes; empty unless the row is on own data."""
    scored = [replica.scores.over_all for replica in replicas if replica.scores is not None]
    columns = {name: [each[name] for each in scored] for name in (scored[0] if scored else ())}
    return {
        f"test_{name}": _rounded(name, fmean(value for value in values if value is not None))
        for name, values in columns.items()
        if len(scored) == len(replicas) and None not in values
    }


def _risk(risk: Risk) -> dict[str, float | None]:
    """Attack risk as metrics, rounded up because they are upper bounds."""
    values = {
        "attack_tpr_at_fpr_0.01": risk.tpr_at_1_percent,
        "attack_tpr_at_fpr_0.001": risk.tpr_at_01_percent,
        "attack_advantage": risk.advantage,
        "gaussian_dp_mu": risk.mu,
        "gaussian_dp_regret": risk.regret,
    }
    return {name: None if value is None else _bound(value, rounded_up) for name, value in values.items()}


def _rounded(name: str, value: float) -> float:
    """Number with its meaningful digits: accuracies have four decimals, other numbers four digits."""
    return round(value, DIGITS) if name in MEASURED else float(f"{value:.{DIGITS}g}")


def _private(replica: Replica) -> bool:
    """Return True if the replica's mechanism is meant to be private, proven or not."""
    return replica.ledger.event is not None or replica.ledger.claimed is not None


def _by_level(replicas: Sequence[Replica]) -> list[list[Replica]]:
    levels: dict[str, list[Replica]] = defaultdict(list)
    for replica in replicas:
        levels[replica.level].append(replica)
    return list(levels.values())


def _shared(replicas: Sequence[Replica], entries: Callable[[Replica], dict[str, Any]]) -> dict[str, Any]:
    """Items of the dictionaries ``entries(replica)`` that are equal for all replicas."""
    every = [entries(replica) for replica in replicas] or [{}]
    return {
        name: value for name, value in every[0].items() if all(other.get(name) == value for other in every)
    }


def _bound(value: float, rounded: Callable[[float, int], Any]) -> float:
    # nine digits first, so that the error of 3 * 0.92 doesn't give 2.761
    return float(rounded(float(f"{value:.9g}"), DIGITS))


def _timed(
    curves: Sequence[Point], values: dict[str, float], started: float, ended: float
) -> Iterable[tuple[str, float, int, int]]:
    """Points of the curves, then the final metrics, with times as if all steps took equally long.

    At the last step a final metric replaces the point of its curve, because MLflow shows the larger of two
    values at the same step.
    """
    last = max((step for _, step, _ in curves), default=0)
    pace = (ended - started) / max(last, 1)
    before = [(name, step, value) for name, step, value in curves if step < last or name not in values]
    for name, step, value in [*before, *((name, last, value) for name, value in values.items())]:
        if isfinite(value):
            yield metric_name(name), value, round(1000 * (ended - pace * (last - step))), step


def _curves(record: Record) -> dict[tuple[str, int], list[Point]]:
    """Points of the row's history by level and seed; empty without a history."""
    curves: dict[tuple[str, int], list[Point]] = defaultdict(list)
    path = records.history_path(record.row)
    for level, seed, step, _, metric, value in read_history(path) if path.exists() else ():
        if metric in CURVES:
            curves[level, seed].append((metric, step, _rounded(metric, value)))
    return curves


def run_name(record: Record, place: str, settings: Settings, level: str | None, seed: int | None) -> str:
    """Unique name of a run in its paper: ``LN-LeNet-5, ε = 3, seed 0 (Table 5, reduced)``.

    Runs of rows have no level, and runs of means no seed. The row's key is added if another row has the same
    label, table and training budget. ``place``: the table's name.
    """
    parts = [record.label]
    if level is not None:
        parts.append(wording.level_words(level))
    if seed is not None:
        parts.append(f"seed {seed}")
    where = [place, "reduced"] if record.budget == "reduced" else [place]
    wanted = (record.paper, record.table, record.label, record.budget)
    same = {
        key
        for key, line in settings.lines.items()
        if (line.paper, line.table, line.label, getattr(line, "budget", "full")) == wanted
    }
    if same - {record.row}:
        where.append(record.row)
    return f"{', '.join(parts)} ({', '.join(where)})"


def metric_name(name: str) -> str:
    """Name with blanks in place of the characters that MLflow refuses."""
    return re.sub(r"[^\w\-./: ]", " ", name)


def canonical(value: Any) -> str:
    """Text of a setting in its shortest form: ``3`` for 3.0, ``1e-5``, ``inf``, ``true``."""
    if isinstance(value, str):  # records are JSON, with infinity as text
        return {"Infinity": "inf", "-Infinity": "-inf"}.get(value, value)
    if isinstance(value, float):
        return re.sub(r"e([+-])0*", lambda sign: f"e{sign[1].strip('+')}", repr(value).removesuffix(".0"))
    return json.dumps(value)


def flat_settings(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as flat ones: ``{'a': {'b': 1}}`` becomes ``{'a.b': 1}``."""
    entries: dict[str, Any] = {}
    for name, inner in value.items():
        entries |= (
            flat_settings(inner, f"{prefix}{name}.")
            if isinstance(inner, dict)
            else {f"{prefix}{name}": inner}
        )
    return entries


def tested_on(record: Record, settings: Settings) -> str | None:
    """Raw data set of a row's test examples, such as 'mnist'; None if params.yaml lacks it."""
    if record.data not in settings.derived and record.data not in settings.data:
        return None  # params.yaml no longer has this data set
    raw = settings.split(record.data).raw
    return settings.raw_set(raw) if raw in settings.raw else None


def data_set_title(record: Record, settings: Settings) -> str:
    """Title of the data set of a row's test examples, such as 'MNIST'."""
    raw = tested_on(record, settings)
    return catalog()[raw].title if raw in catalog() else raw or record.data


def trained_on(record: Record, made: Provenance, settings: Settings) -> dict[str, str] | None:
    """Fields of MLflow's `Dataset`: digest of the arrays, address of the raw files; None for accounts."""
    if not made.data:
        return None
    raw = tested_on(record, settings)
    addresses: list[str] = []
    if raw in catalog():  # otherwise it is a laboratory's own
        name = made.edition.get(settings.split(record.data).raw, "")
        if edition := catalog()[raw].editions.get(name):  # otherwise the images are synthetic
            addresses += [
                *edition.bases,
                *(address for archive in edition.archives for address in archive.addresses),
            ]
    return {
        "name": record.data,
        "digest": digest_json(made.data).removeprefix("sha256:")[:DIGEST_LENGTH],
        "source_type": "http" if addresses else "local",
        "source": json.dumps({"url": addresses[0]} if addresses else {"uri": f"data/prepared/{record.data}"}),
        "profile": json.dumps({"training examples": made.examples, "edition": made.edition}),
    }
