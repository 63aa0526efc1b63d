"""Brings a store up to date with the records: what is there and right stays, all else is drawn anew."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mlflow import MlflowClient

from pipeline.files import digest_json, write_text
from pipeline.params import Settings
from pipeline.reporting import papers
from pipeline.results import records
from pipeline.results.records import Record
from pipeline.tracking import describing, experiments, families, keeping, writing
from pipeline.tracking.drawing import Drawn, draw
from pipeline.tracking.keeping import Wanted
from pipeline.tracking.store import address, opened
from pipeline.tracking.turns import has_turns

MARKER = Path("published.json")
Show = Callable[[str], None]  # told of each row when it is there


@dataclass(frozen=True)
class Published:
    """What `publish` did."""

    address: str
    written: tuple[str, ...]  # rows that were new or had changed
    unchanged: tuple[str, ...]
    runs: int  # of all rows
    experiments: tuple[str, ...]  # their numbers, by paper


def declared(settings: Settings, root: Path = Path()) -> list[Record]:
    """The records of the rows and accounts in params.yaml that have been run, in its order."""
    found = (records.read(key, line, root) for key, line in settings.lines.items())
    return [record for record in found if record is not None]


def publish(
    found: Sequence[Record], settings: Settings, root: Path = Path(), show: Show | None = None
) -> Published:
    """Bring MLflow up to date with ``found``, and write ``published.json``: the digest of what is published.

    Raises:
        UserError: the store can't be reached or written, or a history doesn't belong to its record.
    """
    drawn = _drawn(found, settings, root)
    papers_of = {record.row: record.paper for record in found}
    done: dict[bool, list[str]] = {True: [], False: []}
    with opened(root) as client:
        numbers = experiments.numbers(client, set(papers_of.values()), root)
        wanted = [_wanted(row, numbers[papers_of[row]], one, root) for row, one in drawn.items()]
        there = None
        if has_turns(address(root)):
            there = _all(client, {numbers[paper] for paper in papers_of.values()})
        else:
            random.shuffle(wanted)  # so that several publishers don't get in each other's way
        for one, written in keeping.bring(client, wanted, there):
            done[written].append(one.row)
            if show is not None:
                show(one.row)
        for name in dict.fromkeys(papers_of.values()):
            count = list(papers_of.values()).count(name)
            experiments.describe(client, numbers[name], describing.of_paper(papers.load(name), count))
    write_text(root / MARKER, digest_json({row: one.digest for row, one in drawn.items()}) + "\n")
    rows = list(drawn)
    return Published(
        address(root),
        tuple(sorted(done[True], key=rows.index)),
        tuple(sorted(done[False], key=rows.index)),
        sum(one.runs for one in drawn.values()),
        tuple(numbers[name] for name in sorted(set(papers_of.values()))),
    )


def unpublished(found: Sequence[Record], settings: Settings, root: Path = Path()) -> list[str]:
    """Rows whose runs in MLflow are missing, or are not drawn from the records there are.

    Raises:
        UserError: as `publish`.
    """
    drawn = _drawn(found, settings, root)
    with opened(root) as client:
        there = experiments.existing(client)
        needed = {there[one.paper].experiment_id for one in found if one.paper in there}
        kept = {row: runs.kept for row, runs in _all(client, needed).items()}
    return [
        row
        for row, one in drawn.items()
        if (family := kept.get(row)) is None or not family.whole(one.digest, one.runs)
    ]


def _drawn(found: Sequence[Record], settings: Settings, root: Path) -> dict[str, Drawn]:
    of = {name: papers.load(name) for name in {record.paper for record in found}}
    return {record.row: draw(record, of[record.paper], settings, root) for record in found}


def _all(client: MlflowClient, numbers: Iterable[str]) -> dict[str, families.There]:
    return {row: runs for number in numbers for row, runs in families.all_of(client, number).items()}


def _wanted(row: str, experiment: str, drawn: Drawn, root: Path) -> Wanted:
    def fill(client: MlflowClient, head: str) -> None:
        writing.fill(client, experiment, head, drawn)
        writing.log_files(client, head, row, drawn, root)

    return Wanted(
        row=row,
        experiment=experiment,
        found_by=f"tags.row = '{row}'",
        digest=drawn.digest,
        runs=drawn.runs,
        begin=partial(writing.begin, experiment=experiment, drawn=drawn),
        fill=fill,
    )
