"""Everything that lies in the folder, compared with everything that vouches for it.

Prepared arrays have digests in their manifests, raw files in the catalogue, weights and curves in the runs.
What is spent follows from settings, and ledgers from what is spent. DVC's lock has signed them all; MLflow is
drawn from records. Whoever can rewrite all of these at once can make anything up, but no ledger.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isclose

from pipeline.data import prepared
from pipeline.data.own import sets
from pipeline.data.raw import RAW
from pipeline.errors import UserError
from pipeline.files import Damaged, check_file
from pipeline.ledgers import accounts
from pipeline.ledgers.declared import check_spending
from pipeline.ledgers.precision import SAME
from pipeline.ledgers.rows import entries
from pipeline.params import Settings
from pipeline.results import records
from pipeline.results.records import Entry, Ledger
from pipeline.results.weights import weights_path
from pipeline.tracking import publishing
from pipeline.tracking.store import STORE
from pipeline.transport import dvclock


@dataclass(frozen=True)
class Finding:
    """What was compared, and what is wrong with it; None: nothing."""

    subject: str
    wrong: str | None


def verify(settings: Settings) -> Iterator[Finding]:
    """Compare all there is, a finding each."""
    for name in settings.raw:
        if (RAW / name).exists():
            yield _finding(f"{RAW / name}", partial(sets.load, name, settings))
    for name in (*settings.data, *settings.derived):
        if (prepared.PREPARED / name).exists():
            yield _finding(f"{prepared.PREPARED / name}", partial(_prepared, name))
    for key in settings.lines:
        if records.run_path(key).exists() or records.ledger_path(key).exists():
            yield _finding(key, partial(_line, key, settings))
    for path, stage in dvclock.changed():
        yield Finding(f"{path}", f"is not what {dvclock.LOCK} has of {stage}")
    if STORE.exists():
        yield _finding(f"{STORE}", partial(_published, settings))


def _finding(subject: str, compare: Callable[[], object]) -> Finding:
    try:
        compare()
    except (UserError, Damaged, OSError) as problem:
        return Finding(subject, str(problem))
    return Finding(subject, None)


def _prepared(name: str) -> None:
    """Also the arrays that training doesn't read."""
    data, folder = prepared.load(name), prepared.PREPARED / name
    for array, digest in data.digests.items():
        suffix = "npz" if array in ("start", "relevance") else "npy"
        check_file(folder / f"{array}.{suffix}", digest)
    if "digest" in (text := data.manifest.get("text", {})):
        check_file(folder / "vocabulary.txt", text["digest"])


def _line(key: str, settings: Settings) -> None:
    """A row's or an account's files, each compared with the one before."""
    run, kept = records.read_run(key), records.read_ledgers(key)
    records.read(key, settings.lines[key])
    if run is None:
        if key in settings.accounts and kept is not None:
            line = settings.accounts[key]
            _compare(key, kept.replicas, [accounts.entry(line.level(own), own) for own in line.resolved])
        return
    check_file(records.history_path(key), run.history)
    for one in run.replicas:
        path = weights_path(key, one.level, one.seed)
        if path.exists():
            check_file(path, one.weights)
    measured = records.read_evaluation(key)
    weights = {(one.level, one.seed): one.weights for one in run.replicas}
    for other in measured.replicas if measured else ():
        if weights.get((other.level, other.seed), other.weights) != other.weights:
            raise UserError(
                f"{records.evaluation_path(key)}: {other.level}, seed {other.seed}: of other weights"
            )
    check_spending(run, settings)
    if kept is not None:
        _compare(key, kept.replicas, entries(run, settings.rows[key].search))


def _compare(key: str, kept: tuple[Entry, ...], due: list[Entry]) -> None:
    """Ledgers as they are kept with those that are computed now.

    Raises:
        UserError: they differ.
    """
    known = {(one.level, one.seed): one.ledger for one in kept}
    for one in due:
        found = known.get((one.level, one.seed))
        if found is not None and (name := _differing(found, one.ledger)):
            raise UserError(
                f"{records.ledger_path(key)}: {one.level}, seed {one.seed}: {name} is not what is computed "
                "from what ran; account for it again"
            )


def _differing(kept: Ledger, due: Ledger) -> str | None:
    for name in ("claimed", "accounted", "shown", "noise_multiplier"):
        pair = (getattr(kept, name), getattr(due, name))
        if (None in pair and pair != (None, None)) or (None not in pair and not isclose(*pair, rel_tol=SAME)):
            return name
    for name in ("steps", "delta", "reasons", "protects"):
        if getattr(kept, name) != getattr(due, name):
            return name
    return None


def _published(settings: Settings) -> None:
    if missing := publishing.unpublished(publishing.declared(settings), settings):
        raise UserError(f"{', '.join(missing)}: not published as they are; run `dprepro publish`")
