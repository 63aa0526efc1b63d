"""The counts of a paper, or of all, in sentences: of printed values and of what is claimed to be private."""

from collections.abc import Sequence

from pipeline.reporting import wording
from pipeline.reporting.judging.guarantees import VACUOUS
from pipeline.reporting.judging.values import STRENGTHS, Counts
from pipeline.reporting.results import PaperResult, RowResult

_STANDS_ON = dict(
    zip(STRENGTHS, ("by accounting", "at the paper's settings", "at a budget of our own"), strict=True)
)


def values(counts: Counts) -> str:
    """How many values agree and differ, on what strength, and why the others have no verdict."""
    if not counts.printed:
        return ""
    strengths = [
        f"{agree + differ} {words}" + (f" ({agree} agree)" if differ else "")
        for strength, words in _STANDS_ON.items()
        for agree, differ in [counts.by_strength(strength)]
        if agree + differ
    ]
    text = f"Of {counts.printed} printed values {counts.of('agrees')} agree and {counts.differ} differ"
    text += f": {_listed(strengths)}." if strengths else "."
    if trained := counts.decided - sum(counts.by_strength("accounting")):
        had = f"{counts.planned} had a plan beforehand and the others are"
        if not counts.planned:
            had = "none had a plan beforehand: all are"
        text += f" Of the {trained} that were trained {had} exploratory."
    others = [
        f"{count} {words}"
        for count, words in (
            (counts.of("inconclusive"), "inconclusive"),
            (counts.of("not judged"), f"not judged ({counts.reasons('not judged')})"),
            (counts.of("waits for a GPU"), f"waiting for a GPU{hours(counts.waiting)}"),
            (counts.of("not run"), f"not run ({counts.reasons('not run')})"),
            (counts.of("not counted"), "not counted, as they are circular or printed twice"),
        )
        if count
    ]
    text += f" The others: {_listed(others)}." if others else ""
    if counts.out_of_scope:
        text += (
            f" {counts.out_of_scope} more numbers are out of scope, for reasons that the papers' pages give."
        )
    return text


def privacy(papers: Sequence[PaperResult]) -> str:
    """How many results keep the epsilon that they claim, and what results these are."""
    claiming = [
        (row, cell.guarantee)
        for paper in papers
        for table in paper.tables
        for row in table.rows
        for cell in row.cells.values()
        if cell.guarantee.ledger.claimed is not None
    ]
    if not claiming:
        return ""
    kinds = [
        f"{count} {words}"
        for count, words in (
            (sum(row.strength == "accounting" for row, _ in claiming), "accountings"),
            (sum(row.strength != "accounting" and row.counts for row, _ in claiming), "full trainings"),
            (sum(not row.counts for row, _ in claiming), "on a reduced budget"),
        )
        if count
    ]
    kept = sum(one.kept for _, one in claiming)
    useful = sum(one.state == "holds" for _, one in claiming)
    return (
        f"Of {len(claiming)} results that claim an ε ({_listed(kinds)}), {kept} have a proven bound within "
        f"the claim, {useful} of them one that protects at all, of at most ε = {VACUOUS:.1f}."
    )


def hours(rows: Sequence[RowResult]) -> str:
    """In brackets how many GPU hours rows would take; nothing where none was counted."""
    counted = [row.gpu_hours for row in rows if row.gpu_hours is not None]
    parts = [f"about {roughly(sum(counted))} GPU hours by their operations"] if counted else []
    if lacking := len(rows) - len(counted):
        parts.append(f"{of_rows(lacking)} not counted")
    return f" ({', '.join(parts)})" if parts else ""


def roughly(number: float) -> str:
    """To two digits."""
    return wording.number(float(f"{number:.2g}"))


def of_rows(count: int) -> str:
    """``3 rows``."""
    return f"{count} row" + ("s" if count > 1 else "")


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
