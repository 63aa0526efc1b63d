"""A line that falls from level to level."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from pipeline.reporting.claims.difference import Difference, step
from pipeline.reporting.judging.claim_test import OfOneLine, Outcome, Rows
from pipeline.reporting.printed import PrintedTables


class Falls(OfOneLine):
    """The line falls from each level of ``over`` to the next; for a rise, turn `over` around."""

    kind: Literal["falls"]
    over: Annotated[list[str], Field(min_length=2)]

    @property
    def steps(self) -> list[Difference]:
        """From each level to the next."""
        return [step(self.of, after, before, below=0) for before, after in pairwise(self.over)]

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """An outcome a step."""
        for one in self.steps:
            yield from one.ours(rows, paper)

    def on_paper(self, paper: PrintedTables) -> Iterator[Outcome]:
        """An outcome a step of printed numbers."""
        for one in self.steps:
            yield from one.on_paper(paper)
