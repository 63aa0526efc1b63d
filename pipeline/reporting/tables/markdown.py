"""A filled table as Markdown."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from pipeline.reporting import wording
from pipeline.reporting.judging import slowdown
from pipeline.reporting.judging.slowdown import Slowdown
from pipeline.reporting.results import RowResult, TableResult
from pipeline.reporting.tables import released_noise, remarks, slowdowns
from pipeline.reporting.tables.reading import never_run, row_words, wide, wide_variants
from pipeline.reporting.tables.released_noise import Release

SEEDS = "Ours: mean ± 95 % Student-t interval over n seeds"
PRIVACY = "Privacy: ε claimed / proven at most / shown by an attack at least. "


def markdown(result: TableResult) -> str:
    """The wide table, and under it how to read it and why a guarantee does not hold."""
    margin = f"Margin: {wording.margin(result)}. " if result.table.prints else ""
    lines = [
        f"# {wording.table_heading(result)}",
        "",
        f"Columns: {wording.columns_words(result)}. "
        + (f"Numbers: {wording.measured_words(result)}. " if result.table.also else "")
        + ("Ours: accounted for, nothing trained" if result.exact else SEEDS)
        + f". {margin}{PRIVACY if result.private else ''}In bold what decides.",
        "",
        *_table(wide(result)),
    ]
    if not (others := wide_variants(result)).empty:
        lines += [
            "",
            "What decides nothing: variants, reduced budgets, rows that another stands for.",
            "",
            *_table(others),
        ]
    if missing := never_run(result):
        lines += ["", f"Not run: {', '.join(f'{row.key} ({_why_not(row)})' for row in missing)}."]
    if broken := remarks.reasons(result):
        lines += ["", *(f"- {', '.join(rows)}: **{words}** {reason}" for rows, words, reason in broken)]
    if protected := released_noise.protections(result):
        lines += ["", *(f"- {', '.join(rows)}: {words}" for rows, words in protected)]
    if released := released_noise.releases(result):
        lines += ["", *_release_lines(released, result)]
    if slower := slowdown.measured(result):
        lines += ["", *_slowdown_lines(slower)]
    if notes := remarks.notes(result):
        lines += ["", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _table(frame: pd.DataFrame) -> Iterator[str]:
    yield _line(frame.columns)
    yield _line("---" for _ in frame.columns)
    yield from (_line(line) for line in frame.itertuples(index=False))


def _why_not(row: RowResult) -> str:
    return ", ".join(
        (*((row.variant,) if row.variant else ()), "waits for a GPU" if row.waits else "to be trained")
    )


def _release_lines(releases: list[Release], result: TableResult) -> Iterator[str]:
    heads = released_noise.head(result)
    yield _line(heads)
    yield _line("---" for _ in heads)
    for one in releases:
        yield _line([one.row.key, one.quantity, *map("; ".join, one.cells)])
    yield ""
    yield released_noise.RULE


def _slowdown_lines(slower: list[Slowdown]) -> Iterator[str]:
    yield _line(slowdowns.HEAD)
    yield _line("---" for _ in slowdowns.HEAD)
    for one in slower:
        yield _line([row_words(one.row), *slowdowns.cells(one)])
    yield ""
    yield slowdown.RULE


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
