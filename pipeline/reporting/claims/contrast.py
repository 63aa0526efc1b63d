"""A linear contrast of cells between bounds: a difference of lines or levels, its mean, a change, a ratio."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from pipeline.reporting.judging.claim_test import (
    Bounded,
    Compared,
    Levels,
    Outcome,
    PrintedCell,
    Reference,
    Rows,
    at_least,
    not_run,
)
from pipeline.reporting.judging.intervals import Mean, computed, contrast
from pipeline.reporting.judging.pairs import equal, paired_rows
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import validation
from pipeline.reporting.wording import level_words, number, with_interval

BEST, PREVIOUS = "best", "previous"
Place = tuple[str, str]  # (reference, level)
Terms = dict[Place, float]  # weights of a sum
# cells at places, None where nothing ran, and a caveat about comparing them
Cells = Callable[[Sequence[Place]], tuple[list[Compared | None], str | None]]
UNEQUAL = "unequal budgets"


class Contrast(Bounded):
    """``left - times x right`` (or ``left / right``) lies between the bounds, at each level of ``at``.

    A level may be `best`, the one that validates best, or for ``right_at`` `best of LINE`; that may also
    be `previous`, the one before it in ``at``. That a line lies above a number, as printed, more training can
    only help.
    """

    kind: Literal["difference", "ratio"]
    left: Reference
    right: Reference | float  # another line, or a number such as chance level
    at: Levels
    right_at: str | None = None  # the level of ``right`` where it isn't the same
    times: Annotated[float, Field(gt=0)] = 1.0
    since: str | None = None  # a level: both sides are their changes from there
    mean: bool = False  # over the levels, instead of at each

    @property
    def references(self) -> tuple[str, ...]:
        """The lines compared."""
        other = (self.right_at or "").partition(f"{BEST} of ")[2]
        return (*super().references, *([other] if other else []))

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """With the 95 % interval of the contrast, of two lines of a table at equal training budgets."""

        def measured(places: Sequence[Place]) -> tuple[list[Compared | None], str | None]:
            cells = [rows[reference].cell(level) for reference, level in places]
            lines = {reference for reference, _ in places}
            if len(places) != 2 or len(lines) != 2 or len({paper.table_of(line).name for line in lines}) != 1:
                return [*cells], None
            (left, at), (right, other) = places
            one, two = paired_rows(rows[left], at, rows[right], other)
            if one is None or two is None or at not in one.cells or other not in two.cells:
                return [*cells], None
            return [one.cells[at], two.cells[other]], None if equal(one, at, two, other) else UNEQUAL

        return self._outcomes(paper, rows, measured)

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """The contrast of the printed numbers, where all are there; none tell what validates best."""

        def printed(places: Sequence[Place]) -> tuple[list[Compared | None], str | None]:
            values = [(reference, paper.value(reference, level)) for reference, level in places]
            cells = [None if value is None else PrintedCell(name, computed(value)) for name, value in values]
            return [*cells], None

        outcomes = self._outcomes(paper, {}, printed)
        return (outcome for outcome in outcomes if outcome.verdict != "not run")

    def _outcomes(self, paper: PrintedTables, rows: Rows, cells_of: Cells) -> Iterator[Outcome]:
        for title, left, right in self._contrasts(paper, rows):
            places = list(dict.fromkeys((*left, *right)))
            cells, caveat = cells_of(places)
            known = {place: cell for place, cell in zip(places, cells, strict=True) if cell is not None}
            if len(known) < len(cells):
                yield not_run(title)
                continue
            outcome = self._judged(title, left, right, known, paper)
            if paired := _paired(known, rows):
                outcome = replace(outcome, text=f"{outcome.text}; at equal training budgets, with {paired}")
            yield outcome if caveat is None else replace(outcome, caveat=caveat)

    def _judged(
        self, title: str, left: Terms, right: Terms, cells: Mapping[Place, Compared], paper: PrintedTables
    ) -> Outcome:
        constant = 0.0 if isinstance(self.right, str) else self.right

        def less(times: float) -> Mean:
            weights = left | {place: left.get(place, 0.0) - times * weight for place, weight in right.items()}
            terms = [(weight, cells[place].row, cells[place]) for place, weight in weights.items()]
            return contrast(terms, times * constant)

        if self.kind == "ratio":
            # left / right is above a where left - a right is above zero
            verdicts = [] if self.above is None else [less(self.above).where(0, None)]
            verdicts += [] if self.below is None else [less(self.below).where(None, 0)]
            verdict = min(verdicts, key=("fails", "undecided", "holds").index)
            above, below = (
                sum(weight * cells[place].mean.value for place, weight in side.items())
                for side in (left, right)
            )
            below += constant
            shown = number(above / below) if below > 0 else "unknown, as what it is over is not above zero"
            verdict = verdict if below > 0 else "undecided"
        else:
            verdict = less(self.times).where(self.above, self.below)
            # of a line and a number, the line's own value is shown
            alone = not isinstance(self.right, str)
            decimals = paper.decimals_of(self.left)
            shown = with_interval(less(0.0 if alone else self.times), decimals, sign=not alone)
        text = f"{title}: {shown}, {self.required(0.0 if self.kind == 'ratio' else self.times * constant)}"
        if isinstance(self.right, float) and self.below is None:
            return at_least(verdict, text, next(iter(cells.values())))
        return Outcome(verdict, text, next((cell.caveat for cell in cells.values() if cell.caveat), None))

    def _contrasts(self, paper: PrintedTables, rows: Rows) -> Iterator[tuple[str, Terms, Terms]]:
        """Title of each contrast, weights of ``left``, and weights of ``right`` before ``times``."""
        pairs = list(self._pairs(rows))
        if self.mean:
            title = f"{self._lines(paper, rows)}, mean over {', '.join(map(level_words, self.at))}"
            lefts, rights = zip(*pairs, strict=True)
            yield title, self._terms(self.left, *lefts), self._terms(self.right, *rights)
            return
        for level, other in pairs:
            left, right = self._terms(self.left, level), self._terms(self.right, other)
            yield self._title(paper, rows, level, other), left, right

    def _pairs(self, rows: Rows) -> Iterator[tuple[str, str]]:
        """The levels of ``left`` and ``right`` that are compared."""
        if self.right_at == PREVIOUS:
            yield from ((after, before) for before, after in pairwise(self.at))
            return
        for level in self.at:
            yield _level(level, self.left, rows), _level(self.right_at or level, str(self.right), rows)

    def _terms(self, side: str | float, *levels: str) -> Terms:
        """The weights of a side's cells: their mean, or its change; none of a number."""
        if not isinstance(side, str):
            return {}
        since = {(side, self.since): -1.0} if self.since else {}
        return {(side, level): 1 / len(levels) for level in levels} | since

    def _label(self, reference: str, paper: PrintedTables, rows: Rows) -> str:
        """Label of a line, with the variant of its chosen rows."""
        label, chosen = paper.lines[reference].label, rows.get(reference)
        return f"{label} ({chosen.variant})" if chosen and chosen.variant else label

    def _lines(self, paper: PrintedTables, rows: Rows) -> str:
        sign = "÷" if self.kind == "ratio" else "−" if self.times == 1 else f"− {number(self.times)} ×"
        left = self._label(self.left, paper, rows)
        if not isinstance(self.right, str):
            return f"{left} {sign} {number(self.right)}" if self.kind == "ratio" else left
        right = self._label(self.right, paper, rows)
        if left == right and self.left != self.right:  # of two tables
            left, right = (f"{left} ({paper.table_of(name).name})" for name in (self.left, self.right))
        return f"{left} {sign} {right}"

    def _title(self, paper: PrintedTables, rows: Rows, level: str, other: str) -> str:
        """``LEFT − RIGHT at LEVEL``, shorter where both are one line."""
        if self.left == self.right:
            label = self._label(self.left, paper, rows)
            if self.kind == "ratio":
                return f"{label}, ratio of {level_words(level)} to {level_words(other)}"
            return f"{label}, {level_words(level)} − {level_words(other)}"
        where = level_words(level) if level == other else f"{level_words(level)} and {level_words(other)}"
        if self.since:
            return f"{self._lines(paper, rows)}, change from {level_words(self.since)} to {where}"
        return f"{self._lines(paper, rows)} at {where}"


def _paired(cells: Mapping[Place, Compared], rows: Rows) -> str:
    """Rows that stand in for the deciding ones, because the training budgets of those differ."""
    chosen = {place: rows[place[0]].cell(place[1]) for place in cells if place[0] in rows}
    return " and ".join(
        cells[place].row for place, cell in chosen.items() if cell and cell.row != cells[place].row
    )


def _level(level: str, reference: str, rows: Rows) -> str:
    """The level meant by `best`, or `best of LINE`: the one that validates best on average, of equal ones the
    first. Its name where nothing ran.
    """
    line = rows.get(level.partition(" of ")[2] or reference)
    if line is None or not level.startswith(BEST) or not line.cells:
        return level
    return max(line.cells, key=validation).level
