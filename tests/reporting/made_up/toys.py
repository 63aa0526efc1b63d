"""A made-up paper of one table, and as few rows of it as a test of judging needs."""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from dprepro.pipeline.params import Settings, parse
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.gather import Sources, fill
from dprepro.pipeline.reporting.papers import Paper
from dprepro.pipeline.results.schema import Ledger, Record, SearchRecord
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
        "budget": {"epochs": 50},
        **said.pop("table", {}),
    }
    table["lines"] = [{"key": "one", "label": "One", "values": said.pop("values", {})}, *lines]
    return Paper.model_validate({"title": "Toys", "tables": {"t": table}, "claims": list(claims), **said})


PAPER = paper()


def claim(*tests: Mapping[str, Any], **said: Any) -> dict[str, Any]:
    """A claim with these tests."""
    return {"key": "c", "says": "so", "where": "there", "tests": list(tests), **said}


def settings(
    plans: dict[str, Any] | None = None, searches: dict[str, Any] | None = None, **rows: dict[str, Any]
) -> Settings:
    """Rows by key, with underscores for hyphens: LeNet-5 with noisy weights, but for what is said."""
    plain = dpsgd.row(
        "none",
        paper="toys",
        table="t",
        label="One",
        line="one",
        method="noisy_weights",
        reproducible=True,
        settings={"batch": 100, "epochs": 50, "learning_rate": 0.1},
        levels=[{"sigma": 0}, {"sigma": 1}],
    )
    declared = {key.replace("_", "-"): plain | changes for key, changes in rows.items()}
    return parse({**dpsgd.DATA, "plans": plans or {}, "searches": searches or {}, "rows": declared})


def record(key: str, declared: Settings, **accuracies: Sequence[float]) -> Record:
    """A row's record with accuracies in percent by level (``sigma_0``), a seed each; they validate alike."""

    def reached(configured: Any, seed: int) -> tuple[dict[str, float], Ledger] | None:
        of_level = accuracies.get(f"sigma_{configured.sigma:g}", ())
        if seed >= len(of_level):
            return None
        share = of_level[seed] / 100
        metrics = {"test_accuracy": share, "validation_accuracy": share, "converged": float(share > 0.15)}
        return metrics, dpsgd.ledger(inf)

    return dpsgd.made(key, declared, reached)


def under(plan: str | None, made: Record) -> Record:
    """The record as trained under a plan with this digest."""
    return made.model_copy(update={"origins": (made.origins[0].model_copy(update={"plan": plan}),)})


def ran(
    rows: Mapping[str, Sequence[float] | None],
    changes: Mapping[str, dict[str, Any]] | None = None,
    paper: Paper | None = None,
    **also: Any,
) -> PaperResult:
    """Fill the paper with rows of these accuracies at sigma = 0; rows of None have not been run.

    Args:
        rows: accuracies in percent, a seed each.
        changes: declarations of the rows.
        paper: Table 1 by default.
        also: searches that ran, GPU hours, or the root.
    """
    declared = settings(**{key.replace("-", "_"): (changes or {}).get(key, {}) for key in rows})
    made = [record(key, declared, sigma_0=seeds) for key, seeds in rows.items() if seeds is not None]
    return judged(paper or PAPER, declared, *made, **also)


def judged(
    paper: Paper,
    declared: Settings,
    *ran: Record,
    gpu_hours: dict[str, float] | None = None,
    searches: dict[str, SearchRecord] | None = None,
    root: Path = Path(),
) -> PaperResult:
    """The paper with these records; histories lie under ``root``."""
    by_row: dict[str, Record | None] = dict.fromkeys(declared.lines)
    by_row |= {record.row: record for record in ran}
    return fill("toys", Sources(declared, root, paper, by_row, gpu_hours or {}, searches or {}))
