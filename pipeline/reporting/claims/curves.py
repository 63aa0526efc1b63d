"""Claims on training curves: slow-down of a level, and the epoch in which a line overtakes another."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Literal

import pandas as pd
from pydantic import Field

from dprepro.pipeline.reporting.judging.claim_test import AtLevels, Bounded, Outcome, Reference, Rows, not_run
from dprepro.pipeline.reporting.judging.fairness import curves
from dprepro.pipeline.reporting.judging.intervals import mean
from dprepro.pipeline.reporting.judging.rule import FEWEST_SEEDS
from dprepro.pipeline.reporting.printed import PrintedTables
from dprepro.pipeline.reporting.results import RowResult
from dprepro.pipeline.reporting.wording import level_words, with_interval

MARGIN = 0.005  # subtracted from the best share, because the end of a curve is noisy


class Slower(Bounded):
    """The ratio of epochs at level ``end`` to epochs at level ``start`` lies between the bounds.

    Epochs are counted until validation accuracy first reaches a threshold, with linear interpolation. Each
    level has a best accuracy (mean over seeds). The threshold is the lower of these two, minus `MARGIN`.
    There is one ratio per seed.
    """

    kind: Literal["slowdown"]
    of: Reference
    start: str = Field(alias="from")
    end: str = Field(alias="to")

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """Judge by the 95 % interval of the mean ratio over seeds."""
        label, levels = paper.lines[self.of].label, (self.start, self.end)
        title = f"{label}, epochs at {level_words(self.end)} ÷ epochs at {level_words(self.start)}"
        row = rows[self.of].deciding(*levels)
        yield self._judged(title, row) if row and {*levels} <= {*row.cells} else not_run(title)

    def _judged(self, title: str, row: RowResult) -> Outcome:
        levels = (self.start, self.end)
        cells = [row.cells[level] for level in levels]
        caveat = next((cell.caveat for cell in cells if cell.caveat), None)
        for cell in cells:
            if cell.converged < cell.mean.n:
                problem = (
                    f"only {cell.converged} of {cell.mean.n} seeds converged at {level_words(cell.level)}"
                )
                return Outcome("undecided", f"{title}: unknown, {problem}", caveat)
        both = [curves(row.history, level) for level in levels]
        seeds = sorted({*both[0]} & {*both[1]})
        if not seeds:
            return Outcome("undecided", f"{title}: unknown, there are no training curves", caveat)
        threshold = min(curve.mean(axis=1).max() for curve in both) - MARGIN
        epochs = [[_reached(curve[seed], threshold) for seed in seeds] for curve in both]
        pairs = [(first, second) for first, second in zip(*epochs, strict=True) if first and second]
        if len(pairs) < len(seeds):
            problem = f"only {len(pairs)} of {len(seeds)} seeds reached this accuracy"
            return Outcome("undecided", f"{title}: unknown, {problem}", caveat)
        # nothing is recorded before the end of the first epoch
        early = [
            level_words(level)
            for level, curve, reached in zip(levels, both, epochs, strict=True)
            if any(
                epoch == curve[seed].first_valid_index() for seed, epoch in zip(seeds, reached, strict=True)
            )
        ]
        if early and not caveat:
            caveat = f"reached within the first epoch at {' and at '.join(early)}"
        ratio = mean([second / first for first, second in pairs])
        reached = f"to reach a validation accuracy of {100 * threshold:.2f} %"
        text = f"{title}, {reached}: {with_interval(ratio, 2)}, {self.required()}"
        return Outcome(ratio.where(self.above, self.below), text, caveat)


class Overtakes(Bounded, AtLevels):
    """The epoch in which line ``left`` overtakes line ``right`` for good lies between the bounds.

    From this epoch to the end, ``left`` has the higher validation accuracy. A curve keeps each value until
    its next one. It keeps its last value for good, because one training may end before the other.
    """

    kind: Literal["overtakes"]
    left: Reference
    right: Reference

    def title(self, level: str, paper: PrintedTables) -> str:
        """Title of an outcome: ``LINE overtakes LINE for good at LEVEL``."""
        left, right = paper.lines[self.left].label, paper.lines[self.right].label
        return f"{left} overtakes {right} for good at {level_words(level)}"

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """Judge by one epoch per seed. The test fails if none of `FEWEST_SEEDS` or more seeds overtakes."""
        ahead, behind = (curves(row.history, level) for row in rows)
        epochs = [overtaking(ahead[seed], behind[seed]) for seed in sorted({*ahead} & {*behind})]
        if not epochs:
            return not_run(title)
        caveat = next((row.cells[level].caveat for row in rows if row.cells[level].caveat), None)
        reached = [epoch for epoch in epochs if epoch is not None]
        if len(reached) < len(epochs):
            text = f"{title}: in {len(reached)} of {len(epochs)} seeds"
            fails = not reached and len(epochs) >= FEWEST_SEEDS
            return Outcome("fails" if fails else "undecided", text, caveat)
        when = mean(reached)
        text = f"{title}: after {with_interval(when, 1)} epochs, {self.required()}"
        return Outcome(when.where(self.above, self.below), text, caveat)


def _reached(curve: pd.Series, threshold: float) -> float | None:
    """Epoch at which the curve first reaches the threshold; None if it never does."""
    curve = curve.dropna()
    above = curve.index[curve >= threshold]
    if above.empty:
        return None
    place = curve.index.get_loc(above[0])
    if place == 0:
        return float(above[0])
    (start, low), (end, high) = curve.iloc[place - 1 : place + 1].items()
    return float(start + (threshold - low) / (high - low) * (end - start))


def overtaking(left: pd.Series, right: pd.Series) -> float | None:
    """Epoch from which ``left`` stays above ``right`` to the end; None if there is none.

    A curve is minus infinity before its first value.
    """
    both = pd.DataFrame({"left": left, "right": right}).ffill().fillna(-inf)
    behind = both.index[both["left"] <= both["right"]]
    ahead = both.index if behind.empty else both.index[both.index > behind[-1]]
    return None if ahead.empty else float(ahead[0])
