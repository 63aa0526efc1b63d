"""Runs of MLflow: a view of the table of results (`reporting.table`), and of the records of its seeds."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import pandas as pd

from dprepro.pipeline.reporting import table, wording
from dprepro.pipeline.reporting.table import Sources
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Record, TrainingResult

LONGEST = 500  # characters of a parameter
# metrics of a training's history with a curve in MLflow
CURVES = {"train_loss", "validation_accuracy", "gradient_norm", "clipped_share"}
METRICS = {  # by column of the table
    "ours": "accuracy_percent",
    "paper_value": "paper_percent",
    "difference": "difference",
    "epsilon_upper": "epsilon_upper",
    "epsilon_lower": "epsilon_lower",
}
OTHER_UNIT = {"ours": "value", "paper_value": "paper_value"}  # of results that aren't in percent

Point = tuple[str, float, int]  # metric, value, step


@dataclass(frozen=True)
class RunSpec:
    """Content of a run, and of the runs of its seeds."""

    experiment: str
    name: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: list[Point]
    started: float  # Unix time; 0: nothing was trained
    ended: float
    seeds: tuple["RunSpec", ...] = ()


def runs(sources: Sources) -> Iterator[RunSpec]:
    """Yield a run for each result, a line of the table that ran, with its seeds below if it has several."""
    found = table.results(sources)
    ran = found[found["ours"].notna()]
    histories: dict[str, dict[tuple[str, int], list[Point]]] = {}
    for line in ran.to_dict("records"):
        record = sources.records[line["row"]]
        if line["row"] not in histories:
            histories[line["row"]] = _curves(record, sources)
        yield _result(line, record, histories[line["row"]], sources)


def _result(
    line: Mapping[Any, Any], record: Record, curves: Mapping[tuple[str, int], list[Point]], sources: Sources
) -> RunSpec:
    printed = sources.table(line["paper"], line["table"])
    trainings = {each.seed: each for each in record.trainings if each.level == line["level"]}
    judged = bool(line["is_primary"]) and line["status"] not in (None, "not run") and pd.notna(line["status"])
    also = "" if line["metric"] == printed.metric else f", {line['metric']}"
    other = "" if line["is_primary"] else f" ({line['row']})"
    name = f"{printed.name}, {line['label']}, {wording.level_words(line['level'])}{also}{other}"
    tags = {
        "status": line["status"] if judged else None,
        "judged": canonical(judged),
        "planned": canonical(bool(line["planned"])),
        "table": line["table"],
        "line": line["line"],
        "level": line["level"],
        "row": line["row"],
    }
    percent = line["unit"] == "percent"
    names = METRICS if percent else METRICS | OTHER_UNIT
    numbers, decimals = table.rounded(line, printed), printed.decimals_of(line["metric"])
    by_seed = {
        seed: value if decimals is None else round(value, decimals) for seed, value in line["by_seed"].items()
    }
    several = len(trainings) > 1 and not also  # the seeds' runs have all metrics
    return RunSpec(
        line["paper"],
        name,
        {tag: str(value) for tag, value in tags.items() if pd.notna(value)},
        _params(record, list(trainings.values())),
        [(name, numbers[column], 0) for column, name in names.items() if column in numbers],
        min((each.started for each in trainings.values() if each.started), default=0.0),
        max((each.ended for each in trainings.values() if each.ended), default=0.0),
        tuple(
            RunSpec(
                line["paper"],
                f"{name}, seed {seed}",
                {"seed": str(seed), "row": line["row"], "level": line["level"]},
                _params(record, [trainings[seed]]),
                [*curves[line["level"], seed], (names["ours"], value, 0)],
                trainings[seed].started or 0.0,
                trainings[seed].ended or 0.0,
            )
            for seed, value in (by_seed.items() if several else ())
        ),
    )


def _params(record: Record, trainings: list[TrainingResult]) -> dict[str, str]:
    """Settings that all ``trainings`` share, with the relation and the delta of their epsilon."""
    params: dict[str, Any] = {"method": record.method, "data": record.data, **flat(record.model, "model.")}
    entries: list[Callable[[TrainingResult], dict[str, Any]]] = [
        lambda each: flat(each.settings),
        lambda each: each.ledger.model_dump(include={"neighbouring", "delta"}),
    ]
    for of in entries:
        every = [of(each) for each in trainings]
        params |= {
            name: value for name, value in every[0].items() if all(x.get(name) == value for x in every)
        }
    return {name: canonical(value)[:LONGEST] for name, value in params.items() if value is not None}


def _curves(record: Record, sources: Sources) -> dict[tuple[str, int], list[Point]]:
    """Points of the row's history by level and seed; empty without a history."""
    curves: dict[tuple[str, int], list[Point]] = defaultdict(list)
    run = records.read_run(record.row, sources.root)
    for trained in run.trainings if run else ():
        for metric in sorted(trained.curves.keys() & CURVES):
            points = trained.curves[metric]
            curves[trained.key] += [(metric, value, step) for step, _, value in points if isfinite(value)]
    return curves


def canonical(value: Any) -> str:
    """Text of a setting in its shortest form: ``3`` for 3.0, ``1e-5``, ``inf``, ``true``."""
    if isinstance(value, str):  # records are JSON, with infinity as text
        return {"Infinity": "inf", "-Infinity": "-inf"}.get(value, value)
    if isinstance(value, float):
        return re.sub(r"e([+-])0*", lambda sign: f"e{sign[1].strip('+')}", repr(value).removesuffix(".0"))
    return json.dumps(value)


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as flat ones: ``{'a': {'b': 1}}`` becomes ``{'a.b': 1}``."""
    entries: dict[str, Any] = {}
    for name, inner in value.items():
        entries |= flat(inner, f"{prefix}{name}.") if isinstance(inner, dict) else {f"{prefix}{name}": inner}
    return entries
