"""Claims that training converges, or doesn't."""

from collections.abc import Iterator, Sequence
from typing import Literal

from dprepro.pipeline.reporting.judging.claim_test import AtLevels, Outcome, Reference, Verdict, at_least
from dprepro.pipeline.reporting.judging.rule import FEWEST_SEEDS
from dprepro.pipeline.reporting.printed import NO_CONVERGENCE, PrintedTables
from dprepro.pipeline.reporting.results import RowResult
from dprepro.pipeline.reporting.wording import printed, with_interval


class Convergence(AtLevels):
    """At each level of ``at``, every seed converges; if ``converges`` is False, no seed converges."""

    kind: Literal["convergence"]
    of: Reference
    converges: bool

    def judge(self, title: str, level: str, rows: Sequence[RowResult], paper: PrintedTables) -> Outcome:
        """Judge by the number of converged seeds; fewer than `FEWEST_SEEDS` decide nothing."""
        cell = rows[0].cells[level]
        n = cell.mean.n
        verdict: Verdict = "undecided"
        if n >= FEWEST_SEEDS and cell.converged in (0, n):
            verdict = "holds" if (cell.converged == n) == self.converges else "fails"
        accuracy = with_interval(cell.mean, paper.decimals_of(self.of))
        text = f"{title}: {cell.converged} of {n} seeds converged, accuracy {accuracy}, {self._needs}"
        return at_least(verdict, text, [cell]) if self.converges else Outcome(verdict, text, cell.caveat)

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """Yield an outcome per printed cell. A printed number counts as convergence."""
        values = paper.lines[self.of].values
        for level in (level for level in self.at if level in values):
            converged = values[level].words != NO_CONVERGENCE
            shown = printed(values[level], paper.table_of(self.of).decimals)
            text = f"{self.title(level, paper)}: {shown}, {self._needs}"
            yield Outcome("holds" if converged == self.converges else "fails", text)

    @property
    def _needs(self) -> str:
        return "required: convergence" if self.converges else "required: no convergence"
