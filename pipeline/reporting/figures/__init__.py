"""Figures that a paper's file asks for by their modules' names, one module each, here or where
`pipeline.extensions` looks.

A module has `draw`, which gives a table's figure as SVG text or None where there is nothing to draw, its
`TITLE` for screen readers, with the table's name in it, and its `CAPTION`, which is HTML.
"""

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.extensions import extensions
from pipeline.reporting.results import TableResult


class Figure(NamedTuple):
    """Figure of a table; the caption is HTML."""

    title: str
    caption: str
    svg: str


def table_figures(result: TableResult) -> Iterator[Figure]:
    """Yield the figures that the table's entry asks for, where there is something to draw."""
    for kind in result.table.figures:
        module = extensions("figures")[kind].load()
        if svg := module.draw(result):
            yield Figure(module.TITLE.format(result.table.name), module.CAPTION, svg)
