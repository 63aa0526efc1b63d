"""Summary of valid results, of missing results and of the reasons, in a few lines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dprepro.errors import counted
from dprepro.pipeline.identity.plan import NEVER, rows_to_train
from dprepro.pipeline.identity.validity import reason_unmeasured
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records

NAMED = 5  # rows named in a line
MOST = 8  # lines of reasons


@dataclass(frozen=True)
class Status:
    """Rows by their missing work; each row is in one field only."""

    stand: tuple[str, ...]  # trained, measured and accounted for by the present settings and code
    waiting: tuple[str, ...]  # rows that wait for a GPU
    untrained: tuple[str, ...]  # some or all trainings never ran
    changed: dict[str, tuple[str, ...]]  # by the reason why trainings are invalid
    unmeasured: tuple[str, ...]
    unaccounted: tuple[str, ...]
    accounts: tuple[int, int]  # number of accounts with a valid ledger, and of all accounts


def status(settings: Settings, gpu: bool) -> Status:
    """Compare recorded results with declared ones, without reading weights or data.

    Raises:
        UserError: a record is damaged.
    """
    planned = {each.row: each for each in rows_to_train(settings, gpu)}
    waiting = [key for key, each in planned.items() if each.waits]
    todo = [each for each in planned.values() if not each.waits]
    changed: dict[str, list[str]] = {}
    for each in todo:
        for reason in each.reasons:
            if reason != NEVER:
                changed.setdefault(reason, []).append(each.row)
    rest = [key for key in settings.rows if key not in planned]
    unmeasured = [key for key in rest if lacks_measuring(key)]
    unaccounted = [key for key in rest if key not in unmeasured and _unaccounted(key)]
    ledgers = {key: records.read_ledgers(key) for key in settings.accounts}
    accounted = [key for key, kept in ledgers.items() if kept and kept.config == settings.account_digest(key)]
    return Status(
        tuple(key for key in rest if key not in (*unmeasured, *unaccounted)),
        tuple(waiting),
        tuple(each.row for each in todo if each.reasons == (NEVER,)),
        {reason: tuple(keys) for reason, keys in changed.items()},
        tuple(unmeasured),
        tuple(unaccounted),
        (len(accounted), len(settings.accounts)),
    )


def lines(rows: Status) -> Iterator[str]:
    """At most 20 lines: for each kind of missing work the number of rows, some rows, and the command."""
    yield f"{counted(len(rows.stand), 'row')} with valid results"
    for keys, what in (
        (rows.waiting, "waiting for a GPU"),
        (rows.untrained, "to train: never ran, or lack seeds or levels"),
        (rows.unmeasured, "trained, and not measured by the code here: `dprepro evaluate ROW`"),
        (rows.unaccounted, "trained, and not accounted for: `dprepro ledger ROW`"),
    ):
        if keys:
            yield f"{len(keys)} {what}: {_named(keys)}"
    for reason, keys in [*rows.changed.items()][:MOST]:
        yield f"{len(keys)} changed ({reason}): {_named(keys)}"
    if (more := len(rows.changed) - MOST) > 0:
        yield f"and {more} more reasons: `dprepro plan`"
    yield "accounts with a valid ledger: {} of {}".format(*rows.accounts)


def _named(keys: Iterable[str]) -> str:
    every = list(keys)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more


def lacks_measuring(key: str) -> bool:
    """Return whether a trained row lacks accuracies by the present version of the measuring code."""
    run, measured = records.read_run(key), records.read_evaluation(key).by_key
    return run is None or any(reason_unmeasured(measured.get(each.key), each) for each in run.trainings)


def _unaccounted(key: str) -> bool:
    run, ledgers = records.read_run(key), records.read_ledgers(key)
    due = {training.key for training in run.trainings} if run else set()
    return ledgers is None or not due <= ledgers.by_training.keys()
