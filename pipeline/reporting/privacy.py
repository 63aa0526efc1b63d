"""Privacy of a level: its claimed epsilon, the bounds on it, and what no epsilon covers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dprepro.fields import Noise
from dprepro.pipeline.ledgers.sentences import upwards
from dprepro.pipeline.methods.spending import Statement, statement
from dprepro.pipeline.reporting import verdict
from dprepro.pipeline.reporting.wording import joined, words
from dprepro.pipeline.results.schema import (
    FINAL_MODEL,
    FLOATING_POINT,
    Attack,
    Composition,
    Ledger,
    TrainingResult,
)

# Bounds within one percent count as equal: accountants differ in their grids, and noise is calibrated to a
# thousandth.
SAME = 1.01
# tolerance of an attack's bound for the rounding of clipped float32 sums
FLOAT = 1 + 1e-3
APART = (FLOATING_POINT, FINAL_MODEL)  # attacks that decide no status
# uses of private trainings on a public data set; the ledger names them once, for all of its rows
COMMON = frozenset(
    {
        *("curves", "digests", "validation", "passed_over", "examples_public"),
        *("timing", "other_choices", "floating_point", "floating_point_grid", "model_audit"),
    }
)
ACCOUNTED = frozenset({"informed_relevance"})  # uses that the proven epsilon includes
OWN_DATA = {"own_description", "declared_description"}  # every training on own data has one of these uses
# further trainings on the same examples; only the epsilon of all trainings together holds for them
TRAININGS = ("search", "unlinked_search", "all_replicas")


@dataclass(frozen=True)
class Privacy:
    """Status of a level, by its least private seed."""

    status: verdict.Privacy
    reason: str | None  # why it is not proven
    ledger: Ledger
    lower: float | None  # largest lower bound: computed, or by an attack on the whole mechanism


def privacy(trainings: Sequence[TrainingResult], seeded: bool) -> Privacy:
    """Privacy of a level; ``seeded`` is True if the noise was seeded, so that no epsilon holds."""
    ledger = worst(training.ledger for training in trainings)
    bounds = [training.shown for training in trainings if training.shown is not None]
    lower = max(bounds, default=None)
    upper = None if seeded else ledger.epsilon_upper
    attacks = [attack for training in trainings for attack in training.attacks]
    beaten = any(_closeness(each) > FLOAT for each in attacks if each.attack not in APART)
    status = verdict.privacy(ledger.claimed, upper, lower, claims=ledger.claimed_by is not None)
    if beaten and status == "proven":
        status = "exceeded"
    return Privacy(status, _reason(status, ledger, lower, seeded), ledger, lower)


def worst(ledgers: Iterable[Ledger]) -> Ledger:
    """The ledger with the weakest guarantee; a claim without a bound is weaker than any bound."""

    def badness(ledger: Ledger) -> tuple[bool, float]:
        unbounded = ledger.epsilon_upper is None and ledger.claimed is not None
        return unbounded, ledger.epsilon_upper if ledger.epsilon_upper is not None else 0.0

    return max(ledgers, key=badness)


def incomparable(left: Ledger, right: Ledger) -> str | None:
    """Reason why the epsilons of two ledgers are not comparable; None if they are.

    Proven epsilons are comparable if they hold for the same kind of neighbours and the same delta.
    """
    if left.epsilon_upper is None or right.epsilon_upper is None:
        return "no epsilon is proven"
    if left.unit != right.unit:
        return f"units {left.unit} and {right.unit}"
    if left.neighbouring is not right.neighbouring:
        return f"neighbours {left.neighbouring} and {right.neighbouring}"
    return None if left.delta == right.delta else f"delta {left.delta} and {right.delta}"


@dataclass(frozen=True)
class NotCovered:
    """A use of private data that no epsilon covers."""

    key: str
    words: str


def not_covered(
    ledger: Ledger, attacks: Sequence[Attack], composition: Composition | None
) -> list[NotCovered]:
    """Uses of private data outside a training's epsilon.

    ``attacks`` are on the code of the training's level; ``composition`` is that of its row and search.
    """
    uses = list(ledger.not_covered)
    if uses:  # empty for accounting only
        shown = floats_tell(attacks, ledger.noise)
        grid = ledger.noise == "grid"
        uses.append(
            statement(
                "floating_point_shown" if shown else "floating_point_grid" if grid else "floating_point"
            )
        )
        if any(attack.attack == FINAL_MODEL for attack in attacks):
            uses.append(statement("model_audit"))
    return [NotCovered(use.key, _worded(use, composition)) for use in uses]


def specific(uses: Sequence[NotCovered]) -> list[NotCovered]:
    """Uses without those in `ACCOUNTED` and, unless the data are the user's own, those in `COMMON`."""
    common = frozenset() if any(use.key in OWN_DATA for use in uses) else COMMON
    return [use for use in uses if use.key not in common | ACCOUNTED]


def floats_tell(attacks: Sequence[Attack], noise: Noise) -> bool:
    """Return True if an attack on the rounding of ``noise`` has a bound above the accounted epsilon."""
    return any(
        _closeness(attack) > FLOAT
        for attack in attacks
        if (attack.attack, attack.noise) == (FLOATING_POINT, noise)
    )


def _worded(use: Statement, composition: Composition | None) -> str:
    if use.key not in TRAININGS:
        return words(use)
    if composition is None or composition.left_out:
        return f"{words(use)}. No bound is proven for all these trainings together"
    return f"{words(use)}. The bound for all these trainings together is ε ≤ {upwards(composition.epsilon)}"


def _closeness(attack: Attack) -> float:
    """Ratio of an attack's lower bound to the attacked mechanism's accounted epsilon; 0 if it has none."""
    return attack.largest / attack.epsilon_upper if attack.epsilon_upper else 0.0


def _reason(status: verdict.Privacy, ledger: Ledger, lower: float | None, seeded: bool) -> str | None:
    return "; ".join(_reasons(status, ledger, lower, seeded)) or None


def _reasons(status: verdict.Privacy, ledger: Ledger, lower: float | None, seeded: bool) -> Iterator[str]:
    if status == "proven":
        return
    if status == "exceeded":
        computed = ledger.epsilon_lower is not None and ledger.epsilon_lower == lower
        if computed and ledger.epsilon_lower_by:
            yield f"a computed lower bound is above the claimed ε, {words(ledger.epsilon_lower_by)}"
        else:
            yield "an attack's lower bound is above the claimed or the accounted ε"
    if reasons := joined(ledger.reasons):
        yield reasons
    elif status == "not proven":
        if seeded and ledger.epsilon_upper is not None:
            yield "the noise is seeded, and an attacker with the seed can subtract it"
        elif ledger.claimed is None:
            yield "the claimed ε is too large for a floating-point number"
        elif ledger.epsilon_upper is None:
            yield "no bound is known"
        else:
            yield "the upper bound on ε is above the claimed ε"
