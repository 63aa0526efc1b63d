"""One test of a claim, on our records and on the paper's own numbers: an outcome for each level."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from pipeline.reporting import histories
from pipeline.reporting.judging import best_level as optima
from pipeline.reporting.judging import crossings, slowdown
from pipeline.reporting.judging.guarantees import SLACK
from pipeline.reporting.judging.intervals import Mean, computed, difference, mean, paired
from pipeline.reporting.papers import (
    NO_CONVERGENCE,
    AtBest,
    Average,
    Best,
    Bounded,
    CarriesOver,
    Convergence,
    Difference,
    Falls,
    Gap,
    Guaranteed,
    Overtakes,
    Paper,
    Printed,
    Ratio,
    SameGuarantee,
    Slower,
    SpentAtOnce,
    Table,
    Test,
)
from pipeline.reporting.results import Cell, RowResult
from pipeline.reporting.wording import bound, claim, fixed, level_words, number, signed, with_interval
from pipeline.reporting.wording import printed as printed_words

Verdict = Literal["holds", "fails", "undecided", "not run"]
Rows = dict[str, RowResult | None]  # by the line's reference


@dataclass(frozen=True)
class Outcome:
    """One comparison at one level."""

    verdict: Verdict
    text: str  # what was compared with what, in numbers
    caveat: str | None = None  # why it does not count: reduced budget, synthetic data, ...


def ours(test: Test, rows: Rows, paper: Paper) -> Iterator[Outcome]:
    """The test on our records, at each of its levels."""
    if isinstance(test, Slower):
        yield _slower(test, rows[test.of], paper)
        return
    if isinstance(test, AtBest | CarriesOver):
        yield _at_best(test, rows, paper)
        return
    if isinstance(test, Average):
        yield _averages(test, rows, paper)
        return
    if isinstance(test, Falls | Best):
        for part in test.parts:
            yield from ours(part, rows, paper)
        return
    for level in test.at:
        if isinstance(test, SameGuarantee):
            yield _as_private(test, level, rows, paper)
        elif isinstance(test, Guaranteed):
            yield _guaranteed(test, level, rows[test.of], paper)
        elif isinstance(test, SpentAtOnce):
            yield _at_once(test, level, rows[test.of], paper)
        elif isinstance(test, Overtakes):
            yield _overtakes(test, level, rows, paper)
        elif isinstance(test, Convergence):
            yield _converges(test, level, rows[test.of], paper)
        elif isinstance(test, Gap):
            yield _loses(test, level, rows, paper)
        elif isinstance(test, Ratio):
            yield _relates(test, level, rows, paper)
        else:
            yield _differs(test, level, rows, paper)


def printed(test: Test, paper: Paper) -> Iterator[Outcome]:
    """The paper's printed numbers, taken as exact, put to the same test; nothing where it prints none."""
    if isinstance(test, Slower | Guaranteed | SameGuarantee | SpentAtOnce | AtBest | CarriesOver | Overtakes):
        return
    if isinstance(test, Average):
        yield from _printed_average(test, paper)
        return
    if isinstance(test, Falls | Best):
        for part in test.parts:
            yield from printed(part, paper)
        return
    for level in test.at:
        if isinstance(test, Convergence):
            found = _printed_convergence(test, level, paper)
        elif isinstance(test, Gap):
            found = _printed_loss(test, level, paper)
        elif isinstance(test, Ratio):
            found = _printed_ratio(test, level, paper)
        else:
            found = _printed_difference(test, level, paper)
        if found is not None:
            yield found


def _differs(test: Difference, level: str, rows: Rows, paper: Paper) -> Outcome:
    title = _difference_title(test, level, paper)
    left = _cell(rows[test.left], level)
    if isinstance(test.right, str):
        right = _cell(rows[test.right], test.right_at or level)
        if left is None or right is None:
            return _not_run(title)
        gap = _gap(left, right, _of_one_row(test))
    else:
        if left is None:
            return _not_run(title)
        right, gap = None, replace(left.mean, value=left.mean.value - test.right)
    text = f"{title}: {with_interval(gap, _decimals(test.left, paper), sign=True)}, {_needs(test)}"
    return Outcome(gap.where(test.above, test.below), text, _caveat(left, right))


def _relates(test: Ratio, level: str, rows: Rows, paper: Paper) -> Outcome:
    title = _difference_title(test, level, paper)
    left, right = _cell(rows[test.left], level), _cell(rows[test.right], test.right_at or level)
    if left is None or right is None:
        return _not_run(title)
    # left / right is above a where left - a right is above zero
    found: list[Verdict] = []
    if test.above is not None:
        found.append(_gap(left, _times(test.above, right), _of_one_row(test)).where(0, None))
    if test.below is not None:
        found.append(_gap(left, _times(test.below, right), _of_one_row(test)).where(None, 0))
    verdict = next((one for one in ("fails", "undecided") if one in found), found[0])
    text = f"{title}: {number(left.mean.value / right.mean.value)}, {_needs(test)}"
    return Outcome(verdict, text, _caveat(left, right))


def _times(factor: float, cell: Cell) -> Cell:
    half = None if cell.mean.half is None else factor * cell.mean.half
    values = tuple(factor * value for value in cell.values)
    return replace(cell, values=values, mean=replace(cell.mean, value=factor * cell.mean.value, half=half))


def _at_best(test: AtBest | CarriesOver, rows: Rows, paper: Paper) -> Outcome:
    left, right = paper.lines[test.left].label, paper.lines[test.right].label
    if isinstance(test, AtBest):
        title, compare = f"{left} − {right}, each at its best", optima.lead
    else:
        title, compare = f"{right} at its best − at the best of {left}", optima.shortfall
    one, other = optima.best(rows[test.left]), optima.best(rows[test.right])
    gap = compare(rows[test.left], rows[test.right])
    if one is None or other is None or gap is None:
        return _not_run(title)
    levels = f"{level_words(one.level)} and {level_words(other.level)}"
    shown = with_interval(gap, _decimals(test.left, paper), sign=True)
    return Outcome(
        gap.where(test.above, test.below), f"{title} ({levels}): {shown}, {_needs(test)}", _caveat(one, other)
    )


def _averages(test: Average, rows: Rows, paper: Paper) -> Outcome:
    title = _average_title(test, paper)
    left = [_cell(rows[test.left], level) for level in test.at]
    right = [_cell(rows[test.right], level) for level in test.at]
    if not all(left) or not all(right):
        return _not_run(title)
    gap = difference(_over_levels(left), _over_levels(right))
    text = f"{title}: {with_interval(gap, _decimals(test.left, paper), sign=True)}, {_needs(test)}"
    return Outcome(gap.where(test.above, test.below), text, _caveat(*left, *right))


def _over_levels(cells: list[Cell | None]) -> list[float]:
    """One mean over the levels for each seed that has them all."""
    by_seed = [cell.by_seed for cell in cells if cell]
    seeds = set.intersection(*(set(own) for own in by_seed))
    return [fmean(own[seed] for own in by_seed) for seed in sorted(seeds)]


def _overtakes(test: Overtakes, level: str, rows: Rows, paper: Paper) -> Outcome:
    left, right = paper.lines[test.left].label, paper.lines[test.right].label
    title = f"{left} overtakes {right} for good at {level_words(level)}"
    found = crossings.epochs(rows[test.left], rows[test.right], level)
    if not found:
        return _not_run(title)
    caveat = _caveat(_cell(rows[test.left], level), _cell(rows[test.right], level))
    reached = [epoch for epoch in found if epoch is not None]
    if len(reached) < len(found):
        verdict: Verdict = "undecided" if reached else "fails"
        return Outcome(verdict, f"{title}: in {len(reached)} of {len(found)} seeds", caveat)
    when = mean(reached)
    text = f"{title}: after {with_interval(when, 1)} epochs, {_needs(test)}"
    return Outcome(when.where(test.above, test.below), text, caveat)


def _of_one_row(test: Difference | Ratio) -> bool:
    """Levels and metrics of one row share their seeds' initial weights and order of examples."""
    return isinstance(test.right, str) and test.left.partition(":")[0] == test.right.partition(":")[0]


def _gap(left: Cell, right: Cell, same: bool) -> Mean:
    """``left`` - ``right``; ``same``: of one row."""
    if left.mean.exact and right.mean.exact:
        return computed(left.mean.value - right.mean.value)
    return paired(left.by_seed, right.by_seed) if same else difference(left.values, right.values)


def _loses(test: Gap, level: str, rows: Rows, paper: Paper) -> Outcome:
    title = _gap_title(test, level, paper)
    own = [_cell(rows[test.of], at) for at in (test.start, level)]
    other = [_cell(rows[test.than], at) for at in (test.start, level)]
    if own[0] is None or own[1] is None or other[0] is None or other[1] is None:
        return _not_run(title)
    left, right = _loss(own[0], own[1]), _loss(other[0], other[1])
    rest = difference(left, [test.share * loss for loss in right])
    decimals = _decimals(test.of, paper)
    text = (
        f"{title}: {fixed(mean(left).value, decimals)} and {fixed(mean(right).value, decimals)}; "
        f"{with_interval(rest, decimals, sign=True)} to be below 0"
    )
    return Outcome(rest.where(None, 0), text, _caveat(*own, *other))


def _loss(start: Cell, end: Cell) -> list[float]:
    before, after = start.by_seed, end.by_seed
    return [before[seed] - after[seed] for seed in sorted(before.keys() & after.keys())]


def _converges(test: Convergence, level: str, row: RowResult | None, paper: Paper) -> Outcome:
    title = f"{paper.lines[test.of].label} at {level_words(level)}"
    cell = _cell(row, level)
    if cell is None:
        return _not_run(title)
    n = cell.mean.n
    verdict: Verdict = "undecided"
    if n > 1 and cell.converged in (0, n):  # a single seed decides nothing
        verdict = "holds" if (cell.converged == n) == test.converges else "fails"
    accuracy = with_interval(cell.mean, _decimals(test.of, paper))
    text = (
        f"{title}: {cell.converged} of {n} seeds converged, accuracy {accuracy}, {_convergence_needs(test)}"
    )
    return Outcome(verdict, text, cell.caveat)


def _slower(test: Slower, row: RowResult | None, paper: Paper) -> Outcome:
    label, end, start = paper.lines[test.of].label, level_words(test.end), level_words(test.start)
    title = f"{label}, epochs at {end} ÷ epochs at {start}"
    found = slowdown.measure(row, test.start, test.end)
    if found is None:
        return _not_run(title)
    if found.ratio is None or found.threshold is None:
        return Outcome("undecided", f"{title}: unknown, {found.problem}", found.caveat)
    text = (
        f"{title}, to reach a validation accuracy of {100 * found.threshold:.2f} %: "
        f"{with_interval(found.ratio, 2)}, {_needs(test)}"
    )
    return Outcome(found.ratio.where(test.above, test.below), text, found.caveat)


def _guaranteed(test: Guaranteed, level: str, row: RowResult | None, paper: Paper) -> Outcome:
    title = f"{paper.lines[test.of].label} at {level_words(level)}"
    cell = _cell(row, level)
    if cell is None:
        return _not_run(title)
    found = cell.guarantee
    text = f"{title}: claimed ε {claim(found.ledger)}, proven {bound(found.ledger)}"
    if found.reason:
        text += f" ({found.reason})"
    return Outcome("holds" if found.kept else "fails", text, _guarantee_caveat(row))


def _as_private(test: SameGuarantee, level: str, rows: Rows, paper: Paper) -> Outcome:
    left, right = rows[test.left], rows[test.right]
    title = f"{paper.lines[test.left].label} and {paper.lines[test.right].label} at {level_words(level)}"
    cells = _cell(left, level), _cell(right, level)
    if cells[0] is None or cells[1] is None:
        return _not_run(title)
    one, other = cells[0].guarantee.ledger, cells[1].guarantee.ledger
    text = f"{title}: proven {bound(one)} and {bound(other)}"
    verdict: Verdict = "fails"
    if one.accounted is not None and other.accounted is not None:
        low, high = sorted((one.accounted, other.accounted))
        verdict = "holds" if high <= SLACK * low else "fails"
    elif one.accounted is None and other.accounted is None:
        verdict = "undecided"
    return Outcome(verdict, text, _guarantee_caveat(left) or _guarantee_caveat(right))


def _at_once(test: SpentAtOnce, level: str, row: RowResult | None, paper: Paper) -> Outcome:
    title = f"{paper.lines[test.of].label} at {level_words(level)}"
    cell = _cell(row, level)
    if row is None or cell is None:
        return _not_run(title)
    found = cell.guarantee
    if found.ledger.accounted is None:
        return Outcome("fails", f"{title}: no bound ({found.reason})", _guarantee_caveat(row))
    spent = histories.read(row.history).get("epsilon_spent", {}).get(level, {}) if row.history else {}
    if not spent:
        return Outcome("undecided", f"{title}: its history has no ε", _guarantee_caveat(row))
    first, last = (fmean(curve[place][1] for curve in spent.values()) for place in (0, -1))
    text = f"{title}: ε {number(first)} at the first note, {number(last)} at the last"
    return Outcome("holds" if last <= SLACK * first else "fails", text, _guarantee_caveat(row))


def _guarantee_caveat(row: RowResult | None) -> str | None:
    """Why the row's guarantee says nothing about the paper's.

    Seeded noise is this project's choice. A reduced budget is no caveat here: fewer steps of a mechanism are
    accounted for like many.
    """
    marks = row.marks if row else ()
    return next((mark.words for mark in marks if mark.incomparable or mark.seeded), None)


def _printed_difference(test: Difference, level: str, paper: Paper) -> Outcome | None:
    left = _value(test.left, level, paper)
    right = _value(test.right, test.right_at or level, paper) if isinstance(test.right, str) else test.right
    if left is None or right is None:
        return None
    gap = left - right
    shown = signed(gap, _decimals(test.left, paper))
    text = f"{_difference_title(test, level, paper)}: {shown}, {_needs(test)}"
    return Outcome(computed(gap).where(test.above, test.below), text)


def _printed_average(test: Average, paper: Paper) -> Iterator[Outcome]:
    left, right = (
        [value for level in test.at if (value := _value(line, level, paper)) is not None]
        for line in (test.left, test.right)
    )
    if len(left) == len(right) == len(test.at):
        gap = fmean(left) - fmean(right)
        shown = signed(gap, _decimals(test.left, paper))
        text = f"{_average_title(test, paper)}: {shown}, {_needs(test)}"
        yield Outcome(computed(gap).where(test.above, test.below), text)


def _printed_ratio(test: Ratio, level: str, paper: Paper) -> Outcome | None:
    left, right = _value(test.left, level, paper), _value(test.right, test.right_at or level, paper)
    if left is None or right is None:
        return None
    ratio = left / right
    text = f"{_difference_title(test, level, paper)}: {number(ratio)}, {_needs(test)}"
    return Outcome(computed(ratio).where(test.above, test.below), text)


def _printed_loss(test: Gap, level: str, paper: Paper) -> Outcome | None:
    values = [_value(line, at, paper) for line in (test.of, test.than) for at in (test.start, level)]
    before, after, other_before, other_after = values
    if before is None or after is None or other_before is None or other_after is None:
        return None
    own, other = before - after, other_before - other_after
    decimals = _decimals(test.of, paper)
    text = f"{_gap_title(test, level, paper)}: {fixed(own, decimals)} and {fixed(other, decimals)}"
    return Outcome("holds" if own < test.share * other else "fails", text)


def _printed_convergence(test: Convergence, level: str, paper: Paper) -> Outcome | None:
    """A number in a cell is taken to say that training converged."""
    found: Printed | None = paper.lines[test.of].values.get(level)
    if found is None:
        return None
    verdict: Verdict = "holds" if (found.words != NO_CONVERGENCE) == test.converges else "fails"
    shown = printed_words(found, _table(test.of, paper).decimals)
    title = f"{paper.lines[test.of].label} at {level_words(level)}"
    return Outcome(verdict, f"{title}: {shown}, {_convergence_needs(test)}")


def _difference_title(test: Difference | Ratio, level: str, paper: Paper) -> str:
    left, at = paper.lines[test.left].label, level_words(level)
    sign = "÷" if isinstance(test, Ratio) else "−"
    if test.left == test.right and test.right_at:
        return f"{left}, {at} {sign} {level_words(test.right_at)}"
    right = paper.lines[test.right].label if isinstance(test.right, str) else number(test.right)
    if test.right_at:
        return f"{left} at {at} {sign} {right} at {level_words(test.right_at)}"
    return f"{left} {sign} {right} at {at}"


def _average_title(test: Average, paper: Paper) -> str:
    left, right = paper.lines[test.left].label, paper.lines[test.right].label
    return f"{left} − {right}, mean over {', '.join(map(level_words, test.at))}"


def _gap_title(test: Gap, level: str, paper: Paper) -> str:
    of, than = paper.lines[test.of].label, paper.lines[test.than].label
    share = "" if test.share == 1 else f"{number(test.share)} of "
    return (
        f"{of} loses less than {share}what {than} loses "
        f"from {level_words(test.start)} to {level_words(level)}"
    )


def _needs(test: Bounded) -> str:
    parts = [
        f"{word} {number(limit)}"
        for word, limit in (("above", test.above), ("below", test.below))
        if limit is not None
    ]
    return "to be " + " and ".join(parts)


def _convergence_needs(test: Convergence) -> str:
    return "to converge" if test.converges else "not to converge"


def _decimals(reference: str, paper: Paper) -> int | None:
    return _table(reference, paper).decimals_of(reference.partition(":")[2])


def _table(reference: str, paper: Paper) -> Table:
    return paper.tables[reference.partition("/")[0]]


def _value(reference: str, level: str, paper: Paper) -> float | None:
    found = paper.lines[reference].values.get(level)
    return found.value if found else None


def _cell(row: RowResult | None, level: str) -> Cell | None:
    return row.cells.get(level) if row else None


def _caveat(*cells: Cell | None) -> str | None:
    return next((cell.caveat for cell in cells if cell and cell.caveat), None)


def _not_run(title: str) -> Outcome:
    return Outcome("not run", f"{title}: not run")
