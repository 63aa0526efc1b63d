"""A filled table as LaTeX."""

import re

from pipeline.reporting.results import TableResult
from pipeline.reporting.tables.reading import wide, wide_variants

_LATEX = {
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"},
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"ε": r"$\varepsilon$", "σ": r"$\sigma$", "δ": r"$\delta$", "∞": r"$\infty$"},
    **{"±": r"$\pm$", "−": "$-$", "≤": r"$\le$", "÷": r"$\div$", "Δ": r"$\Delta$"},
}


def latex(result: TableResult) -> str:
    """The wide table as a booktabs `tabular`, and below it another of what decides nothing."""
    frames = [frame for frame in (wide(result), wide_variants(result)) if not frame.empty]
    shown = (frame.map(escaped).rename(columns=escaped) for frame in frames)
    tables = "\n".join(frame.to_latex(index=False, escape=False) for frame in shown)
    return f"% needs \\usepackage{{booktabs}}\n{tables}"


def escaped(text: str) -> str:
    """A cell's text, its bold in LaTeX's way."""
    signs = "".join(_LATEX.get(sign, sign) for sign in text)
    return re.sub(r"\*\*(.*?)\*\*", r"\\textbf{\1}", signs)
