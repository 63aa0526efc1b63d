"""What the tables are made of: declarations (params.yaml), printed values (the papers' files) and records."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from dprepro.pipeline.params import PAPERS, Account, Row, Settings, papers
from dprepro.pipeline.params.papers import Paper
from dprepro.pipeline.params.printed import PrintedLine, Table
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Record, SearchRecord


@dataclass(frozen=True)
class Sources:
    """Declarations, papers and records."""

    settings: Settings
    root: Path
    papers: Mapping[str, Paper]  # in alphabetical order
    records: Mapping[str, Record]  # by row, of rows that ran
    searches: Mapping[str, SearchRecord]  # by name, of searches that ran

    def table(self, paper: str, key: str) -> Table:
        """A paper's table; one without printed values if its file has none."""
        own = Table(name=key, title="rows of our own", axis="", columns=[], own=True)
        return self.papers[paper].tables.get(key, own)

    def line(self, paper: str, table: str, key: str | None) -> PrintedLine | None:
        """A line of a paper's table; None if its file has none."""
        return next((line for line in self.table(paper, table).lines if line.key == key), None)

    def search(self, declared: Row | Account) -> SearchRecord | None:
        """The search that chose a row's settings; None if it has none, or the search didn't run."""
        return self.searches.get(declared.search or "") if isinstance(declared, Row) else None


def read_sources(settings: Settings, root: Path = Path(), rows: Collection[str] | None = None) -> Sources:
    """Read everything that ``settings`` declares from the files under ``root``; with ``rows``, theirs alone.

    Rows come from params.yaml, not from the folder of records, which still has records of removed rows.

    Raises:
        UserError: the file of a record, search or paper is invalid.
    """
    kept = {
        key: records.read(key, line, root)
        for key, line in settings.lines.items()
        if rows is None or key in rows
    }
    named = dict.fromkeys([*settings.searches, *(row.search for row in settings.rows.values() if row.search)])
    found = {name: records.read_search(name, root) for name in named}
    names = sorted({line.paper for line in settings.lines.values()})
    return Sources(
        settings,
        root,
        {name: papers.load(name, root / PAPERS) for name in names},
        {key: record for key, record in kept.items() if record is not None},
        {name: search for name, search in found.items() if search is not None},
    )
