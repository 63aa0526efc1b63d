"""Grades of the uses of private data that no epsilon covers.

A grade names the effect on the formal guarantee against an observer of all of a row's published records, as
jax_privacy's table of pitfalls does. It is no probability of harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.privacy.statements import Statement, statement
from pipeline.reporting import wording
from pipeline.reporting.judging.verdicts import floats_tell
from pipeline.reporting.results import Cell
from pipeline.reporting.vocabulary import SEVERITIES, WORDS, words
from pipeline.results.schema import Attack, Composition, Ledger, Record

Severity = Literal["critical", "weakening", "theoretical"]
USES: dict[Severity, tuple[str, ...]] = {
    # computed on private data exactly, and published; and floats that show a record
    "critical": (
        *("floating_point_shown", "curves", "vocabulary", "feature_range", "passed_over", "digests"),
        *("own_description", "spans"),
    ),
    # of other examples than the training's, for which nothing is claimed
    "weakening": (
        *("validation", "own_public", "public_start", "public_network", "public_vectors"),
        "public_relevance",
    ),
    # the relevances' releases are accounted, and this row does not publish them
    "theoretical": (
        *("declared_description", "informed_relevance", "test_relevance", "other_choices"),
        *("examples_public", "examples_recorded", "timing", "floating_point", "floating_point_grid"),
    ),
}
SEVERITY = {key: severity for severity, keys in USES.items() for key in keys}
# uses of every private training of a public data set, which one paragraph above the ledger's table names
COMMON = frozenset(
    {
        *("curves", "digests", "validation", "passed_over", "examples_public"),
        *("timing", "other_choices", "floating_point", "floating_point_grid"),
    }
)
ACCOUNTED = frozenset({"informed_relevance"})  # uses that the proven epsilon includes
OWN_DATA = {"own_description", "declared_description"}  # one is a use of every training on own data
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
    """Uses of private data outside a training's epsilon, the worst first.

    Args:
        ledger: its own.
        attacks: on the code of its level.
        composition: what its row and search spend in all, where that is more.
    """
    uses = list(ledger.not_covered)
    if uses:  # it was trained
        shown, grid = floats_tell(attacks, ledger.noise), ledger.noise == "grid"
        uses.append(
            statement(
                "floating_point_shown" if shown else "floating_point_grid" if grid else "floating_point"
            )
        )
    graded = [_graded(use, composition) for use in uses]
    return sorted(graded, key=lambda use: list(SEVERITIES).index(use.severity))


def cell_uses(cell: Cell, record: Record) -> list[NotCovered]:
    """Uses of private data outside a level's epsilon, by its worst replica."""
    return not_covered(cell.guarantee.ledger, cell.replicas[0].attacks, record.composition)


def specific(uses: Sequence[NotCovered]) -> list[NotCovered]:
    """Uses beyond `COMMON` and `ACCOUNTED`; those of `COMMON` too if the data are the laboratory's own."""
    common = frozenset() if any(use.key in OWN_DATA for use in uses) else COMMON
    return [use for use in uses if use.key not in common | ACCOUNTED]


def at_worst(uses: Sequence[NotCovered]) -> str:
    """``breaks the claim: exact training curves``: the worst grade, and all uses that have it."""
    if not uses:
        return "–"
    names = [WORDS.uses[use.key] for use in uses if use.severity == uses[0].severity]
    return f"{SEVERITIES[uses[0].severity].text}: {', '.join(dict.fromkeys(names))}"


def sentence(uses: Sequence[NotCovered]) -> str:
    """The worst use, in a sentence."""
    return f"The worst use that no ε covers {SEVERITIES[uses[0].severity].counted}: {uses[0].words}."


def _graded(use: Statement, composition: Composition | None) -> NotCovered:
    if use.key not in TRAININGS:
        return NotCovered(use.key, SEVERITY[use.key], words(use))
    trainings = "all trainings of the row"
    if composition is None or composition.searched:
        trainings += " and its search"
    if composition is None or composition.left_out:
        return NotCovered(use.key, "critical", f"{words(use)}. No bound is proven for {trainings} together")
    spent = f"The bound for {trainings} together is ε ≤ {wording.upwards(composition.epsilon)}"
    return NotCovered(use.key, "weakening", f"{words(use)}. {spent}")
