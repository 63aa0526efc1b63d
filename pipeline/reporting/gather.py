"""Join of declared rows (params.yaml), results (records) and printed values (the papers' files)."""

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from dprepro.errors import UserError
from dprepro.pipeline.identity.plan import gpu_hours
from dprepro.pipeline.params import PAPERS, PARAMS, Account, Row, Settings
from dprepro.pipeline.reporting import caveats, papers
from dprepro.pipeline.reporting.cells import RecordCells
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.judging import values
from dprepro.pipeline.reporting.papers import Paper
from dprepro.pipeline.reporting.printed import Line, Table
from dprepro.pipeline.reporting.results import Caveat, Cell, LineResult, RowResult, TableResult
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Record, SearchRecord

LINE = attrgetter("paper", "table", "line", "variant")  # of a declaration


@dataclass(frozen=True)
class Sources:
    """Sources of a paper's results."""

    settings: Settings
    root: Path
    paper: Paper
    records: dict[str, Record | None]  # by row
    gpu_hours: dict[str, float]  # by row, of those that need a GPU; see `pipeline.cluster.costs`
    searches: dict[str, SearchRecord]  # searches that were run, by name


def gather(settings: Settings, root: Path = Path()) -> list[PaperResult]:
    """Results of every paper with rows in params.yaml, in alphabetical order.

    Rows come from params.yaml, not from the folder of records, which still has records of removed rows.

    Raises:
        UserError: the file of a record, search or paper is invalid.
    """
    kept = {key: records.read(key, line, root) for key, line in settings.lines.items()}
    named = dict.fromkeys([*settings.searches, *(row.search for row in settings.rows.values() if row.search)])
    found = {name: records.read_search(name, root) for name in named}
    searches = {name: search for name, search in found.items() if search is not None}
    names = sorted({line.paper for line in settings.lines.values()})
    return [
        fill(name, Sources(settings, root, papers.load(name, root / PAPERS), kept, gpu_hours(root), searches))
        for name in names
    ]


def fill(name: str, sources: Sources) -> PaperResult:
    """Fill the paper called ``name`` with its declared rows."""
    paper = sources.paper
    declared = {line.table for line in sources.settings.lines.values() if line.paper == name}
    # the paper's order first, then tables that its file lacks
    keys = [key for key in paper.tables if key in declared] + sorted(declared - set(paper.tables))
    return PaperResult(name, paper, tuple(_table(name, key, sources) for key in keys))


def _table(name: str, key: str, sources: Sources) -> TableResult:
    own = Table(name=key, title="rows of our own", axis="", columns=[], own=True)
    table = sources.paper.tables.get(key, own)
    lines = values.judged(_lines(name, key, table, sources), table)
    return TableResult(
        name, key, table, tuple(_levels(table.columns, lines)), lines, sources.paper.converged_above
    )


def _lines(name: str, table_key: str, table: Table, sources: Sources) -> list[LineResult]:
    """Lines of the paper, then lines that only params.yaml has, each with its rows."""
    known = {line.key: line for line in table.lines}
    labels = {line.label: line for line in table.lines}
    rows: dict[str, list[RowResult]] = {label: [] for label in labels}
    for key, declared in sources.settings.lines.items():
        if (declared.paper, declared.table) == (name, table_key):
            if known and declared.line is not None and declared.line not in known:
                raise UserError(
                    f"{PARAMS}: {key}: line: {declared.line!r}; allowed, as {name}'s {table_key} has it: "
                    f"{', '.join(known)}"
                )
            line = known.get(declared.line or "")
            row = _row(key, declared, line, table, sources)
            rows.setdefault(line.label if line else declared.label, []).append(row)
    return [LineResult(label, labels.get(label), tuple(of_line)) for label, of_line in rows.items()]


def _levels(columns: list[str], lines: tuple[LineResult, ...]) -> list[str]:
    """Columns, with further levels of rows: in numerical order if the columns have one, else at the end."""
    further = (level for line in lines for row in line.rows for level in (*row.levels, *row.cells))
    levels = list(dict.fromkeys([*columns, *further]))
    for falling in (False, True):
        if len(columns) > 1 and sorted(columns, key=_number, reverse=falling) == columns:
            return sorted(levels, key=_number, reverse=falling)
    return levels


def _number(level: str) -> float:
    try:
        return float(level.partition("=")[2])
    except ValueError:  # a word comes last if numbers rise
        return float("inf")


def _row(key: str, declared: Row | Account, line: Line | None, table: Table, sources: Sources) -> RowResult:
    settings, root, record = sources.settings, sources.root, sources.records[key]
    row = declared if isinstance(declared, Row) else None
    history = records.history_path(key, root)
    search = sources.searches.get(row.search or "") if row else None
    start = settings.starts.get(row.data) if row else None
    seeds = settings.plans[row.plan].seeds if row and row.plan else 0
    found = list(caveats.declared_caveats(key, declared, settings, table))
    cells: dict[str, Cell] = {}
    further: dict[str, dict[str, Cell]] = {metric: {} for metric in table.also}
    if record is not None:
        found += caveats.record_caveats(record, table)
        found += caveats.stale_caveats(record, declared, settings, root)
        plan = settings.plan_digest(key) if row else None
        above = sources.paper.converged_above
        ran = RecordCells(record, table, tuple(found), search, above, plan, seeds)
        cells = ran.cells(table.metric, line.values if line else {})
        further = {metric: ran.cells(metric, line.also.get(metric, {}) if line else {}) for metric in further}
    elif row and row.needs == "gpu":
        found.append(Caveat("waits for a GPU"))
    return RowResult(
        key=key,
        declared=declared,
        variant=declared.variant if line else "",
        record=record,
        caveats=tuple(found),
        cells=cells,
        also=further,
        history=history if history.exists() else None,
        search=search,
        other_searches=tuple(
            other
            for other in sources.searches.values()
            if other is not search
            and other.row in settings.rows
            and LINE(settings.rows[other.row]) == LINE(declared)
        ),
        gpu_hours=sources.gpu_hours.get(key),
        budget=caveats.budget_of(declared, table),
        planned_seeds=seeds,
        start=start.row if start else None,
        raw=settings.raw_set(settings.split(row.data).raw) if row else None,
        replaced=row is not None and (run := records.read_run(key, root)) is not None and bool(run.replaced),
    )
