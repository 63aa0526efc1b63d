"""Grades of the uses of private data that no epsilon covers.

A grade is the effect of a use on the formal guarantee against an observer who sees all published records of a
row. The table of pitfalls of jax_privacy has such grades. A grade is no probability of harm.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dprepro.pipeline.methods.statements import Statement, statement
from dprepro.pipeline.reporting import wording
from dprepro.pipeline.reporting.judging.verdicts import floats_tell
from dprepro.pipeline.reporting.vocabulary import SEVERITIES, WORDS, words
from dprepro.pipeline.results.schema import FINAL_MODEL, Attack, Composition, Ledger

Severity = Literal["critical", "weakening", "theoretical"]
USES: dict[Severity, tuple[str, ...]] = {
    # exact results on private data that are published, and float32 noise that betrays a record
    "critical": (
        *("floating_point_shown", "curves", "vocabulary", "feature_range", "passed_over", "digests"),
        *("own_description", "spans", "model_audit"),
    ),
    # uses of examples outside the training set, for which no epsilon is claimed
    "weakening": (
        *("validation", "own_public", "other_public", "public_start", "public_network", "public_vectors"),
        "public_relevance",
    ),
    # the releases of relevances are accounted, and this row doesn't publish the relevances
    "theoretical": (
        *("declared_description", "informed_relevance", "test_relevance", "other_choices"),
        *("examples_public", "examples_recorded", "timing", "floating_point", "floating_point_grid"),
    ),
}
SEVERITY = {key: severity for severity, keys in USES.items() for key in keys}
# uses of private trainings on a public data set; one paragraph above the ledger's table names those of all
COMMON = frozenset(
    {
        *("curves", "digests", "validation", "passed_over", "examples_public"),
        *("timing", "other_choices", "floating_point", "floating_point_grid", "model_audit"),
    }
)
ACCOUNTED = frozenset({"informed_relevance"})  # uses that the proven epsilon includes
OWN_DATA = {"own_description", "declared_description"}  # every training on own data has one of these uses
# further trainings on the same examples; the epsilon of all trainings together decides the grade
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

    ``attacks`` are on the code of the training's level; ``composition`` is that of its row and search.
    """
    uses = list(ledger.not_covered)
    if uses:  # empty for accounting only
        shown, grid = floats_tell(attacks, ledger.noise), ledger.noise == "grid"
        uses.append(
            statement(
                "floating_point_shown" if shown else "floating_point_grid" if grid else "floating_point"
            )
        )
        if any(attack.attack == FINAL_MODEL for attack in attacks):
            uses.append(statement("model_audit"))
    graded = [_graded(use, composition) for use in uses]
    return sorted(graded, key=lambda use: list(SEVERITIES).index(use.severity))


def specific(uses: Sequence[NotCovered]) -> list[NotCovered]:
    """Uses without those in `ACCOUNTED` and, unless the data are the user's own, those in `COMMON`."""
    common = frozenset() if any(use.key in OWN_DATA for use in uses) else COMMON
    return [use for use in uses if use.key not in common | ACCOUNTED]


def at_worst(uses: Sequence[NotCovered]) -> str:
    """The worst grade and all uses that have it: ``voids ε for an observer: exact training curves``."""
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
