"""Verdict on a ledger by its claimed, proven and computed epsilons and by attacks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from dprepro.fields import Noise
from dprepro.pipeline.reporting.judging.guarantees import exceeds, is_within
from dprepro.pipeline.reporting.results import Cell
from dprepro.pipeline.reporting.wording import downwards
from dprepro.pipeline.results.schema import FLOATING_POINT, Attack, Ledger, Record

Name = Literal["sound", "optimistic", "refuted", "exceeded", "unproven", "void", "huge", "none"]
# tolerance for the rounding of clipped float32 sums
FLOAT = 1 + 1e-3
# Without an accounted epsilon, an attack counts if its bound is above this. Thousands of trials show so much
# only if the attack hardly ever errs.
CERTAIN = 4.0


@dataclass(frozen=True)
class Verdict:
    """Verdict on the ledger of one level, and the attack that decided or came closest."""

    name: Name
    attack: Attack | None  # None: no attack
    floating_point: str  # kind of noise and result of the attack on its rounding, in words


def verdict(
    ledger: Ledger, attacks: Sequence[Attack], reproducible: bool, noise: Noise | None = None
) -> Verdict:
    """Verdict on a level's ledger; `words.yaml` explains the names. ``noise`` is None if nothing ran."""
    on_mechanism = [attack for attack in attacks if attack.attack != FLOATING_POINT]
    name, attack = _judged(ledger, on_mechanism, reproducible)
    return Verdict(name, attack, _floating_point(attacks, noise))


def cell_verdict(cell: Cell, record: Record) -> Verdict:
    """Verdict on a level of a record, by the attacks on this level."""
    # 'float32' if the replicas have both kinds of noise
    noise = min((replica.noise for replica in cell.replicas if replica.started is not None), default=None)
    return verdict(cell.guarantee.ledger, cell.replicas[0].attacks, record.provenance.reproducible, noise)


def closeness(attack: Attack) -> float:
    """Ratio of an attack's lower bound to the attacked mechanism's accounted epsilon; 0 if it has none."""
    return attack.largest / attack.epsilon_upper if attack.epsilon_upper else 0.0


def _judged(ledger: Ledger, attacks: list[Attack], reproducible: bool) -> tuple[Name, Attack | None]:
    """Verdict without floating-point effects, and the attack that decided or came closest."""
    claimed, epsilon_upper = ledger.claimed, ledger.epsilon_upper
    strongest = max(attacks, key=closeness, default=None)
    if ledger.claimed_by is None and claimed is None:
        return "none", strongest
    if reproducible:
        return "void", strongest
    limit = inf if claimed is None else claimed
    if above := [attack for attack in attacks if attack.whole and attack.epsilon > limit]:
        return "refuted", max(above, key=lambda attack: attack.epsilon)
    if exceeds(ledger):
        return "refuted", strongest
    if strongest and closeness(strongest) > FLOAT:
        return "exceeded", strongest
    if epsilon_upper is None:
        certain = [attack for attack in attacks if attack.epsilon_upper is None and attack.epsilon > CERTAIN]
        if certain:
            return "exceeded", certain[0]
    if claimed is None:
        return "huge", strongest
    if epsilon_upper is None:
        return "unproven", strongest
    if not is_within(epsilon_upper, claimed):
        return "optimistic", strongest
    return "sound", strongest


def _floating_point(attacks: Sequence[Attack], noise: Noise | None) -> str:
    """Kind of noise and result of the attack on its rounding, in words."""
    if noise is None:
        return "nothing ran"
    on_rounding = _on_rounding(attacks, noise)
    if not on_rounding:
        return f"{noise}: not audited"
    if floats_tell(attacks, noise):
        return f"{noise}: an attack on rounding found a record"
    # few trials can't show a large accounted epsilon, even if no guess is wrong
    if most := max(attack.largest for attack in on_rounding):
        return f"{noise}: an attack on rounding showed ε ≥ {downwards(most)}, not more than accounted"
    return f"{noise}: no attack on rounding succeeded"


def floats_tell(attacks: Sequence[Attack], noise: Noise) -> bool:
    """Return True if an attack on the rounding of ``noise`` has a bound above the accounted epsilon."""
    return any(closeness(attack) > FLOAT for attack in _on_rounding(attacks, noise))


def _on_rounding(attacks: Sequence[Attack], noise: Noise) -> list[Attack]:
    return [attack for attack in attacks if (attack.attack, attack.noise) == (FLOATING_POINT, noise)]
