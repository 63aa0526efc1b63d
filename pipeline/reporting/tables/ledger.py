"""Privacy ledger of all levels that claim or have privacy: claim, bounds, verdict and attack."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pipeline.reporting import wording
from pipeline.reporting.facts import Fact
from pipeline.reporting.judging import severity
from pipeline.reporting.vocabulary import LEDGERS, SEVERITIES, Word

HEAD = (
    "row",
    "level",
    "claimed ε",
    "proven ε ≤",
    "spends ε ≥",
    "verdict on what ε covers",
    "attack: shown ≥ (of ≤)",
    "floating point",
    "special uses outside ε, the worst",
)


class LedgerLine(NamedTuple):
    """Line of the ledger."""

    paper: str
    cells: list[str]  # under `HEAD`
    tone: str  # of the verdict
    use_tone: str  # of the worst special use; '' without one


class LedgerView(NamedTuple):
    """Page of the ledger."""

    lines: list[LedgerLine]
    verdicts: list[tuple[Word, int]]  # that levels have, with their numbers
    grades: list[tuple[Word, int]]  # of each level's worst special use
    head: tuple[str, ...] = HEAD


def ledger_view(facts: Sequence[Fact]) -> LedgerView:
    """Build the page of the ledger from the facts of private levels."""
    special = (severity.specific(fact.not_covered) for fact in facts)
    return LedgerView(
        [ledger_line(fact) for fact in facts],
        _counted(LEDGERS, (fact.verdict.name for fact in facts if fact.verdict)),
        _counted(SEVERITIES, (uses[0].severity for uses in special if uses)),
    )


def _counted(words: Mapping[str, Word], keys: Iterable[str]) -> list[tuple[Word, int]]:
    numbers = Counter(keys)
    return [(word, numbers[key]) for key, word in words.items() if numbers[key]]


def ledger_line(fact: Fact) -> LedgerLine:
    """Line of a level that ran; an attack's bound has the epsilon of the attacked mechanism behind it."""
    assert fact.row is not None
    assert fact.cell is not None
    assert fact.verdict is not None
    ledger, verdict = fact.cell.guarantee.ledger, fact.verdict
    uses, word = severity.specific(fact.not_covered), LEDGERS[verdict.name]
    optimistic = ""
    if verdict.name == "optimistic" and ledger.epsilon_upper is not None and ledger.claimed is not None:
        optimistic = f" by {wording.upwards(ledger.epsilon_upper - ledger.claimed)}"
    vacuous = ", and no privacy to speak of" if fact.cell.guarantee.state == "vacuous" else ""
    cells = [
        fact.row.key,
        wording.level_words(fact.level),
        wording.claim(ledger),
        "none" if ledger.epsilon_upper is None else wording.upwards(ledger.epsilon_upper),
        "–" if ledger.epsilon_lower is None else wording.downwards(ledger.epsilon_lower),
        word.text + optimistic + vacuous,
        wording.attack_words(verdict.attack),
        verdict.floating_point,
        severity.at_worst(uses),
    ]
    return LedgerLine(fact.table.paper, cells, word.tone, SEVERITIES[uses[0].severity].tone if uses else "")
