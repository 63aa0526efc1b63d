"""Tests the sentences of a paper against records, and against the paper's own table.

Every comparison is one outcome and says what it compared. A claim is not reproduced as soon as one outcome
fails, and reproduced only when every outcome holds with its whole 95 % interval. It is judged by the rows
that are the paper's lines as they stand; rows that do something differently are assessed beside, and decide
nothing.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pipeline.reporting.judging.claim_test import Outcome, Rows
from pipeline.reporting.papers import Claim, Paper

Status = Literal[
    "reproduced",
    "not reproduced",
    "undecided",
    "not judged",  # run, but on too small a budget, on less data or after too narrow a search
    "waits for a GPU",
    "only differently",  # decided by rows that do something differently, and not as in the paper
    "not tested",
    "not run",
]

_PLURAL = {"holds": "hold", "fails": "fail"}


@dataclass(frozen=True)
class Assessment:
    """A claim tested on one choice of rows."""

    variant: str  # '' for the rows that are the paper's lines as they stand
    reduced: bool  # the rows have less than the paper's training
    status: Status
    outcomes: tuple[Outcome, ...]

    @property
    def words(self) -> str:
        """Status; 'partly run' if some of its comparisons ran."""
        ran = any(outcome.verdict != "not run" for outcome in self.outcomes)
        return "partly run" if ran and self.status in ("not run", "waits for a GPU") else self.status

    @property
    def tally(self) -> str:
        """``6 hold, 6 not run``, ``3 hold, not judged (10 of 50 epochs)``: numbers of its outcomes."""
        counts = Counter(
            _PLURAL.get(outcome.verdict, outcome.verdict)
            + (f", not judged ({outcome.caveat})" if outcome.caveat else "")
            for outcome in self.outcomes
        )
        return "; ".join(f"{count} {words}" for words, count in counts.items())


@dataclass(frozen=True)
class ClaimResult:
    """A claim, tested."""

    claim: Claim
    own: bool  # an experiment of this project's own: it counts nowhere
    printed: tuple[Outcome, ...]  # the same comparisons on the paper's own numbers
    assessments: tuple[Assessment, ...]

    @property
    def status(self) -> Status:
        """Status as in the paper, on the full budget if it decides, else on the reduced one."""
        if self.claim.untested:
            return "not tested"
        as_in_paper = [assessment.status for assessment in self.assessments if not assessment.variant]
        decided = [status for status in as_in_paper if status not in ("not run", "waits for a GPU")]
        if decided:
            return decided[0]
        if any(assessment.status in ("reproduced", "not reproduced") for assessment in self.assessments):
            return "only differently"
        return as_in_paper[0] if as_in_paper else "not run"

    @property
    def contradicted(self) -> tuple[Outcome, ...]:
        """Outcomes on the paper's own table that fail."""
        return tuple(outcome for outcome in self.printed if outcome.verdict == "fails")


def assess(paper: Paper, lines: Rows) -> list[ClaimResult]:
    """Test every claim whose lines are all in declared tables, once for each budget and variant of rows.

    Args:
        paper: with its claims.
        lines: of the declared tables, by reference.

    Returns:
        Tested claims; the main claims come first, those without a test last.
    """
    claims = sorted(
        paper.claims, key=lambda claim: (claim.untested is not None, claim.key not in paper.main_claims)
    )
    return [
        ClaimResult(
            claim,
            any(paper.table_of(reference).own for reference in _references(claim)),
            tuple(outcome for test in claim.tests for outcome in test.on_paper(paper)),
            tuple(_assessments(claim, paper, lines)),
        )
        for claim in claims
        if lines.keys() >= set(_references(claim))
    ]


def _references(claim: Claim) -> list[str]:
    return list(dict.fromkeys(reference for test in claim.tests for reference in test.references))


def _assessments(claim: Claim, paper: Paper, lines: Rows) -> Iterator[Assessment]:
    """Assessments as in the paper, then of each variant of the claim's lines; full budgets come first.

    In a variant's assessment lines without it contribute their plain rows. A full and a reduced row are never
    compared.
    """
    for reduced in (False, True):
        rows = {
            reference: replace(
                lines[reference],
                rows=tuple(row for row in lines[reference].rows if row.counts != reduced),
            )
            for reference in _references(claim)
        }
        variants = list(dict.fromkeys(row.variant for line in rows.values() for row in line.rows))
        plain = [] if reduced and "" not in variants else [""]
        for variant in plain + [variant for variant in variants if variant]:
            chosen = {
                reference: replace(line, variant=variant if line.has(variant) else "")
                for reference, line in rows.items()
            }
            outcomes = tuple(outcome for test in claim.tests for outcome in test.ours(chosen, paper))
            if outcomes:
                yield Assessment(variant, reduced, _status(outcomes, _waiting(chosen)), outcomes)


def _waiting(rows: Rows) -> bool:
    """Return True if a chosen row waits for a GPU."""
    return any(row.waits for line in rows.values() for row in line.rows if row.variant == line.variant)


def _status(outcomes: tuple[Outcome, ...], waiting: bool) -> Status:
    counted = [outcome.verdict if outcome.caveat is None else "not judged" for outcome in outcomes]
    if "fails" in counted:
        return "not reproduced"
    if "not run" in counted:
        return "waits for a GPU" if waiting else "not run"
    if "not judged" in counted:
        return "not judged"
    return "undecided" if "undecided" in counted else "reproduced"
