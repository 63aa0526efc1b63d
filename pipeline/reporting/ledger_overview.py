"""Every level of every row that claims privacy or has some: what is claimed, proven, spent and shown."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.reporting import wording
from pipeline.reporting.gather import PaperResult
from pipeline.reporting.judging import severity
from pipeline.reporting.judging.guarantees import Guarantee
from pipeline.reporting.judging.severity import NotCovered
from pipeline.reporting.judging.verdicts import RULE, Verdict, arithmetic, closeness, of_cell, on_mechanism
from pipeline.reporting.vocabulary import SEVERITIES
from pipeline.results.schema import FLOATING_POINT, Attack, Ledger

# attacks in words; where what was attacked is smaller than the row, its own epsilon stands beside
ATTACKS = {
    "canaries": "a thousand canaries in one run",
    "crowd": "a record against all others",
    "pair": "short trainings with a white image and without",
    "opposites": "black images against white ones",
    "shared": "differences inside a batch",
    FLOATING_POINT: "which floats the noise can make",
}
WAYS = {
    "errors": "counted errors",
    "gaussian": "counted errors, if Gaussian",
    "one_run": "guesses in one run",
    "one_run_curve": "guesses in one run, if Gaussian",
    "computed": "computed for this pair",
    "coordinates": "counted errors, coordinate by coordinate",
    "labels": "counted errors, by the labels alone",
    "repeats": "differences of steps, if Gaussian",
    "order": "the data's order, if Gaussian",
}
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


@dataclass(frozen=True)
class Entry:
    """One level of a row."""

    row: str
    level: str
    guarantee: Guarantee
    verdict: Verdict
    arithmetic: str
    not_covered: tuple[NotCovered, ...]  # the worst first

    @property
    def ledger(self) -> Ledger:
        """Of its worst replica."""
        return self.guarantee.ledger

    @property
    def cells(self) -> list[str]:
        """In words, under `HEAD`."""
        own = self.ledger
        vacuous = ", and no privacy to speak of"
        optimistic = f" by {wording.upwards(self.verdict.gap)}" if self.verdict.gap else ""
        return [
            self.row,
            wording.level_words(self.level),
            wording.claim(own),
            "none" if own.accounted is None else wording.upwards(own.accounted),
            "–" if own.shown is None else wording.downwards(own.shown),
            self.verdict.words + optimistic + (vacuous if self.guarantee.state == "vacuous" else ""),
            attack_words(self.verdict.attack),
            self.arithmetic,
            severity.at_worst(self.not_covered),
        ]


def attack_words(attack: Attack | None) -> str:
    """``canaries: 3.26 (of 6.02, counted errors)``."""
    if attack is None:
        return "not audited"
    best = max(attack.bounds, key=lambda one: one.epsilon)
    of = "no bound" if attack.accounted is None else wording.upwards(attack.accounted)
    return f"{ATTACKS[attack.attack]}: {wording.downwards(best.epsilon)} (of {of}; {WAYS[best.by]})"


def closest_attack(attacks: Sequence[Attack]) -> str:
    """The attack that came closest to what was accounted for it, in words."""
    return attack_words(max(on_mechanism(attacks), key=closeness, default=None))


def entries(papers: Sequence[PaperResult]) -> list[Entry]:
    """All of them, in the order shown."""
    found = []
    for paper in papers:
        for row in (row for table in paper.tables for row in table.rows):
            for level, cell in row.cells.items():
                if cell.guarantee.state == "none" or row.record is None:
                    continue
                judged, floats = of_cell(cell, row.record), arithmetic(cell.replicas[0].attacks)
                uses = tuple(severity.of_cell(cell, row.record))
                found.append(Entry(row.key, level, cell.guarantee, judged, floats, uses))
    return found


def counts(found: Sequence[Entry]) -> dict[str, int]:
    """How many of each verdict."""
    return dict(Counter(one.verdict.words for one in found).most_common())


def grades(found: Sequence[Entry]) -> dict[str, int]:
    """Of how many levels what no epsilon covers has which grade at worst."""
    worst = Counter(entry.not_covered[0].severity for entry in found if entry.not_covered)
    return {word.text: worst[name] for name, word in SEVERITIES.items() if worst[name]}


def markdown(found: Sequence[Entry]) -> str:
    """The overview as a table."""
    lines = ["# The privacy ledger of every row", "", RULE, "", severity.RULE, ""]
    lines += ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    lines += ["| " + " | ".join(one.cells) + " |" for one in found]
    return "\n".join(lines) + "\n"
