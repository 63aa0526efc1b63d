"""A filled table as Markdown, LaTeX (wide, for reading) and CSV (long, for computing)."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pipeline.reporting import wording
from pipeline.reporting.judging import slowdown
from pipeline.reporting.judging.slowdown import Slowdown
from pipeline.reporting.results import Cell, LineResult, RowResult, TableResult
from pipeline.reporting.tables import released_noise as releases
from pipeline.reporting.tables.released_noise import Release

SEEDS = "Ours: mean ± 95 % Student-t interval over n seeds"
SLOWDOWN_HEAD = ("row", "levels", "validation accuracy to reach", "epochs", "slow-down")

_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"ε": r"$\varepsilon$", "σ": r"$\sigma$", "δ": r"$\delta$", "∞": r"$\infty$"},
    **{"±": r"$\pm$", "−": "$-$", "≤": r"$\le$", "÷": r"$\div$", "Δ": r"$\Delta$"},
}


def wide(result: TableResult) -> pd.DataFrame:
    """One line for what the paper prints, two for each of our rows: what it reached, what privacy it buys.

    Further metrics of the table have lines of their own, below.

    Columns: 'line', 'source', then one a level, then 'N', the examples trained on; all text.
    """
    names = [wording.level_value(level) for level in result.levels]
    lines = [
        {"line": line.label, "source": source, **dict(zip(names, cells, strict=True)), "N": examples}
        for line in result.lines
        for source, cells, examples in _sources(line, result)
    ]
    return pd.DataFrame(lines, columns=["line", "source", *names, "N"])


def _sources(line: LineResult, result: TableResult) -> Iterator[tuple[str, list[str], str]]:
    decimals = result.table.decimals
    if line.line is not None and line.line.values:
        values = [line.line.values.get(level) for level in result.levels]
        yield (
            "paper",
            [wording.printed(value, decimals) if value else "" for value in values],
            _count(result.table.examples),
        )
        for metric, printed in line.line.also.items():
            values = [printed.get(level) for level in result.levels]
            yield (
                f"paper, {result.table.also[metric]}",
                [wording.printed(value, decimals) if value else "" for value in values],
                "",
            )
    if not line.rows:
        yield "ours", [wording.NOT_RUN for _ in result.levels], ""
    for row in line.rows:
        cells = [row.cells.get(level) for level in result.levels]
        yield (
            row_words(row),
            [wording.cell_text(cell, decimals) if cell else wording.NOT_RUN for cell in cells],
            _count(row.examples),
        )
        if result.private:
            yield "privacy", [wording.guarantee_words(cell.guarantee) if cell else "" for cell in cells], ""
        for metric, words in row.further(result.table):
            cells = [row.also[metric].get(level) for level in result.levels]
            own = result.table.decimals_of(metric)
            yield words, [wording.cell_text(cell, own) if cell else "" for cell in cells], ""


def _count(examples: int | None) -> str:
    return "" if examples is None else f"{examples:,}"


def row_words(row: RowResult) -> str:
    """A row's key, what it does differently, and every mark on it."""
    variant = f", {row.variant}" if row.variant else ""
    marks = "".join(f" [{mark.words}]" for mark in row.marks)
    return f"ours: {row.key}{variant}{marks}"


def markdown(result: TableResult) -> str:
    """The wide table, and under it how to read it and why a guarantee does not hold."""
    frame = wide(result)
    lines = [
        f"# {wording.table_heading(result)}",
        "",
        f"Columns: {wording.columns_words(result)}. "
        + (f"Numbers: {wording.measured_words(result)}. " if result.table.also else "")
        + ("Ours: accounted for, nothing trained" if result.exact else SEEDS)
        + f", then the difference to the paper{' in points' if result.table.unit == 'percent' else ''}.",
        "",
        _markdown_line(frame.columns),
        _markdown_line("---" for _ in frame.columns),
        *(_markdown_line(line) for line in frame.itertuples(index=False)),
    ]
    if found := reasons(result):
        lines += ["", *(f"- {', '.join(rows)}: **{words}** {reason}" for rows, words, reason in found)]
    if protected := releases.protections(result):
        lines += ["", *(f"- {', '.join(rows)}: {words}" for rows, words in protected)]
    if released := releases.releases(result):
        lines += ["", *_release_lines(released, result)]
    if slower := slowdown.measured(result):
        lines += ["", *_slowdown_lines(slower)]
    if remarks := notes(result):
        lines += ["", *(f"- {note}" for note in remarks)]
    return "\n".join(lines) + "\n"


def reasons(result: TableResult) -> list[tuple[list[str], str, str]]:
    """(rows, verdict, reason) wherever a bound is missing, too large or none; alike rows together."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        for verdict, reason in dict.fromkeys(
            (wording.VERDICTS[cell.guarantee.state], cell.guarantee.reason)
            for cell in row.cells.values()
            if cell.guarantee.state in ("broken", "weaker", "vacuous")
        ):
            found.setdefault((verdict, reason or ""), []).append(row.key)
    return [(rows, verdict, reason) for (verdict, reason), rows in found.items()]


def notes(result: TableResult) -> list[str]:
    """What a reader must know beside the table: missing numbers, missing privacy, missing convergence."""
    found: list[str] = []
    cells = [cell for row in result.rows for cell in row.cells.values()]
    printing = any(line.line and line.line.values for line in result.lines)
    if silent := [line.label for line in result.lines if line.line and not line.line.values]:
        which = f"for these lines: {'; '.join(silent)}." if printing else "here."
        found.append(f"The paper prints no values {which}")
    if cells and not result.private:
        why = "; ".join(dict.fromkeys(cell.guarantee.reason or "no noise" for cell in cells)).rstrip(".")
        found.append(f"No privacy is claimed here, and none holds: {why}.")
    if any(map(wording.convergence, cells)):
        given = result.table.rates_given
        found.append(wording.CONVERGENCE_RULE_GIVEN if given else wording.CONVERGENCE_RULE)
    if any(cell.draws is not None for cell in cells):
        found.append(
            "A seed's accuracy is the mean over draws of the noise at test; the standard deviation over them "
            "is in the CSV and on the page ('draws ±')."
        )
    return found


def _release_lines(found: list[Release], result: TableResult) -> Iterator[str]:
    heads = releases.head(result)
    yield _markdown_line(heads)
    yield _markdown_line("---" for _ in heads)
    for one in found:
        yield _markdown_line([one.row.key, one.quantity, *map("; ".join, one.cells)])
    yield ""
    yield releases.RULE


def _slowdown_lines(found: list[Slowdown]) -> Iterator[str]:
    yield _markdown_line(SLOWDOWN_HEAD)
    yield _markdown_line("---" for _ in SLOWDOWN_HEAD)
    for one in found:
        yield _markdown_line([row_words(one.row), *slowdown_cells(one)])
    yield ""
    yield slowdown.RULE


def slowdown_cells(one: Slowdown) -> list[str]:
    """A slow-down under `SLOWDOWN_HEAD`, without its row."""
    levels = [f"{wording.level_words(one.start)} → {wording.level_words(one.end)}"]
    if one.threshold is None or one.epochs is None or one.ratio is None:
        return [*levels, "", "", f"unknown: {one.problem}"]
    before, after = one.epochs
    # a mark of the whole row stands beside its name
    unresolved = f" [{one.unresolved}]" if one.unresolved else ""
    return [
        *levels,
        f"{100 * one.threshold:.2f} %",
        f"{before:.1f} → {after:.1f}",
        wording.with_interval(one.ratio, 2) + unresolved,
    ]


def _markdown_line(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def latex(result: TableResult) -> str:
    """The wide table as a booktabs `tabular`."""
    frame = wide(result)
    escaped = frame.map(_latex).rename(columns=_latex)
    return f"% needs \\usepackage{{booktabs}}\n{escaped.to_latex(index=False, escape=False)}"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def long(result: TableResult) -> pd.DataFrame:
    """One line for each row and level, with the whole ledger and provenance."""
    return pd.DataFrame(
        [
            _entry(result, line, row, level)
            for line in result.lines
            for row in line.rows or (None,)
            for level in result.levels
        ],
        columns=list(_entry(result, None, None, "")),
    ).convert_dtypes()  # counts stay whole numbers beside missing ones


def csv(result: TableResult) -> str:
    """The long table."""
    return long(result).to_csv(index=False, lineterminator="\n")


def _entry(result: TableResult, line: LineResult | None, row: RowResult | None, level: str) -> dict[str, Any]:
    theirs = line.line.values.get(level) if line and line.line else None
    cell = row.cells.get(level) if row else None
    return {
        "paper": result.paper,
        "table": result.key,
        "line": line.label if line else None,
        "row": row.key if row else None,
        "variant": row.variant if row else None,
        "level": level,
        "status": "run" if cell else wording.NOT_RUN,
        "marks": "; ".join(mark.words for mark in row.marks) if row else "",
        "paper_value": theirs.value if theirs else None,
        "paper_error": theirs.error if theirs else None,
        "paper_words": theirs.words if theirs else None,
        "paper_examples": result.table.examples,
        **_measured(cell),
        **_further(result, row, level),
        **_spent(cell),
        **_made(row if cell else None),
    }


def _measured(cell: Cell | None) -> dict[str, Any]:
    return {
        "mean": cell.mean.value if cell else None,
        "half_width_95": cell.mean.half if cell else None,
        "seeds": cell.mean.n if cell else None,
        "draws_std": cell.draws if cell else None,
        "converged": cell.converged if cell else None,
        "difference": cell.difference if cell else None,
        "agreement": cell.agreement if cell else None,
        "caveat": cell.caveat if cell else None,
    }


def _further(result: TableResult, row: RowResult | None, level: str) -> dict[str, Any]:
    """The table's further metrics."""
    found: dict[str, Any] = {}
    for metric in result.table.also:
        cell = row.also[metric].get(level) if row else None
        found[metric] = cell.mean.value if cell else None
        found[f"{metric}_half_width_95"] = cell.mean.half if cell else None
    return found


def _spent(cell: Cell | None) -> dict[str, Any]:
    """The ledger of the level's worst replica."""
    ledger = cell.guarantee.ledger if cell else None
    opinions = (
        f"{one.accountant}: {'none' if one.epsilon is None else format(one.epsilon, '.6g')}"
        + (f" ({one.note})" if one.note else "")
        for one in (ledger.opinions if ledger else ())
    )
    return {
        "guarantee": wording.VERDICTS[cell.guarantee.state] if cell else None,
        "reason": cell.guarantee.reason if cell else None,
        "claimed": ledger.claimed if ledger else None,
        "claimed_by": ledger.claimed_by if ledger else None,
        "accounted": ledger.accounted if ledger else None,
        "accountant": ledger.accountant if ledger else None,
        "mu_clt": ledger.mu if ledger else None,
        "opinions": "; ".join(opinions),
        "delta": ledger.delta if ledger else None,
        "unit": ledger.unit if ledger else None,
        "neighbouring": ledger.neighbouring if ledger else None,
        "noise_multiplier": ledger.noise_multiplier if ledger else None,
        "sampling": ledger.sampling if ledger else None,
        "sampling_rate": ledger.sampling_rate if ledger else None,
        "steps": ledger.steps if ledger else None,
        "uncounted": "; ".join(ledger.uncounted) if ledger else "",
        "releases": "; ".join(map(releases.text, ledger.releases)) if ledger else "",
        "protects": ledger.protects if ledger else None,
    }


def _made(row: RowResult | None) -> dict[str, Any]:
    record = row.record if row else None
    provenance = record.provenance if record else None
    return {
        "budget": record.budget if record else None,
        "editions": "; ".join(f"{raw}: {name}" for raw, name in sorted(provenance.edition.items()))
        if provenance
        else "",
        "examples": row.examples if row else None,
        "device": provenance.device if provenance else None,
        "revision": provenance.revision if provenance else None,
        "record": record.digest() if record else None,
    }
