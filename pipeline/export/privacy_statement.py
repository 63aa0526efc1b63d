"""What privacy a trained network has, in the form in which guarantees are to be reported.

Ponomareva et al. 2023 (How to DP-fy ML, section 5.3) ask for the setting, the unit of privacy, what
neighbouring data sets are, which uses of data and which outputs are covered, the accountant, and whether what
it assumes ran. NIST SP 800-226 asks for the same and for what lies below it: correctness of the code,
floating-point numbers, side channels, and who sees the data beforehand.
"""

from pipeline.fields import NotNegative, Strict
from pipeline.ledgers.data_budget import DataBudget
from pipeline.privacy.sampled_gaussian import RELATION_WORDS
from pipeline.reporting import vocabulary, wording
from pipeline.reporting.judging import severity
from pipeline.reporting.judging.guarantees import guarantee
from pipeline.reporting.vocabulary import words
from pipeline.results.schema import FLOATING_POINT, Attack, Probability, Record, Replica, Versions

SAMPLING = {
    "poisson": "each example was in a batch by a coin of its own (Poisson), as is accounted for",
    "fixed": "each batch was drawn anew without replacement, as is accounted for",
    "replacement": "each batch was drawn with replacement, as is accounted for",
    "shuffled": "batches were those of a new order each epoch, and no amplification is accounted for",
}
STRONG = "AES in counter mode, keyed by entropy of the operating system that was not kept"
STATISTICAL = "a statistical generator, seeded with entropy of the operating system: no cryptographic one"
# What no epsilon of any training here covers, beside what `severity.not_covered` names
BEYOND = (
    "the accuracies told here, which were measured on validation and test examples without noise",
    "side channels of the machine, and who else can read it, its files or the data",
    "how the data were collected: whoever trained had all of them (the central model), unless said otherwise",
)
UNIT = "a person in several examples is protected less: at the same δ by more than that many times the ε"


class PrivacyStatement(Strict):
    """Of one training; epsilons are upper bounds unless they say otherwise."""

    verdict: str
    why: str | None  # where the verdict is none or bad
    unit: str
    neighbouring: str
    epsilon: NotNegative | None  # proven, at most; None: nothing is proven
    delta: Probability | None
    accountant: str | None  # that computed `epsilon`, with its version
    claimed: NotNegative | None
    claimed_by: str | None
    at_least: NotNegative | None  # a lower bound: spent on the pair of data sets that `at_least_on` names
    at_least_on: str | None
    audited: NotNegative | None  # a lower bound: what attacks on the whole mechanism show that assume nothing
    audits: tuple[str, ...]  # every attack in words
    mechanism: str | None  # as run, in the words of dp-accounting
    noise_multiplier: NotNegative | None
    sampling_rate: Probability | None
    steps: int
    protects: str | None  # what of whom, and from whom, where the unit alone does not tell
    covered: str
    not_covered: tuple[str, ...]
    composition: str | None  # what this row's trainings and search spend in all
    data_budget: str | None = None  # epsilon of everything trained on the private data set; None: public data
    attack_risk: str | None = None  # of the best membership attack, in words
    gaussian_dp: str | None = None  # mu with its regret and cut-off
    delta_remark: str | None = None  # where delta is above 1 / (10 N)
    assumptions: tuple[str, ...]
    versions: Versions  # that accounted for it


def privacy_statement(
    record: Record, replica: Replica, versions: Versions, budget: DataBudget | None = None
) -> PrivacyStatement:
    """Privacy statement of one replica.

    Args:
        record: its row's.
        replica: the training.
        versions: of the libraries that computed its ledger.
        budget: of the private data set that it was trained on; None where that is public.
    """
    ledger, made = replica.ledger, record.origins[replica.origin]
    judged = guarantee([replica], made.reproducible)
    shown = [attack.epsilon for attack in replica.attacks if attack.whole and attack.attack != FLOATING_POINT]
    private = ledger.event is not None
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
        not_covered=_not_covered(record, replica) if private else (),
        composition=wording.composition(record.composition) if record.composition else None,
        data_budget=wording.data_budget(budget) if budget else None,
        attack_risk=wording.attack_risk(ledger.risk) if ledger.risk else None,
        gaussian_dp=wording.gaussian_dp(ledger.risk) if ledger.risk else None,
        delta_remark=wording.delta_remark(ledger.delta, made.examples),
        assumptions=_assumptions(replica, made.device, made.reproducible) if private else (),
        versions=versions,
    )


def _not_covered(record: Record, replica: Replica) -> tuple[str, ...]:
    """Each use of private data that no epsilon covers behind its grade, the worst first; and `BEYOND`."""
    uses = severity.not_covered(replica.ledger, replica.attacks, record.composition)
    graded = (f"{vocabulary.SEVERITIES[use.severity].text}: {use.words}" for use in uses)
    return (*graded, *BEYOND)


def _assumptions(replica: Replica, device: str, reproducible: bool) -> tuple[str, ...]:
    ledger = replica.ledger
    # noise on a grid is drawn on the CPU for every device; float32 noise on gradients had AES on CPUs alone
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
    """One attack in words."""
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
    """The guarantee in a sentence."""
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
    """The statement for people, without a heading of its own."""
    told = {
        "unit of privacy": statement.unit,
        "neighbouring data sets": statement.neighbouring,
        "ε, at most": _upper(statement.epsilon),
        "δ": _delta(statement.delta),
        "accountant": statement.accountant,
        "attack risk, at most": statement.attack_risk,
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
        "all trainings on this data set": statement.data_budget,
        "accounted for with": ", ".join(f"{name} {version}" for name, version in statement.versions.items()),
    }
    lines = [headline(statement), "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {value.replace('|', chr(92) + '|')} |" for name, value in told.items() if value]
    for title, items in (
        ("Not covered by it", statement.not_covered),
        ("What it assumes", statement.assumptions),
        ("Attacks on the code", statement.audits),
    ):
        if items:
            lines += ["", f"**{title}**", "", *(f"- {item}" for item in items)]
    if statement.mechanism and not statement.audits:
        lines += ["", "**Attacks on the code**: none was run (`dprepro audit`)."]
    return "\n".join([*lines, "", "An upper bound is not what is spent, and a lower bound is no safety.", ""])


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
