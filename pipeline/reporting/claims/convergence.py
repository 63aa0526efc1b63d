"""Training that converges, or doesn't."""

from collections.abc import Iterator
from typing import Literal

from pipeline.reporting.judging.claim_test import (
    Levels,
    OfOneLine,
    Outcome,
    Rows,
    Verdict,
    at_least,
    not_run,
)
from pipeline.reporting.judging.rule import FEWEST_SEEDS
from pipeline.reporting.printed import NO_CONVERGENCE, PrintedTables
from pipeline.reporting.results import Cell
from pipeline.reporting.wording import level_words, printed, with_interval


class Convergence(OfOneLine):
    """Every seed's training converges, or none does, at each level of ``at``."""

    kind: Literal["convergence"]
    at: Levels
    converges: bool

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By how many seeds converged; fewer than `FEWEST_SEEDS` decide nothing."""
        for level in self.at:
            yield self._ours(level, rows[self.of].cell(level), paper)

    def _ours(self, level: str, cell: Cell | None, paper: PrintedTables) -> Outcome:
        title = f"{paper.lines[self.of].label} at {level_words(level)}"
        if cell is None:
            return not_run(title)
        n = cell.mean.n
        verdict: Verdict = "undecided"
        if n >= FEWEST_SEEDS and cell.converged in (0, n):
            verdict = "holds" if (cell.converged == n) == self.converges else "fails"
        accuracy = with_interval(cell.mean, paper.decimals_of(self.of))
        text = f"{title}: {cell.converged} of {n} seeds converged, accuracy {accuracy}, {self._needs}"
        return at_least(verdict, text, cell) if self.converges else Outcome(verdict, text, cell.caveat)

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """A number in a cell is taken to say that training converged."""
        for level in self.at:
            value = paper.lines[self.of].values.get(level)
            if value is None:
                continue
            verdict: Verdict = "holds" if (value.words != NO_CONVERGENCE) == self.converges else "fails"
            shown = printed(value, paper.table_of(self.of).decimals)
            title = f"{paper.lines[self.of].label} at {level_words(level)}"
            yield Outcome(verdict, f"{title}: {shown}, {self._needs}")

    @property
    def _needs(self) -> str:
        return "to converge" if self.converges else "not to converge"
