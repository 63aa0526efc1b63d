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

READ = (
    "The verdicts judge the released weights of a training run. No verdict says that an ε is small. "
    "Each bound treats floats as real numbers: the column 'floating point' names the noise, float32 "
    "numbers or integers on a grid, and the result of an attack on its arithmetic. The attacks run the "
    "row's own code, often with fewer examples and steps; the brackets then give the ε of that smaller "
    "run. Each ε holds at its row's δ (`delta` in ledger.csv) for its row's neighbours (the row's "
    "page). Two ε of different δ or neighbours are not comparable."
)
COMMON = (
    "All data sets of the catalogue are public benchmarks. The project publishes exact training curves, "
    "validation accuracies and digests of these data for every row, and no ε covers them. If the "
    "training examples were secret, they would break the claim against an observer of all published "
    "records. The number of examples, the choice of models, running times and floating-point arithmetic "
    "are outside every ε, too. The last column leaves out these common uses and grades each row's "
    "special uses."
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
    read: str = READ
    common: str = COMMON


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
