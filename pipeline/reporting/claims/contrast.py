"""A linear contrast of cells between bounds: a difference of lines or levels, its mean, a change, a ratio."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from pipeline.reporting.judging.claim_test import (
    Bounded,
    Chosen,
    Levels,
    Outcome,
    Reference,
    Rows,
    Verdict,
    at_least,
    caveat_of,
    not_run,
)
from pipeline.reporting.judging.intervals import Mean, computed, contrast
from pipeline.reporting.printed import PrintedTables
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import level_words, number, signed, with_interval

BEST, PREVIOUS = "best", "previous"
Place = tuple[str, str]  # (reference, level)
Terms = dict[Place, float]  # weights
Gap = Callable[[float, float], Mean]  # by the factor of ``right`` and what else is subtracted


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
        others = (self.right, (self.right_at or "").partition(f"{BEST} of ")[2])
        return (self.left, *(one for one in others if isinstance(one, str) and one))

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """With the 95 % interval of the contrast."""
        for title, terms in self._contrasts(paper, rows):
            cells = {place: rows[place[0]].cell(place[1]) for place in terms}
            known = {place: cell for place, cell in cells.items() if cell is not None}
            yield self._ours(title, terms, known, paper) if len(known) == len(cells) else not_run(title)

    def _ours(self, title: str, terms: Terms, cells: Mapping[Place, Cell], paper: PrintedTables) -> Outcome:
        def gap(factor: float, less: float) -> Mean:
            weights = self._scaled(terms, factor)
            return contrast(
                [(weight, cells[place].row, cells[place]) for place, weight in weights.items()], less
            )

        constant = self.right if isinstance(self.right, float) else 0.0
        if self.kind == "ratio":
            verdict = self._ratio(gap)
            left, right = (fmean(cells[place].mean.value for place in side) for side in self._sides(terms))
            text = f"{title}: {number(left / right)}, {self.needs}"
        else:
            found = gap(self.times, constant)
            verdict = found.where(self.above, self.below)
            text = f"{title}: {with_interval(found, paper.decimals_of(self.left), sign=True)}, {self.needs}"
        if isinstance(self.right, float) and self.below is None:
            return at_least(verdict, text, next(iter(cells.values())))
        return Outcome(verdict, text, caveat_of(*cells.values()))

    def _ratio(self, gap: Gap) -> Verdict:
        """``left / right`` is above a where ``left - a right`` is above zero."""
        found: list[Verdict] = []
        if self.above is not None:
            found.append(gap(self.above, 0.0).where(0, None))
        if self.below is not None:
            found.append(gap(self.below, 0.0).where(None, 0))
        return next((one for one in ("fails", "undecided") if one in found), found[0])

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """The contrast of the printed numbers, where all are there."""
        if any(level.startswith(BEST) for level in (*self.at, self.right_at or "")):
            return
        for title, terms in self._contrasts(paper, {}):
            values = {place: paper.value(*place) for place in terms}
            known = {place: value for place, value in values.items() if value is not None}
            if len(known) < len(values):
                continue
            if self.kind == "ratio":
                left, right = (fmean(known[place] for place in side) for side in self._sides(terms))
                found, shown = left / right, number(left / right)
            else:
                weights = self._scaled(terms, self.times)
                found = sum(weight * known[place] for place, weight in weights.items())
                found -= self.right if isinstance(self.right, float) else 0.0
                shown = signed(found, paper.decimals_of(self.left))
            yield Outcome(computed(found).where(self.above, self.below), f"{title}: {shown}, {self.needs}")

    def _contrasts(self, paper: PrintedTables, rows: Rows) -> Iterator[tuple[str, Terms]]:
        """Each contrast with its title; negative weights are of ``right``, before ``times``."""
        pairs = list(self._pairs(rows))
        if self.mean:
            terms: Terms = {}
            for level, other in pairs:
                for place, weight in self._terms(level, other).items():
                    terms[place] = terms.get(place, 0.0) + weight / len(pairs)
            yield f"{self._lines(paper)}, mean over {', '.join(map(level_words, self.at))}", terms
            return
        for level, other in pairs:
            yield self._title(paper, level, other), self._terms(level, other)

    def _pairs(self, rows: Rows) -> Iterator[tuple[str, str]]:
        if self.right_at == PREVIOUS:
            yield from ((after, before) for before, after in pairwise(self.at))
            return
        for level in self.at:
            yield _level(level, self.left, rows), _level(self.right_at or level, str(self.right), rows)

    def _terms(self, level: str, other: str) -> Terms:
        terms: Terms = {(self.left, level): 1.0}
        if isinstance(self.right, str):
            terms[self.right, other] = terms.get((self.right, other), 0.0) - 1.0
        if self.since:
            terms[self.left, self.since] = -1.0
            terms[str(self.right), self.since] = 1.0
        return terms

    def _sides(self, terms: Terms) -> tuple[list[Place], list[Place]]:
        return [one for one in terms if terms[one] > 0], [one for one in terms if terms[one] < 0]

    def _scaled(self, terms: Terms, factor: float) -> Terms:
        """With ``right`` so many times; of one line's levels it is the subtracted one."""
        if self.left == self.right:
            return {place: weight * (factor if weight < 0 else 1.0) for place, weight in terms.items()}
        return {
            place: weight * (factor if place[0] == self.right else 1.0) for place, weight in terms.items()
        }

    def _lines(self, paper: PrintedTables) -> str:
        sign = "÷" if self.kind == "ratio" else "−" if self.times == 1 else f"− {number(self.times)} ×"
        other = paper.lines[self.right].label if isinstance(self.right, str) else number(self.right)
        return f"{paper.lines[self.left].label} {sign} {other}"

    def _title(self, paper: PrintedTables, level: str, other: str) -> str:
        """``LEFT − RIGHT at LEVEL``, shorter where both are one line."""
        sign = "÷" if self.kind == "ratio" else "−"
        if self.left == self.right:
            return f"{paper.lines[self.left].label}, {level_words(level)} {sign} {level_words(other)}"
        where = level_words(level) if level == other else f"{level_words(level)} and {level_words(other)}"
        since = f", both as changes from {level_words(self.since)}" if self.since else ""
        return f"{self._lines(paper)} at {where}{since}"


def _level(level: str, reference: str, rows: Rows) -> str:
    """The level meant by `best`, or `best of LINE`; its name where nothing ran."""
    if not level.startswith(BEST):
        return level
    return best(rows[level.partition(" of ")[2] or reference]) or level


def best(chosen: Chosen) -> str | None:
    """The level that validates best on average; of equal ones the first. Test data choose nothing."""
    scores = {
        cell.level: fmean(replica.metrics["validation_accuracy"] for replica in cell.replicas)
        for cell in chosen.cells
    }
    return max(scores, key=lambda level: scores[level], default=None)
