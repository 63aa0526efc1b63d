"""Joins what was declared (params.yaml), what was run (records) and what was printed (the paper's file)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

from pipeline.errors import UserError
from pipeline.params import PAPERS, Account, Row, Settings
from pipeline.reporting import budgets, papers
from pipeline.reporting.judging.guarantees import guarantee
from pipeline.reporting.judging.intervals import computed, mean
from pipeline.reporting.judging.provenance import SETTINGS_CHANGED, made_otherwise
from pipeline.reporting.judging.rule import FEWEST_SEEDS, judge
from pipeline.reporting.papers import Paper
from pipeline.reporting.printed import VARIANT, Line, Printed, Table
from pipeline.reporting.results import Budget, Cell, LineResult, Mark, RowResult, TableResult
from pipeline.results import records, schema
from pipeline.results.schema import Record, Replica

OFFICIAL, SYNTHETIC = "official", "synthetic"
# A row trained on a smaller share of the paper's examples decides nothing.
ENOUGH_EXAMPLES = 0.9
PLANNED = "planned"  # what the label of a planned row says beside its line
# That training fails is found only after so many step sizes, the largest so many times the smallest.
STEP_SIZES, SPAN = 3, 100.0


@dataclass(frozen=True)
class PaperResult:
    """A paper and those of its tables that params.yaml declares rows for."""

    key: str
    paper: Paper
    tables: tuple[TableResult, ...]

    @property
    def records(self) -> list[Record]:
        """The records behind it, in the order shown."""
        return [row.record for table in self.tables for row in table.rows if row.record is not None]

    def line(self, reference: str) -> LineResult | None:
        """The line that a claim refers to, with its rows of all parts; None if its table isn't declared."""
        name, _, metric = reference.partition(":")
        found = [
            line
            for table in self.tables
            for line in table.lines
            if line.line and f"{table.key}/{line.line.key}" == name
        ]
        rows = (row.measured(metric) if metric else row for line in found for row in line.rows)
        return replace(found[0], rows=tuple(rows)) if found else None


@dataclass(frozen=True)
class Sources:
    """Where a paper's results come from."""

    settings: Settings
    root: Path
    paper: Paper
    records: dict[str, Record | None]  # by row
    gpu_hours: dict[str, float]  # by row, of those that need a GPU; see `pipeline.cluster.costs`


@dataclass(frozen=True)
class Promise:
    """The plan that a row names: its digest with the row's settings, and its seeds of each level."""

    digest: str
    seeds: int


def gather(settings: Settings, root: Path = Path()) -> list[PaperResult]:
    """Every paper that params.yaml has rows of, in alphabetical order.

    Rows are taken from params.yaml, never from the folder of records, where removed rows leave theirs behind.

    Raises:
        UserError: a record, search or paper file is not one.
    """
    found = {key: records.read(key, line, root) for key, line in settings.lines.items()}
    hours = _read(root / budgets.GPU_HOURS, "hours by row") or {}
    names = sorted({line.paper for line in settings.lines.values()})
    return [
        fill(name, Sources(settings, root, papers.load(name, root / PAPERS), found, hours)) for name in names
    ]


def fill(name: str, sources: Sources) -> PaperResult:
    """The paper called ``name`` with the rows that are declared for it."""
    paper = sources.paper
    declared = {line.table for line in sources.settings.lines.values() if line.paper == name}
    # the paper's order first, then tables its file doesn't know
    keys = [key for key in paper.tables if key in declared] + sorted(declared - set(paper.tables))
    return PaperResult(name, paper, tuple(part for key in keys for part in _parts(name, key, sources)))


def _parts(name: str, key: str, sources: Sources) -> Iterator[TableResult]:
    """The table, or one for each setting that names its rows' levels, where there are several."""
    table = sources.paper.tables.get(key) or Table(
        name=key, title="rows of one's own", axis="level", columns=[], own=True
    )
    grouped: dict[str, list[RowResult]] = {line.label: [] for line in table.lines}
    for row_key, row in sources.settings.lines.items():
        if (row.paper, row.table) == (name, key):
            line, variant = table.line_of(row.label)
            if isinstance(row, Row) and row.plan:
                # beside its line or beside a variant, a planned row does nothing else differently
                variant = VARIANT.join(part for part in variant.split(VARIANT) if part != PLANNED)
            label = line.label if line else row.label
            grouped.setdefault(label, []).append(_row(row_key, row, line, variant, table, sources))
    known = {line.label: line for line in table.lines}
    lines = [LineResult(label, known.get(label), tuple(rows)) for label, rows in grouped.items()]
    axes = list(dict.fromkeys(row.axis for line in lines for row in line.rows))
    for axis in axes:
        of_axis = tuple(
            replace(line, rows=tuple(row for row in line.rows if row.axis == axis))
            for line in lines
            # lines that nobody declared a row for stand in the first part
            if any(row.axis == axis for row in line.rows) or (not line.rows and axis == axes[0])
        )
        part = axis if len(axes) > 1 else None
        columns = [level for level in table.columns if not part or level.startswith(f"{part}=")]
        levels = tuple(_levels(columns, of_axis))
        yield TableResult(name, key, table, levels, of_axis, part, sources.paper.converged_above)


def _levels(columns: list[str], lines: tuple[LineResult, ...]) -> list[str]:
    """The columns and the rows' further levels, which stand where their number belongs."""
    own = (level for line in lines for row in line.rows for level in (*row.levels, *row.cells))
    levels = list(dict.fromkeys([*columns, *own]))
    for falling in (False, True):
        if len(columns) > 1 and sorted(columns, key=_number, reverse=falling) == columns:
            return sorted(levels, key=_number, reverse=falling)
    return levels


def _number(level: str) -> float:
    try:
        return float(level.partition("=")[2])
    except ValueError:  # a level that is a word comes last where numbers rise
        return float("inf")


def _row(
    key: str, row: Row | Account, line: Line | None, variant: str, table: Table, sources: Sources
) -> RowResult:
    settings, root = sources.settings, sources.root
    record = sources.records[key]
    search = _search(row, root)
    path = records.history_path(key, root)
    marks = tuple(_declared_marks(key, row, table, settings))
    cells: dict[str, Cell] = {}
    also: dict[str, dict[str, Cell]] = {metric: {} for metric in table.also}
    if record is not None:
        marks += tuple(_marks(record, table))
        stale = made_otherwise(key, row, root) if isinstance(row, Row) else _other_account(record, settings)
        marks += tuple(stale)
        above = sources.paper.converged_above
        printed = line.values if line else {}
        plan = _promise(key, settings)
        cells = dict(_cells(record, table.metric, printed, table, marks, search, above, plan))
        for metric in table.also:
            printed = line.also.get(metric, {}) if line else {}
            also[metric] = dict(_cells(record, metric, printed, table, marks, search, above, plan))
    waits = record is None and isinstance(row, Row) and row.needs == "gpu"
    if waits:
        marks += (Mark("waits for a GPU"),)
    return RowResult(
        key,
        row,
        variant,
        record,
        marks,
        cells,
        also,
        path if path.exists() else None,
        search,
        waits=waits,
        gpu_hours=sources.gpu_hours.get(key),
        budget=_budget(row, table),
    )


def _budget(row: Row | Account, table: Table) -> Budget:
    """As the row declares it; in a table whose training the paper doesn't give a full budget is our own."""
    if isinstance(row, Row) and row.budget == "full" and not table.own and not table.budget:
        return "own"
    return row.budget if isinstance(row, Row) else "full"


def _declared_marks(key: str, row: Row | Account, table: Table, settings: Settings) -> Iterator[Mark]:
    if not isinstance(row, Row):
        return
    budget = _budget(row, table)
    if budget != "full":
        short = budget == "reduced"
        yield Mark(
            budgets.share(key, row, settings, table, budget), inconclusive=short, training=short, budget=True
        )
    if row.simulates is not None:
        yield Mark(f"simulation of {row.simulates}, whose privacy it does not have")


def _marks(record: Record, table: Table) -> Iterator[Mark]:
    provenance = record.provenance
    if SYNTHETIC in provenance.edition.values():
        yield Mark("synthetic data", incomparable=True, inconclusive=True)
    for raw, edition in sorted(provenance.edition.items()):
        if edition not in (OFFICIAL, SYNTHETIC):
            yield Mark(f"{raw}: {edition} edition")
    if table.examples is not None and provenance.examples < table.examples:
        few = provenance.examples < ENOUGH_EXAMPLES * table.examples
        words = f"trained on {provenance.examples:,} of {table.examples:,} examples"
        yield Mark(words, inconclusive=few, fewer_data=few)
    private = any(replica.ledger.event is not None for replica in record.replicas)
    if provenance.reproducible and private:
        yield Mark("noise seeded: no guarantee", seeded=True)


def _other_account(record: Record, settings: Settings) -> Iterator[Mark]:
    if record.provenance.config != settings.account_digest(record.row):
        yield SETTINGS_CHANGED


def _cells(
    record: Record,
    metric: str,
    on_paper: dict[str, Printed],
    table: Table,
    marks: tuple[Mark, ...],
    search: dict[str, Any] | None,
    converged_above: float | None,
    plan: Promise | None,
) -> Iterator[tuple[str, Cell]]:
    comparable = not any(mark.incomparable for mark in marks)
    trained = metric not in table.noises
    against = [mark for mark in marks if mark.inconclusive and (trained or not mark.training)]
    marked = next((mark.words for mark in against), None)
    for level in dict.fromkeys(replica.level for replica in record.replicas):
        accounted = record.method == schema.ACCOUNTING
        # an account lacks what is too large for a number; a further metric it may just not have
        infinite = accounted and metric == table.metric
        replicas = tuple(
            replica
            for replica in record.replicas
            if replica.level == level and (metric in replica.metrics or infinite)
        )
        if not replicas:
            continue
        scale = table.scale_of(metric)
        values = tuple(scale * replica.metrics.get(metric, inf) for replica in replicas)
        # an account has no spread
        ours = computed(values[0]) if accounted else mean(values)
        printed = on_paper.get(level)
        theirs = printed.value if printed and comparable else None
        converged = sum(
            not (trained and table.convergence) or _converged(replica, converged_above)
            for replica in replicas
        )
        untried = None if converged or table.rates_given else _untried(search, level)
        planned = plan is not None and _planned(record, replicas, plan)
        verdict, why = None, ""
        if printed is not None:
            why = _why_not(marks, untried, len(replicas), accounted)
            if plan and not planned and not why:
                why = f"trained otherwise than planned, or fewer than {plan.seeds} seeds"
            if not why:
                verdict = judge(
                    values,
                    accounted,
                    converged,
                    printed,
                    table.margin_at(printed),
                    printed.rounding(table.decimals),
                )
            less = next((mark.words for mark in marks if mark.fewer_data), None)
            if less and verdict and verdict.name == "below":
                verdict, why = None, f"below, which decides nothing: {less}"
        yield (
            level,
            Cell(
                record.row,
                level,
                values,
                ours,
                printed,
                None if theirs is None else ours.value - theirs,
                verdict,
                why,
                guarantee(replicas, record.provenance.reproducible),
                replicas,
                planned,
                comparable,
                marked or untried,
                bool(against) and all(mark.training for mark in against) and untried is None,
                untried,
                converged,
                _draws(replicas, metric, scale),
            ),
        )


def _promise(key: str, settings: Settings) -> Promise | None:
    row = settings.rows.get(key)
    digest = settings.plan_digest(key) if row else None
    if row is None or row.plan is None or digest is None:
        return None
    return Promise(digest, settings.plans[row.plan].seeds)


def _planned(record: Record, replicas: tuple[Replica, ...], plan: Promise) -> bool:
    """Whether a level was trained as planned: all of its seeds, each under the plan as it stands."""
    made = {record.origins[replica.origin].plan for replica in replicas}
    return made == {plan.digest} and len(replicas) == plan.seeds


def _why_not(marks: tuple[Mark, ...], untried: str | None, n: int, accounted: bool) -> str:
    """Why numbers of a row with these marks decide nothing about a printed value; nothing where they may."""
    against = [mark for mark in marks if mark.inconclusive]
    if any(mark.training for mark in against):
        return (
            "too small a part of the data"
            if any(mark.fewer_data for mark in against)
            else "too small a budget"
        )
    for mark in against:
        if not mark.fewer_data:
            return mark.words
    if untried:
        return "too few step sizes tried"
    if n < FEWEST_SEEDS and not accounted:
        return "one seed" if n == 1 else f"{n} seeds"
    return ""


def _converged(replica: Replica, above: float | None) -> bool:
    """By what the paper calls so, else as evaluation found; records that don't say so count as converged."""
    accuracy = replica.metrics.get("validation_accuracy")
    if above is not None and accuracy is not None:
        return 100 * accuracy > above
    return replica.metrics.get("converged", 1.0) > 0


def _untried(search: dict[str, Any] | None, level: str) -> str | None:
    """Why another step size might have converged at the level; None: enough of them were tried."""
    if search is None:
        return "no convergence, without a search for step sizes"
    rates = {
        candidate["settings"]["learning_rate"]
        for candidate in search.get("candidates", ())
        if candidate.get("level") == level and "learning_rate" in candidate.get("settings", {})
    }
    # a hair less than the span: 0.1 / 0.001 is not 100 in floating point
    if len(rates) >= STEP_SIZES and max(rates) / min(rates) >= SPAN * (1 - 1e-9):
        return None
    tried = ", ".join(f"{rate:g}" for rate in sorted(rates)) or "none"
    return f"no convergence, but too few step sizes searched here: {tried}"


def _draws(replicas: tuple[Replica, ...], metric: str, scale: float) -> float | None:
    name = f"{metric}_draws_std"
    spreads = [scale * replica.metrics[name] for replica in replicas if name in replica.metrics]
    return sqrt(fmean(spread**2 for spread in spreads)) if spreads else None


def _search(row: Row | Account, root: Path) -> dict[str, Any] | None:
    """The search that chose the row's settings, once it has been run."""
    if not isinstance(row, Row) or row.search is None:
        return None
    return _read(records.search_path(row.search, root), "a search")


def _read(path: Path, what: str) -> dict[str, Any] | None:
    """A JSON object, once it is there."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as problem:
        raise UserError(f"{path}: not JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise UserError(f"{path}: not {what}")
    return found
