"""What a row's privacy is worth, of what is claimed, accounted, computed and shown by attacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.reporting.judging.guarantees import ROUNDING, exceeds
from pipeline.reporting.results import Cell
from pipeline.reporting.vocabulary import LEDGERS
from pipeline.results.schema import FLOATING_POINT, Attack, Ledger, Record

Name = Literal["sound", "optimistic", "broken", "unproven", "void", "none"]
# sums of float32 gradients are clipped to their bounds up to this
FLOAT = 1 + 1e-3
# an epsilon that thousands of trials show of an attack that hardly ever errs, where no bound stands beside it
CERTAIN = 4.0
RULE = (
    "Sound: no attack shows more than is accounted, and no more is accounted than claimed. Optimistic: more "
    "is accounted than claimed, and nothing shows that more is spent than claimed. Broken: more is shown "
    "than is claimed or accounted, or there is no bound and an attack that hardly ever errs. Unproven: no "
    "bound, and no attack found. Void: the noise is seeded. None of these says that an ε is small. All "
    "of them take numbers for real; the last column says what an attack on floating-point noise showed."
)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one level, and the attack that says most."""

    name: Name
    attack: Attack | None  # where one shows more than is accounted for it, that one; else the closest to it
    gap: float | None  # how far the claim is below what is accounted

    @property
    def words(self) -> str:
        """In a cell."""
        return LEDGERS[self.name].text


def on_mechanism(attacks: Sequence[Attack]) -> list[Attack]:
    """Those that would also be possible if numbers were real."""
    return [one for one in attacks if one.attack != FLOATING_POINT]


def arithmetic(attacks: Sequence[Attack]) -> str:
    """Whether what is proven of real numbers was shown to be wrong of a computer's, in words."""
    if all(attack.attack != FLOATING_POINT for attack in attacks):
        return "not audited"
    return "holds for real numbers only" if floats_tell(attacks) else "no more shown than accounted"


def floats_tell(attacks: Sequence[Attack]) -> bool:
    """Whether an attack on floating-point noise showed more than is accounted."""
    return any(
        attack.attack == FLOATING_POINT and attack.accounted is not None and closeness(attack) > FLOAT
        for attack in attacks
    )


def verdict(ledger: Ledger, attacks: Sequence[Attack], reproducible: bool) -> Verdict:
    """What a level's privacy is worth if numbers were real; see `RULE`."""
    attacks = on_mechanism(attacks)
    closest = max(attacks, key=closeness, default=None)
    if ledger.event is None and ledger.claimed is None:
        return Verdict("none", closest, None)
    if reproducible:
        return Verdict("void", closest, None)
    if alarms := [one for one in attacks if closeness(one) > FLOAT]:
        return Verdict("broken", max(alarms, key=closeness), None)
    claimed = ledger.claimed
    if above := [one for one in attacks if one.whole and claimed is not None and one.epsilon > claimed]:
        return Verdict("broken", max(above, key=lambda one: one.epsilon), None)
    if ledger.accounted is None:
        certain = [one for one in attacks if one.accounted is None and one.epsilon > CERTAIN]
        return Verdict("broken" if certain else "unproven", certain[0] if certain else closest, None)
    if exceeds(ledger):
        return Verdict("broken", closest, None)
    if claimed is not None and ledger.accounted > ROUNDING * claimed:
        return Verdict("optimistic", closest, ledger.accounted - claimed)
    return Verdict("sound", closest, None)


def of_cell(cell: Cell, record: Record) -> Verdict:
    """The verdict on a level of a record, by the attacks on it."""
    return verdict(cell.guarantee.ledger, cell.replicas[0].attacks, record.provenance.reproducible)


def closeness(attack: Attack) -> float:
    """What an attack shows, over what was accounted for the mechanism that it attacked."""
    return attack.largest / attack.accounted if attack.accounted else 0.0
