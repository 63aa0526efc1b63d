"""Made-up images and records, kept as training, measuring and accounting would, beside the papers'."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import (
    Candidate,
    Provenance,
    Replaced,
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
