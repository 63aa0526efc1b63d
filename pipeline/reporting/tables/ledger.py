"""Every level of every row that claims privacy or has some: what is claimed, proven, spent and shown."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pipeline.reporting import wording
from pipeline.reporting.judging import severity
from pipeline.reporting.tables.flat import LevelResult
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
    "what ε leaves out, at worst",
)

TONES = {word.text: word.tone for words in (LEDGERS, SEVERITIES) for word in words.values()}
READ = (
    "These verdicts judge the weights that a training releases. What else is published beside them, such as "
    "exact training curves, no ε covers, and the last column grades it: a sound training can still have its "
    "claim broken there. No verdict says that an ε is small, and all of them take floats for real "
    "numbers: the column 'floating point' says how noise was made, of float32 numbers or on a grid, and what "
    "an attack on its arithmetic showed. What was attacked is the row's own code, often with fewer "
    "examples and steps than the row, and then its own ε stands in brackets. An ε holds at its "
    "row's δ (`delta` in ledger.csv) for its row's neighbours (the row's page), and compares with no other."
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


def verdicts(results: Sequence[LevelResult]) -> list[tuple[str, int, str]]:
    """Each verdict that levels have, how many have it, and what it means."""
    return _counted(LEDGERS, (here.verdict.name for here in results if here.verdict))


def grades(results: Sequence[LevelResult]) -> list[tuple[str, int, str]]:
    """The same of the grades of what no epsilon covers, of each level's worst."""
    return _counted(SEVERITIES, (here.not_covered[0].severity for here in results if here.not_covered))


def _counted(words: Mapping[str, Word], keys: Iterable[str]) -> list[tuple[str, int, str]]:
    numbers = Counter(keys)
    return [(word.text, numbers[key], word.means) for key, word in words.items() if numbers[key]]
