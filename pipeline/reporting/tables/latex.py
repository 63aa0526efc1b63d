"""A filled table as LaTeX."""

from pipeline.reporting.results import TableResult
from pipeline.reporting.tables.wide import wide

_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"ε": r"$\varepsilon$", "σ": r"$\sigma$", "δ": r"$\delta$", "∞": r"$\infty$"},
    **{"±": r"$\pm$", "−": "$-$", "≤": r"$\le$", "÷": r"$\div$", "Δ": r"$\Delta$"},
}


def latex(result: TableResult) -> str:
    """The wide table as a booktabs `tabular`."""
    frame = wide(result)
    escaped = frame.map(_latex).rename(columns=_latex)
    return f"% needs \\usepackage{{booktabs}}\n{escaped.to_latex(index=False, escape=False)}"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)
