"""What rows release of private data, once and with noise: how much noise that is, and what it buys."""

from pipeline.reporting.results import Cell, RowResult, TableResult
from pipeline.reporting.vocabulary import words
from pipeline.reporting.wording import column_heads, number, upwards
from pipeline.results.schema import Released

# Declared wherever releases are shown.
RULE = (
    "In each cell: ε claimed → accounted, rounded up; the noise's standard deviation on a coordinate, as "
    "median (least to largest) where they differ; and how many times the span of the exact values its "
    "median is."
)


def lines(result: TableResult) -> list[list[str]]:
    """Every quantity of every row, in the order in which rows release them, as text under `head`."""
    return [
        [row.key, quantity, *(_cell(row, level, quantity) for level in result.levels)]
        for row in result.rows
        for quantity in dict.fromkeys(noisy.quantity for level in row.cells for noisy in _of(row, level))
    ]


def head(result: TableResult) -> list[str]:
    """Columns' heads."""
    return ["row", "quantity", *column_heads(result)]


def protections(result: TableResult) -> list[tuple[list[str], str]]:
    """(rows, what of whom is protected, and from whom) where a ledger says so; alike rows together."""

    def told(cell: Cell) -> str | None:
        protects = cell.guarantee.ledger.protects
        return words(protects) if protects else None

    return result.alike(told)


def text(released: Released) -> str:
    """All of a release in one line."""
    least, median, largest = released.noise
    epsilon_upper = "none" if released.epsilon_upper is None else f"{released.epsilon_upper:.6g}"
    return (
        f"{released.quantity}: claimed {released.claimed:.6g}, accounted {epsilon_upper}, "
        f"noise {least:.6g} / {median:.6g} / {largest:.6g} over a span of {released.span:.6g}"
    )


def _of(row: RowResult, level: str) -> tuple[Released, ...]:
    cell = row.cells.get(level)
    return cell.guarantee.ledger.releases if cell else ()


def _cell(row: RowResult, level: str, quantity: str) -> str:
    """Nothing where the level releases no such thing."""
    released = next((of_row for of_row in _of(row, level) if of_row.quantity == quantity), None)
    if released is None:
        return ""
    epsilon_upper = "no bound" if released.epsilon_upper is None else upwards(released.epsilon_upper)
    epsilon = f"ε {number(released.claimed)} → {epsilon_upper}"
    if released.noise[2] == 0:
        return f"{epsilon}; no noise"
    least, median, largest = map(number, released.noise)
    noise = median if least == largest else f"{median} ({least} to {largest})"
    return f"{epsilon}; noise {noise}; {number(released.noise[1] / released.span)} × span"
