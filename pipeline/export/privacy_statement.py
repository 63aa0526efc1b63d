"""Privacy statement of an exported network: half a page in plain words, then details for engineers.

The details have the items of Ponomareva et al. 2023 (How to DP-fy ML, section 5.3): setting, unit of privacy,
neighbouring data sets, covered uses and outputs, accountant, assumptions. They also have the items of NIST SP
800-226: correctness of the code, floating-point numbers, side channels, and earlier access to the data. Uses
of private data outside epsilon have two lists: one for the exported folder, and one for the laboratory's
records, in case these are published too.
"""

from collections.abc import Iterator
from html import escape

from markdown_it import MarkdownIt

from dprepro.pipeline.export.statement import PrivacyStatement
from dprepro.pipeline.ledgers import sentences
from dprepro.pipeline.ledgers.composition import DataBudget
from dprepro.pipeline.reporting import wording
from dprepro.pipeline.reporting.privacy import not_covered, privacy
from dprepro.pipeline.reporting.wording import words
from dprepro.pipeline.results.schema import (
    EXAMPLE,
    FINAL_MODEL,
    FLOATING_POINT,
    Attack,
    Record,
    TrainingResult,
    Versions,
)

SAMPLING = {
    "poisson": "each step drew each example independently with the sampling rate (Poisson)",
    "fixed": "each step drew a batch without replacement",
    "replacement": "each step drew a batch with replacement",
    "allocation": "each epoch drew one batch for each example independently (random allocation)",
    "shuffled": "each epoch took the batches of a new order; the accounting uses no amplification",
}
STRONG = "AES in counter mode; its key was entropy of the operating system and was not kept"
STATISTICAL = "a statistical generator, not a cryptographic one, seeded with entropy of the operating system"
# Further uses of private data outside epsilon, besides the uses of `not_covered`
BEYOND = (
    "not protected: test examples; the model card (README.md) has exact scores on all of them together",
)
# of a training with a declared number of examples, beside trainings with another number
BETRAYED = (
    "the ε of all trainings together follows the exact number of training "
    "examples if one of these trainings has no declared number. An attacker who knows that training's "
    "settings and all other examples may then learn whether one is missing",
)
OUTSIDE = (
    "side channels of the machine, and its other users' access to its files and to the data",
    "the collection of the data: the training program saw all raw data (central, not local, differential "
    "privacy)",
)
# Uses visible in the laboratory's records (reports/, dvc.lock, MLflow) but not in an exported folder
OF_RECORDS = frozenset(
    {
        *("curves", "validation", "digests", "timing", "all_replicas", "unlinked_search", "spans"),
        *("model_audit", "examples_recorded"),
    }
)
# Statements about data that the laboratory declares public
DECLARED_PUBLIC = (
    *("own_public", "other_public", "public_start"),
    *("public_network", "public_vectors", "public_relevance"),
)
# uses that reveal little, as far as we know
MINOR = frozenset(
    {
        *("declared_description", "informed_relevance", "test_relevance", "other_choices"),
        *("examples_public", "examples_recorded", "timing", "floating_point", "floating_point_grid"),
    }
)
# of data whose declaration names the column of people
PEOPLE = (
    "The declared column of people has one name for each person in the data. Lines of a person beyond the "
    "declared number were left out before the split, and no person is in two splits"
)
SIGNERS = {
    "Data owner": "{people}; names of columns and classes and ranges of values were not taken from the data; "
    "data declared public are public. Decides on the release",
    "Data-protection officer": "was consulted on the first part",
    "Engineer": "both parts, without the data owner's facts",
}
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Privacy statement of the model {title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td {{ border-bottom: 1px solid #ccc; padding: .3rem .5rem; vertical-align: top; overflow-wrap: anywhere }}
td:first-child {{ min-width: 9rem }}
</style>
{body}</html>
"""


def privacy_statement(
    record: Record,
    training: TrainingResult,
    versions: Versions,
    data: str,
    weights: str,
    budget: DataBudget | None = None,
) -> PrivacyStatement:
    """Privacy statement of one training.

    Args:
        record: record of the training's row.
        training: the training run.
        versions: versions of the libraries that computed the training's ledger.
        data: name of the data set and numbers of examples.
        weights: digest of the exported weights.
        budget: privacy budget of the private data set; None for public data.
    """
    ledger, made = training.ledger, record.origins[training.origin]
    judged = privacy([training], made.reproducible)
    # attacks on final models train on the private examples, and are not in the folder
    attacks = [attack for attack in training.attacks if attack.attack != FINAL_MODEL]
    shown = [attack.epsilon for attack in attacks if attack.whole and attack.attack != FLOATING_POINT]
    private = ledger.event is not None
    uses = not_covered(ledger, training.attacks, record.composition) if private else []
    nominal = training.settings.get("nominal_examples")
    further = BETRAYED if nominal and budget and budget.examples != {nominal} else ()
    return PrivacyStatement(
        data=data,
        weights=weights,
        verdict=judged.status,
        why=judged.reason,
        unit=ledger.unit,
        neighbouring=ledger.neighbouring.value,
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
            for attack in attacks
            # an attack on the arithmetic of other noise says nothing about this model
            if attack.attack != FLOATING_POINT or attack.noise == training.noise
        ),
        mechanism=ledger.event,
        noise_multiplier=ledger.noise_multiplier,
        sampling_rate=ledger.sampling_rate,
        steps=ledger.steps,
        protects=words(ledger.protects) if ledger.protects else None,
        covered=(
            "the data that were released once with noise, and everything computed from them without private "
            "data: the weights, and predictions for other inputs"
            if ledger.releases
            else "the noisy gradient sums of all steps, and everything computed from them without private "
            "data: the weights after each step, and predictions for other inputs"
        ),
        limits=tuple(use.words for use in uses if use.key not in OF_RECORDS | MINOR),
        not_covered=(*(use.words for use in uses if use.key not in OF_RECORDS), *further, *BEYOND)
        if private
        else (),
        not_covered_of_records=tuple(use.words for use in uses if use.key in OF_RECORDS),
        declared_public=tuple(use.words for use in uses if use.key in DECLARED_PUBLIC),
        composition=sentences.composition(record.composition) if record.composition else None,
        data_budget=sentences.data_budget(budget) if budget else None,
        examples_stated=not nominal,
        attack_risk=sentences.attack_risk(ledger.risk, ledger.unit) if ledger.risk else None,
        gaussian_dp=sentences.gaussian_dp(ledger.risk) if ledger.risk else None,
        delta_remark=sentences.delta_remark(ledger.delta, nominal or made.examples),
        assumptions=_assumptions(training, made.device, made.reproducible) if private else (),
        versions=versions,
    )


def _assumptions(training: TrainingResult, device: str, reproducible: bool) -> tuple[str, ...]:
    ledger = training.ledger
    # grid noise is drawn on the CPU for every device; float32 noise on gradients used AES only on CPUs
    strong = ledger.noise == "grid" or (device.startswith("cpu") and not ledger.releases)
    source = "a public seed" if reproducible else f"{STRONG if strong else STATISTICAL}"
    kind = "float32 numbers"
    if ledger.noise == "grid":
        kind = (
            "Gaussian, rounded to multiples of a grid's spacing. The added noise is slightly larger than the "
            "accounted multiplier, to cover this rounding"
        )
    sampled = SAMPLING.get(ledger.sampling or "")
    people = (
        f"for a guarantee per person: each person has {ledger.unit}. For a person with k examples, ε is more "
        "than k times as large at the same δ"
        if ledger.unit == EXAMPLE
        else PEOPLE
    )
    return (
        people,
        *([f"sampling: {sampled}"] if sampled else []),
        f"noise: {kind}",
        f"randomness of noise and samples: {source} (device: {device}). The seed in the "
        "title sets only the initial weights",
        *(
            []
            if ledger.epsilon_upper is None or ledger.releases
            else [f"independent gradients: {wording.isolation(ledger)}"]
        ),
        "the code implements the accounted mechanism. Tests compare the code with a slow reference "
        "implementation, which is no proof",
    )


def _attack(attack: Attack) -> str:
    """Description of one attack."""
    shown = ", ".join(
        f"ε ≥ {sentences.downwards(bound.epsilon)} ({wording.WORDS.bounds[bound.by]})"
        for bound in sorted(attack.bounds, key=lambda bound: -bound.epsilon)
    )
    upper = attack.epsilon_upper
    proven = "no proven bound" if upper is None else f"proven ε ≤ {sentences.upwards(upper)}"
    run = "a separate run with the whole mechanism" if attack.whole else "a smaller run of the same code"
    return (
        f"{wording.WORDS.attacks[attack.attack]}; the attacker sees {attack.sees} of {run} with "
        f"{attack.noise} noise ({proven}). Result: {shown}, at {100 * attack.confidence:g} % confidence"
    )


def headline(statement: PrivacyStatement) -> str:
    """Sentence with the guarantee."""
    why = f": {statement.why}" if statement.why else ""
    if statement.epsilon is None:
        return f"No differential privacy is proven of this model ({statement.verdict}{why})."
    delta = f" and δ = {sentences.number(statement.delta)}" if statement.delta else ""
    bad = f" **{statement.verdict}**{why}." if why else ""
    return (
        "Under the assumptions below, the training of this model was differentially private with ε ≤ "
        f"{sentences.upwards(statement.epsilon)}{delta}, for data sets that differ in {statement.unit} "
        f"({statement.neighbouring}).{bad}"
    )


def markdown(statement: PrivacyStatement) -> str:
    """Whole statement as Markdown, without a heading."""
    return "\n".join([*_plain_words(statement), *_engineering(statement)])


def html(statement: PrivacyStatement, title: str) -> str:
    """Statement as one page to print and sign, without links to other files."""
    rendered = MarkdownIt("commonmark").enable("table").render(markdown(statement))
    return PAGE.format(
        title=escape(title), body=f"<h1>Privacy statement of the model {escape(title)}</h1>\n{rendered}"
    )


def _plain_words(statement: PrivacyStatement) -> Iterator[str]:
    """Half a page for a data-protection officer, with lines to sign."""
    yield from ("### In plain words", "")
    if statement.epsilon is None or statement.attack_risk is None:
        yield (
            "**No guarantee.** Nothing bounds the information about training examples in this folder. "
            "Protect the folder as you protect the training data."
        )
    else:
        by_example = statement.unit == EXAMPLE
        of_one = "an example, such as a person's data, was" if by_example else "a person's examples were"
        it = "the example" if by_example else "the person"
        known = "The bounds hold even against an attacker who knows all other training examples"
        if statement.examples_stated:
            known = (
                "This folder also states the number of training examples. An attacker who knows all other "
                f"training examples learns from this number whether {it} was included. "
                "Apart from this number, the bounds hold even against such an attacker"
            )
        elif BETRAYED[0] in statement.not_covered:
            known = (
                "The bounds hold even against an attacker who knows all other training examples, apart from "
                "what the ε of all trainings together betrays about the number of training examples"
            )
        yield (
            f"**Guarantee.** An attacker has the model and tests whether {of_one} among the training "
            f"examples. {statement.attack_risk} {known}, under the assumptions "
            "of the second part. There, one number stands for these bounds, ε; a larger ε is a weaker "
            "protection."
        )
    model = (
        f"**Model.** The model in this folder; its file of weights has the checksum `{statement.weights}`. "
        f"Data: {statement.data}. The train examples trained the model, the validation examples checked it "
        "during development, the test examples measured its scores, and public examples are taken as public."
    )
    if by_example := statement.unit == EXAMPLE:
        alone = (
            "on its own. The protection of a person with several examples is weaker, more than in proportion "
            "to their number: `dprepro new data --group` makes people the unit."
        )
    else:
        alone = f"together. {PEOPLE}."
    unit = f"**Protected unit.** The bounds under 'Guarantee' are for {statement.unit} {alone}"
    worse = "".join(f"ε does not cover {use}. " for use in statement.limits)
    outside = (
        f"**Limits of the guarantee.** {worse}The guarantee does not protect validation and "
        "test examples. The model card has exact scores on all test examples together. The guarantee assumes "
        "that the declared names of columns and classes and the declared ranges of values reveal nothing "
        "about a person. It does not prevent conclusions about a person that the model "
        "would also allow without this person's data. The bounds are no legal finding of anonymity."
    )
    recipients = (
        "**Files to keep inside.** The guarantee is only for the files of this folder, with the exceptions "
        "above and those of the second part. Pass on no other file of the project (the laboratory) that "
        "trained the model. Its folder reports/, its file dvc.lock and its MLflow store have exact numbers "
        "that were computed from the data. The second part lists what these numbers are."
    )
    public = (
        "**Declared public** in the settings file params.yaml: names of columns and classes, ranges of "
        f"values; {'; '.join(statement.declared_public) or 'no training example'}."
    )
    budget = None
    if statement.data_budget:
        budget = (
            "**Further trainings on these data.** The bounds under 'Guarantee' are for this training alone. "
            "The second part has the ε of all recorded trainings together."
        )
    for paragraph in (model, unit, outside, recipients, public, budget):
        if paragraph:
            yield from ("", paragraph)
    yield from ("", "| role | confirms | name | date | signature |", "| --- | --- | --- | --- | --- |")
    people = (
        "each person has one example" if by_example else "each person has one name in the column of people"
    )
    yield from (f"| {role} | {confirms.format(people=people)} | | | |" for role, confirms in SIGNERS.items())
    yield ""


def _engineering(statement: PrivacyStatement) -> Iterator[str]:
    """Lines for engineers: mechanism, bounds, uses of data that epsilon does not cover, and attacks."""
    upper = "none is proven"
    if statement.epsilon is not None:
        upper = f"{sentences.upwards(statement.epsilon)}, by {statement.accountant}"
    claimed, pure = None, None if statement.delta is None else "0 (pure)"
    if statement.claimed is not None and statement.claimed != statement.epsilon:
        claimed = f"{sentences.upwards(statement.claimed)}, by {statement.claimed_by}"
    items = {
        "unit of privacy": statement.unit,
        "neighbouring data sets": statement.neighbouring,
        "ε, upper bound": upper,
        "δ": sentences.number(statement.delta) if statement.delta else pure,
        "Gaussian DP": statement.gaussian_dp
        and f"{statement.gaussian_dp}. The first part uses the exact curve",
        "ε by the claim's accountant": claimed,
        "ε, computed lower bound": _lower(statement.at_least, statement.at_least_on),
        "ε, lower bound by attacks": _lower(
            statement.audited,
            "on the whole mechanism, without an assumption on the scores"
            + ("" if statement.unit == EXAMPLE else "; by people with one example each"),
        ),
        "mechanism": statement.mechanism and f"`{statement.mechanism}`",
        "noise multiplier": statement.noise_multiplier and sentences.number(statement.noise_multiplier),
        "sampling rate": statement.sampling_rate and sentences.number(statement.sampling_rate),
        "steps": f"{statement.steps:,}",
        "protects": statement.protects,
        "covered": statement.covered if statement.epsilon is not None else None,
        "remark on δ": statement.delta_remark,
        "all trainings together": statement.composition,
        "all recorded trainings on the data": statement.data_budget,
        "versions at the accounting": ", ".join(
            f"{name} {version}" for name, version in statement.versions.items()
        ),
    }
    yield from ("### For engineers", "", headline(statement), "", "| | |", "| --- | --- |")
    yield from (f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in items.items() if value)
    for title, lines in (
        ("In this folder, not covered by ε.", statement.not_covered),
        ("In the laboratory's records, not covered by ε", statement.not_covered_of_records),
        ("Outside the threat model", OUTSIDE if statement.mechanism else ()),
        ("Assumptions", statement.assumptions),
        ("Attacks on the code", statement.audits),
    ):
        if lines:
            yield from ("", f"**{title}**", "", *(f"- {line}" for line in lines))
    if statement.mechanism and not statement.audits:
        yield from ("", "**Attacks on the code**: none was run for this model. `dprepro audit` runs them.")
    yield from (
        "",
        "For real data sets the actual leakage may be smaller than the upper bound. A lower bound shows only "
        "how tight the upper bound is; it proves no safety.",
        "",
    )


def _lower(epsilon: float | None, on: str | None) -> str | None:
    return None if epsilon is None else f"{sentences.downwards(epsilon)} ({on})"
