"""Every level of every row that claims privacy or has some: what is claimed, proven, spent and shown."""

from collections import Counter
from collections.abc import Sequence

from pipeline.reporting import wording
from pipeline.reporting.judging import severity
from pipeline.reporting.tables.flat import LevelResult
from pipeline.reporting.vocabulary import LEDGERS, SEVERITIES

HEAD = (
    "row",
    "level",
    "claimed ε",
    "proven ε ≤",
    "spends ε ≥",
    "verdict",
    "attack: shown ≥ (of ≤)",
    "floating point",
    "not covered, at worst",
)

READ = (
    "None of these verdicts says that an ε is small, and all of them take computers' numbers for real "
    "ones: the column 'floating point' says how noise was made, of float32 numbers or on a grid, and what "
    "an attack on its arithmetic showed. What was attacked is the row's own code, often with fewer "
    "examples and steps than the row, and then its own ε stands in brackets."
)


def cells(here: LevelResult) -> list[str]:
    """A level that ran, in words under `HEAD`; beside what an attack shows the ε of what was attacked."""
    assert here.row is not None
    assert here.cell is not None
    assert here.verdict is not None
    ledger, verdict = here.cell.guarantee.ledger, here.verdict
    optimistic = ""
    if verdict.name == "optimistic" and ledger.epsilon_upper is not None and ledger.claimed is not None:
        optimistic = f" by {wording.upwards(ledger.epsilon_upper - ledger.claimed)}"
    vacuous = ", and no privacy to speak of" if here.cell.guarantee.state == "vacuous" else ""
    return [
        here.row.key,
        wording.level_words(here.level),
        wording.claim(ledger),
        "none" if ledger.epsilon_upper is None else wording.upwards(ledger.epsilon_upper),
        "–" if ledger.epsilon_lower is None else wording.downwards(ledger.epsilon_lower),
        LEDGERS[verdict.name].text + optimistic + vacuous,
        wording.attack_words(verdict.attack),
        verdict.floating_point,
        severity.at_worst(here.not_covered),
    ]


def counts(results: Sequence[LevelResult]) -> dict[str, int]:
    """How many levels have each verdict, by its words, the most frequent first."""
    words = (LEDGERS[here.verdict.name].text for here in results if here.verdict)
    return dict(Counter(words).most_common())


def grades(results: Sequence[LevelResult]) -> dict[str, int]:
    """Of how many levels what no epsilon covers has which grade at worst, the worst first."""
    worst: Counter[str] = Counter(here.not_covered[0].severity for here in results if here.not_covered)
    return {word.text: worst[name] for name, word in SEVERITIES.items() if name in worst}
