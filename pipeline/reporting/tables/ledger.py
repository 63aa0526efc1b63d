"""Privacy ledger of all levels that claim or have privacy: claim, bounds, verdict and attack."""

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
    "special uses outside ε, the worst",
)

TONES = {word.text: word.tone for words in (LEDGERS, SEVERITIES) for word in words.values()}
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
        severity.at_worst(severity.specific(here.not_covered)),
    ]


def verdicts(results: Sequence[LevelResult]) -> list[tuple[str, int, str]]:
    """Each verdict that levels have, how many have it, and what it means."""
    return _counted(LEDGERS, (here.verdict.name for here in results if here.verdict))


def grades(results: Sequence[LevelResult]) -> list[tuple[str, int, str]]:
    """Counts of the grades of each level's worst special use that no epsilon covers."""
    special = (severity.specific(here.not_covered) for here in results)
    return _counted(SEVERITIES, (uses[0].severity for uses in special if uses))


def _counted(words: Mapping[str, Word], keys: Iterable[str]) -> list[tuple[str, int, str]]:
    numbers = Counter(keys)
    return [(word.text, numbers[key], word.means) for key, word in words.items() if numbers[key]]
