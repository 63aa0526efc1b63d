"""`dprepro compare ROW ROW`: two rows side by side at equal proven epsilon."""

from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.reporting.compare import Level, Pair
    from pipeline.reporting.judging.intervals import Mean


def compare(
    one: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml that was run.")],
    other: Annotated[str, typer.Argument(help="Another.")],
) -> None:
    """Set the accuracies of two rows side by side where they spend the same proven epsilon, or less."""
    from pipeline import params
    from pipeline.reporting.compare import compared
    from stages.answers import answering

    console = answering(120)
    console.print(_table(one, other, compared(one, other, params.load())))
    console.print(
        "Test accuracy in percent, mean and 95 % interval over seeds. Each line is a level of the first row "
        "beside the best level of the second that is proven to spend no more."
    )


def _table(one: str, other: str, pairs: list["Pair"]) -> "Table":
    from rich import box
    from rich.table import Table

    from pipeline.reporting.wording import signed

    table = Table(title=f"{one} and {other}", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("first", "accuracy", "privacy", "second", "accuracy", "privacy", "difference"):
        table.add_column(
            head, justify="right" if head in ("accuracy", "difference") else "left", no_wrap=True
        )
    for pair in pairs:
        none = "none spends so little" if isfinite(pair.first.proven) else "nothing is comparable"
        told = [*_told(pair.first), *(_told(pair.rival) if pair.rival else (none, "", ""))]
        gap = pair.difference
        table.add_row(*told, "" if gap is None else signed(gap.value, 2) + _half(gap))
    return table


def _told(level: "Level") -> tuple[str, str, str]:
    from pipeline.reporting.wording import bound, level_words

    return level_words(level.level), f"{level.mean.value:.2f}{_half(level.mean)}", bound(level.ledger)


def _half(value: "Mean") -> str:
    return "" if value.half is None else f" ± {value.half:.2f}"
