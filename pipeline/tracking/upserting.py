"""One of each, however many publish at once.

A row's runs are written together, as a *publication*: a tag that all of them have, with a number above all
that were there. The digest of what was drawn is a tag of the row's run, written last: a publication without
it was cut short or is being written. Of those that were finished the highest stays, which is the same one for
all who look, and all others go. Who wrote or deleted looks again, and is done when nothing is left to do: so
never two are left, as whoever of two looked last saw both, and never none, as whoever deleted last looked
after that.

A server has no lock. There publishers begin at different rows, come back to those that somebody else is
writing, and take one who wrote no run for `PATIENCE` for dead. With a lock nobody else is writing.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import uuid4

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run
from mlflow.exceptions import MlflowException

from pipeline.tracking.drawing import Drawn

DIGEST, PUBLICATION, PARENT = "digest", "publication", "mlflow.parentRunId"
PATIENCE = 20.0  # seconds without a new run
PAUSE = 0.5  # seconds between looks, while others write
FAILURES = 5  # of writing, in a row: somebody made the same data set in that moment, or took us for dead
AT_ONCE = 800  # metrics in a call, of the 1000 entries that MLflow takes in one
PAGE = 1000  # runs that MLflow gives at a time

Show = Callable[[str], None]  # told of each row when it is there
Publications = Mapping[str, list[Run]]  # of a row: publication -> its runs


def publications(client: MlflowClient, experiment: str, wanted: str = "") -> dict[str, Publications]:
    """Row -> its publications, of the runs that a filter finds. Runs that are none of ours are left out."""
    rows: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    token = None
    while True:
        page = client.search_runs([experiment], wanted, max_results=PAGE, page_token=token)
        for run in page:
            if row := run.data.tags.get("row"):
                rows[row][run.data.tags.get(PUBLICATION, "")].append(run)
        token = page.token
        if not token:
            return dict(rows)


def kept(there: Publications) -> str | None:
    """The publication to keep: of those that were finished the last."""
    return max((name for name, runs in there.items() if _digest(runs)), default=None)


def is_whole(there: Publications, drawn: Drawn) -> bool:
    """Whether what is kept is what was drawn: no run is missing, none has another setting or last number.

    Earlier points of curves aren't compared, which would take a call for each, nor what people may write on
    a run, its tags and its note.
    """
    name = kept(there)
    if name is None or _digest(there[name]) != drawn.digest:
        return False
    runs = [(run.info.run_name, run.data.params, run.data.metrics) for run in there[name]]
    return _in_order(runs) == _in_order((run.name, run.params, run.last) for run in drawn.every())


def _in_order(runs: Iterable[tuple[str, dict[str, str], dict[str, float]]]) -> list[Any]:
    """Names, settings and numbers of runs, so that two lists of them can be compared."""
    return sorted((name, sorted(params.items()), sorted(numbers.items())) for name, params, numbers in runs)


def _digest(runs: Iterable[Run]) -> str | None:
    return next((run.data.tags[DIGEST] for run in runs if DIGEST in run.data.tags), None)


class Upsert:
    """Writes what is missing, and removes what there is beside it."""

    def __init__(self, client: MlflowClient, alone: bool):
        """``alone``: nobody else writes meanwhile."""
        self._client = client
        self._patience = 0.0 if alone else PATIENCE
        self._seen: dict[str, tuple[int, float]] = {}  # unfinished publication -> runs, and since when
        self._failures = 0

    def bring(self, wanted: Mapping[str, tuple[str, Drawn]], show: Show = lambda row: None) -> set[str]:
        """See to it that each row is there, once; returns those that this wrote.

        ``wanted``: row -> the number of its experiment, and its run.

        Raises:
            MlflowException: writing fails again and again.
        """
        left, written = list(wanted), set[str]()
        while left:
            random.shuffle(left)  # so that several publishers don't get in each other's way
            numbers = {wanted[row][0] for row in left}
            looked = {number: publications(self._client, number) for number in numbers}
            busy = []
            for row in list(left):
                experiment, drawn = wanted[row]
                there = looked[experiment].get(row, {})
                # once written, somebody else's of another record stays where it came after ours
                if not is_whole(there, drawn) and (row not in written or kept(there) is None):
                    if self._write(experiment, row, drawn):
                        written.add(row)
                        show(row)
                    else:
                        busy.append(row)
                elif len(there) == 1:
                    left.remove(row)
                    if row not in written:
                        show(row)
                elif not self._others_go(there):
                    busy.append(row)
            if busy and busy == left:
                time.sleep(PAUSE)
        return written

    def _is_dead(self, name: str, runs: list[Run]) -> bool:
        """Whether whoever writes a publication has stopped."""
        now = time.monotonic()
        if name not in self._seen or self._seen[name][0] != len(runs):
            self._seen[name] = (len(runs), now)
        return now - self._seen[name][1] >= self._patience

    def _others_go(self, there: Publications) -> bool:
        """Delete all but the one to keep, the row's run first; not what somebody is writing."""
        gone = [
            run
            for name, runs in there.items()
            if name != kept(there) and (_digest(runs) or self._is_dead(name, runs))
            for run in sorted(runs, key=lambda run: DIGEST not in run.data.tags)
        ]
        for run in gone:
            self._client.delete_run(run.info.run_id)
        return bool(gone)

    def _write(self, experiment: str, row: str, drawn: Drawn) -> bool:
        """Write a row, unless somebody else is doing so, or has since the last look."""
        there = publications(self._client, experiment, f"tags.row = '{row}'").get(row, {})
        unfinished = {name: runs for name, runs in there.items() if not _digest(runs)}
        if is_whole(there, drawn) or not all(self._is_dead(*each) for each in unfinished.items()):
            return False
        number = 1 + max((int(name.partition("-")[0] or 0) for name in there), default=0)
        publication = f"{number:06}-{uuid4().hex[:8]}"
        try:
            head = self._fill(experiment, drawn, {PUBLICATION: publication})
            self._client.set_tag(head, DIGEST, drawn.digest)
        except MlflowException:
            self._failures += 1
            if self._failures == FAILURES:
                raise
            cut_short = publications(self._client, experiment, f"tags.{PUBLICATION} = '{publication}'")
            for run in cut_short.get(row, {}).get(publication, ()):
                self._client.delete_run(run.info.run_id)
            return False
        self._failures = 0
        return True

    def _fill(self, experiment: str, drawn: Drawn, tags: dict[str, str]) -> str:
        """Make a run and those below it, in as few calls as it takes; returns its id."""
        client = self._client
        tags = drawn.tags | tags
        run = client.create_run(experiment, drawn.started, tags, drawn.name).info.run_id
        params = [Param(name, value) for name, value in drawn.params.items()]
        metrics = [Metric(*point) for point in drawn.metrics]
        for start in range(0, max(len(metrics), 1), AT_ONCE):
            client.log_batch(run, metrics[start : start + AT_ONCE], () if start else params)
        if drawn.data_set is not None:
            context = [InputTag("mlflow.data.context", "training")]
            client.log_inputs(run, [DatasetInput(Dataset(**drawn.data_set), context)])
        for below in drawn.below:
            self._fill(experiment, below, {PUBLICATION: tags[PUBLICATION], PARENT: run})
        if drawn.digests:
            client.log_dict(run, drawn.digests, "digests.json")
        for path in drawn.files:
            client.log_artifact(run, path, artifact_path=path.parent.name)
        client.set_terminated(run, end_time=drawn.ended)
        return str(run)
