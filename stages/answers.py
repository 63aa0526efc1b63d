"""Lines that commands print as their results."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from dprepro.pipeline.rerun import Difference
    from dprepro.pipeline.results.schema import Errors, Ledger, Scores


def answering(width: int = 100) -> "Console":
    """Console for results, as wide as the terminal; ``width`` columns without a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = width
    return console


def measured(row: str) -> Iterator[str]:
    """Lines such as ``epsilon = 3: test accuracy 96.92 ± 0.82 (n = 3) percent``, one per level."""
    from dprepro.pipeline.reporting.verdict import mean
    from dprepro.pipeline.reporting.wording import with_interval
    from dprepro.pipeline.results import records

    by_level: dict[str, list[float]] = {}
    for training in records.read_evaluation(row).trainings:
        by_level.setdefault(training.level, []).append(100 * training.metrics["test_accuracy"])
    for level, values in by_level.items():
        yield f"{level.replace('=', ' = ')}: test accuracy {with_interval(mean(tuple(values)), 2)} percent"


def scored(row: str, classes: Sequence[str]) -> Iterator[str]:
    """Lines with the scores of each level's first seed, and on seeds that are no better than guessing.

    A row without scores has no lines.
    """
    from dprepro.pipeline.results import records

    trainings = records.read_evaluation(row).trainings
    first = {training.level: training for training in reversed(trainings)}
    for level, training in reversed(first.items()):
        if training.scores is not None:
            for line in score_lines(training.scores, classes):
                yield f"{level.replace('=', ' = ')}, seed {training.seed}: {line}"
    for training in trainings:
        if training.scores is not None and training.scores.guess:
            yield f"{training.level.replace('=', ' = ')}, seed {training.seed}: {training.scores.guess}"


def score_lines(scores: "Scores | Errors", classes: Sequence[str]) -> Iterator[str]:
    """Line with all scores, then one for each of the first 20 classes: recall and predicted classes."""
    from dprepro.errors import printable
    from dprepro.pipeline.results.schema import Errors

    yield scores.words
    if isinstance(scores, Errors):
        return
    for number, share in enumerate(scores.recall[:20]):
        if share is not None:
            cells = enumerate(scores.confusion[number] if scores.confusion else ())
            confused = ", ".join(f"{count:,} as {printable(classes[at], 40)}" for at, count in cells if count)
            recall = f"{printable(classes[number], 40)}: recall {100 * share:.1f} %"
            yield f"{recall} ({confused})" if confused else recall
    if len(scores.recall) > 20:
        yield f"and {len(scores.recall) - 20} more classes"


def compared(difference: "Difference", again: str) -> str:
    """Line on a level's recorded test accuracies and those of its new trainings, called ``again``.

    A single new accuracy is compared with the recorded ones and the prediction interval of one more training.
    """
    from dprepro.pipeline.reporting.wording import with_interval

    before, after, apart = difference.before, difference.after, difference.mean
    level = difference.level.replace("=", " = ")
    recorded = f"{level}: test accuracy {with_interval(before.mean, 2)} percent recorded"
    if len(after.by_seed) > 1 or apart.half_width is None:
        more = f"{with_interval(after.mean, 2)} {again}; difference {with_interval(apart, 2, True)}"
        return f"{recorded}, {more}: {difference.verdict}"
    value, values = after.mean.value, before.by_seed.values()
    inside = "inside" if min(values) <= value <= max(values) else "outside"
    low, high = before.mean.value - apart.half_width, before.mean.value + apart.half_width
    expected = "inside" if low <= value <= high else "outside"
    return (
        f"{recorded}, {value:.2f} {again}: {inside} the range of the recorded seeds ({min(values):.2f} to "
        f"{max(values):.2f}) and {expected} the 95 % prediction interval of one more training ({low:.2f} to "
        f"{high:.2f}): {difference.verdict}"
    )


def accounted(line: str) -> Iterator[str]:
    """Lines on the privacy of a row or account, such as ``epsilon = 3: epsilon at most 2.6 proven``.

    Each level's line is about its least private seed. It ends with the uses of private data outside epsilon.
    Lines on independent gradients, the composition and a large delta follow.
    """
    from dprepro.pipeline.ledgers.sentences import composition, delta_remark
    from dprepro.pipeline.reporting.privacy import not_covered, specific, worst
    from dprepro.pipeline.reporting.wording import isolation
    from dprepro.pipeline.results import records

    ledgers, all_attacks = records.read_ledgers(line), records.read_attacks(line)
    by_level: dict[str, list[Ledger]] = {}
    for entry in ledgers.entries if ledgers else ():
        by_level.setdefault(entry.level, []).append(entry.ledger)
    for level, ledgers_of_level in by_level.items():
        ledger = worst(ledgers_of_level)
        attacks = [attack for attack in all_attacks if attack.level == level]
        uses = specific(not_covered(ledger, attacks, ledgers.composition if ledgers else None))
        outside = f"; outside epsilon: {'; '.join(use.words for use in uses)}" if uses else ""
        yield f"{level.replace('=', ' = ')}: {privacy_summary(ledger)}{outside}"
    if run := records.read_run(line):
        proven = [ledger for each in by_level.values() for ledger in each if ledger.epsilon_upper is not None]
        yield from sorted(
            {f"independent gradients: {isolation(ledger)}" for ledger in proven if not ledger.releases}
        )
    if ledgers and ledgers.composition:
        yield composition(ledgers.composition)
    if run:
        remarks = {delta_remark(trained.delta, trained.origin.examples) for trained in run.trainings}
        yield from sorted(remark for remark in remarks if remark)


def privacy_summary(ledger: "Ledger") -> str:
    """Summary of a ledger: proven and claimed epsilon."""
    from dprepro.pipeline.ledgers.sentences import claim, downwards, upwards
    from dprepro.pipeline.results.schema import EXAMPLE

    if ledger.epsilon_upper is None:
        from dprepro.pipeline.reporting.wording import joined  # reads YAML, which takes a tenth of a second

        why = joined(ledger.reasons)
        return (
            f"no epsilon is proven, {claim(ledger)} claimed: {why}"
            if ledger.claimed
            else f"no privacy: {why}"
        )
    shown = "" if ledger.epsilon_lower is None else f", at least {downwards(ledger.epsilon_lower)} spent"
    claimed = f", {claim(ledger)} claimed ({ledger.claimed_by})" if ledger.claimed_by else ""
    unit = "" if ledger.unit == EXAMPLE else f" for {ledger.unit}"
    return (
        f"epsilon at most {upwards(ledger.epsilon_upper)} proven{unit} ({ledger.accountant}){shown}{claimed}"
    )
