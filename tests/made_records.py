"""Made-up images and records, kept as training, measuring and accounting would, beside the papers'."""

import json
from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dprepro.accountants.records import SampledGaussian
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.identity import validity
from dprepro.pipeline.params import PAPERS
from dprepro.pipeline.results import records, schema
from dprepro.pipeline.results.schema import (
    Candidate,
    EvaluationRecord,
    Ledger,
    LedgerEntry,
    Ledgers,
    Provenance,
    Record,
    Replaced,
    RowEvaluations,
    RowTrainings,
    SearchRecord,
    TrainingRecord,
    best,
)

PASSING = ("seconds", "cpu_seconds", "started", "ended", "command", "revision", "dirty", "device")


def lasting(path: Path) -> list[dict[str, Any]]:
    """Lines of a record, or a search, without what differs from one to the next, or at the next commit."""
    text = path.read_text()
    kept = [json.loads(line) for line in (text.splitlines() if path.suffix == ".jsonl" else [text])]
    for line in kept:
        for part in (line, line.get("origin", {}), line.get("provenance", {}), *line.get("candidates", ())):
            for name in PASSING:
                part.pop(name, None)
    return kept


def stripes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 28, 28), each with a bright stripe whose height is its label of ten, and their labels."""
    images = np.random.default_rng(0).integers(0, 10, (count, 28, 28), dtype=np.uint8)
    labels = np.arange(count) % 10
    for image, label in zip(images, labels, strict=True):
        image[2 + 2 * label : 5 + 2 * label] = 255
    return images, labels


def lay_papers(root: Path) -> None:
    """Have the papers of this laboratory in another one."""
    root.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (root / PAPERS).symlink_to(Path(__file__).parents[1] / PAPERS)


def _spending(ledger: Ledger) -> SampledGaussian | None:
    """The mechanism that a made-up ledger is of; None where nothing was private."""
    if ledger.noise_multiplier is None or ledger.sampling_rate is None:
        return None
    batch, examples = Fraction(ledger.sampling_rate).limit_denominator(10**6).as_integer_ratio()
    return SampledGaussian(
        sampling="poisson", noise_multiplier=ledger.noise_multiplier, batch=batch, examples=examples
    )


def made_up_origin(**changes: Any) -> Provenance:
    origin: dict[str, Any] = {
        "config": "none", "made_by": {}, "revision": None, "dirty": None, "data": {}, "examples": 100,
        "edition": {}, "versions": {}, "device": "cpu", "reproducible": False, "command": "none",
    }  # fmt: skip
    return Provenance.model_validate(origin | changes)


def made_up_training(spending: Any, steps: int, **changes: Any) -> TrainingRecord:
    """A training that ran so many steps of a mechanism."""
    values: dict[str, Any] = {
        "level": "sigma=1", "seed": 0, "settings": {}, "steps": steps, "spending": spending, "delta": 1e-5,
        "claimed_by": "clt", "broken": (), "not_covered": (), "weights": None, "seconds": 1, "started": 0,
        "ended": 1, "origin": made_up_origin(), "row": "row", "model": {}, "method": "dpsgd", "data": "mnist",
    }  # fmt: skip
    return TrainingRecord.model_validate(values | changes)


def made_up_run(
    row: str, data: str, trained: TrainingRecord, edition: dict[str, str], **changes: Any
) -> RowTrainings:
    """A row of one training."""
    about = {"row": row, "data": data, "origin": made_up_origin(edition=edition)}
    return RowTrainings(row=row, trainings=(trained.model_copy(update=about),), **changes)


def keep_search(
    root: Path,
    name: str,
    row: str,
    *candidates: dict[str, Any],
    replaced: tuple[Replaced, ...] = (),
    **made: Any,
) -> None:
    """Write a search's record; ``candidates`` and provenance ``made`` override parts of made-up ones."""
    tried = [
        Candidate.model_validate(
            {"level": "epsilon=3", "settings": {}, "seeds": 1, "seconds": 1.0}
            | {"validation_accuracy": [0.5] * candidate.get("seeds", 1)}
            | candidate
        )
        for candidate in candidates
    ]
    record = SearchRecord(
        name=name,
        row=row,
        judged_on="validation split",
        candidates=tuple(tried),
        chosen=best(tried),
        provenance=made_up_origin(**made),
        replaced=replaced,
    )
    records.write(record, root)


def keep_history(row: str, root: Path, lines: Iterable[tuple[Any, ...]]) -> str:
    """Write a row's trainings, made up if it has none, with these curves; return the digest of the file."""
    curves: dict[schema.TrainingKey, dict[str, Any]] = {}
    for level, seed, step, epoch, metric, value in lines:
        metrics = curves.setdefault((level, seed), {})
        metrics[metric] = (*metrics.get(metric, ()), (step, epoch, value))
    run = records.read_run(row, root)
    trained = {training.key: training for training in run.trainings} if run else {}
    for key, metrics in curves.items():
        made = trained.get(key) or made_up_training(None, 1, row=row, level=key[0], seed=key[1])
        trained[key] = made.model_copy(update={"curves": metrics})
    return digest_file(records.write(RowTrainings(row=row, trainings=tuple(trained.values())), root))


def keep(record: Record, root: Path) -> None:
    """Write a row's run, evaluation and ledgers, as by the versions here, without weights.

    Of an account its ledgers alone.
    """
    lay_papers(root)
    made = record.provenance
    account = record.method == schema.ACCOUNTING
    entries = tuple(
        LedgerEntry(
            level=training.level,
            seeds=(training.seed,),
            ledger=training.ledger,
            settings=training.settings if account else {},
            metrics=training.metrics if account else {},
        )
        for training in record.trainings
    )
    ledgers = Ledgers(row=record.row, config=made.config, versions=made.versions, entries=entries)
    records.write(ledgers, root)
    if account:
        return
    before = records.read_run(record.row, root)
    curves = {training.key: training.curves for training in before.trainings} if before else {}
    made_by = validity.training_versions(record.method, record.model["name"])
    origins = tuple(origin.model_copy(update={"made_by": made_by}) for origin in record.origins)
    trained = tuple(
        TrainingRecord(
            **training.model_dump(include={"level", "seed", "settings", "noise", "seconds"}),
            **record.model_dump(include={"row", "model", "method", "data"}),
            origin=origins[training.origin],
            curves=curves.get(training.key, {}),
            steps=training.ledger.steps,
            spending=_spending(training.ledger),
            delta=training.ledger.delta,
            claimed_by=training.ledger.claimed_by,
            broken=training.ledger.reasons,
            not_covered=training.ledger.not_covered,
            protects=training.ledger.protects,
            weights=None,
            started=training.started or 0.0,
            ended=max(training.ended or 0.0, training.started or 0.0),
        )
        for training in record.trainings
    )
    records.write(RowTrainings(row=record.row, trainings=trained), root)
    measured = tuple(
        EvaluationRecord(
            **training.model_dump(include={"level", "seed", "metrics"}),
            row=record.row,
            weights=None,
            measured_by=validity.MEASURING,
        )
        for training in record.trainings
    )
    records.write(RowEvaluations(row=record.row, trainings=measured), root)
