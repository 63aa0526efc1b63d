"""Every verdict that the report knows, in words: of printed values, of privacy, of ledgers and of claims.

Tables, pages, CSV files and MLflow take them from here.
"""

from dataclasses import dataclass
from typing import Literal

Tone = Literal["good", "bad", "warn", "plain", "faint"]  # colours of the page


@dataclass(frozen=True)
class Word:
    """A verdict in words."""

    text: str  # in a cell
    tone: Tone
    counted: str  # behind a number, as in '3 agree with the paper'


VALUES = {
    "agrees": Word("agrees", "good", "agree with the paper"),
    "above": Word("above", "plain", "above the paper"),
    "below": Word("below", "bad", "below the paper"),
    "inconclusive": Word("inconclusive", "warn", "inconclusive: too few seeds for their spread"),
    "not judged": Word(
        "not judged", "warn", "not judged: fewer than three seeds, too small a budget or less data"
    ),
    "waits for a GPU": Word("waits for a GPU", "faint", "wait for a GPU"),
    "not run": Word("not run", "faint", "not run"),
    "not counted": Word("not counted", "faint", "not counted: circular, or printed twice"),
}
# Of what is claimed, by the ledger. What is wrong is in capitals, so that nobody reads over it.
PRIVACY = {
    "holds": Word("holds", "good", "the claimed ε holds"),
    "weaker": Word("NOT PROVEN AS CLAIMED", "warn", "only a larger ε than claimed is proven"),
    "exceeds": Word("SPENDS MORE THAN IS CLAIMED", "bad", "spend more than is claimed"),
    "vacuous": Word("NO PRIVACY TO SPEAK OF", "bad", "no privacy to speak of: a bound above ε = 13.8"),
    "none_proven": Word("DOES NOT HOLD", "bad", "does not hold: nothing is proven"),
    "none": Word("no privacy", "faint", "claim no privacy"),
}
# Of what is claimed, by the ledger and by attacks on the code; see `judging.verdicts.RULE`.
LEDGERS = {
    "sound": Word("sound", "good", "sound"),
    "optimistic": Word("optimistic", "warn", "optimistic"),
    "broken": Word("BROKEN", "bad", "broken"),
    "unproven": Word("unproven", "warn", "unproven"),
    "void": Word("VOID", "bad", "void"),
    "none": Word("none claimed", "faint", "claim nothing"),
}
# Of what no epsilon covers, from the worst to the least; see `judging.severity`.
SEVERITIES = {
    "critical": Word("breaks the claim", "bad", "breaks the claim for whoever sees it"),
    "weakening": Word("weakens the claim", "warn", "weakens the claim"),
    "theoretical": Word("theoretical", "faint", "bears on the claim in theory"),
}
OUTCOMES = {
    "holds": Word("holds", "good", "hold"),
    "fails": Word("fails", "bad", "fail"),
    "undecided": Word("undecided", "warn", "undecided"),
    "not run": Word("not run", "faint", "not run"),
}
CLAIMS = {
    "reproduced": Word("yes", "good", "reproduced"),
    "not reproduced": Word("no", "bad", "not reproduced"),
    "undecided": Word("undecided: seeds differ too much", "warn", "undecided"),
    "not judged": Word(
        "run small", "warn", "run, but not judged: too small a budget, less data or too few step sizes"
    ),
    "only differently": Word("only by a variant", "plain", "decided by a variant alone"),
    "waits for a GPU": Word("waits for a GPU", "faint", "wait for a GPU"),
    "not tested": Word("not tested", "faint", "not tested"),
    "not run": Word("not run", "faint", "not run"),
}
