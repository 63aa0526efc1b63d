"""Claims on a contrast of cells: a difference of lines or levels, its mean, a change, or a ratio."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dprepro.pipeline.reporting.judging.claim_test import (
    Bounded,
    Compared,
    Levels,
    Outcome,
    PrintedCell,
    Reference,
    Rows,
    Verdict,
    at_least,
    not_run,
)
from dprepro.pipeline.reporting.judging.intervals import Mean, computed, contrast
from dprepro.pipeline.reporting.judging.pairs import ONE_NETWORK, equal, one_network, paired_rows
from dprepro.pipeline.reporting.printed import PrintedTables
from dprepro.pipeline.reporting.results import validation
from dprepro.pipeline.reporting.wording import level_words, number, with_interval

BEST, PREVIOUS = "best", "previous"
Place = tuple[str, str]  # (reference, level)
Terms = dict[Place, float]  # weight of each cell in a sum
# function from places to their cells (None where nothing ran), and a caveat on their comparison
Cells = Callable[[Sequence[Place]], tuple[list[Compared | None], str | None]]
UNEQUAL = "unequal budgets"


class Contrast(Bounded):
    """``left - times x right`` (or ``left / right``) of two lines is in the bounds, at each level of ``at``.

    The level `best` is a line's level with the highest validation accuracy. ``right_at`` can be `best of
    LINE` or `previous`, the level before in ``at``. If ``right`` is a number and ``above`` is the only bound,
    more training is assumed to help. Then rows with less training may decide that the claim holds.
    """

    kind: Literal["difference", "ratio"]
    left: Reference
    right: Reference | float  # another line, or a number such as chance level
    at: Levels
    right_at: str | None = None  # the level of ``right``; None: that of ``left``
    times: Annotated[float, Field(gt=0)] = 1.0
    since: str | None = None  # a level: both sides are the changes from it
    mean: bool = False  # whether the mean over the levels is judged, not each level

    @model_validator(mode="after")
    def _times_of_a_difference(self) -> "Contrast":
        if self.kind == "ratio" and self.times != 1:
            raise ValueError(f"times: {self.times:g}; allowed with 'kind: ratio': 1, and another bound")
        return self

    @property
    def references(self) -> tuple[str, ...]:
        """References of the compared lines, and of the line in `best of LINE`."""
        other = (self.right_at or "").partition(f"{BEST} of ")[2]
        return (*super().references, *([other] if other else []))

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """Judge by the contrast's 95 % interval.

        Two lines of one table need equal training budgets, and not one pretrained network for all seeds.
        """

        def measured(places: Sequence[Place]) -> tuple[list[Compared | None], str | None]:
            cells = [rows[reference].cell(level) for reference, level in places]
            lines = list(dict.fromkeys(reference for reference, _ in places))
            if len(lines) != 2 or len({paper.table_of(line).name for line in lines}) != 1:
                return [*cells], None
            if len(places) != 2:
                own = any(cell is None or cell.caveat for cell in cells)
                return [*cells], None if own or _equal(rows, lines[0], lines[1], places) else UNEQUAL
            (left, at), (right, other) = places
            one, two = paired_rows(rows[left], at, rows[right], other)
            if one is None or two is None or at not in one.cells or other not in two.cells:
                return [*cells], None
            apart = ONE_NETWORK if one_network(one, at, two, other) else None
            return [one.cells[at], two.cells[other]], apart if equal(one, at, two, other) else UNEQUAL

        return self._outcomes(paper, rows, measured)

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """Judge the printed numbers, if all are printed; the level `best` has none."""

        def printed(places: Sequence[Place]) -> tuple[list[Compared | None], str | None]:
            values = [(reference, paper.lines[reference].number(level)) for reference, level in places]
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

        def where(made: Mean, above: float | None, below: float | None) -> Verdict:
            # two seeds may have equal accuracies by chance; then their interval has no width
            by_chance = made.n == 2 and made.half == 0 and paper.is_accuracy(self.left)
            return "undecided" if by_chance else made.where(above, below)

        if self.kind == "ratio":
            # for right > 0: left / right is above a where left - a right is above zero
            verdicts = [] if self.above is None else [where(less(self.above), 0, None)]
            verdicts += [] if self.below is None else [where(less(self.below), None, 0)]
            verdict = min(verdicts, key=("fails", "undecided", "holds").index)
            above, below = (
                sum(weight * cells[place].mean.value for place, weight in side.items())
                for side in (left, right)
            )
            below += constant
            shown = number(above / below) if below > 0 else "unknown, as what it is over is not above zero"
            verdict = verdict if below > 0 else "undecided"
        else:
            verdict = where(less(self.times), self.above, self.below)
            # for a line and a number, the line's own value is shown
            alone = not isinstance(self.right, str)
            decimals = paper.decimals_of(self.left)
            shown = with_interval(less(0.0 if alone else self.times), decimals, sign=not alone)
        text = f"{title}: {shown}, {self.required(0.0 if self.kind == 'ratio' else self.times * constant)}"
        if isinstance(self.right, float) and self.below is None and not self.since:
            return at_least(verdict, text, cells.values())
        return Outcome(verdict, text, next((cell.caveat for cell in cells.values() if cell.caveat), None))

    def _contrasts(self, paper: PrintedTables, rows: Rows) -> Iterator[tuple[str, Terms, Terms]]:
        """Yield for each contrast: title, cells' weights in ``left``, those in ``right`` before ``times``."""
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
        """Yield the pairs of compared levels: the level of ``left``, and the level of ``right``."""
        if self.right_at == PREVIOUS:
            yield from ((after, before) for before, after in pairwise(self.at))
            return
        for level in self.at:
            yield _level(level, self.left, rows), _level(self.right_at or level, str(self.right), rows)

    def _terms(self, side: str | float, *levels: str) -> Terms:
        """Weights of cells in a side's mean over ``levels``, minus the cell at ``since``; {} for a number."""
        if not isinstance(side, str):
            return {}
        terms: Terms = {}
        for level in levels:  # `right_at` names the same level several times
            terms[side, level] = terms.get((side, level), 0.0) + 1 / len(levels)
        if self.since:  # may be one of the levels
            terms[side, self.since] = terms.get((side, self.since), 0.0) - 1
        return terms

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
        if left == right and self.left != self.right:  # lines of two tables
            left, right = (f"{left} ({paper.table_of(name).name})" for name in (self.left, self.right))
        return f"{left} {sign} {right}"

    def _title(self, paper: PrintedTables, rows: Rows, level: str, other: str) -> str:
        """Title of an outcome: ``LEFT − RIGHT at LEVEL``, or shorter if both are the same line."""
        if self.left == self.right:
            label = self._label(self.left, paper, rows)
            if self.kind == "ratio":
                return f"{label}, ratio of {level_words(level)} to {level_words(other)}"
            return f"{label}, {level_words(level)} − {level_words(other)}"
        where = level_words(level) if level == other else f"{level_words(level)} and {level_words(other)}"
        if self.since:
            return f"{self._lines(paper, rows)}, change from {level_words(self.since)} to {where}"
        return f"{self._lines(paper, rows)} at {where}"


def _equal(rows: Rows, left: str, right: str, places: Sequence[Place]) -> bool:
    """Return True if the deciding rows of two lines have equal training budgets at the compared levels."""
    ones, twos = ([level for line, level in places if line == side] for side in (left, right))
    pairs = zip(ones, twos, strict=True) if len(ones) == len(twos) else product(ones, twos)
    return all(
        (one := rows[left].deciding(at))
        and (two := rows[right].deciding(other))
        and equal(one, at, two, other)
        for at, other in pairs
    )


def _paired(cells: Mapping[Place, Compared], rows: Rows) -> str:
    """Keys of rows that replace deciding rows, because the deciding rows' training budgets differ."""
    chosen = {place: rows[place[0]].cell(place[1]) for place in cells if place[0] in rows}
    return " and ".join(
        cells[place].row for place, cell in chosen.items() if cell and cell.row != cells[place].row
    )


def _level(level: str, reference: str, rows: Rows) -> str:
    """Level of a line with the highest mean validation accuracy, if ``level`` is `best` or `best of LINE`.

    `best` is about the line ``reference``. Among equal levels, the first counts. Any other ``level``, and
    `best` of a line without results, is returned as it is.
    """
    line = rows.get(level.partition(" of ")[2] or reference)
    if line is None or not level.startswith(BEST) or not line.cells:
        return level
    return max(line.cells, key=validation).level
