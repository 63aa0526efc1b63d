"""A level at which a line is highest."""

from collections.abc import Iterator
from typing import Literal

from pipeline.reporting.claims.difference import Difference, step
from pipeline.reporting.judging.claim_test import Levels, OfOneLine, Outcome, Rows
from pipeline.reporting.printed import PrintedTables


class Best(OfOneLine):
    """The line is highest at the level ``at``, among it and ``among``."""

    kind: Literal["best"]
    at: str
    among: Levels

    @property
    def steps(self) -> list[Difference]:
        """It against one level after the other."""
        return [step(self.of, self.at, other, above=0) for other in self.among if other != self.at]

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """An outcome for each other level."""
        for one in self.steps:
            yield from one.ours(rows, paper)

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """An outcome for each other level that a number is printed for."""
        for one in self.steps:
            yield from one.on_paper(paper)
