"""A made-up paper of one table, and as few rows of it as a test of judging needs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.params import Settings, parse
from pipeline.reporting.gather import Sources, fill
from pipeline.reporting.papers import Paper
from pipeline.reporting.results import PaperResult
from pipeline.results.schema import Record
from tests.reporting.made_up import dpsgd

LEVELS = ("sigma=0", "sigma=1")


def paper(
    claims: Sequence[Mapping[str, Any]] = (), lines: Sequence[Mapping[str, Any]] = (), **said: Any
) -> Paper:
    """Table 1 with a line 'One' and whatever else is said of the paper; ``table`` says more of the table."""
    table = {
        "name": "Table 1",
        "title": "toys",
        "axis": "noise",
        "columns": list(LEVELS),
        "margin": 1,
        **said.pop("table", {}),
    }
    table["lines"] = [{"key": "one", "label": "One", "values": said.pop("values", {})}, *lines]
    return Paper.model_validate({"title": "Toys", "tables": {"t": table}, "claims": list(claims), **said})


def settings(
    plans: dict[str, Any] | None = None, searches: dict[str, Any] | None = None, **rows: dict[str, Any]
) -> Settings:
    """Rows by key, with underscores for hyphens: LeNet-5 with noisy weights, but for what is said."""
    declared = {key.replace("_", "-"): _row() | own for key, own in rows.items()}
    return parse({**dpsgd.DATA, "plans": plans or {}, "searches": searches or {}, "rows": declared})


def _row() -> dict[str, Any]:
    return {
        "paper": "toys",
        "table": "t",
        "label": "One",
        "data": "mnist",
        "model": {"name": "lenet5"},
        "method": "noisy_weights",
        "seeds": 3,
        "reproducible": True,
        "settings": {"batch": 100, "epochs": 50, "learning_rate": 0.1},
        "levels": [{"sigma": 0}, {"sigma": 1}],
    }


def record(key: str, declared: Settings, **accuracies: Sequence[float]) -> Record:
    """A row's record with accuracies in percent by level (``sigma_0``), a seed each; they validate alike."""
    row = declared.rows[key]
    replicas = [
        dpsgd.replica(
            row.level(own),
            seed,
            own.model_dump(mode="json"),
            {
                "test_accuracy": accuracy / 100,
                "validation_accuracy": accuracy / 100,
                "converged": accuracy > 15,
            },
            dpsgd.ledger(dpsgd.PLAIN, "inf"),
        )
        for own in row.resolved
        for seed, accuracy in enumerate(accuracies.get(f"sigma_{own.sigma:g}", ()))
    ]
    return dpsgd.variant(key, declared, replicas, {"edition": {}})


def judged(
    paper: Paper, declared: Settings, *found: Record, gpu_hours: dict[str, float] | None = None
) -> PaperResult:
    """The paper with these records."""
    by_row: dict[str, Record | None] = dict.fromkeys(declared.lines)
    by_row |= {one.row: one for one in found}
    return fill("toys", Sources(declared, Path(), paper, by_row, gpu_hours or {}))
