"""`dprepro compare ROW ROW`: two rows side by side at equal proven epsilon."""

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.params import Settings
    from pipeline.reporting.compare import Pair
    from pipeline.reporting.judging.intervals import Mean


def compare(
    one: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml that was run.")],
    other: Annotated[str, typer.Argument(help="Another.")],
) -> None:
    """Set the accuracies of two rows side by side where they spend the same proven epsilon."""
    from pipeline import params
    from pipeline.reporting.compare import compared
    from stages.answers import answering

    settings = params.load()
    console, pairs = answering(120), compared(one, other, settings)
    console.print(_table(one, other, pairs))
    console.print(
        "Test accuracy in percent, mean and 95 % interval over seeds. Each line is a level of the first row "
        "beside what the second reaches at the same proven epsilon, measured or by interpolation between its "
        "two levels next to it; else beside the best of its levels that spend less."
    )
    for sentence in (*_missing(other, settings, pairs), *_composition(one, other)):
        console.print(sentence)


def _missing(other: str, settings: "Settings", pairs: list["Pair"]) -> Iterator[str]:
    """What the second row lacks to be compared at the same epsilon, and the command that adds it."""
    from pipeline.reporting.wording import upwards

    planned = settings.rows[other].plan
    for pair in pairs:
        if pair.missing is None:
            continue
        lacks = f"{other} has no level that is proven to spend {upwards(pair.one.proven)}"
        if pair.missing.epsilon is None or planned:
            asked = "" if pair.missing.epsilon is None else f", at epsilon {pair.missing.epsilon:g}"
            why = f", as {other} has a plan" if planned else ""
            yield f"{lacks}: declare a row with one{asked}{why}."
        else:
            yield (
                f"{lacks}: `dprepro new level {other} --epsilon {pair.missing.epsilon:g}` adds one, "
                f"`dprepro repro {other}` trains it."
            )


def _composition(*rows: str) -> Iterator[str]:
    """What each row and its search spend in all."""
    from pipeline.reporting.wording import composition
    from pipeline.results import records

    for row in dict.fromkeys(rows):
        ledgers = records.read_ledgers(row)
        if ledgers and ledgers.composition:
            yield f"{row}: {composition(ledgers.composition)}"


def _table(one: str, other: str, pairs: list["Pair"]) -> "Table":
    from rich import box
    from rich.table import Table

    from pipeline.reporting.wording import bound, level_words, signed

    table = Table(title=f"{one} and {other}", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("first", "accuracy", "privacy", "second", "accuracy", "privacy", "difference"):
        table.add_column(
            head, justify="right" if head in ("accuracy", "difference") else "left", no_wrap=True
        )
    for pair in pairs:
        level, gap = pair.one, pair.difference
        first = (level_words(level.level), f"{level.mean.value:.2f}{_half(level.mean)}", bound(level.ledger))
        names = " to ".join(level_words(rival.level) for _, rival in pair.others)
        if gap is None:
            none = "none spends so little" if isfinite(level.proven) else "nothing is comparable"
            table.add_row(*first, none, "", "", "")
            continue
        reached = f"{sum(weight * rival.mean.value for weight, rival in pair.others):.2f}"
        privacy = "interpolated" if pair.interpolated else bound(pair.others[0][1].ledger)
        half = "" if pair.interpolated else _half(pair.others[0][1].mean)
        table.add_row(*first, names, reached + half, privacy, signed(gap.value, 2) + _half(gap))
    return table


def _half(value: "Mean") -> str:
    return "" if value.half is None else f" ± {value.half:.2f}"
