"""Every level of every row that claims privacy or has some: what is claimed, proven, spent and shown."""

from collections import Counter
from collections.abc import Sequence

from pipeline.reporting import wording
from pipeline.reporting.tables.flat import Entry
from pipeline.reporting.vocabulary import LEDGERS

HEAD = (
    "row",
    "level",
    "claimed ε",
    "proven ε ≤",
    "spends ε ≥",
    "verdict",
    "attack: shown ≥ (of ≤)",
    "floating point",
)


def cells(entry: Entry) -> list[str]:
    """A level that ran, in words under `HEAD`; beside what an attack shows the ε of what was attacked."""
    assert entry.row is not None
    assert entry.cell is not None
    assert entry.verdict is not None
    ledger, verdict = entry.cell.guarantee.ledger, entry.verdict
    optimistic = f" by {wording.upwards(verdict.gap)}" if verdict.gap else ""
    vacuous = ", and no privacy to speak of" if entry.cell.guarantee.state == "vacuous" else ""
    return [
        entry.row.key,
        wording.level_words(entry.level),
        wording.claim(ledger),
        "none" if ledger.accounted is None else wording.upwards(ledger.accounted),
        "–" if ledger.shown is None else wording.downwards(ledger.shown),
        LEDGERS[verdict.name].text + optimistic + vacuous,
        wording.attack_words(verdict.attack),
        verdict.floating_point,
    ]


def counts(entries: Sequence[Entry]) -> dict[str, int]:
    """How many levels have each verdict, by its words, the most frequent first."""
    words = (LEDGERS[entry.verdict.name].text for entry in entries if entry.verdict)
    return dict(Counter(words).most_common())
