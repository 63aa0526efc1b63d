"""`dprepro compare ROW ROW`: two rows side by side at equal proven epsilon."""

from collections.abc import Iterator
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from dprepro.pipeline.params import Settings
    from dprepro.pipeline.reporting.compare import Comparison
    from dprepro.pipeline.reporting.verdict import Mean


def compare(
    first: Annotated[str, typer.Argument(help="A row with results: a key of `rows` in params.yaml.")],
    second: Annotated[str, typer.Argument(help="Another row with results.")],
) -> None:
    """Compare the accuracies of two rows at equal proven epsilons. Missing ledgers are computed before."""
    from dprepro.pipeline import params
    from dprepro.pipeline.ledgers.rows import row_ledgers
    from dprepro.pipeline.reporting.compare import compared
    from dprepro.pipeline.results import records
    from dprepro.stages.answers import answering

    settings = params.load()
    for row in dict.fromkeys((first, second)):
        if settings.row(row) and records.read_run(row) and records.read_ledgers(row) is None:
            print(f"{row}: accounted, {row_ledgers(row, settings)}")
    console, comparisons = answering(120), compared(first, second, settings)
    console.print(_table(first, second, comparisons))
    console.print(
        "Test accuracy in percent, mean and 95 % interval over seeds. Each line is a level of the first row "
        "beside the second's level of the same proven epsilon; where it has none, beside the level that "
        "validates best of those that spend less."
    )
    sentences = _lacking(second, comparisons), _changed(settings, first, second)
    for sentence in chain(*sentences, _composition(first, second)):
        console.print(sentence)


def _lacking(second: str, comparisons: list["Comparison"]) -> Iterator[str]:
    """Sentences on epsilons that only the first row has."""
    from dprepro.pipeline.ledgers.sentences import upwards

    for comparison in comparisons:
        if comparison.lacking:
            yield f"{second} has no level that is proven to spend {upwards(comparison.level.proven)}."


def _changed(settings: "Settings", *rows: str) -> Iterator[str]:
    """Sentences on rows whose results are those of other settings than params.yaml has now."""
    from dprepro.pipeline.identity.validity import reason_invalid
    from dprepro.pipeline.results import records

    for row in dict.fromkeys(rows):
        run, declared = records.read_run(row), settings.rows[row]
        if run and any(reason_invalid(each, declared, None, None, code=False) for each in run.trainings):
            yield f"{row}: settings have changed since some of these runs; `dprepro plan {row}`"


def _composition(*rows: str) -> Iterator[str]:
    """Sentences with the composed epsilon of each row and its search."""
    from dprepro.pipeline.ledgers.sentences import composition
    from dprepro.pipeline.results import records

    for row in dict.fromkeys(rows):
        ledgers = records.read_ledgers(row)
        if ledgers and ledgers.composition:
            yield f"{row}: {composition(ledgers.composition)}"


def _table(first: str, second: str, comparisons: list["Comparison"]) -> "Table":
    from rich import box
    from rich.table import Table

    from dprepro.pipeline.ledgers.sentences import bound
    from dprepro.pipeline.reporting.wording import level_words, signed

    table = Table(title=f"{first} and {second}", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("first", "accuracy", "privacy", "second", "accuracy", "privacy", "difference"):
        table.add_column(
            head, justify="right" if head in ("accuracy", "difference") else "left", no_wrap=True
        )
    for comparison in comparisons:
        level, rival, gap = comparison.level, comparison.rival, comparison.difference
        accuracy = f"{level.accuracy.value:.2f}{_half(level.accuracy)}"
        measured = (level_words(level.line["level"]), accuracy, bound(level.ledger))
        if rival is None or gap is None:
            none = "none spends so little" if isfinite(level.proven) else "nothing is comparable"
            table.add_row(*measured, none, "", "", "")
            continue
        reached = f"{rival.accuracy.value:.2f}{_half(rival.accuracy)}"
        table.add_row(
            *measured,
            level_words(rival.line["level"]),
            reached,
            bound(rival.ledger),
            signed(gap.value, 2) + _half(gap),
        )
    return table


def _half(value: "Mean") -> str:
    return "" if value.half_width is None else f" ± {value.half_width:.2f}"
