"""Counts of papers: of printed values by what became of them, and of results by what they buy."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pipeline.reporting import wording
from pipeline.reporting.judging.guarantees import VACUOUS, Guarantee
from pipeline.reporting.judging.values import Status, Value, judge
from pipeline.reporting.results import PaperResult, RowResult, Strength

# what a verdict stands on, as sentences and as metrics have it
STRENGTHS: dict[Strength, tuple[str, str]] = {
    "accounting": ("by accounting", "decided_by_accounting"),
    "the paper's settings": ("at the paper's settings", "decided_at_paper_settings"),
    "a budget of our own": ("at a budget of our own", "decided_at_own_budget"),
}


def metrics(*results: PaperResult) -> dict[str, int]:
    """A handful of counts, for `dvc metrics show` and `dvc metrics diff`."""
    judged = judge(*results)
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


def values(*results: PaperResult) -> str:
    """How many printed values agree and differ, on what strength, and why the others have no verdict."""
    judged, counts = judge(*results), metrics(*results)
    if not judged:
        return ""
    strengths = []
    for strength, (words, name) in STRENGTHS.items():
        of_it = [
            value.status for value in judged if value.decided and value.row and value.row.strength == strength
        ]
        agree = of_it.count("agrees")
        if of_it:
            strengths.append(f"{counts[name]} {words}" + (f" ({agree} agree)" if agree < len(of_it) else ""))
    text = f"Of {counts['printed']} printed values {counts['agree']} agree and {counts['differ']} differ"
    text += f": {_listed(strengths)}." if strengths else "."
    if trained := counts["agree"] + counts["differ"] - counts["decided_by_accounting"]:
        had = f"{counts['decided_as_planned']} had a plan beforehand and the others are"
        if not counts["decided_as_planned"]:
            had = "none had a plan beforehand: all are"
        text += f" Of the {trained} that were trained {had} exploratory."
    others = {
        "inconclusive": "inconclusive",
        "not_judged": f"not judged ({_reasons(judged, 'not judged')})",
        "wait_for_gpu": f"waiting for a GPU{_hours(judged)}",
        "not_run": f"not run ({_reasons(judged, 'not run')})",
        "not_counted": "not counted, as they are circular or printed twice",
    }
    if told := [f"{counts[name]} {words}" for name, words in others.items() if counts[name]]:
        text += f" The others: {_listed(told)}."
    if scope := sum(left.numbers for result in results for left in result.paper.out_of_scope):
        text += f" {scope} more numbers are out of scope, for reasons that the papers' pages give."
    return text


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
        f"them one that protects at all, of at most ε = {VACUOUS:.1f}."
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


def _reasons(judged: Sequence[Value], status: Status) -> str:
    """Why values have a status: the reason, or where there are several each with its count."""
    counts = Counter(value.words for value in judged if value.status == status)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{why}: {count}" for why, count in counts.most_common())


def _hours(judged: Sequence[Value]) -> str:
    """In brackets how many GPU hours the rows that values wait for would take; nothing where none waits."""
    rows = {value.row.key: value.row for value in judged if value.status == "waits for a GPU" and value.row}
    counted = [row.gpu_hours for row in rows.values() if row.gpu_hours is not None]
    parts = [f"about {roughly(sum(counted))} GPU hours by their operations"] if counted else []
    if lacking := len(rows) - len(counted):
        parts.append(f"{of_rows(lacking)} not counted")
    return f" ({', '.join(parts)})" if parts else ""


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
