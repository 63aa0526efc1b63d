"""Bring a store up to date with the records: rows with correct runs stay, all others are written anew.

The runs of a row are written together. The digest of their content is a tag of the row's own run. This
tag is written last, so a row without this tag is incomplete. Superseded runs are deleted after that.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, Experiment, InputTag, Metric, Param, Run, ViewType

from dprepro.errors import UserError
from dprepro.pipeline.files import digest_file, digest_json, write_text
from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting import papers
from dprepro.pipeline.reporting.drawing.confusion import confusion_pictures
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Record
from dprepro.pipeline.tracking import views
from dprepro.pipeline.tracking.notes import NOTE, paper_note
from dprepro.pipeline.tracking.runs import RunSpec, build_run
from dprepro.pipeline.tracking.store import STORE, address, address_without_password, opened

ARTIFACTS = Path("mlartifacts")  # of a local store
MARKER = Path("published.json")
DIGEST, PARENT = "digest", "mlflow.parentRunId"
AT_ONCE = 800  # metrics in a call; MLflow takes 1000 entries in a call
PAGE = 1000  # runs that MLflow returns at a time

Show = Callable[[str], None]  # called with each row that is up to date


@dataclass(frozen=True)
class Published:
    """Rows that `publish` wrote to the store or found there."""

    address: str  # without password
    written: tuple[str, ...]  # rows that were new or had changed
    unchanged: tuple[str, ...]
    runs: int  # number of runs of all rows
    experiments: tuple[str, ...]  # ids of the experiments, in order of the papers' keys


def declared(settings: Settings) -> list[Record]:
    """Records of the rows and accounts with results, in the order of params.yaml."""
    read = (records.read(key, line) for key, line in settings.lines.items())
    return [record for record in read if record is not None]


def publish(recorded: Sequence[Record], settings: Settings, show: Show = lambda row: None) -> Published:
    """Bring MLflow up to date with the records; write the digest of the published runs to ``published.json``.

    Raises:
        UserError: the store can't be reached or written, or a history doesn't belong to its record.
    """
    drawn = _drawn(recorded, settings)
    with opened() as client:
        numbers = _experiments(client, settings)
        wanted = {record.row: (numbers[record.paper], drawn[record.row]) for record in recorded}
        written = sync_rows(client, wanted, show)
    write_text(MARKER, digest_json({row: run.digest for row, run in drawn.items()}) + "\n")
    return Published(
        address_without_password(),
        tuple(row for row in drawn if row in written),
        tuple(row for row in drawn if row not in written),
        sum(1 for run in drawn.values() for _ in run.every()),
        tuple(numbers[name] for name in sorted({record.paper for record in recorded})),
    )


def publish_report(paper: str, files: Sequence[Path], settings: Settings) -> bool:
    """Log a paper's page and tables to its experiment, as files of one run.

    Return False if the run has these files already.

    Raises:
        UserError: the store can't be reached or written.
    """
    row = f"{paper}: report"
    note = "The report's page and tables as files; `dprepro report` writes them."
    run = RunSpec(
        name="report: page and tables",
        tags={"row": row, "kind": "report", "paper": paper, NOTE: note},
        digests={path.name: digest_file(path) for path in files},
        files=tuple(files),
    )
    with opened() as client:
        return bool(sync_rows(client, {row: (_experiments(client, settings)[paper], run)}))


def unpublished(recorded: Sequence[Record], settings: Settings) -> list[str]:
    """Rows whose runs in MLflow are missing, or differ from the present records. Errors as in `publish`."""
    drawn = _drawn(recorded, settings)
    with opened() as client:
        there = _existing(client)
        published = {
            paper: runs_by_row(client, there[paper].experiment_id)
            for paper in {record.paper for record in recorded}
            if paper in there
        }
    return [
        record.row
        for record in recorded
        if not is_whole(published.get(record.paper, {}).get(record.row, []), drawn[record.row])
    ]


def _existing(client: MlflowClient) -> dict[str, Experiment]:
    """Existing experiments by name, deleted ones included."""
    return {experiment.name: experiment for experiment in client.search_experiments(view_type=ViewType.ALL)}


def _experiments(client: MlflowClient, settings: Settings) -> dict[str, str]:
    """Find or create the papers' experiments, in alphabetical order, and return their ids by paper.

    Artifacts of a local store are in a folder beside the store; a server has its own place for artifacts.

    Raises:
        UserError: the store was moved, so MLflow would look for its files in the old place.
    """
    there = _existing(client)
    by_paper = {}
    for paper in sorted({line.paper for line in settings.lines.values()}):
        tags = {NOTE: paper_note(papers.load(paper)), **views.tags()}
        place = (ARTIFACTS / paper).resolve().as_uri() if address().startswith("sqlite:") else None
        experiment = there.get(paper) or client.get_experiment(
            client.create_experiment(paper, artifact_location=place, tags=tags)
        )
        if place and experiment.artifact_location != place:
            raise UserError(
                f"{address()}: keeps its files in {experiment.artifact_location}, not here, as after a "
                f"move; delete {STORE} and run `dprepro publish`, which makes it anew from the records"
            )
        by_paper[paper] = experiment.experiment_id
        if experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        for name, value in tags.items():
            if experiment.tags.get(name) != value:
                client.set_experiment_tag(experiment.experiment_id, name, value)
    return by_paper


def _drawn(recorded: Sequence[Record], settings: Settings) -> dict[str, RunSpec]:
    by_name = {name: papers.load(name) for name in {record.paper for record in recorded}}
    return {record.row: build_run(record, by_name[record.paper], settings) for record in recorded}


def sync_rows(
    client: MlflowClient, wanted: Mapping[str, tuple[str, RunSpec]], show: Show = lambda row: None
) -> set[str]:
    """Write the rows that are missing or differ, and return them.

    ``wanted``: experiment id and content of each row's run.
    """
    there = {number: runs_by_row(client, number) for number in {number for number, _ in wanted.values()}}
    written = set()
    for row, (experiment, drawn) in wanted.items():
        runs = there[experiment].get(row, [])
        if not is_whole(runs, drawn):
            head = _write(client, experiment, drawn, drawn.tags)
            client.set_tag(head, DIGEST, drawn.digest)
            # the row's own run first: without its digest, the runs below it count as incomplete
            for run in sorted(runs, key=lambda run: DIGEST not in run.data.tags):
                client.delete_run(run.info.run_id)
            written.add(row)
        show(row)
    return written


def runs_by_row(client: MlflowClient, experiment: str) -> dict[str, list[Run]]:
    """Published runs of an experiment, by row."""
    rows: dict[str, list[Run]] = defaultdict(list)
    token = None
    while True:
        page = client.search_runs([experiment], max_results=PAGE, page_token=token)
        for run in page:
            if row := run.data.tags.get("row"):
                rows[row].append(run)
        token = page.token
        if not token:
            return dict(rows)


def is_whole(runs: Sequence[Run], drawn: RunSpec) -> bool:
    """Return True if ``runs`` are ``drawn`` and its runs below, by names, parameters, tags and last values.

    Earlier points of curves aren't compared, because that takes a call for each curve. Files aren't compared
    either, nor notes and further tags, which people may edit.
    """
    if [run.data.tags[DIGEST] for run in runs if DIGEST in run.data.tags] != [drawn.digest]:
        return False
    compared = {tag for run in drawn.every() for tag in run.tags} - {NOTE}

    def content(name: str, params: dict[str, str], tags: dict[str, str], numbers: dict[str, float]) -> str:
        shown = {tag: value for tag, value in tags.items() if tag in compared}
        return json.dumps([name, params, shown, numbers], sort_keys=True)

    there = [content(run.info.run_name, run.data.params, run.data.tags, run.data.metrics) for run in runs]
    expected = [content(run.name, run.params, run.tags, run.last) for run in drawn.every()]
    return sorted(there) == sorted(expected)


def _write(client: MlflowClient, experiment: str, drawn: RunSpec, tags: dict[str, str]) -> str:
    """Write a run and the runs below it in as few calls as possible; return the run's id."""
    run = client.create_run(experiment, drawn.started, tags, drawn.name).info.run_id
    params = [Param(name, value) for name, value in drawn.params.items()]
    metrics = [Metric(*point) for point in drawn.metrics]
    for start in range(0, max(len(metrics), 1), AT_ONCE):
        client.log_batch(run, metrics[start : start + AT_ONCE], () if start else params)
    if drawn.data_set is not None:
        context = [InputTag("mlflow.data.context", "training")]
        client.log_inputs(run, [DatasetInput(Dataset(**drawn.data_set), context)])
    for below in drawn.below:
        _write(client, experiment, below, {**below.tags, PARENT: run})
    if drawn.digests:
        client.log_dict(run, drawn.digests, "digests.json")
    for path in drawn.files:
        client.log_artifact(run, path, artifact_path=path.parent.name)
        if path.parent.name == "evaluations" and (evaluation := records.read_evaluation(path.stem)):
            for name, picture in confusion_pictures(evaluation):
                client.log_text(run, picture, f"evaluations/{name}")
    client.set_terminated(run, end_time=drawn.ended)
    return str(run)
