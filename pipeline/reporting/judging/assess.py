"""Tests the sentences of a paper against records, and against the paper's own table.

Every comparison is one outcome and says what it compared. A claim is not reproduced as soon as one outcome
fails, and reproduced only when every outcome holds with its whole 95 % interval.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pipeline.reporting.gather import PaperResult
from pipeline.reporting.judging.claim_test import Outcome
from pipeline.reporting.papers import Claim
from pipeline.reporting.results import LineResult, RowResult

Status = Literal["reproduced", "not reproduced", "undecided", "not run"]

_PLURAL = {"holds": "hold", "fails": "fail"}


@dataclass(frozen=True)
class Assessment:
    """A claim tested on one choice of rows."""

    variant: str  # '' for the rows that are the paper's lines as they stand
    budget: str  # of every one of them
    status: Status
    outcomes: tuple[Outcome, ...]

    @property
    def tally(self) -> str:
        """How its outcomes fell: ``6 hold, 6 not run``, ``3 hold but don't count (reduced budget)``."""
        counts = Counter(
            _PLURAL.get(outcome.verdict, outcome.verdict)
            + (f" but don't count ({outcome.caveat})" if outcome.caveat else "")
            for outcome in self.outcomes
        )
        return ", ".join(f"{count} {words}" for words, count in counts.items())


@dataclass(frozen=True)
class ClaimResult:
    """A claim, tested."""

    claim: Claim
    printed: tuple[Outcome, ...]  # the same comparisons on the paper's own numbers
    assessments: tuple[Assessment, ...]

    @property
    def statuses(self) -> list[Status]:
        """One for each variant: on the full budget if that tells, else on the reduced one."""
        by_variant: dict[str, Status] = {}
        for one in self.assessments:
            if by_variant.get(one.variant, "not run") == "not run":
                by_variant[one.variant] = one.status
        return list(by_variant.values())

    @property
    def contradicted(self) -> tuple[Outcome, ...]:
        """Where the paper's own table says otherwise."""
        return tuple(outcome for outcome in self.printed if outcome.verdict == "fails")


def assess(result: PaperResult) -> list[ClaimResult]:
    """Test every claim whose lines are all in declared tables, once for each budget and variant of rows."""
    return [
        ClaimResult(
            claim,
            tuple(outcome for test in claim.tests for outcome in test.on_paper(result.paper)),
            tuple(_assessments(claim, result)),
        )
        for claim in result.paper.claims
        if all(result.line(reference) for reference in _references(claim))
    ]


def _references(claim: Claim) -> list[str]:
    return list(dict.fromkeys(reference for test in claim.tests for reference in test.references))


def _assessments(claim: Claim, result: PaperResult) -> Iterator[Assessment]:
    """One for each budget, and for each variant that a line of the claim has on it.

    Other lines contribute their plain row of the same budget: a full and a reduced one are never compared.
    """
    lines = {reference: result.line(reference) for reference in _references(claim)}
    declared = {row.budget for line in lines.values() if line for row in line.rows}
    for budget in sorted(declared) or ["full"]:
        rows = {reference: _rows(line, budget) for reference, line in lines.items()}
        choices = [own for own in rows.values() if own and (len(own) > 1 or "" not in own)]
        variants = list(dict.fromkeys(variant for own in choices for variant in own)) or [""]
        for variant in variants:
            chosen = {
                reference: own.get(variant) or own.get("") or next(iter(own.values()), None)
                for reference, own in rows.items()
            }
            outcomes = tuple(outcome for test in claim.tests for outcome in test.ours(chosen, result.paper))
            yield Assessment(variant, budget, _status(outcomes), outcomes)


def _rows(line: LineResult | None, budget: str) -> dict[str, RowResult]:
    """The rows of a line on a budget by variant; a second one with the same goes by its key."""
    by_variant: dict[str, RowResult] = {}
    for row in line.rows if line else ():
        if row.budget == budget:
            by_variant[row.key if row.variant in by_variant else row.variant] = row
    return by_variant


def _status(outcomes: tuple[Outcome, ...]) -> Status:
    counted = [outcome.verdict if outcome.caveat is None else "not run" for outcome in outcomes]
    if "fails" in counted:
        return "not reproduced"
    if "not run" in counted:
        return "not run"
    return "undecided" if "undecided" in counted else "reproduced"
