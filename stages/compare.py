"""`dprepro compare ROW ROW`: two rows side by side at equal proven epsilon."""

from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from dprepro.pipeline.reporting.compare import Comparison
    from dprepro.pipeline.reporting.verdict import Mean


def compare(
    first: Annotated[str, typer.Argument(help="A row with results: a key of `rows` in params.yaml.")],
    second: Annotated[str, typer.Argument(help="Another row with results.")],
) -> None:
    """Compare the accuracies of two rows at equal proven epsilons. Missing ledgers are computed before."""
    from dprepro.pipeline import params
    from dprepro.pipeline.identity.validity import reason_invalid
    from dprepro.pipeline.ledgers.rows import row_ledgers
    from dprepro.pipeline.ledgers.sentences import composition, upwards
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
    for comparison in comparisons:
        if comparison.lacking:
            proven = upwards(comparison.level.proven)
            console.print(f"{second} has no level that is proven to spend {proven}.")
    for row in dict.fromkeys((first, second)):
        run, ledgers, declared = records.read_run(row), records.read_ledgers(row), settings.rows[row]
        if run and any(reason_invalid(each, declared, None, None, code=False) for each in run.trainings):
            console.print(f"{row}: settings have changed since some of these runs; `dprepro plan {row}`")
        if ledgers and ledgers.composition:
            console.print(f"{row}: {composition(ledgers.composition)}")


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
