"""What is in the store of a row: its run with those below it, whole or not, once or more often."""

from collections.abc import Iterable
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.entities import Run

from pipeline.tracking.drawing import PARENT

DIGEST = "digest"  # tag of a row's run, written last: without it the row was cut short, or is being written
PUBLISHED = "published"  # tag beside it: when, in UTC
MOST = 1000  # runs that MLflow gives at a time


@dataclass(frozen=True)
class Family:
    """A run without a parent, and all that hang from it."""

    head: Run
    members: tuple[Run, ...]  # with the head

    @property
    def digest(self) -> str | None:
        """Of what it was drawn from; None: it isn't whole."""
        found: str | None = self.head.data.tags.get(DIGEST)
        return found

    @property
    def published(self) -> str:
        """When; empty of those that older versions published."""
        return str(self.head.data.tags.get(PUBLISHED, ""))

    @property
    def rank(self) -> tuple[str, str]:
        """By which every publisher keeps the same one of several."""
        return self.published, self.head.info.run_id

    def whole(self, digest: str, runs: int) -> bool:
        """Whether it is what was drawn, with nothing missing."""
        return self.digest == digest and len(self.members) == runs


@dataclass(frozen=True)
class There:
    """All active runs of a row."""

    families: tuple[Family, ...]
    strays: tuple[Run, ...]  # below a run that is no longer there

    @property
    def kept(self) -> Family | None:
        """The one to keep: of those that were finished the last."""
        return max((one for one in self.families if one.digest), key=lambda one: one.rank, default=None)

    @property
    def others(self) -> list[Run]:
        """All that go once there is one to keep, heads first: what is left of a family cut short is strays.

        Without one to keep only strays go: the unfinished may be somebody's work.
        """
        kept = self.kept
        families = () if kept is None else (one for one in self.families if one is not kept)
        return [*(run for one in families for run in one.members), *self.strays]


def grouped(runs: Iterable[Run]) -> There:
    """Runs of one row as families."""
    by_parent: dict[str | None, list[Run]] = {}
    found = list(runs)
    for run in found:
        by_parent.setdefault(run.data.tags.get(PARENT), []).append(run)
    families = tuple(
        Family(head, (head, *_below(head.info.run_id, by_parent))) for head in by_parent.get(None, ())
    )
    known = {run.info.run_id for one in families for run in one.members}
    return There(families, tuple(run for run in found if run.info.run_id not in known))


def _below(run: str, by_parent: dict[str | None, list[Run]]) -> list[Run]:
    found = []
    for one in by_parent.get(run, ()):
        found += [one, *_below(one.info.run_id, by_parent)]
    return found


def all_of(client: MlflowClient, experiment: str) -> dict[str, There]:
    """Row -> its runs, of a whole experiment. Runs that are none of ours are nobody's."""
    by_row: dict[str, list[Run]] = {}
    for run in _search(client, experiment, ""):
        if row := run.data.tags.get("row"):
            by_row.setdefault(row, []).append(run)
    return {row: grouped(runs) for row, runs in by_row.items()}


def now(client: MlflowClient, experiment: str, found_by: str) -> There:
    """The runs that a filter finds, such as a row's, as they are now."""
    return grouped(_search(client, experiment, found_by))


def _search(client: MlflowClient, experiment: str, wanted: str) -> list[Run]:
    found: list[Run] = []
    token = None
    while True:
        page = client.search_runs([experiment], wanted, max_results=MOST, page_token=token)
        found += page
        token = page.token
        if not token:
            return found
