"""Notes for MLflow's pages of runs and experiments: result and privacy in sentences."""

from collections.abc import Sequence

from dprepro.pipeline.reporting import wording
from dprepro.pipeline.reporting.intervals import mean
from dprepro.pipeline.reporting.measured import has_converged
from dprepro.pipeline.reporting.papers import Paper, short
from dprepro.pipeline.reporting.privacy import not_covered, privacy, specific
from dprepro.pipeline.results.schema import Record, Replica

NOTE = "mlflow.note.content"
ACCURACY = "test_accuracy"


def place(record: Record, paper: Paper) -> str:
    """Name of a row's table, such as ``Table 5``."""
    table = paper.tables.get(record.table)
    return table.name if table else record.table


def level_note(record: Record, paper: Paper, replicas: Sequence[Replica], tested_on: str) -> str:
    """Note on a level: mean accuracy over seeds on ``tested_on``, and privacy of the least private seed."""
    sentences = [f"**{record.label}** at {wording.level_words(replicas[0].level)}."]
    if values := [100 * replica.metrics[ACCURACY] for replica in replicas if ACCURACY in replica.metrics]:
        sentences.append(f"Test accuracy on {tested_on} in %: {wording.with_interval(mean(values), 2)}.")
    if unconverged := sum(not has_converged(replica, paper.converged_above) for replica in replicas):
        sentences.append(f"{unconverged} of {len(replicas)} trainings did not converge.")
    verdict = privacy(replicas, record.provenance.reproducible)
    ledger = verdict.ledger
    why = f" ({verdict.reason})" if verdict.reason else ""
    sentences.append(f"Privacy: {verdict.status}{why}.")
    if ledger.epsilon_upper is not None:
        unit = f"{ledger.unit}; {ledger.neighbouring}"
        sentences.append(f"Proven is {wording.bound(ledger)} at δ {wording.delta(ledger)} ({unit}).")
    if ledger.claimed is not None:
        sentences.append(f"Claimed is {wording.claim(ledger)}.")
    if ledger.epsilon_lower is not None:
        sentences.append(f"At least {wording.downwards(ledger.epsilon_lower)} is spent.")
    if ledger.risk:
        gaussian = wording.gaussian_dp(ledger.risk)
        sentences += [wording.attack_risk(ledger.risk), *([f"Gaussian DP: {gaussian}."] if gaussian else [])]
    if uses := specific(not_covered(ledger, replicas[0].attacks, record.composition)):
        sentences.append(f"ε does not cover: {'; '.join(use.words for use in uses)}.")
    return " ".join(sentences)


def row_note(record: Record, paper: Paper, levels: Sequence[Sequence[Replica]], tested_on: str) -> str:
    """Note on a row, with the notes on its levels (`level_note`)."""
    sentences = [f"A row of {place(record, paper)} of {short(paper)}."]
    if record.composition:
        sentences.append(wording.composition(record.composition))
    items = [f"- {level_note(record, paper, replicas, tested_on)}" for replicas in levels]
    return " ".join(sentences) + "\n\n" + "\n".join(items)


def paper_note(paper: Paper) -> str:
    """Note on an experiment: its paper, and how to read its runs."""
    title = f"[{paper.title}]({paper.link})" if paper.link else paper.title
    return (
        f"{short(paper)}: {title}. Rows of its tables as they ran here. Each opens to its levels, and those "
        "to their seeds. `privacy` is the verdict on what is claimed; `epsilon_proven` is an upper bound for "
        "what ran, `epsilon_shown` a lower one, at the run's `delta`, for its `neighbouring` relation."
    )
