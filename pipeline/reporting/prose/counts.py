"""Counts of printed values, contrasts, claims and private results by their verdicts."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pipeline.reporting import wording
from pipeline.reporting.facts import PaperResult
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.judging.guarantees import VACUOUS, Guarantee
from pipeline.reporting.judging.rule import MOST_SEEDS
from pipeline.reporting.results import RowResult, Status, Strength, Value
from pipeline.reporting.vocabulary import CLAIMS, CONTRASTS, VALUES, WORDS

# names of `metrics`
STRENGTHS: dict[Strength, str] = {
    "accounting": "decided_by_accounting",
    "the paper's settings": "decided_at_paper_settings",
    "a budget of our own": "decided_at_own_budget",
}
# columns of `overview`
OVERVIEW = ("", "all", "as in the paper", "otherwise", "undecided", "not judged", "wait for a GPU", "not run")


def metrics(*results: PaperResult) -> dict[str, int]:
    """Counts for `dvc metrics show` and `dvc metrics diff`."""
    judged = [value for result in results for value in result.values]
    statuses = Counter(value.status for value in judged)
    decided = [value for value in judged if value.decided]
    strengths = Counter(value.row.strength for value in decided if value.row)
    contrasts = Counter(contrast.status for result in results for contrast in result.contrasts)
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
        **{name: strengths[strength] for strength, name in STRENGTHS.items()},
        "decided_as_planned": sum(value.planned for value in decided),
        "agree_within_error": sum(value.status == "agrees" and value.equal for value in judged),
        "agree_informatively": sum(value.status == "agrees" and bool(value.informative) for value in judged),
        **{f"contrasts_{status.replace(' ', '_')}": count for status, count in contrasts.items()},
        "results": sum(len(table.cells) for result in results for table in result.tables),
        "claim_privacy": len(claiming),
        "proven_within_claim": sum(guarantee.within_claim for _, guarantee in claiming),
        "and_of_use": sum(guarantee.state == "holds" for _, guarantee in claiming),
    }


def values(*results: PaperResult) -> list[tuple[str, str, str]]:
    """Words, number and reasons of each status of printed values, after a line for all.

    Empty if no value is printed.
    """
    judged = [value for result in results for value in result.values]
    if not judged:
        return []
    scope = sum(left.numbers for result in results for left in result.paper.out_of_scope)
    kinds: tuple[tuple[Status, str, str], ...] = (
        ("agrees", "agree", _strengths(judged)),
        ("above", "above the paper", _grounds(judged, "above")),
        ("below", "below the paper", _grounds(judged, "below")),
        ("inconclusive", "inconclusive", _undecided(judged)),
        ("not judged", "not judged", _reasons(judged, "not judged")),
        ("waits for a GPU", "wait for a GPU", _hours(judged)),
        ("not run", "not run", _reasons(judged, "not run")),
        ("not counted", "not counted", "circular, or printed twice"),
    )
    statuses = Counter(value.status for value in judged)
    more = f"{scope} more are out of scope, for reasons on the papers' pages" if scope else ""
    return [
        ("printed values", str(len(judged)), more),
        *((words, str(statuses[status]), why) for status, words, why in kinds if statuses[status]),
    ]


def overview(*results: PaperResult) -> list[tuple[str, ...]]:
    """Contrasts, claims and printed values in a line each, after the line of heads."""
    statuses = (
        ("contrasts", [CONTRASTS[made.status] for result in results for made in result.contrasts]),
        ("claims", [CLAIMS[claim.status] for result in results for claim in result.claims if not claim.own]),
        ("printed values", [VALUES[value.status] for result in results for value in result.values]),
    )
    lines: list[tuple[str, ...]] = [OVERVIEW]
    for name, words in statuses:
        groups = Counter(word.group for word in words)
        lines.append((name, str(len(words)), *(str(groups[group]) for group in OVERVIEW[2:])))
    return lines


def verdict(result: PaperResult) -> str:
    """Verdict on a paper, in a sentence: its accounting, its training, its claims and its privacy."""
    parts: list[str] = []
    judged = [value for value in result.values if value.decided or value.status == "inconclusive"]
    for subject in ("accounting", "training"):
        agrees = [
            value.status == "agrees"
            for value in judged
            if value.row and (value.row.strength == "accounting") == (subject == "accounting")
        ]
        if agrees:
            parts.append(f"{subject} agrees with {sum(agrees)} of {len(agrees)} judged values")
    if waiting := sum(value.status == "waits for a GPU" for value in result.values):
        parts.append(f"{waiting} wait for a GPU")
    claims = Counter(claim.status for claim in result.claims if not claim.own)
    if tested := claims["reproduced"] + claims["not reproduced"]:
        parts.append(f"{claims['reproduced']} of {tested} decided claims are reproduced")
    if claiming := [guarantee for _, guarantee in _claiming([result])]:
        within = sum(guarantee.within_claim for guarantee in claiming)
        parts.append(f"the claimed ε is proven for {within} of {len(claiming)} results")
    sentence = "; ".join(parts) or "nothing has been run yet"
    return f"{sentence[0].upper()}{sentence[1:]}."


def contrasts(*results: PaperResult) -> list[tuple[str, str, str]]:
    """Words, number and reasons of each status of contrasts; the paper argues some of them."""
    found = [contrast for result in results for contrast in result.contrasts]
    if not found:
        return []
    lines = [("contrasts", found, "differences of a table's lines, and of a line from column to column")]
    for status, word in CONTRASTS.items():
        if some := [each for each in found if each.status == status]:
            why = Counter(each.why for each in some if each.why).most_common()
            lines.append((word.counted, some, ", ".join(f"{words}: {count}" for words, count in why)))
    return [(words, str(len(some)), _argued(some, more)) for words, some, more in lines]


def claims(*results: PaperResult) -> list[tuple[str, str, str]]:
    """Words and number of each status of the papers' claims; claims on our own experiments don't count."""
    counts = Counter[str](claim.status for result in results for claim in result.claims if not claim.own)
    if not counts:
        return []
    known = [(word.counted, counts[status]) for status, word in CLAIMS.items() if counts[status]]
    return [("claims", str(counts.total()), ""), *((words, str(count), "") for words, count in known)]


def by_chance(*results: PaperResult) -> str:
    """Agreements of a null predictor beside ours, in a sentence; '' without any judged value."""
    judged = [
        value
        for result in results
        for value in result.values
        if value.decided or value.status == "inconclusive"
    ]
    known = [value for value in judged if value.informative is not None]
    if not known:
        return ""
    null = sum(not value.informative for value in known)
    ours = [value for value in known if value.status == "agrees"]
    informative = sum(bool(value.informative) for value in ours)
    return (
        f"Of {len(known)} judged values in columns of several lines, the mean of the paper's other lines "
        f"agrees with {null}, and ours agree with {len(ours)}; {informative} of these agree where that mean "
        f"does not. No verdict is corrected for their number: at 95 % each, one in twenty is expected to err."
    )


def _argued(some: Sequence[PrintedContrast], more: str) -> str:
    """Numbers of contrasts that the paper argues, and that have planned seeds on both sides."""
    counts = {"argued": sum(each.argued for each in some), "planned": sum(each.planned for each in some)}
    return ", ".join(
        [*(f"{count} {word}" for word, count in counts.items() if count), *([more] if more else [])]
    )


def privacy(*results: PaperResult) -> str:
    """Number of results with a proven bound within their claim, in a sentence."""
    rows, counts = [row for row, _ in _claiming(results)], metrics(*results)
    if not rows:
        return ""
    accounted = sum(row.strength == "accounting" for row in rows)
    full = sum(row.counts for row in rows) - accounted
    kinds = {
        "accountings": accounted,
        "full trainings": full,
        "on a reduced training budget": len(rows) - accounted - full,
    }
    return (
        f"{counts['proven_within_claim']} of {len(rows)} results with a claimed ε "
        f"({_listed([f'{count} {words}' for words, count in kinds.items() if count])}) have a proven bound "
        f"within the claim. {counts['and_of_use']} of these bounds are at most ε = {VACUOUS:.1f}; a larger "
        f"bound hardly limits an attacker."
    )


def roughly(number: float) -> str:
    """Number in two digits."""
    return wording.number(float(f"{number:.2g}"))


def row_count(count: int) -> str:
    """``3 rows``."""
    return f"{count} row" + ("s" if count > 1 else "")


def _claiming(results: Sequence[PaperResult]) -> Iterator[tuple[RowResult, Guarantee]]:
    for result in results:
        for row in (row for table in result.tables for row in table.rows):
            for cell in row.cells.values():
                if cell.guarantee.ledger.claimed is not None:
                    yield row, cell.guarantee


def _undecided(judged: Sequence[Value]) -> str:
    """Numbers of undecided values that more seeds would decide, and that have used their repetition."""
    open_ = [value for value in judged if value.status == "inconclusive"]
    would = sum(value.verdict is not None and value.verdict.seeds is not None for value in open_)
    repeated = sum(value.row is not None and value.row.repeats for value in open_)
    parts = [f"{would} would be decided by at most {MOST_SEEDS} seeds"] if would else []
    return ", ".join([*parts, f"{repeated} have used their one repetition"] if repeated else parts)


def _strengths(judged: Sequence[Value]) -> str:
    """Strengths and grounds of the agreements."""
    agreeing = [value for value in judged if value.status == "agrees"]
    equal = sum(value.equal for value in agreeing)
    informative = sum(bool(value.informative) for value in agreeing)
    strong = f"{equal} equal within error, {len(agreeing) - equal} only within the margin"
    return f"{strong}; {informative} informative; {_grounds(judged, 'agrees')}" if agreeing else ""


def _grounds(judged: Sequence[Value], status: Status) -> str:
    """Grounds of the values of a status: settings, plans and less data."""
    having = [value for value in judged if value.status == status and value.row]
    grounds = [(value.row, value.evidence) for value in having if value.row]
    parts = []
    for strength, words in WORDS.strengths.items():
        kinds = Counter[str](evidence for row, evidence in grounds if row.strength == strength)
        counts = [f"{kinds[kind]} {word}" for kind, word in WORDS.evidence.items() if kinds[kind]]
        if kinds:
            planned = f" ({', '.join(counts)})" if strength != "accounting" else ""
            parts.append(f"{kinds.total()} {words}{planned}")
    if fewer := sum(any(caveat.fewer_data for caveat in row.caveats) for row, _ in grounds):
        parts.append(f"{fewer} of them on a part of the paper's data")
    return ", ".join(parts)


def _reasons(judged: Sequence[Value], status: Status) -> str:
    """Reasons of a status: the only one, or each with its number; an unfair verdict may have several."""
    counts = Counter(
        reason
        for value in judged
        if value.status == status
        for reason in dict.fromkeys(words.partition(":")[0] for words in value.unfair) or [value.words]
    )
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{why}: {count}" for why, count in counts.most_common())


def _hours(judged: Sequence[Value]) -> str:
    """GPU hours of the rows that values wait for."""
    rows = {value.row.key: value.row for value in judged if value.status == "waits for a GPU" and value.row}
    counted = [row.gpu_hours for row in rows.values() if row.gpu_hours is not None]
    parts = [f"about {roughly(sum(counted))} GPU hours by their operations"] if counted else []
    if lacking := len(rows) - len(counted):
        parts.append(f"{row_count(lacking)} not counted")
    return ", ".join(parts)


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
