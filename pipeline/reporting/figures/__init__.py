"""Figures that a paper's file asks for by their modules' names, one module each, here or where
`pipeline.extensions` looks.

A module has `draw`, which gives a table's figure as SVG text or None where there is nothing to draw, the
`SUFFIX` of its file's name, its `TITLE` for screen readers, with the table's name in it, and its `CAPTION`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.extensions import extensions
from pipeline.reporting.results import TableResult


@dataclass(frozen=True)
class Drawn:
    """A figure of a table."""

    name: str  # of its file, without .svg
    svg: str
    title: str
    caption: Markup


def drawn(result: TableResult) -> Iterator[Drawn]:
    """Every figure that the table's file asks for and that there is something to draw for.

    Raises:
        UserError: a row's history is not one.
    """
    for kind in result.table.figures:
        module = extensions("figures")[kind].load()
        svg = module.draw(result)
        if svg is not None:
            name = f"{result.name}-{module.SUFFIX}"
            yield Drawn(name, svg, module.TITLE.format(result.table.name), Markup(module.CAPTION))
