"""Counts of printed values, contrasts, claims and private results by their verdicts."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from dprepro.pipeline.reporting import wording
from dprepro.pipeline.reporting.caveats import ENOUGH_EXAMPLES
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.judging.assess import ClaimResult
from dprepro.pipeline.reporting.judging.claim_test import Outcome
from dprepro.pipeline.reporting.judging.contrasts import PrintedContrast
from dprepro.pipeline.reporting.judging.guarantees import VACUOUS, Guarantee
from dprepro.pipeline.reporting.judging.rule import MOST_SEEDS
from dprepro.pipeline.reporting.results import RowResult, Value
from dprepro.pipeline.reporting.vocabulary import CLAIMS, CONTRASTS, VALUES, WORDS

Count = tuple[str, int, str]  # words, number, reasons
Results = Sequence[PaperResult]
METRICS = ("agree", "differ", "undecided", "not_judged", "wait", "not_run")
# columns of `overview`, after the name and the total
GROUPS = ("as in the paper", "different", "undecided", "not judged", "wait for a GPU", "not run")


def overview(results: Results) -> list[tuple[str, ...]]:
    """Table of counts: a line of heads, then a line each for contrasts, claims and printed values."""
    statuses = {
        "contrasts": [CONTRASTS[contrast.status] for contrast in _contrasts(results)],
        "claims": [CLAIMS[status] for status in _claims(results)],
        "printed values": [VALUES[value.status] for value in _values(results)],
    }
    lines: list[tuple[str, ...]] = [("", "all", *GROUPS)]
    for name, words in statuses.items():
        groups = Counter(word.group for word in words)
        lines.append((name, str(len(words)), *(str(groups[group]) for group in GROUPS)))
    return lines


def metrics(result: PaperResult) -> dict[str, int]:
    """Counts of a paper's printed values for `dvc metrics show`, under the names of `METRICS`."""
    *_, (_, _, *numbers) = overview([result])
    return dict(zip(METRICS, map(int, numbers), strict=True))


def value_counts(results: Results) -> list[Count]:
    """Total of printed values, then number and reasons for each status; empty without any value."""
    values = _values(results)
    scope = sum(left.numbers for result in results for left in result.paper.out_of_scope)
    more = f"{scope} more are out of scope, for stated reasons" if scope else ""
    reasons: dict[str, Callable[[list[Value]], str]] = {
        "agrees": _strengths,
        "above": _grounds,
        "below": _grounds,
        "inconclusive": _undecided,
        "not judged": _reasons,
        "waits for a GPU": _hours,
        "not run": _reasons,
        "not counted": lambda _: VALUES["not counted"].means,
    }
    lines = [
        (word.counted, len(some), reasons[status](some))
        for status, word in VALUES.items()
        if (some := [value for value in values if value.status == status])
    ]
    return [("printed values", len(values), more), *lines] if lines else []


def contrast_counts(results: Results) -> list[Count]:
    """Total of contrasts, then number and reasons for each status; empty without any contrast."""
    found = _contrasts(results)
    if not found:
        return []
    lines = [("contrasts", found, "differences between two lines of a table, or two columns of a line")]
    for status, word in CONTRASTS.items():
        if some := [contrast for contrast in found if contrast.status == status]:
            why = Counter(contrast.why for contrast in some if contrast.why)
            lines.append((word.counted, some, _numbered(why)))
    return [(words, len(some), _argued(some, more)) for words, some, more in lines]


def claim_counts(results: Results) -> list[Count]:
    """Counts of the papers' claims: all, then by status. Claims on our own experiments are left out."""
    counts = Counter(_claims(results))
    lines = [(word.counted, counts[status], "") for status, word in CLAIMS.items() if counts[status]]
    return [("claims", counts.total(), ""), *lines] if lines else []


def verdict(result: PaperResult) -> list[str]:
    """Verdict on a paper, in lines: its main claims, accounting, training, other claims and privacy."""
    parts = [
        f"main claim “{claim.claim.says.rstrip('.')}”: {claim_words(claim)}"
        for claim in result.claims
        if claim.claim.key in result.paper.main_claims
    ]
    judged = [value for value in result.values if value.judged and value.row]
    for subject in ("accounting", "training"):
        statuses = Counter(
            value.status
            for value in judged
            if value.row and (value.row.strength == "accounting") == (subject == "accounting")
        )
        if statuses:
            unsure = f"; {statuses['inconclusive']} are inconclusive" if statuses["inconclusive"] else ""
            parts.append(
                f"our {subject} agrees with {statuses['agrees']} of the {statuses.total()} values that are "
                f"judged by {subject}{unsure}"
            )
    if waiting := sum(value.status == "waits for a GPU" for value in result.values):
        parts.append(f"{waiting} printed values wait for a GPU")
    claims = Counter(_claims([result]))
    if tested := claims["reproduced"] + claims["not reproduced"]:
        parts.append(
            f"{claims['reproduced']} of {tested} decided claims are reproduced; {claims.total() - tested} "
            "claims have no verdict"
        )
    if claiming := [guarantee for _, guarantee in _claiming([result])]:
        within = sum(guarantee.within_claim for guarantee in claiming)
        small = sum(guarantee.state == "holds" for guarantee in claiming)
        some = small if small < within else "all"
        parts.append(
            f"{len(claiming)} results have a claimed ε; for {within} our upper bound is at most the claimed ε"
            f", and {some} of these bounds are at most {VACUOUS:.1f}"
        )
    return [f"{part[0].upper()}{part[1:]}" for part in parts or ["nothing has been run yet"]]


def claim_words(result: ClaimResult) -> str:
    """Verdict on a claim in plain words."""
    text = CLAIMS[result.status].text
    as_in_paper = [assessment for assessment in result.assessments if not assessment.variant]
    for assessment in as_in_paper:
        if assessment.status == result.status and result.status in ("not judged", "undecided"):
            caveats = dict.fromkeys(outcome.caveat for outcome in assessment.outcomes if outcome.caveat)
            return f"{text} ({'; '.join([tally(assessment.outcomes), *list(caveats)[:1]])})"
    if result.status == "only differently":
        statuses = [assessment.status for assessment in result.assessments]
        held, failed = statuses.count("reproduced"), statuses.count("not reproduced")
        text += f" (holds for {held} of {held + failed})"
    return text


def tally(outcomes: Sequence[Outcome]) -> str:
    """Counts of the outcomes that ran: ``1 of 3 comparisons hold, 1 fails, 1 undecided``."""
    ran = [outcome.verdict for outcome in outcomes if outcome.verdict != "not run"]
    failed, undecided = ran.count("fails"), ran.count("undecided")
    fails = f", {failed} {'fails' if failed == 1 else 'fail'}" if failed else ""
    open_ones = f", {undecided} undecided" if undecided else ""
    return f"{ran.count('holds')} of {len(ran)} comparisons hold{fails}{open_ones}"


def by_chance(results: Results) -> str:
    """Agreements of a simple baseline and of our results, in words; '' without any judged value."""
    known = [value for value in _values(results) if value.judged and value.informative is not None]
    if not known:
        return ""
    null = sum(not value.informative for value in known)
    ours = [value for value in known if value.status == "agrees"]
    informative = sum(bool(value.informative) for value in ours)
    return (
        f"A simple baseline predicts a printed value by the mean of the column's other lines. {len(known)} "
        f"judged values have such lines. The baseline agrees with {null} of them, and our results "
        f"with {len(ours)}. For {informative} of our {len(ours)} the baseline fails. On average, one "
        "95 % interval in twenty misses the true value; nothing is corrected for multiple comparisons."
    )


def privacy(results: Results) -> str:
    """Number of results with a proven epsilon up to the claimed one, in words; '' without any claim."""
    claiming = list(_claiming(results))
    if not claiming:
        return ""
    kinds = Counter(
        "computed without training"
        if row.strength == "accounting"
        else "on the paper's or our own budget"
        if row.counts
        else "on a reduced training budget"
        for row, _ in claiming
    )
    listed = wording.enumerated([f"{kinds[kind]} {kind}" for kind in sorted(kinds)])
    within = sum(guarantee.within_claim for _, guarantee in claiming)
    small = sum(guarantee.state == "holds" for _, guarantee in claiming)
    tried = sum(
        guarantee.within_claim and guarantee.rests_on_trials for row, guarantee in claiming if row.trained
    )
    huge = sum(guarantee.state == "huge" for _, guarantee in _guarantees(results))
    more = f" For {huge} more this accounting overflows." if huge else ""
    trials = (
        f" For {tried} of the {within} it is tested, not proven, that each clipped gradient depends only on "
        "its own example."
        if tried
        else ""
    )
    return (
        f"{len(claiming)} results have a claimed ε by the paper's accounting: {listed}.{more} For {within} "
        f"of the {len(claiming)} our upper bound is at most the claimed ε, and {small} of these bounds are "
        f"at most {VACUOUS:.1f}. At larger ε both error rates of an attack can be below one in a "
        f"million.{trials} Each ε is for its row's δ and neighbouring relation. It assumes exact arithmetic; "
        "float32 noise violates this."
    )


def roughly(number: float) -> str:
    """Text of a number, to two significant digits."""
    return wording.number(float(f"{number:.2g}"))


def _values(results: Results) -> list[Value]:
    return [value for result in results for value in result.values]


def _contrasts(results: Results) -> list[PrintedContrast]:
    return [contrast for result in results for contrast in result.contrasts]


def _claims(results: Results) -> list[str]:
    """Statuses of the papers' claims."""
    return [claim.status for result in results for claim in result.claims if not claim.own]


def _guarantees(results: Results) -> Iterator[tuple[RowResult, Guarantee]]:
    for result in results:
        for row in (row for table in result.tables for row in table.rows):
            for cell in row.cells.values():
                yield row, cell.guarantee


def _claiming(results: Results) -> Iterator[tuple[RowResult, Guarantee]]:
    return (found for found in _guarantees(results) if found[1].ledger.claimed is not None)


def _argued(some: Sequence[PrintedContrast], more: str) -> str:
    """``more``, then numbers of contrasts: discussed in the paper, planned, and unfair on a side."""
    argued, planned = (sum(contrast.argued for contrast in some), sum(contrast.planned for contrast in some))
    unfair = sum(contrast.unfair for contrast in some)
    parts = (
        more,
        f"{argued} discussed in the paper" if argued else "",
        f"{planned} planned" if planned else "",
        f"{unfair} counted as unfair" if unfair else "",
    )
    return "; ".join(filter(None, parts))


def _numbered(reasons: Counter[str]) -> str:
    return "; ".join(f"{why} ({count})" for why, count in reasons.most_common())


def _undecided(open_values: Sequence[Value]) -> str:
    """Number of undecided values that more seeds would decide, and number of those already repeated."""
    would = sum(bool(value.verdict and value.verdict.seeds) for value in open_values)
    repeated = sum(bool(value.row and value.row.repeats) for value in open_values)
    parts = (
        f"by our estimate, at most {MOST_SEEDS} seeds would decide {would} of them" if would else "",
        f"{repeated} were repeated once, and our rules allow no second repetition" if repeated else "",
    )
    return "; ".join(filter(None, parts))


def _strengths(agreeing: Sequence[Value]) -> str:
    """Counts of agreements: equal within error, informative; then by training budget and evidence."""
    equal = sum(value.equal for value in agreeing)
    informative = sum(bool(value.informative) for value in agreeing)
    strong = f"{equal} equal within error, {len(agreeing) - equal} only within the margin"
    return f"{strong}. {informative} of the {len(agreeing)} are informative. {_grounds(agreeing)}."


def _grounds(values: Sequence[Value]) -> str:
    """Counts of values by training budget and by evidence, and the count of those with less data."""
    grounds = [(value.row, value.evidence) for value in values if value.row]
    parts = []
    for strength, words in WORDS.strengths.items():
        kinds = Counter[str](evidence for row, evidence in grounds if row.strength == strength)
        counts = [f"{kinds[kind]} {word}" for kind, word in WORDS.evidence.items() if kinds[kind]]
        if kinds:
            planned = f" ({', '.join(counts)})" if strength != "accounting" else ""
            parts.append(f"{kinds.total()} {words}{planned}")
    if fewer := sum(any(caveat.fewer_data for caveat in row.caveats) for row, _ in grounds):
        share = f"{100 * ENOUGH_EXAMPLES:.0f} %"
        parts.append(f"{fewer} of the {len(values)} on less than {share} of the paper's examples")
    return "; ".join(parts)


def _reasons(values: Sequence[Value]) -> str:
    """Reasons of values with one status: the only reason, or each reason with its number of values."""
    reasons = Counter(
        reason
        for value in values
        for reason in dict.fromkeys(words.partition(":")[0] for words in value.unfair) or [value.words]
    )
    if len(reasons) == 1:
        return next(iter(reasons))
    several = " (a value may have several reasons)" if reasons.total() > len(values) else ""
    return f"{_numbered(reasons)}{several}"


def _hours(values: Sequence[Value]) -> str:
    """Estimated GPU hours of the rows that values wait for, in words."""
    rows = {value.row.key: value.row for value in values if value.row}
    counted = [row.gpu_hours for row in rows.values() if row.gpu_hours is not None]
    parts = (
        [f"about {roughly(sum(counted))} GPU hours, estimated from the number of operations"]
        if counted
        else []
    )
    if lacking := len(rows) - len(counted):
        parts.append(f"{wording.counted(lacking, 'row')} not counted")
    return ", ".join(parts)
