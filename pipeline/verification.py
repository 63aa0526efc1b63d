"""Comparison of everything in the folder with its digests and sources.

Manifests have digests of prepared arrays, the catalogue has those of raw files, run records have those of
weights and curves, and `dvc.lock` has those of all results. Further comparisons: candidates of a search with
params.yaml, its choice with their accuracies, spending with settings, ledgers with spending, plans and their
rows with the commits that trained the rows, and MLflow's runs with records. Consistent edits of results and
all their digests go unnoticed, except in ledgers, which are computed anew.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from dprepro.errors import UserError
from dprepro.pipeline.data.declaration import check_declared, data_here
from dprepro.pipeline.data.prepared import PREPARED
from dprepro.pipeline.data.prepared import load as load_prepared
from dprepro.pipeline.data.raw import RAW
from dprepro.pipeline.data.raw import check as check_raw
from dprepro.pipeline.files import Damaged, check_file
from dprepro.pipeline.identity import provenance
from dprepro.pipeline.identity.entries import entries
from dprepro.pipeline.identity.frozen import frozen_changed
from dprepro.pipeline.identity.validity import reason_invalid
from dprepro.pipeline.ledgers.compared import check_ledgers, check_row, check_search
from dprepro.pipeline.ledgers.declared import check_spending
from dprepro.pipeline.ledgers.ledger import fast_accountants
from dprepro.pipeline.ledgers.rows import account_entry
from dprepro.pipeline.params import PARAMS, Row, Settings, pick
from dprepro.pipeline.params.documents import parse_yaml
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import RowTrainings
from dprepro.pipeline.results.weights import repeated, weights_path
from dprepro.pipeline.transport.dvclock import LOCK, Lock, stages_of

# largest allowed difference, in seconds, between the clocks of two machines: one commits, one trains
CLOCKS = 600.0
SLOW = "epsilons of slow accountants: `dprepro verify` compares them"


@dataclass(frozen=True)
class Finding:
    """Result of the comparison of one subject."""

    subject: str
    wrong: str | None  # the error; None: all compared parts are correct
    unchecked: str | None = None  # parts that could not be compared


def verify(settings: Settings, lines: Collection[str] = ()) -> Iterator[Finding]:
    """Compare records, weights and data with their digests and sources; yield a finding for each.

    ``lines``: rows and accounts to compare; empty: all, and everything else in the folder.

    Raises:
        UserError: a row or account in ``lines`` doesn't exist.
    """
    known = {**settings.accounts, **settings.rows}
    for key in lines:
        pick(known, key, "row or account")
    if not lines:
        yield from _folder_findings(settings)
    lock = Lock()
    for path, stage in lock.changed(lines):
        key, present = stage.partition("@")[2], path.exists()
        if present or not key or key in known:  # results without a declaration may be deleted
            what = "is not what" if present else "is missing, which"
            yield Finding(f"{path}", f"{what} {LOCK} has of {stage}")
    asked = {settings.rows[key].search for key in lines if key in settings.rows}
    searches = [path for path in sorted(records.SEARCHES.glob("*.json")) if not lines or path.stem in asked]
    ledgers = cache(lambda: entries(settings)["ledger"])
    for path in searches:
        yield _finding(f"{path}", partial(_search, path.stem, settings, lock, ledgers))
    for key in settings.accounts:
        if key in lines or (not lines and records.ledger_path(key).exists()):
            yield _finding(key, partial(_account, key, settings, bool(lines)))
    for key in settings.rows:
        has_records = records.run_path(key).exists() or records.ledger_path(key).exists()
        if key in lines or (not lines and has_records):
            yield _finding(key, partial(_row, key, settings, lock, bool(lines)))


def _folder_findings(settings: Settings) -> Iterator[Finding]:
    """Findings about data and the MLflow store, which belong to no single row."""
    for name in settings.raw:
        if (RAW / name).exists():
            yield _finding(f"{RAW / name}", partial(_raw, name, settings))
    for name in (*settings.data, *settings.derived):
        if (PREPARED / name).exists():
            yield _finding(f"{PREPARED / name}", partial(_prepared, name, settings))


def _finding(subject: str, compare: Callable[[], str | None]) -> Finding:
    """Finding of ``compare``, which returns what it couldn't compare, and raises an error at a difference."""
    try:
        unchecked = compare()
    except OSError as problem:
        return Finding(subject, f"{problem.filename}: can't be read: {problem.strerror}")
    except (UserError, Damaged) as problem:
        return Finding(subject, str(problem))
    return Finding(subject, None, unchecked)


def _raw(name: str, settings: Settings) -> None:
    check_raw(name, settings)


def _prepared(name: str, settings: Settings) -> None:
    """Compare a prepared data set with its declaration, and all arrays, even those that no training reads."""
    check_declared(name, settings)
    data, folder = load_prepared(name), PREPARED / name
    for array, digest in data.digests.items():
        suffix = "npz" if array in ("start", "relevance") else "npy"
        check_file(folder / f"{array}.{suffix}", digest)
    if "digest" in (text := data.manifest.get("text", {})):
        check_file(folder / "vocabulary.txt", text["digest"])


def _account(key: str, settings: Settings, quick: bool) -> str | None:
    """Compare an account's ledgers; ``quick``: as in `_row`."""
    line, stored = settings.accounts[key], records.read_ledgers(key)
    if stored is None:
        return "it has no ledger"
    others = fast_accountants() if quick else None
    computed = [account_entry(line.level(resolved), resolved, others) for resolved in line.resolved]
    check_ledgers(stored, computed, quick=quick)
    return SLOW if quick else None


def _search(name: str, settings: Settings, lock: Lock, ledgers: Callable[[], dict[str, str]]) -> str | None:
    """Compare a search's record with params.yaml and `dvc.lock`: candidates, accuracies, spending, digest.

    ``ledgers`` returns the present digests of ledger stages by row; they cover the rows' searches.
    """
    record = records.read_search(name)
    if record is None or name not in settings.searches:
        return f"{PARAMS} has no such search"
    check_search(record, settings)
    rows = [key for key, each in settings.rows.items() if each.search == name or key == record.row]
    signed = {key: lock.digests[f"ledger@{key}"] for key in rows if f"ledger@{key}" in lock.digests}
    if wrong := next((key for key, digest in signed.items() if digest != ledgers()[key]), None):
        raise UserError(
            f"not what {LOCK} has of ledger@{wrong}; `git checkout` the file or run "
            f"`dvc repro ledger@{wrong}`"
        )
    unchecked = [] if signed else [f"signature: {LOCK} has no ledger of its row"]
    if record.definition != records.definition_of(name, settings, record.provenance):
        unchecked.append("settings outside the grid: others than now, or recorded in another way")
    return "; ".join(unchecked) or None


def check_plan(key: str, run: RowTrainings, settings: Settings) -> str | None:
    """Compare a row's recorded plan with the plan in params.yaml, now and in the commits that trained it.

    The row must have been in these commits too, with this plan and with the settings that decide its numbers.

    Returns:
        What could not be compared, because no commit of params.yaml is recorded; otherwise None.

    Raises:
        UserError: the plans or the rows differ.
    """
    name, planned = settings.rows[key].plan, settings.plan_digest(key)
    if name is None:
        return None
    if any(origin.plan != planned for origin in run.origins):
        raise UserError(
            f"{records.run_path(key)}: plan {name!r}: not the one of {PARAMS} that it was trained under"
        )
    unchecked = f"order of plan {name!r} and training: no commit of this {PARAMS} is recorded"
    if not provenance.is_checkout_here():
        return unchecked
    starts: dict[str, float] = {}  # of the first training that recorded a commit
    for each in run.trainings:
        if revision := each.origin.revision:
            starts[revision] = min(starts.get(revision, each.started), each.started)
    for revision, begun in sorted(starts.items()):
        if _params_at(revision) is None:
            continue
        if (differing := _differing(key, revision, settings)) is not None:
            where = f"in commit {revision[:8]}, which trained {key}"
            raise UserError(f"{PARAMS}: {differing}: not what it was {where}")
        # a training that is stopped and resumed records the commit of its end
        first = provenance.last_commit(revision, begun + CLOCKS)
        if first != revision and (first is None or _differing(key, first, settings) is not None):
            raise UserError(
                f"{records.run_path(key)}: began before commit {revision[:8]}, which has plan {name!r}"
            )
    return unchecked if any(origin.revision is None for origin in run.origins) else None


@cache
def _params_at(revision: str) -> dict[str, Any] | None:
    """Content of params.yaml at a commit; None if git doesn't have the commit."""
    text = provenance.committed_text(PARAMS, revision)
    return None if text is None else _parsed(text)


@cache
def _parsed(params: str) -> dict[str, Any]:
    return parse_yaml(params, PARAMS) or {}


def _differing(key: str, revision: str, settings: Settings) -> str | None:
    """First key of params.yaml that decides a planned row's trainings and had another value at a commit.

    None: none had. If today's code can't read the commit's row, only the plan is compared.
    """
    then, row = _params_at(revision) or {}, settings.rows[key]
    if (then.get("plans") or {}).get(row.plan) != settings.plans[str(row.plan)].model_dump(mode="json"):
        return f"plans.{row.plan}"
    entry = (then.get("rows") or {}).get(key)
    if entry is None:
        return f"rows.{key}"
    if entry.get("plan") != row.plan:
        return f"rows.{key}.plan"
    try:
        before = Row.model_validate(entry)
        if before.search and (searched := records.read_search(before.search)):
            # commits of former versions have what the search chose in its record alone
            chosen = before.with_chosen({before.search: searched.chosen})
            levels = [found | typed for found, typed in zip(chosen, before.levels, strict=True)]
            before = Row.model_validate({**entry, "levels": levels})
    except ValueError:
        return None
    for name in ("data", "model", "method", "reproducible", "trainings"):
        if getattr(before, name) != getattr(row, name):
            return f"rows.{key}" if name == "trainings" else f"rows.{key}.{name}"
    return None


def _row(key: str, settings: Settings, lock: Lock, quick: bool) -> str | None:
    """Compare a row's settings, run, weights, evaluation and ledger, each with the previous in this list.

    Return the parts that were not compared. A ``quick`` comparison leaves out accountants of libraries that
    take seconds to import.
    """
    row, run, ledgers = settings.rows[key], records.read_run(key), records.read_ledgers(key)
    records.read(key, row)
    if run is None:
        return "nothing ran"
    paths = [(weights_path(key, *training.key), training.weights) for training in run.trainings]
    present_weights = [(path, weights) for path, weights in paths if path.exists()]
    for path, weights in present_weights:
        check_file(path, weights)
    if twins := repeated(run.trainings):
        raise UserError(f"{records.run_path(key)}: {twins}")
    measured = records.read_evaluation(key).by_key
    records.check_measured(run, measured)
    ran = {training.key for training in run.trainings}
    planned = [(row.level(resolved), seed) for resolved, seed in row.trainings] if row.plan else []
    missing = [name for name in planned if name not in ran]
    unplanned = check_plan(key, run, settings)
    data = data_here(key, settings)
    for trained in run.trainings:
        if reason := reason_invalid(trained, row, data, frozen_changed, code=False):
            raise UserError(
                f"{records.run_path(key)}: {trained.level}, seed {trained.seed}: {reason}: not what "
                f"{PARAMS} has; `dprepro train {key}`"
            )
    check_spending(run, settings)
    unchecked = [SLOW] if quick else []
    if ledgers is None:
        unchecked = [f"epsilon: there is no ledger; `dprepro ledger {key}` makes it"]
    else:
        check_row(ledgers, run, row.search, settings, quick)
    revisions = sorted({origin.revision for origin in run.origins if origin.revision})
    if lost := [revision[:8] for revision in revisions if provenance.is_lost(revision)]:
        unchecked.append(f"code: commit {', '.join(lost)} is not in this repository")
    if unsigned := [stage for stage in stages_of(key) if not lock.signs(stage)]:
        unchecked.append(f"signature: {LOCK} has no {', '.join(unsigned)}")
    if unplanned is not None:
        unchecked.append(unplanned)
    if missing:  # without its seeds, a plan decides nothing
        unchecked.append(f"plan: {len(missing)} of {len(planned)} trainings are missing; it has no status")
    if old := sum(each.test_errors is None for each in measured.values()):
        unchecked.append(f"predictions: {old} of {len(run.trainings)} trainings have none in the record")
    if len(present_weights) < len(paths):
        elsewhere = any(trained.origin.adopted for trained in run.trainings)
        unchecked.append(
            f"accuracies: {len(paths) - len(present_weights)} of {len(paths)} weights are not here"
            + ("; measured elsewhere, not measured again" if elsewhere else "")
        )
    else:
        unchecked.append(f"accuracies: `dprepro evaluate {key} --again` compares them where the data are")
    return "; ".join(unchecked) or None
