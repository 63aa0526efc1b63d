"""Counts of papers: of printed values by what became of them, and of results by what they buy."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pipeline.reporting import wording
from pipeline.reporting.filled import PaperResult
from pipeline.reporting.judging.guarantees import VACUOUS, Guarantee
from pipeline.reporting.judging.values import every
from pipeline.reporting.results import RowResult, Status, Strength, Value

# what a verdict stands on, as sentences and as metrics have it
STRENGTHS: dict[Strength, tuple[str, str]] = {
    "accounting": ("by accounting", "decided_by_accounting"),
    "the paper's settings": ("at the paper's settings", "decided_at_paper_settings"),
    "a budget of our own": ("at a budget of our own", "decided_at_own_budget"),
}


def metrics(*results: PaperResult) -> dict[str, int]:
    """A handful of counts, for `dvc metrics show` and `dvc metrics diff`."""
    judged = every(*results)
    statuses = Counter(value.status for value in judged)
    decided = [value for value in judged if value.decided]
    strengths = Counter(value.row.strength for value in decided if value.row)
    claiming = list(_claiming(results))
    return {
        "printed": len(judged),
        "agree": statuses["agrees"],
        "differ": statuses["above"] + statuses["below"],
        "inconclusive": statuses["inconclusive"],
        "not_judged": statuses["not judged"],
        "wait_for_gpu": statuses["waits for a GPU"],
        "not_run": statuses["not run"],
        "not_counted": statuses["not counted"],
        **{name: strengths[strength] for strength, (_, name) in STRENGTHS.items()},
        "decided_as_planned": sum(value.planned for value in decided),
        "results": sum(len(table.cells) for result in results for table in result.tables),
        "claim_privacy": len(claiming),
        "proven_within_claim": sum(guarantee.kept for _, guarantee in claiming),
        "and_of_use": sum(guarantee.state == "holds" for _, guarantee in claiming),
    }


def values(*results: PaperResult) -> list[tuple[str, str, str]]:
    """What became of the printed values: of each kind its name, how many there are, and on what grounds.

    The first line has all of them; empty where none is printed.
    """
    judged = every(*results)
    if not judged:
        return []
    scope = sum(left.numbers for result in results for left in result.paper.out_of_scope)
    kinds: tuple[tuple[Status, str, str], ...] = (
        ("agrees", "agree", _grounds(judged, "agrees")),
        ("above", "above the paper", _grounds(judged, "above")),
        ("below", "below the paper", _grounds(judged, "below")),
        ("inconclusive", "inconclusive", "more seeds may decide some of them"),
        ("not judged", "not judged", _reasons(judged, "not judged")),
        ("waits for a GPU", "wait for a GPU", _hours(judged)),
        ("not run", "not run", _reasons(judged, "not run")),
        ("not counted", "not counted", "circular, or printed twice"),
    )
    statuses = Counter(value.status for value in judged)
    beside = f"{scope} more are out of scope, for reasons on the papers' pages" if scope else ""
    return [
        ("printed values", str(len(judged)), beside),
        *((words, str(statuses[status]), why) for status, words, why in kinds if statuses[status]),
    ]


def privacy(*results: PaperResult) -> str:
    """How many results keep the epsilon that they claim, and what results these are."""
    rows, counts = [row for row, _ in _claiming(results)], metrics(*results)
    if not rows:
        return ""
    accounted = sum(row.strength == "accounting" for row in rows)
    full = sum(row.counts for row in rows) - accounted
    kinds = {
        "accountings": accounted,
        "full trainings": full,
        "on a reduced budget": len(rows) - accounted - full,
    }
    return (
        f"Of {len(rows)} results that claim an ε "
        f"({_listed([f'{count} {words}' for words, count in kinds.items() if count])}), "
        f"{counts['proven_within_claim']} have a proven bound within the claim, {counts['and_of_use']} of "
        f"them of at most ε = {VACUOUS:.1f}, above which a bound protects nobody."
    )


def roughly(number: float) -> str:
    """To two digits."""
    return wording.number(float(f"{number:.2g}"))


def of_rows(count: int) -> str:
    """``3 rows``."""
    return f"{count} row" + ("s" if count > 1 else "")


def _claiming(results: Sequence[PaperResult]) -> Iterator[tuple[RowResult, Guarantee]]:
    for result in results:
        for row in (row for table in result.tables for row in table.rows):
            for cell in row.cells.values():
                if cell.guarantee.ledger.claimed is not None:
                    yield row, cell.guarantee


def _grounds(judged: Sequence[Value], status: Status) -> str:
    """On what strength values of a status are decided, how many by a plan, and how many on less data."""
    grounds = [(value.row, value.planned) for value in judged if value.status == status and value.row]
    rows = [(row.strength, planned) for row, planned in grounds]
    parts = []
    for strength, (words, _) in STRENGTHS.items():
        planned = [had for of_row, had in rows if of_row == strength]
        kinds = {"planned": sum(planned), "exploratory": len(planned) - sum(planned)}
        counts = [f"{count} {kind}" for kind, count in kinds.items() if count]
        if planned:
            parts.append(f"{len(planned)} {words}" + (f" ({', '.join(counts)})" * (strength != "accounting")))
    if fewer := sum(any(mark.fewer_data for mark in row.marks) for row, _ in grounds):
        parts.append(f"{fewer} of them on a part of the paper's data")
    return ", ".join(parts)


def _reasons(judged: Sequence[Value], status: Status) -> str:
    """Why values have a status: the reason, or where there are several each with its count."""
    counts = Counter(value.words for value in judged if value.status == status)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{why}: {count}" for why, count in counts.most_common())


def _hours(judged: Sequence[Value]) -> str:
    """How many GPU hours the rows that values wait for would take."""
    rows = {value.row.key: value.row for value in judged if value.status == "waits for a GPU" and value.row}
    counted = [row.gpu_hours for row in rows.values() if row.gpu_hours is not None]
    parts = [f"about {roughly(sum(counted))} GPU hours by their operations"] if counted else []
    if lacking := len(rows) - len(counted):
        parts.append(f"{of_rows(lacking)} not counted")
    return ", ".join(parts)


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
