"""Brings a store up to date with the records: what is there and right stays, all else is drawn anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.files import digest_file, digest_json, write_text
from pipeline.params import Settings
from pipeline.reporting import papers
from pipeline.results import records
from pipeline.results.schema import Record
from pipeline.tracking import experiments
from pipeline.tracking.drawing import Drawn, draw
from pipeline.tracking.notes import NOTE
from pipeline.tracking.store import address_without_password, has_lock, opened
from pipeline.tracking.upserting import Show, Upsert, is_whole, publications

MARKER = Path("published.json")


@dataclass(frozen=True)
class Published:
    """What `publish` wrote to the store, and what it found there."""

    address: str  # as it is told
    written: tuple[str, ...]  # rows that were new or had changed
    unchanged: tuple[str, ...]
    runs: int  # of all rows
    experiments: tuple[str, ...]  # their numbers, by paper


def declared(settings: Settings) -> list[Record]:
    """The records of the rows and accounts in params.yaml that have been run, in its order."""
    read = (records.read(key, line) for key, line in settings.lines.items())
    return [record for record in read if record is not None]


def publish(recorded: Sequence[Record], settings: Settings, show: Show = lambda row: None) -> Published:
    """Bring MLflow up to date with the records; ``published.json`` gets the digest of what is published.

    Raises:
        UserError: the store can't be reached or written, or a history doesn't belong to its record.
    """
    drawn = _drawn(recorded, settings)
    with opened() as client:
        numbers = experiments.numbers(client, {line.paper for line in settings.lines.values()})
        wanted = {record.row: (numbers[record.paper], drawn[record.row]) for record in recorded}
        written = Upsert(client, has_lock()).bring(wanted, show)
    write_text(MARKER, digest_json({row: run.digest for row, run in drawn.items()}) + "\n")
    return Published(
        address_without_password(),
        tuple(row for row in drawn if row in written),
        tuple(row for row in drawn if row not in written),
        sum(run.runs for run in drawn.values()),
        tuple(numbers[name] for name in sorted({record.paper for record in recorded})),
    )


def publish_tables(paper: str, files: Sequence[Path], settings: Settings) -> bool:
    """Log a paper's tables and figures to its experiment, as files of a run; False: they were there.

    Raises:
        UserError: the store can't be reached or written.
    """
    row = f"{paper}: report"
    note = "The report's tables and figures as files; `dprepro report` writes them."
    drawn = Drawn(
        name="report: tables and figures",
        tags={"row": row, "kind": "report", "paper": paper, NOTE: note},
        digests={path.name: digest_file(path) for path in files},
        files=tuple(files),
    )
    with opened() as client:
        numbers = experiments.numbers(client, {line.paper for line in settings.lines.values()})
        return bool(Upsert(client, has_lock()).bring({row: (numbers[paper], drawn)}))


def unpublished(recorded: Sequence[Record], settings: Settings) -> list[str]:
    """Rows whose runs in MLflow are missing, or are not drawn from the records there are.

    Raises:
        UserError: as `publish`.
    """
    drawn = _drawn(recorded, settings)
    with opened() as client:
        there = experiments.existing(client)
        published = {
            paper: publications(client, there[paper].experiment_id)
            for paper in {record.paper for record in recorded}
            if paper in there
        }
    return [
        record.row
        for record in recorded
        if not is_whole(published.get(record.paper, {}).get(record.row, {}), drawn[record.row])
    ]


def _drawn(recorded: Sequence[Record], settings: Settings) -> dict[str, Drawn]:
    by_name = {name: papers.load(name) for name in {record.paper for record in recorded}}
    return {record.row: draw(record, by_name[record.paper], settings) for record in recorded}
