"""One of each, however many publish at once.

An MLflow server has no lock, so that publishers can only look. Whoever has finished a row's runs, which the
digest on its head says, looks at all runs of that row: of those that are finished the one that ranks highest
stays, by a rank that is the same for all who look, and all others go, unfinished ones too. Then it looks
again, and is done when there is one and nothing to delete; where that one is gone, it writes again.

So never two are left: whoever of two looked last saw both. And never none: whoever deleted last looked after
that. Runs that go while their publisher still writes fail it; it looks, finds the others', and clears
its own.

So that twenty publishers don't do everything twenty times, each begins elsewhere, and comes back later to
rows that somebody else is writing. One who stops writing for `PATIENCE` is taken for dead.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mlflow import MlflowClient
from mlflow.entities import RunTag
from mlflow.exceptions import MlflowException

from pipeline.errors import UserError
from pipeline.tracking import families
from pipeline.tracking.families import DIGEST, PUBLISHED, There

PATIENCE = 20.0  # seconds without a new run
PAUSE = 0.5  # seconds between looks at a row that somebody else is writing
TRIES = 20  # a write, a look and a deletion are one each


@dataclass(frozen=True)
class Wanted:
    """A row's runs as they are to be."""

    row: str
    experiment: str
    found_by: str  # the filter that finds all its runs
    digest: str
    runs: int
    begin: Callable[[MlflowClient], str]  # makes the head, and returns its id
    fill: Callable[[MlflowClient, str], None]  # logs what it holds and makes those below it


def bring(
    client: MlflowClient, wanted: Sequence[Wanted], there: dict[str, There] | None
) -> Iterator[tuple[Wanted, bool]]:
    """See to it that each is there, once; gives each when it is, and whether this wrote it.

    ``there`` is what the store has of each row, of somebody who is alone in it; None: others may be writing.
    """
    left = deque(wanted)
    seen: dict[str, tuple[frozenset[str], float]] = {}  # what others were writing, and since when
    postponed = 0
    while left:
        one = left.popleft()
        if there is None:
            found = families.now(client, one.experiment, one.found_by)
        else:
            found = there.get(one.row, There((), ()))
        if there is None and _at_work(one, found, seen):
            left.append(one)
            postponed += 1
            if postponed >= len(left):
                time.sleep(PAUSE)
                postponed = 0
            continue
        postponed = 0
        yield one, _bring_one(client, one, found)


def _at_work(one: Wanted, found: There, seen: dict[str, tuple[frozenset[str], float]]) -> bool:
    """Whether somebody else is writing the row, who was seen to do so within `PATIENCE`."""
    if found.kept is not None and found.kept.whole(one.digest, one.runs):
        return False
    unfinished = frozenset(
        run.info.run_id for family in found.families if not family.digest for run in family.members
    )
    if not unfinished:
        return False
    now = time.monotonic()
    if one.row not in seen or seen[one.row][0] != unfinished:
        seen[one.row] = (unfinished, now)
    return now - seen[one.row][1] < PATIENCE


def _bring_one(client: MlflowClient, one: Wanted, found: There) -> bool:
    written = False
    for _ in range(TRIES):
        kept = found.kept
        # once written, somebody else's of another record stays where it came after ours
        if kept is None or not (written or kept.whole(one.digest, one.runs)):
            written = _written(client, one, found)
        elif found.others:
            _delete(client, found)
        else:
            return written
        found = families.now(client, one.experiment, one.found_by)
    raise UserError(f"MLflow: {one.row}: others replace its runs as often as they are written")


def _written(client: MlflowClient, one: Wanted, found: There) -> bool:
    """Write the row's runs; False: somebody else who had finished theirs deleted them meanwhile."""
    head = one.begin(client)
    try:
        one.fill(client, head)
        tags = [RunTag(DIGEST, one.digest), RunTag(PUBLISHED, _after(found))]
        client.log_batch(head, tags=tags)
    except MlflowException:
        if client.get_run(head).info.lifecycle_stage == "active":
            raise
        return False
    return True


def _after(found: There) -> str:
    """Now, or just after the last that is there, where that clock goes ahead of this one."""
    now = datetime.now(UTC)
    last = max((one.published for one in found.families), default="")
    if last >= now.isoformat(timespec="microseconds"):
        now = datetime.fromisoformat(last) + timedelta(microseconds=1)
    return now.isoformat(timespec="microseconds")


def _delete(client: MlflowClient, found: There) -> None:
    """Mark all but those to keep as deleted; somebody else may just have done so."""
    for run in found.others:
        try:
            client.delete_run(run.info.run_id)
        except MlflowException:
            if client.get_run(run.info.run_id).info.lifecycle_stage == "active":
                raise
