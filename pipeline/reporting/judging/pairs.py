"""Pairs of rows with equal training budgets, for the differences of two lines."""

from dprepro.pipeline.reporting.judging.fairness import batches, epochs
from dprepro.pipeline.reporting.judging.rule import FEWEST_SEEDS
from dprepro.pipeline.reporting.results import LineResult, RowResult

ONE_NETWORK = "one pretrained network for all seeds"


def paired_rows(
    left: LineResult, at: str, right: LineResult, other: str
) -> tuple[RowResult | None, RowResult | None]:
    """The two rows to compare, of line ``left`` at level ``at`` and of line ``right`` at level ``other``.

    They are the rows that decide the lines' printed values. But if the difference of these rows decides
    nothing (`why_not`), for example because training budgets are unequal, another pair of the lines' rows
    whose difference decides replaces them. If there is none, or a line is a variant, nothing is replaced.
    """
    deciding = left.deciding(at), right.deciding(other)
    if None in deciding or left.variant or right.variant:
        return deciding
    pairs = [
        (one, two)
        for one in _usable(left, at, deciding[0], right)
        for two in _usable(right, other, deciding[1], left)
        if equal(one, at, two, other) and not why_not(one, two, at, other)
    ]
    return min(
        pairs, key=lambda pair: (pair[0] is not deciding[0]) + (pair[1] is not deciding[1]), default=deciding
    )


def _usable(line: LineResult, level: str, deciding: RowResult | None, other: LineResult) -> list[RowResult]:
    """Rows of a line that ran: the deciding row, then rows whose `budget_of` names one of the two lines."""
    names = {named.line.key for named in (line, other) if named.line}
    further = (
        row for row in line.rows if level in row.cells and row.trained and row.trained.budget_of in names
    )
    return [row for row in (deciding, *further) if row is not None and level in row.cells]


def equal(one: RowResult, at: str, two: RowResult, other: str) -> bool:
    """Return True if two rows had equal training budgets.

    Two full or two reduced budgets are equal. Own budgets need equal epochs and equal largest batches.
    """
    if "own" not in (one.budget, two.budget):
        return one.budget == two.budget
    return epochs(one, at) == epochs(two, other) and max(batches(one, at)) == max(batches(two, other))


def one_network(one: RowResult, at: str, two: RowResult, other: str) -> bool:
    """Return True if a difference of two rows at one level may come from one pretrained network."""
    return one.key != two.key and at == other and bool(one.start or two.start)


def why_not(one: RowResult, two: RowResult, at: str, other: str) -> str:
    """Reason why the difference of two rows decides nothing; '' if it may decide."""
    cells = one.cells[at], two.cells[other]
    for row in (one, two):
        for caveat in row.caveats:
            if caveat.inconclusive and not caveat.fewer_data:
                return "too small a budget" if caveat.training else caveat.words
    if min(len(cell.values) for cell in cells) < FEWEST_SEEDS:
        return f"fewer than {FEWEST_SEEDS} seeds"
    if any(cell.failed for cell in cells):
        return "some seeds did not converge"
    if one_network(one, at, two, other):
        return ONE_NETWORK
    examples = {replica for row in (one, two) if row.record for replica in [row.record.provenance.examples]}
    if len(examples) > 1:
        return "unequal data"
    return "" if equal(one, at, two, other) else "unequal budgets"
