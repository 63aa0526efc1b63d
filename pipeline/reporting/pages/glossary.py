"""The words of the report, each explained where a reader hovers over it and at the foot of every page."""

from markupsafe import Markup, escape

from pipeline.reporting.judging.guarantees import VACUOUS, WEAKER_REASON
from pipeline.reporting.wording import MU_RULE

TERMS = {
    "claimed ε": (
        "what the paper's own way of accounting gives for this run, also where the paper itself prints none; "
        "it is one training's: what all trainings of a row spend together stands below its ledger"
    ),
    "proven ε": (
        "an upper bound for the mechanism as it was run, not as it was described; where there is none, "
        "nothing is proven of what is claimed; rounded up"
    ),
    "shown ε": (
        "what the mechanism really spends, at least, on a pair of data sets that is named: a claim below it "
        "is wrong, a claim between the two is not proven; rounded down"
    ),
    "audited ε": (
        "a lower bound, shown by an attack on the code that ran; no evidence of a leak is no proof of safety"
    ),
    "holds": "a bound is proven, and it is no larger than the claim",
    "not proven as claimed": WEAKER_REASON,
    "no privacy to speak of": (
        f"every bound is above ε = {VACUOUS:.1f}: an attacker may tell two neighbouring data sets apart with "
        "both kinds of error below one in a million"
    ),
    "spends more than is claimed": "the shown ε is above the claimed one",
    "does not hold": "ε is claimed, and no bound is known, or the noise is seeded",
    "line": "a line of a paper's table, or a curve of its figure",
    "row": "an entry of params.yaml: a line of a paper, trained by one method with one set of settings",
    "level": "one column of a row, such as one ε; each is trained with several seeds",
    "budget": "how much of the paper's training a row has: full, reduced, or our own where it gives none",
    "search": "settings tried and chosen on validation data, never on test data; recorded under searches/",
    "μ": MU_RULE,
    "D_pub": "public images, set apart before training, that no ε needs to protect",
}


def term(name: str) -> Markup:
    """The word with its meaning for whoever hovers over it."""
    return Markup(f'<abbr title="{escape(TERMS[name])}">{escape(name)}</abbr>')
