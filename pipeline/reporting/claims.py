"""Tests the sentences of a paper against records, and against the paper's own table.

Every comparison is one outcome and says what it compared. A claim is not reproduced as soon as one outcome
fails, and reproduced only when every outcome holds with its whole 95 % interval.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pipeline.reporting.intervals import difference, mean
from pipeline.reporting.papers import Claim, Difference, Guaranteed, Paper, Table
from pipeline.reporting.results import Cell, PaperResult, RowResult
from pipeline.reporting.wording import bound, level_words, number, signed, with_interval

Verdict = Literal["holds", "fails", "undecided", "not run"]
Status = Literal["reproduced", "not reproduced", "undecided", "not run"]

_PLURAL = {"holds": "hold", "fails": "fail"}


@dataclass(frozen=True)
class Outcome:
    """One comparison at one level."""

    verdict: Verdict
    text: str  # what was compared with what, in numbers
    caveat: str | None = None  # why it does not count: reduced budget, synthetic data, ...


@dataclass(frozen=True)
class Assessment:
    """A claim tested on one choice of rows."""

    variant: str  # '' for the rows that are the paper's lines as they stand
    status: Status
    outcomes: tuple[Outcome, ...]

    @property
    def tally(self) -> str:
        """How its outcomes fell: ``6 hold, 6 not run``, ``12 don't count (synthetic data)``."""
        found = Counter(
            f"don't count ({outcome.caveat})"
            if outcome.caveat
            else _PLURAL.get(outcome.verdict, outcome.verdict)
            for outcome in self.outcomes
        )
        return ", ".join(f"{count} {words}" for words, count in found.items())


@dataclass(frozen=True)
class ClaimResult:
    """A claim, tested."""

    claim: Claim
    printed: tuple[Outcome, ...]  # the same comparisons on the paper's own numbers
    assessments: tuple[Assessment, ...]

    @property
    def contradicted(self) -> tuple[Outcome, ...]:
        """Where the paper's own table says otherwise."""
        return tuple(outcome for outcome in self.printed if outcome.verdict == "fails")


def assess(result: PaperResult) -> list[ClaimResult]:
    """Test every claim whose lines are all in declared tables, once for each variant among their rows."""
    return [
        ClaimResult(claim, tuple(_on_paper(claim, result.paper)), tuple(_assessments(claim, result)))
        for claim in result.paper.claims
        if all(result.line(reference) for reference in _references(claim))
    ]


def _references(claim: Claim) -> list[str]:
    return list(dict.fromkeys(reference for test in claim.tests for reference in test.references))


def _assessments(claim: Claim, result: PaperResult) -> Iterator[Assessment]:
    """One for each variant that a line of the claim has; other lines contribute their plain row."""
    rows = {reference: _rows(result, reference) for reference in _references(claim)}
    choices = [own for own in rows.values() if len(own) > 1 or "" not in own]
    variants = list(dict.fromkeys(variant for own in choices for variant in own)) or [""]
    for variant in variants:
        chosen = {
            reference: own.get(variant) or own.get("") or next(iter(own.values()), None)
            for reference, own in rows.items()
        }
        outcomes = tuple(outcome for test in claim.tests for outcome in _outcomes(test, chosen, result.paper))
        yield Assessment(variant, _status(outcomes), outcomes)


def _rows(result: PaperResult, reference: str) -> dict[str, RowResult]:
    """The rows of a line by variant; a second one with the same goes by its key."""
    line = result.line(reference)
    found: dict[str, RowResult] = {}
    for row in line.rows if line else ():
        found[row.key if row.variant in found else row.variant] = row
    return found


def _status(outcomes: tuple[Outcome, ...]) -> Status:
    counted = [outcome.verdict if outcome.caveat is None else "not run" for outcome in outcomes]
    if "fails" in counted:
        return "not reproduced"
    if "not run" in counted:
        return "not run"
    return "undecided" if "undecided" in counted else "reproduced"


def _outcomes(
    test: Difference | Guaranteed, rows: dict[str, RowResult | None], paper: Paper
) -> Iterator[Outcome]:
    for level in test.at:
        if isinstance(test, Guaranteed):
            yield _guaranteed(test, level, rows[test.of], paper)
        else:
            yield _differs(test, level, rows, paper)


def _differs(test: Difference, level: str, rows: dict[str, RowResult | None], paper: Paper) -> Outcome:
    title = _title(test, level, paper)
    left = _cell(rows[test.left], level)
    if isinstance(test.right, str):
        right = _cell(rows[test.right], test.right_at or level)
        if left is None or right is None:
            return Outcome("not run", f"{title}: not run")
        ours = difference(left.values, right.values)
    else:
        if left is None:
            return Outcome("not run", f"{title}: not run")
        right, ours = None, mean([value - test.right for value in left.values])
    verdict = ours.where(test.above, test.below)
    table = _table(test.left, paper)
    text = f"{title}: {with_interval(ours, table.decimals, sign=True)}, {_needs(test)}"
    caveats = [_caveat(rows[reference]) for reference in test.references]
    return Outcome(verdict, text, next((caveat for caveat in caveats if caveat), None))


def _guaranteed(test: Guaranteed, level: str, row: RowResult | None, paper: Paper) -> Outcome:
    title = f"{paper.lines[test.of].label} at {level_words(level)}"
    cell = _cell(row, level)
    if cell is None:
        return Outcome("not run", f"{title}: not run")
    found = cell.guarantee
    claimed = number(found.ledger.claimed) if found.ledger.claimed is not None else "none"
    text = f"{title}: claimed ε {claimed}, proven {bound(found.ledger)}"
    if found.reason:
        text += f" ({found.reason})"
    # Seeded noise is this project's choice and says nothing about the paper's mechanism. A reduced budget is
    # no caveat here: fewer steps of a mechanism are accounted for like many.
    caveats = [mark.words for mark in row.marks if mark.incomparable or mark.seeded] if row else []
    return Outcome("holds" if found.state == "holds" else "fails", text, next(iter(caveats), None))


def _on_paper(claim: Claim, paper: Paper) -> Iterator[Outcome]:
    """The paper's printed numbers, taken as exact, put to the same tests."""
    for test in claim.tests:
        if isinstance(test, Guaranteed):
            continue
        table = _table(test.left, paper)
        for level in test.at:
            left = paper.lines[test.left].values.get(level)
            if isinstance(test.right, str):
                printed = paper.lines[test.right].values.get(test.right_at or level)
                right = printed.value if printed else None
            else:
                right = test.right
            if left is None or left.value is None or right is None:
                continue
            gap = left.value - right
            within = (test.above is None or gap > test.above) and (test.below is None or gap < test.below)
            text = f"{_title(test, level, paper)}: {signed(gap, table.decimals)}, {_needs(test)}"
            yield Outcome("holds" if within else "fails", text)


def _title(test: Difference, level: str, paper: Paper) -> str:
    left = paper.lines[test.left].label
    right = paper.lines[test.right].label if isinstance(test.right, str) else number(test.right)
    if test.right_at:
        right += f" at {level_words(test.right_at)}"
    return f"{left} − {right} at {level_words(level)}"


def _needs(test: Difference) -> str:
    parts = [
        f"{word} {number(limit)}"
        for word, limit in (("above", test.above), ("below", test.below))
        if limit is not None
    ]
    return "to be " + " and ".join(parts)


def _table(reference: str, paper: Paper) -> Table:
    return paper.tables[reference.split("/")[0]]


def _cell(row: RowResult | None, level: str) -> Cell | None:
    return row.cells.get(level) if row else None


def _caveat(row: RowResult | None) -> str | None:
    return next((mark.words for mark in row.marks if mark.inconclusive), None) if row else None
