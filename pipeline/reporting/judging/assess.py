"""Tests of a paper's claims by records, and by the paper's own table.

Each comparison has one outcome, which names the compared numbers. A claim is not reproduced if one counted
outcome fails. It is reproduced if every outcome holds with its whole 95 % interval. Rows that don't differ
from the paper's lines decide the claim. Each variant has an assessment of its own, which doesn't decide it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from dprepro.pipeline.reporting.judging.claim_test import Outcome, Rows
from dprepro.pipeline.reporting.papers import Claim, Paper

Status = Literal[
    "reproduced",
    "not reproduced",
    "undecided",
    "not judged",  # run, but on too small a budget, on less data or after too narrow a search
    "waits for a GPU",
    "only differently",  # only variants have a verdict
    "not tested",
    "not run",
]

_PLURAL = {"holds": "hold", "fails": "fail"}


@dataclass(frozen=True)
class Assessment:
    """Result of a claim's tests on one choice of rows."""

    variant: str  # '': rows that don't differ from the paper's lines
    reduced: bool  # whether the rows have a reduced budget
    status: Status
    outcomes: tuple[Outcome, ...]

    @property
    def words(self) -> str:
        """Status; 'partly run' if only some of the comparisons ran."""
        ran = any(outcome.verdict != "not run" for outcome in self.outcomes)
        return "partly run" if ran and self.status in ("not run", "waits for a GPU") else self.status

    @property
    def tally(self) -> str:
        """Number of outcomes per verdict: ``6 hold``, ``3 hold, but are not judged (one seed)``."""
        counts = Counter((outcome.verdict, outcome.caveat) for outcome in self.outcomes)
        return "; ".join(_counted(count, *each) for each, count in counts.items())


@dataclass(frozen=True)
class ClaimResult:
    """A claim with the results of its tests."""

    claim: Claim
    own: bool  # whether it is about an experiment of our own, which counts nowhere
    printed: tuple[Outcome, ...]  # outcomes of the same tests on the paper's own numbers
    assessments: tuple[Assessment, ...]

    @property
    def status(self) -> Status:
        """Status by a unit test, or by rows like the paper's lines.

        Rows on a reduced budget decide only if no others do. If none of these rows ran, but the claim has a
        verdict on a variant, the status is 'only differently'.
        """
        if self.claim.untested:
            return "not tested"
        if self.claim.unit_test:
            return "reproduced" if self.claim.unit_test.holds else "not reproduced"
        as_in_paper = [assessment.status for assessment in self.assessments if not assessment.variant]
        decided = [status for status in as_in_paper if status not in ("not run", "waits for a GPU")]
        if decided:
            return decided[0]
        if any(assessment.status in ("reproduced", "not reproduced") for assessment in self.assessments):
            return "only differently"
        return as_in_paper[0] if as_in_paper else "not run"

    @property
    def contradicted(self) -> tuple[Outcome, ...]:
        """Failed outcomes on the paper's own numbers."""
        return tuple(outcome for outcome in self.printed if outcome.verdict == "fails")


def assess(paper: Paper, lines: Rows) -> list[ClaimResult]:
    """Test every claim whose lines are all in declared tables, once for each budget and variant of rows.

    ``lines`` are those of the declared tables. Main claims come first, claims without a test last.
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
    """Yield assessments: reduced training budgets come last, and plain rows come before each variant.

    Plain rows don't differ from the paper's lines. In a variant's assessment, lines without this variant
    contribute plain rows. Rows on reduced budgets are never compared with other rows.
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
                reference: replace(
                    line, variant=variant if any(row.variant == variant for row in line.rows) else ""
                )
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


def _counted(count: int, verdict: str, caveat: str | None) -> str:
    """Number of outcomes with a verdict and a caveat, in words."""
    one = count == 1
    words = f"{count} {verdict if one else _PLURAL.get(verdict, verdict)}"
    joined = "but" if verdict in _PLURAL else "and"
    return f"{words}, {joined} {'is' if one else 'are'} not judged ({caveat})" if caveat else words
