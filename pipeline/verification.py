"""Everything that lies in the folder, compared with everything that vouches for it.

Prepared arrays have digests in their manifests, raw files in the catalogue, weights and curves in the runs.
What is spent follows from settings, and ledgers from what is spent. DVC's lock has signed them all; MLflow is
drawn from records. Whoever can rewrite all of these at once can make anything up, but no ledger.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from pipeline.data import prepared
from pipeline.data.own import sets
from pipeline.data.raw import RAW
from pipeline.errors import UserError
from pipeline.files import Damaged, check_file
from pipeline.ledgers import accounts
from pipeline.ledgers.declared import check_spending
from pipeline.ledgers.precision import SAME
from pipeline.ledgers.rows import entries
from pipeline.methods.base import Execution
from pipeline.params import Settings
from pipeline.results import records
from pipeline.results.schema import Entry, Ledger
from pipeline.results.weights import weights_path
from pipeline.tracking import publishing
from pipeline.tracking.store import STORE
from pipeline.training.evaluation import evaluate
from pipeline.transport import dvclock

# of a share: a few images of ten thousand may fall to the other side of a boundary by rounding
MEASURED = 1e-3


@dataclass(frozen=True)
class Finding:
    """What was compared, what is wrong with it (None: nothing), and what could not be compared here."""

    subject: str
    wrong: str | None
    unchecked: str | None = None


def verify(settings: Settings, measure: bool = False) -> Iterator[Finding]:
    """Compare all there is, a finding each.

    Args:
        settings: all settings.
        measure: whether weights that are here are measured again, where their data are here too.
    """
    for name in settings.raw:
        if (RAW / name).exists():
            yield _finding(f"{RAW / name}", partial(_raw, name, settings))
    for name in (*settings.data, *settings.derived):
        if (prepared.PREPARED / name).exists():
            yield _finding(f"{prepared.PREPARED / name}", partial(_prepared, name))
    for key in settings.accounts:
        if records.ledger_path(key).exists():
            yield _finding(key, partial(_account, key, settings))
    for key in settings.rows:
        if records.run_path(key).exists() or records.ledger_path(key).exists():
            yield _finding(key, partial(_row, key, settings, measure))
    for path, stage in dvclock.changed():
        yield Finding(f"{path}", f"is not what {dvclock.LOCK} has of {stage}")
    if STORE.exists():
        yield _finding(f"{STORE}", partial(_published, settings))


def _finding(subject: str, compare: Callable[[], str | None]) -> Finding:
    """``compare`` returns what it could not compare."""
    try:
        unchecked = compare()
    except (UserError, Damaged, OSError) as problem:
        return Finding(subject, str(problem))
    return Finding(subject, None, unchecked)


def _raw(name: str, settings: Settings) -> None:
    sets.load(name, settings)


def _prepared(name: str) -> None:
    """Also the arrays that training doesn't read."""
    data, folder = prepared.load(name), prepared.PREPARED / name
    for array, digest in data.digests.items():
        suffix = "npz" if array in ("start", "relevance") else "npy"
        check_file(folder / f"{array}.{suffix}", digest)
    if "digest" in (text := data.manifest.get("text", {})):
        check_file(folder / "vocabulary.txt", text["digest"])


def _account(key: str, settings: Settings) -> None:
    line, kept = settings.accounts[key], records.read_ledgers(key)
    if kept is not None:
        _compare(key, kept.replicas, [accounts.entry(line.level(own), own) for own in line.resolved])


def _row(key: str, settings: Settings, measure: bool) -> str | None:
    """A row's files, each compared with the one before: settings, run, weights, evaluation, ledger."""
    row, run, ledgers = settings.rows[key], records.read_run(key), records.read_ledgers(key)
    records.read(key, row)
    if run is None:
        return None
    check_file(records.history_path(key), run.history)
    paths = [(weights_path(key, one.level, one.seed), one.weights) for one in run.replicas]
    here = [(path, weights) for path, weights in paths if path.exists()]
    for path, weights in here:
        check_file(path, weights)
    if wrong := records.unmeasured(key):
        raise UserError(f"{records.evaluation_path(key)}: {wrong[0]}: of other weights than ran, or missing")
    ran = {(one.level, one.seed) for one in run.replicas}
    planned = [(row.level(own), seed) for own, seed in row.trainings] if row.plan else []
    if missing := next((name for name in planned if name not in ran), None):
        raise UserError(
            f"{records.run_path(key)}: {missing[0]}, seed {missing[1]}: missing, though plan {row.plan!r} "
            f"has it; `dprepro train {key}`"
        )
    check_spending(run, settings)
    if ledgers is not None:
        _compare(key, ledgers.replicas, entries(run, row.search))
    if len(here) < len(paths):
        return f"accuracies: {len(paths) - len(here)} of {len(paths)} weights are not here"
    if not measure or prepared.digests_here(row.data) is None:
        return "accuracies: --measure compares them where the data are"
    _measure(key, settings)
    return None


def _measure(key: str, settings: Settings) -> None:
    """Measure a row's weights anew, apart from what is kept, and compare.

    Raises:
        UserError: a metric is another.
    """
    kept, here = records.read_evaluation(key), Path().resolve()
    how = Execution(torch.device("cpu"), replicas_at_once=1, physical=256)
    with TemporaryDirectory() as folder:
        apart = Path(folder)
        for path in (Path("runs"), records.RUNS):
            (apart / path).parent.mkdir(parents=True, exist_ok=True)
            (apart / path).symlink_to(here / path)
        evaluate(key, settings, prepared.load(settings.rows[key].data), how, apart)
        again = records.read_evaluation(key, apart)
    assert kept is not None, "what is not measured was refused before"
    assert again is not None, "it was just written"
    for one, other in zip(kept.replicas, again.replicas, strict=True):
        for name, value in one.metrics.items():
            if not isclose(value, other.metrics.get(name, -1.0), abs_tol=MEASURED):
                raise UserError(
                    f"{records.evaluation_path(key)}: {one.level}, seed {one.seed}: {name} is {value:g}, and "
                    f"its weights reach {other.metrics.get(name, -1.0):g}"
                )


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
