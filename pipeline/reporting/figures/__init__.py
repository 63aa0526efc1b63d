"""Kinds of figures: one module each, here or in another package that `pipeline.extensions` finds.

A paper's file names the module. The module's `draw` returns a table's figure as SVG text, or None if there is
nothing to draw. `TITLE`, for screen readers, has a placeholder for the table's name. `CAPTION` is HTML.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dprepro.pipeline.extensions import extensions
from dprepro.pipeline.reporting.results import TableResult


class Figure(NamedTuple):
    """Figure of a table; the caption is HTML."""

    title: str
    caption: str
    svg: str


def table_figures(result: TableResult) -> Iterator[Figure]:
    """Yield the figures that the paper's file names for the table, except those with nothing to draw."""
    for kind in result.table.figures:
        module = extensions("figures")[kind].load()
        if svg := module.draw(result):
            yield Figure(module.TITLE.format(result.table.name), module.CAPTION, svg)
