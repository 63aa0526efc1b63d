"""A kind of claim, a kind of figure and a paper that has them, as somebody would add them."""

CLAIM = '''"""A line of an even number of cells."""

from collections.abc import Iterator
from typing import Literal

from dprepro.pipeline.reporting.judging.claim_test import ClaimTest, Outcome, Reference, Rows
from dprepro.pipeline.reporting.printed import PrintedTables


class Even(ClaimTest):
    """The line has an even number of cells."""

    kind: Literal["even"]
    of: Reference

    def ours(self, rows: Rows, paper: PrintedTables) -> Iterator[Outcome]:
        """By those run."""
        row = rows[self.of]
        count = len(row.cells) if row else 0
        yield Outcome("fails" if count % 2 else "holds", f"{count} cells of {paper.lines[self.of].label}")
'''

FIGURE = '''"""The table's name as a figure."""

from dprepro.pipeline.reporting.results import TableResult

TITLE = "A toy of {}"
CAPTION = "Drawn by a toy."


def draw(result: TableResult) -> str | None:
    """A text."""
    return f\'<svg viewBox="0 0 9 9" width="1"><text>toy of {result.name}</text></svg>\'
'''

PAPER = """
title: A paper of toys
tables:
  t1:
    name: Table 1
    title: one line
    axis: privacy budget
    columns: [epsilon=1]
    figures: [toy]
    lines: [{key: one, label: One}]
claims:
  - {key: even, says: it is even, where: Section 1, tests: [{kind: even, of: t1/one}]}
"""
