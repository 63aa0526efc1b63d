"""How badly what no epsilon covers bears on a claim: a grade for each such use of private data.

As in jax_privacy's table of pitfalls a grade says what becomes of the formal guarantee, for whoever sees all
that is published of a row, and not how likely it is that somebody comes to harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.privacy.statements import Statement, statement
from pipeline.reporting import wording
from pipeline.reporting.judging.verdicts import floats_tell
from pipeline.reporting.results import Cell
from pipeline.reporting.vocabulary import SEVERITIES, words
from pipeline.results.schema import Attack, Composition, Ledger, Record

Severity = Literal["critical", "weakening", "theoretical"]
SEVERITY: dict[str, Severity] = {
    "floating_point_shown": "critical",
    # computed on private data exactly, and published
    "curves": "critical",
    "vocabulary": "critical",
    "feature_range": "critical",
    "passed_over": "critical",
    "digests": "critical",
    "own_description": "critical",
    "spans": "critical",
    # no training examples: nothing is claimed of them
    "validation": "weakening",
    "own_public": "weakening",
    "public_start": "weakening",
    "public_vectors": "weakening",
    "public_relevance": "weakening",
    # what is told of it is accounted, and it is no part of what this row publishes
    "informed_relevance": "theoretical",
    "test_relevance": "theoretical",
    "other_choices": "theoretical",
    "examples_public": "theoretical",
    "timing": "theoretical",
    "floating_point": "theoretical",
}
# further trainings on the same examples, which are weighed by what all spend together
TRAININGS = ("search", "unlinked_search", "all_replicas")


@dataclass(frozen=True)
class NotCovered:
    """A use of private data that no epsilon covers, and its grade."""

    key: str
    severity: Severity
    words: str


def not_covered(
    ledger: Ledger, attacks: Sequence[Attack], composition: Composition | None
) -> list[NotCovered]:
    """What no epsilon of a training covers, the worst first.

    Args:
        ledger: its own.
        attacks: on the code of its level.
        composition: what its row and search spend in all, where that is more.
    """
    uses = list(ledger.not_covered)
    if uses:  # it was trained
        uses.append(
            statement("floating_point_shown" if floats_tell(attacks, ledger.noise) else "floating_point")
        )
    graded = [_graded(use, composition) for use in uses]
    return sorted(graded, key=lambda use: list(SEVERITIES).index(use.severity))


def of_cell(cell: Cell, record: Record) -> list[NotCovered]:
    """What no epsilon of a level covers, by the worst of its replicas."""
    return not_covered(cell.guarantee.ledger, cell.replicas[0].attacks, record.composition)


def at_worst(uses: Sequence[NotCovered]) -> str:
    """``breaks the claim: curves, vocabulary``: the worst grade, and all that has it."""
    if not uses:
        return "–"
    keys = [use.key.replace("_", " ") for use in uses if use.severity == uses[0].severity]
    return f"{SEVERITIES[uses[0].severity].text}: {', '.join(keys)}"


def sentence(uses: Sequence[NotCovered]) -> str:
    """The worst use, in a sentence."""
    return f"What no ε covers, at worst, {SEVERITIES[uses[0].severity].counted}: {uses[0].words}."


def _graded(use: Statement, composition: Composition | None) -> NotCovered:
    if use.key not in TRAININGS:
        return NotCovered(use.key, SEVERITY[use.key], words(use))
    if composition is None or composition.left_out:
        return NotCovered(use.key, "critical", f"{words(use)}; for some of these nothing is proven")
    spent = f"together with this one they spend at most ε {wording.upwards(composition.epsilon)}"
    return NotCovered(use.key, "weakening", f"{words(use)}; {spent}")
