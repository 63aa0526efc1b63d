"""Privacy statement of an exported network: half a page in plain words, then details for engineers.

The details have the items of Ponomareva et al. 2023 (How to DP-fy ML, section 5.3): setting, unit of privacy,
neighbouring data sets, covered uses and outputs, accountant, assumptions; and those of NIST SP 800-226:
correctness of the code, floating-point numbers, side channels, and earlier access to the data. Uses of
private data outside epsilon have two lists: one for the exported folder alone, and one for the laboratory's
records, in case that these are published too.
"""

from collections.abc import Iterable, Iterator
from html import escape

from markdown_it import MarkdownIt

from pipeline.export.statement import PrivacyStatement
from pipeline.ledgers.data_budget import DataBudget
from pipeline.privacy.sampled_gaussian import RELATION_WORDS
from pipeline.reporting import vocabulary, wording
from pipeline.reporting.judging import severity
from pipeline.reporting.judging.guarantees import guarantee
from pipeline.reporting.judging.severity import NotCovered
from pipeline.reporting.vocabulary import SEVERITIES, words
from pipeline.results.schema import FLOATING_POINT, Attack, Record, Replica, Versions

SAMPLING = {
    "poisson": "each example was in a batch by a coin of its own (Poisson), as is accounted for",
    "fixed": "each batch was drawn anew without replacement, as is accounted for",
    "replacement": "each batch was drawn with replacement, as is accounted for",
    "allocation": "an example's batch of an epoch was drawn for it alone (random allocation), as is "
    "accounted for",
    "shuffled": "batches were those of a new order each epoch, and no amplification is accounted for",
}
STRONG = "AES in counter mode, keyed by entropy of the operating system that was not kept"
STATISTICAL = "a statistical generator, seeded with entropy of the operating system: no cryptographic one"
# Further uses outside every epsilon, besides those of `severity.not_covered`
BEYOND = (
    "the test scores of the model card: they have no noise, and nothing protects test examples",
    "side channels of the machine, and its other users' access to its files and to the data",
    "the collection of the data: the training had access to all of them (the central model)",
)
# Uses visible in the laboratory's records (reports/, dvc.lock, MLflow) but not in an exported folder
OF_RECORDS = frozenset(
    ("curves", "validation", "digests", "timing", "all_replicas", "unlinked_search", "spans")
)
# Statements about data that the laboratory declares public
DECLARED_PUBLIC = ("own_public", "public_start", "public_network", "public_vectors", "public_relevance")
UNIT = "a person in several examples is protected less: at the same δ by more than that many times the ε"
CRITICAL, WEAKENING = (f"{SEVERITIES[grade].text}: " for grade in ("critical", "weakening"))
SIGNERS = ("Data owner", "Data-protection officer", "Engineer")
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Privacy statement of {title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td {{ border-bottom: 1px solid #ccc; padding: .3rem .5rem; vertical-align: top; overflow-wrap: anywhere }}
td:first-child {{ min-width: 9rem }}
</style>
{body}</html>
"""


def privacy_statement(
    record: Record, replica: Replica, versions: Versions, budget: DataBudget | None = None
) -> PrivacyStatement:
    """Privacy statement of one replica.

    Args:
        record: record of its row.
        replica: the training.
        versions: versions of the libraries behind its ledger.
        budget: budget of its private data set; None for public data.
    """
    ledger, made = replica.ledger, record.origins[replica.origin]
    judged = guarantee([replica], made.reproducible)
    shown = [attack.epsilon for attack in replica.attacks if attack.whole and attack.attack != FLOATING_POINT]
    private = ledger.event is not None
    uses = severity.not_covered(ledger, replica.attacks, record.composition) if private else []
    return PrivacyStatement(
        verdict=vocabulary.PRIVACY[judged.state].text,
        why=judged.reason,
        unit=ledger.unit,
        neighbouring=RELATION_WORDS[ledger.neighbouring],
        epsilon=ledger.epsilon_upper,
        delta=ledger.delta,
        accountant=ledger.accountant,
        claimed=ledger.claimed,
        claimed_by=ledger.claimed_by,
        at_least=ledger.epsilon_lower,
        at_least_on=words(ledger.epsilon_lower_by) if ledger.epsilon_lower_by else None,
        audited=max(shown, default=None),
        audits=tuple(
            _attack(attack)
            for attack in replica.attacks
            # an attack on the arithmetic of other noise says nothing about this model
            if attack.attack != FLOATING_POINT or attack.noise == replica.noise
        ),
        mechanism=ledger.event,
        noise_multiplier=ledger.noise_multiplier,
        sampling_rate=ledger.sampling_rate,
        steps=ledger.steps,
        protects=words(ledger.protects) if ledger.protects else None,
        covered=(
            "what was released once, and so the weights and every prediction"
            if ledger.releases
            else "the released gradients of all steps, and so the weights after each and every prediction"
        ),
        not_covered=(*_graded(use for use in uses if use.key not in OF_RECORDS), *BEYOND) if private else (),
        not_covered_of_records=_graded(use for use in uses if use.key in OF_RECORDS),
        declared_public=tuple(use.words for use in uses if use.key in DECLARED_PUBLIC),
        composition=wording.composition(record.composition) if record.composition else None,
        data_budget=wording.data_budget(budget) if budget else None,
        attack_risk=wording.attack_risk(ledger.risk) if ledger.risk else None,
        gaussian_dp=wording.gaussian_dp(ledger.risk) if ledger.risk else None,
        delta_remark=wording.delta_remark(ledger.delta, made.examples),
        assumptions=_assumptions(replica, made.device, made.reproducible) if private else (),
        versions=versions,
    )


def _graded(uses: Iterable[NotCovered]) -> tuple[str, ...]:
    """Uses of private data outside epsilon, each with its grade."""
    return tuple(f"{SEVERITIES[use.severity].text}: {use.words}" for use in uses)


def _assumptions(replica: Replica, device: str, reproducible: bool) -> tuple[str, ...]:
    ledger = replica.ledger
    # noise on a grid is drawn on the CPU for every device; float32 noise on gradients used AES on CPUs only
    strong = ledger.noise == "grid" or (device.startswith("cpu") and not ledger.releases)
    source = "seeded by a public constant" if reproducible else f"from {STRONG if strong else STATISTICAL}"
    kind = "integers on a grid" if ledger.noise == "grid" else "float32 numbers"
    sampled = SAMPLING.get(ledger.sampling or "")
    return (
        f"one person is in one {ledger.unit.removeprefix('one ')}: {UNIT}",
        *([f"sampling: {sampled}"] if sampled else []),
        f"noise: {kind}, {source} (device: {device})",
        *(
            []
            if ledger.epsilon_upper is None or ledger.releases
            else [f"examples apart: {wording.isolation(ledger)}"]
        ),
        "the code is the mechanism that is accounted for: tests hold it to the slow, obvious way, and audits "
        "attack it; neither is a proof",
    )


def _attack(attack: Attack) -> str:
    """Description of one attack."""
    best = max(attack.bounds, key=lambda bound: bound.epsilon)
    shown = f"ε ≥ {wording.downwards(best.epsilon)}"
    of = (
        "without a bound"
        if attack.epsilon_upper is None
        else f"of at most {wording.upwards(attack.epsilon_upper)}"
    )
    run = "the whole mechanism" if attack.whole else "a smaller run of the same code"
    on = f"{run} with {attack.noise} noise"
    how = f"{vocabulary.WORDS.bounds[best.by]}, {100 * attack.confidence:g} % confidence"
    return f"{vocabulary.WORDS.attacks[attack.attack]}, seeing {attack.sees}, on {on}: {shown} {of} ({how})"


def headline(statement: PrivacyStatement) -> str:
    """Sentence with the guarantee."""
    why = f": {statement.why}" if statement.why else ""
    if statement.epsilon is None:
        return f"No differential privacy is proven of this model ({statement.verdict}{why})."
    delta = f" and δ = {wording.number(statement.delta)}" if statement.delta else ""
    bad = f" **{statement.verdict}**{why}." if why else ""
    return (
        f"The training of this model was differentially private with ε ≤ {wording.upwards(statement.epsilon)}"
        f"{delta}, for data sets that differ in {statement.unit} ({statement.neighbouring}).{bad}"
    )


def markdown(statement: PrivacyStatement) -> str:
    """Whole statement as Markdown, without a heading."""
    return "\n".join([*_plain_words(statement), *_engineering(statement)])


def html(statement: PrivacyStatement, title: str) -> str:
    """Statement as one page to print and sign, without links to other files."""
    rendered = MarkdownIt("commonmark").enable("table").render(markdown(statement))
    return PAGE.format(title=escape(title), body=f"<h1>Privacy statement of {escape(title)}</h1>\n{rendered}")


def _plain_words(statement: PrivacyStatement) -> Iterator[str]:
    """Half a page for a data-protection officer, with lines to sign."""
    yield from ("### In plain words", "")
    if statement.epsilon is None or statement.attack_risk is None:
        yield (
            "**No guarantee.** Nothing bounds the information about training examples in this folder. "
            "Protect the folder as you protect the training data."
        )
    else:
        yield (
            f"**Guarantee.** {statement.attack_risk} These rates are upper bounds for every attacker who has "
            "this folder and knows all other examples, under the assumptions below."
        )
    unit = f"**Protected unit.** The guarantee protects {statement.unit}; {UNIT}."
    worse = [use for use in statement.not_covered if use.startswith((CRITICAL, WEAKENING))]
    outside = f"**Outside the guarantee of this folder.** {'; '.join(worse) or 'No special use'}."
    recipients = (
        "**Recipients.** The guarantee covers this folder alone. The laboratory's records (reports/, "
        "dvc.lock, MLflow) have more exact numbers of the training data. Keep them in the laboratory, or "
        "read the second list below before you publish them."
    )
    public = (
        f"**Declared public** by the author of params.yaml: {'; '.join(statement.declared_public) or 'none'}."
    )
    budget = f"**All trainings on these data.** {statement.data_budget}" if statement.data_budget else None
    for paragraph in (unit, outside, recipients, public, budget):
        if paragraph:
            yield from ("", paragraph)
    yield from ("", "| role | name | date | signature |", "| --- | --- | --- | --- |")
    yield from (f"| {role} | | | |" for role in SIGNERS)
    yield ""


def _engineering(statement: PrivacyStatement) -> Iterator[str]:
    """Mechanism, bounds, uses outside epsilon, assumptions and attacks."""
    items = {
        "unit of privacy": statement.unit,
        "neighbouring data sets": statement.neighbouring,
        "ε, at most": _upper(statement.epsilon),
        "δ": _delta(statement.delta),
        "accountant": statement.accountant,
        "Gaussian DP": statement.gaussian_dp,
        "claimed ε": _claim(statement),
        "ε, at least, on the worst pair known": _lower(statement.at_least, statement.at_least_on),
        "ε, at least, by attacks": _lower(statement.audited, "on the whole mechanism, assuming nothing"),
        "mechanism": statement.mechanism and f"`{statement.mechanism}`",
        "noise multiplier": statement.noise_multiplier and wording.number(statement.noise_multiplier),
        "sampling rate": statement.sampling_rate and wording.number(statement.sampling_rate),
        "steps": f"{statement.steps:,}",
        "protects": statement.protects,
        "covered": statement.covered if statement.epsilon is not None else None,
        "remark on δ": statement.delta_remark,
        "all trainings together": statement.composition,
        "accounted for with": ", ".join(f"{name} {version}" for name, version in statement.versions.items()),
    }
    yield from ("### For engineers", "", headline(statement), "", "| | |", "| --- | --- |")
    yield from (f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in items.items() if value)
    for title, lines in (
        ("Outside ε: this folder", statement.not_covered),
        ("Outside ε: the laboratory's records, if they are published", statement.not_covered_of_records),
        ("Assumptions", statement.assumptions),
        ("Attacks on the code", statement.audits),
    ):
        if lines:
            yield from ("", f"**{title}**", "", *(f"- {line}" for line in lines))
    if statement.mechanism and not statement.audits:
        yield from ("", "**Attacks on the code**: none was run (`dprepro audit`).")
    yield from ("", "An upper bound is not the privacy loss itself. A lower bound proves no safety.", "")


def _delta(delta: float | None) -> str | None:
    return None if delta is None else wording.number(delta) if delta else "0 (pure)"


def _upper(epsilon: float | None) -> str:
    return "none is proven" if epsilon is None else f"{wording.upwards(epsilon)}, proven"


def _lower(epsilon: float | None, on: str | None) -> str | None:
    return None if epsilon is None else f"{wording.downwards(epsilon)} ({on})"


def _claim(statement: PrivacyStatement) -> str | None:
    if statement.claimed is None:
        return None
    return f"{wording.number(statement.claimed)} (by {statement.claimed_by})"
