"""Missing work as a graph of tasks, from records, prepared data and dvc.lock."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from dprepro.errors import UserError
from dprepro.pipeline.cluster.costs import seconds
from dprepro.pipeline.cluster.worker import Task
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.declaration import prepared_here
from dprepro.pipeline.data.raw import RAW
from dprepro.pipeline.identity import entries
from dprepro.pipeline.identity.plan import Planned, plan
from dprepro.pipeline.identity.status import lacks_measuring
from dprepro.pipeline.params import Settings
from dprepro.pipeline.pretrained.joining import check_joined
from dprepro.pipeline.results import records
from dprepro.pipeline.transport import dvclock

AT_LEAST = 1e-3  # least duration of a task in seconds; above 0, so that a task precedes those that need it


@dataclass(frozen=True)
class Todo:
    """Missing work: tasks, and rows whose results lack only an entry in dvc.lock."""

    tasks: tuple[Task, ...]
    unsigned: tuple[str, ...]  # rows with all results, but without an entry in dvc.lock


def longest_path_first(tasks: Iterable[Task]) -> list[Task]:
    """Tasks in the order of submission: longest remaining path first, no task before its dependencies.

    A task's path is the longest chain of tasks that wait for one another, from this task on. A long path that
    starts last would delay the end.
    """
    every = {task.name: task for task in tasks}
    then: dict[str, list[str]] = {name: [] for name in every}
    for task in every.values():
        for name in task.after & every.keys():
            then[name].append(task.name)

    @cache
    def path(name: str) -> float:
        return max(AT_LEAST, every[name].seconds) + max(map(path, then[name]), default=0.0)

    return sorted(every.values(), key=lambda task: (-path(task.name), task.name))


def todo(
    settings: Settings, rows: Sequence[str] = (), audit: bool = False, options: Sequence[str] = ()
) -> Todo:
    """Missing work for ``rows`` and for everything that they need; by default for all rows and accounts.

    Named rows are tried even without a GPU. With ``audit``, missing attacks on the rows' code are included.
    ``options`` are further arguments of `dprepro train`.

    Raises:
        UserError: there is no such row.
    """
    for key in rows:
        settings.row(key)
    work = _Work(settings, list(dict.fromkeys(rows)), options)
    lacking = [task for key in work.rows if (task := work.row(key)) is not None]
    trained_or_measured = [task.name for task in lacking if task.commands[0][0] != "ledger"]
    busy = {task.name for task in lacking}
    tasks = (
        *work.prepare([*trained_or_measured, *(settings.derived[name].row for name in work.derived)]),
        *map(work.derive, work.derived),
        *lacking,
        *(work.unsigned_tasks("account", settings.accounts) if not rows else ()),
        *(work.unsigned_tasks("audit", rows or settings.rows) if audit else ()),
    )
    return Todo(tasks, tuple(key for key in work.rows if key not in busy and work.unsigned(key)))


class _Work:
    """Requested rows, and their present results."""

    def __init__(self, settings: Settings, named: list[str], options: Sequence[str]):
        self.settings, self.named, self.options = settings, named, options
        # as on a machine with a GPU; workers check for one later
        self.planned: dict[str, Planned] = {row.row: row for row in plan(settings, gpu=True)}
        self.digests = entries.entries(settings)  # by stage and key
        self.signed = dvclock.Lock()
        # prepared data to write again with a row's weights or relevances, and all rows that this needs
        self.derived: list[str] = []
        self.rows = list(named or settings.rows)
        for key in self.rows:  # grows during the loop
            name = settings.rows[key].data
            if name in settings.derived and name not in self.derived and self._stale(name):
                self.derived.append(name)
                self.rows += [row for row in (settings.derived[name].row,) if row not in self.rows]

    def row(self, key: str) -> Task | None:
        """Task of a row's missing results; None if nothing is missing."""
        row, planned = self.settings.rows[key], self.planned.get(key)
        fresh = row.data in self.derived
        commands: list[tuple[str, ...]] = [("train", key, *self.options)] if planned or fresh else []
        if commands or lacks_measuring(key):
            commands.append(("evaluate", key))
        if commands or "ledger" in self.unsigned(key):
            commands.append(("ledger", key))
        if not commands:
            return None
        trains = commands[0][0] == "train"
        return Task(
            key,
            tuple(commands),
            dvclock.stages_of(key),
            frozenset({self._stage(row.data)}),
            seconds(self.settings, planned) or 0.0 if planned else 0.0,
            row.needs if trains else "cpu",
            named=key in self.named,
        )

    def derive(self, name: str) -> Task:
        """Task that writes prepared data with a row's weights or relevances, once row and data are ready."""
        joined, stage = self.settings.derived[name], self._stage(name)
        behind = self.settings.rows[joined.row].data
        after = frozenset({joined.row, self._stage(joined.data), self._stage(behind)})
        return Task(stage, ((self.settings.stage_of(name), name),), (stage,), after)

    def prepare(self, keys: Iterable[str]) -> Iterator[Task]:
        """Tasks that fetch and prepare the rows' missing or outdated data."""
        data = self.settings.data
        rows = [self.settings.rows[key] for key in keys]
        names = dict.fromkeys(
            self.settings.derived[row.data].data if row.data in self.settings.derived else row.data
            for row in rows
        )
        wanted = [
            name
            for name in names
            if self._outdated(self._stage(name)) or not prepared_here(name, self.settings)
        ]
        raw = dict.fromkeys(key for name in wanted for key in (data[name].raw, data[name].public.raw))
        stages = {key: f"{'own' if key in self.settings.own else 'fetch'}@{key}" for key in raw}
        stages = {
            key: stage for key, stage in stages.items() if not (RAW / key).exists() or self._outdated(stage)
        }
        for name, stage in stages.items():
            yield Task(stage, (("fetch", name),), (stage,), here=True)
        for name in wanted:
            raws = (data[name].raw, data[name].public.raw)
            after = frozenset(stages[raw] for raw in raws if raw in stages)
            stage = self._stage(name)
            yield Task(stage, (("prepare", name),), (stage,), after, here=True)

    def unsigned_tasks(self, kind: str, keys: Collection[str]) -> Iterator[Task]:
        """Tasks of one kind whose file has no valid entry in dvc.lock; they need no other results."""
        path = records.ledger_path if kind == "account" else records.audit_path
        for key in keys:
            stage = f"{kind}@{key}"
            if not self.signed.holds(stage, self.digests[kind][key], [path(key)]):
                yield Task(stage, ((kind, key),), (stage,))

    def unsigned(self, key: str) -> list[str]:
        """Stages of a row whose files have no entry in dvc.lock; without DVC, stages that lack files."""
        files = {
            "train": [records.run_path(key), records.history_path(key)],
            "evaluate": [records.evaluation_path(key)],
            "ledger": [records.ledger_path(key)],
        }
        if not dvclock.available():  # there is no lock to sign
            return [stage for stage, paths in files.items() if not all(path.exists() for path in paths)]
        return [
            stage
            for stage, paths in files.items()
            if not self.signed.holds(f"{stage}@{key}", self.digests[stage][key], paths)
        ]

    def _stale(self, name: str) -> bool:
        """Return whether weights or relevances in prepared data are outdated, or will be after a training."""
        stage, row = self._stage(name), self.settings.derived[name].row
        # the code's version has changed since it was written, or the network was trained again
        trained_again = row in self.planned or self.signed.read_another(stage, records.run_path(row))
        if trained_again or self._outdated(stage):
            return True
        try:
            check_joined(prepared.load(name), self.settings)
        except UserError:
            return True
        return False

    def _stage(self, name: str) -> str:
        """DVC stage of a prepared data set."""
        return f"{self.settings.stage_of(name)}@{name}"

    def _outdated(self, stage: str) -> bool:
        """Return whether data were signed with other settings or by another version of the code."""
        kind, _, name = stage.partition("@")
        digest = self.digests[kind][name]
        return self.signed.digests.get(stage, digest) != digest
