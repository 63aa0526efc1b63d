"""What is said of a run, in plain sentences: what it is, what came out, and what its privacy is worth."""

from collections.abc import Sequence

from pipeline.params import Settings
from pipeline.reporting import wording
from pipeline.reporting.judging.guarantees import Guarantee, State, guarantee
from pipeline.reporting.judging.intervals import mean
from pipeline.reporting.papers import Paper, short
from pipeline.reporting.printed import Printed
from pipeline.results.records import ACCOUNTING, Record, Replica
from pipeline.results.tracking import data_sets, naming

ACCURACY = "test_accuracy"
# The tag `privacy`: what is left of what is claimed.
PRIVACY: dict[State, str] = {
    "holds": "holds",
    "weaker": "weaker",
    "exceeds": "does not hold",
    "none_proven": "does not hold",
    "vacuous": "none",
    "none": "none",
}
# from worst to best, of levels where anything is claimed
_ORDER = ("does not hold", "none", "weaker", "holds")


def privacy(record: Record, replicas: Sequence[Replica]) -> str:
    """``holds``, ``weaker`` (less is proven than claimed), ``none``, ``does not hold``; of several the worst.

    A level where nothing is claimed, such as an epsilon of infinity, says nothing of the others.
    """
    states = {guarantee(own, record.provenance.reproducible).state for own in by_level(replicas).values()}
    found = {PRIVACY[state] for state in states - {"none"}} or {PRIVACY["none"]}
    return next(word for word in _ORDER if word in found)


def by_level(replicas: Sequence[Replica]) -> dict[str, list[Replica]]:
    """The replicas of each level, in their order."""
    found: dict[str, list[Replica]] = {}
    for replica in replicas:
        found.setdefault(replica.level, []).append(replica)
    return found


def of_level(record: Record, replicas: Sequence[Replica], paper: Paper, settings: Settings) -> str:
    """Of one level: of its only replica, or of several seeds together."""
    level = replicas[0].level
    alone = len(replicas) == 1 and record.method != ACCOUNTING
    seeds = f", seed {replicas[0].seed}" if alone else ""
    where = f"{naming.place(record, paper)} of {short(paper)}"
    said = [f"**{record.label}** at {naming.level_text(level)}{seeds}. {where}."]
    if accuracy := _accuracy(replicas):
        said.append(
            f"Test accuracy on {data_sets.title(record, settings)}: {accuracy}{_paper(record, paper, level)}."
        )
    if unconverged := sum(one.metrics.get("converged") == 0 for one in replicas):
        said.append(f"{unconverged} of {len(replicas)} trainings did not converge.")
    said.append(_buys(guarantee(replicas, record.provenance.reproducible)))
    return " ".join(said + _marks(record))


def of_row(record: Record, paper: Paper, settings: Settings) -> str:
    """Of a row: a table of its levels."""
    said = [f"**{record.label}**: a row of {naming.place(record, paper)} of {short(paper)} ({paper.title})."]
    if record.method != ACCOUNTING:
        said.append(f"Trained on `{record.data}` by `{record.method}`.")
    said += _marks(record)
    if record.together:
        said.append(wording.together(record.together))
    lines = [
        "| level | test accuracy | the paper's | ε claimed | ε proven | privacy |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for level, replicas in by_level(record.replicas).items():
        found = guarantee(replicas, record.provenance.reproducible)
        cells = [
            naming.level_text(level),
            _accuracy(replicas) or "–",
            _printed(record, paper, level) or "–",
            wording.claim(found.ledger),
            wording.bound(found.ledger).removeprefix("ε "),
            PRIVACY[found.state],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return " ".join(said) + "\n\n" + "\n".join(lines)


def of_paper(paper: Paper, rows: int) -> str:
    """Of an experiment."""
    title = f"[{paper.title}]({paper.link})" if paper.link else paper.title
    return (
        f"{short(paper)}: {title}. {rows} rows of its tables as they ran here. Each opens to its levels, and "
        "those to their seeds. `privacy` says what is left of what is claimed; `epsilon_proven` is an "
        "upper bound for what ran, `epsilon_shown` a lower one."
    )


def _accuracy(replicas: Sequence[Replica]) -> str | None:
    """``96.79 ± 0.40 % (n = 3)``, of a single seed ``96.81 %``."""
    found = [100 * one.metrics[ACCURACY] for one in replicas if ACCURACY in one.metrics]
    if not found:
        return None
    over = mean(found)
    return (
        f"{over.value:.2f} %" if over.half is None else f"{over.value:.2f} ± {over.half:.2f} % (n = {over.n})"
    )


def _paper(record: Record, paper: Paper, level: str) -> str:
    value = _printed(record, paper, level)
    return f" (the paper prints {value})" if value else ""


def _printed(record: Record, paper: Paper, level: str) -> str | None:
    """The paper's own value, of a row that does nothing differently."""
    table = paper.tables.get(record.table)
    line, variant = table.line_of(record.label) if table else (None, "")
    value: Printed | None = line.values.get(level) if line and not variant else None
    if table is None or value is None or table.metric != ACCURACY:
        return None
    return wording.printed(value, table.decimals) + (" %" if value.value is not None else "")


def _buys(found: Guarantee) -> str:
    """What the privacy of a level comes to, in one or two sentences."""
    ledger = found.ledger
    claimed = wording.claim(ledger)
    claims = "" if claimed in ("none", "∞") else f" Claimed is {claimed}."
    at = f" at δ {wording.number(ledger.delta)}" if ledger.delta else ""
    proven = f"proven is {wording.bound(ledger)}{at}"
    why = f": {found.reason}" if found.reason else ""
    shown = "" if ledger.shown is None else f" At least {wording.downwards(ledger.shown)} is spent."
    texts: dict[State, str] = {
        "holds": f"Privacy holds: {proven}.{claims}",
        "weaker": f"Privacy is weaker than claimed: {proven}.{claims}",
        "exceeds": f"Privacy does not hold as claimed{why}. P{proven[1:]}.{claims}",
        "vacuous": f"No privacy to speak of{why}. P{proven[1:]}.{claims}",
        "none_proven": f"Privacy does not hold{why}.{claims}",
        "none": f"No privacy{why}.",
    }
    return texts[found.state] + shown


def _marks(record: Record) -> list[str]:
    """What a reader must know before comparing its numbers with the paper's."""
    said = []
    if record.budget == "reduced":
        said.append("On a reduced budget: its accuracies are not to be held against the paper's.")
    if record.provenance.reproducible:
        said.append("Noise and samples are seeded, so that numbers repeat.")
    return said
