"""Figures that a paper's file asks for by their modules' names, one module each, here or where
`pipeline.extensions` looks.

A module has `draw`, which gives a table's figure as SVG text or None where there is nothing to draw, the
`SUFFIX` of its file's name, its `TITLE` for screen readers, with the table's name in it, and its `CAPTION`,
which is HTML.
"""

from types import ModuleType

from pipeline.extensions import extensions
from pipeline.reporting.results import TableResult


def table_figures(result: TableResult) -> dict[str, ModuleType]:
    """The modules that draw what the table asks for, by the names of their files without .svg."""
    modules = [extensions("figures")[kind].load() for kind in result.table.figures]
    return {f"{result.name}-{module.SUFFIX}": module for module in modules}
