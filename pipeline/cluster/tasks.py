"""What there is to do, as tasks that wait for each other. Read from records, prepared data and the lock."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.cluster.costs import costs
from pipeline.data import prepared
from pipeline.data.raw import RAW
from pipeline.errors import UserError
from pipeline.identity import entries
from pipeline.identity.plan import Planned, plan
from pipeline.identity.standing import Standing
from pipeline.params import Settings
from pipeline.pretrained.relevance import check_relevance
from pipeline.pretrained.starts import check_start
from pipeline.results import records
from pipeline.transport import dvclock

# Operations a second of training on one core here: the median of 75 rows. Only compares rows that never ran
A_CORE = 16e9

Command = tuple[str, ...]  # of dprepro: ('train', 'ROW')


@dataclass(frozen=True)
class Task:
    """Commands that one slot runs in turn."""

    name: str  # a row's key, or 'relevance@NAME' and the like, as DVC calls the stage
    commands: tuple[Command, ...]
    stages: tuple[str, ...]  # of DVC, which the results are signed as
    after: frozenset[str] = frozenset()  # names of tasks whose results it reads
    seconds: float | None = None  # that it took before, or is reckoned to take; None: nobody knows
    needs: str = "cpu"  # 'gpu': not to be tried on a CPU

    @property
    def trains(self) -> str | None:
        """The row that it trains."""
        return next((command[1] for command in self.commands if command[0] == "train"), None)


@dataclass(frozen=True)
class Todo:
    """Everything there is to do."""

    data: tuple[Task, ...]  # on this machine, before all else: others may have no network
    tasks: tuple[Task, ...]
    unsigned: tuple[str, ...]  # rows whose results are all here, and which the lock doesn't hold yet


def todo(settings: Settings, rows: Sequence[str] = (), audit: bool = False) -> Todo:
    """What ``rows`` lack, with all that they are made from; all rows and accounts where none is named.

    Args:
        settings: all settings.
        rows: keys of rows.
        audit: whether their code is attacked too, where that was not done yet.

    Raises:
        UserError: there is no such row.
    """
    for key in rows:
        settings.row(key)
    work = _Work(settings, list(dict.fromkeys(rows)) or list(settings.rows))
    own = [task for key in work.rows if (task := work.row(key)) is not None]
    alone = [
        *(work.alone("account", settings.accounts) if not rows else ()),
        *(work.alone("audit", work.asked) if audit else ()),
    ]
    busy = {task.name for task in own}
    return Todo(
        tuple(work.bare(task.name for task in own)),
        (*(work.derive(name) for name in work.derived), *own, *alone),
        tuple(key for key in work.rows if key not in busy and work.unsigned(key)),
    )


class _Work:
    """What is asked for, and what of it is here."""

    def __init__(self, settings: Settings, asked: list[str]):
        self.settings, self.asked = settings, asked
        # as on a machine with a GPU: who has one is found out later
        self.planned: dict[str, Planned] = {one.row: one for one in plan(settings, gpu=True)}
        found = entries.entries(settings)
        self.digests = {
            f"{stage}@{key}": digest
            for stage, table in found.items()
            if isinstance(table, dict)
            for key, digest in table.items()
        }
        self.signed = dvclock.Signed()
        # prepared data to join anew with something of a row, and all rows that this takes
        self.derived: list[str] = []
        self.rows = list(asked)
        for key in self.rows:  # grows while it is walked
            name = settings.rows[key].data
            if name in settings.derived and name not in self.derived and self._stale(name):
                self.derived.append(name)
                self.rows += [row for row in (settings.derived[name].row,) if row not in self.rows]

    def row(self, key: str) -> Task | None:
        """What a row lacks."""
        row, planned = self.settings.rows[key], self.planned.get(key)
        fresh = row.data in self.derived
        commands: list[Command] = [("train", key)] if planned or fresh else []
        if commands or not self._measured(key):
            commands.append(("evaluate", key))
        if commands or f"ledger@{key}" in self.unsigned(key):
            commands.append(("ledger", key))
        if not commands:
            return None
        return Task(
            key,
            tuple(commands),
            tuple(f"{stage}@{key}" for stage in dvclock.STAGES_OF_A_ROW),
            frozenset({f"{self.settings.stage_of(row.data)}@{row.data}"} if fresh else ()),
            self._seconds(key, planned) if commands[0][0] == "train" else 0.0,
            row.needs if commands[0][0] == "train" else "cpu",
        )

    def _seconds(self, key: str, planned: Planned | None) -> float | None:
        """How long training takes: as it did before, or as is reckoned from what there is to count."""
        if planned is None:
            return None
        if planned.seconds is not None:
            return planned.seconds
        try:
            found = costs(self.settings.rows[key], self.settings)
        except UserError:  # its training will say so
            return None
        share = planned.replicas / sum(one.replicas for one in found)
        return share * sum(one.operations for one in found) / A_CORE

    def derive(self, name: str) -> Task:
        """Join prepared data with something of a row."""
        kind, row = self.settings.stage_of(name), self.settings.derived[name].row
        stage = f"{kind}@{name}"
        return Task(stage, ((kind, name),), (stage,), frozenset({row} if self.row(row) else ()))

    def bare(self, keys: Collection[str] | Iterator[str]) -> Iterator[Task]:
        """Fetch and prepare what rows lack: what isn't here, or was prepared by other settings."""
        data = self.settings.data
        rows = [self.settings.rows[key] for key in keys]
        names = dict.fromkeys(
            self.settings.derived[row.data].data if row.data in self.settings.derived else row.data
            for row in rows
        )
        wanted = [name for name in names if not (prepared.PREPARED / name).exists() or self._otherwise(name)]
        raw = dict.fromkeys(one for name in wanted for one in (data[name].raw, data[name].public.raw))
        lacking = [one for one in raw if not (RAW / one).exists()]
        for name in lacking:
            stage = f"{'own' if name in self.settings.own else 'fetch'}@{name}"
            yield Task(stage, (("fetch", name),), (stage,))
        for name in wanted:
            yield Task(f"prepare@{name}", (("prepare", name),), (f"prepare@{name}",))

    def alone(self, kind: str, keys: Collection[str]) -> Iterator[Task]:
        """Of stages that read no other's results, those that the lock doesn't hold."""
        for key in keys:
            stage = f"{kind}@{key}"
            if self.signed.digests.get(stage) != self.digests[stage]:
                yield Task(stage, ((kind, key),), (stage,))

    def unsigned(self, key: str) -> list[str]:
        """Stages of a row that the lock doesn't hold with the files that are here."""
        names = {f"{stage}@{key}": _files(stage, key) for stage in dvclock.STAGES_OF_A_ROW}
        if not dvclock.available():  # nobody signs here
            return [name for name, files in names.items() if not all(path.exists() for path in files)]
        return [
            name for name, files in names.items() if not self.signed.holds(name, self.digests[name], files)
        ]

    def _stale(self, name: str) -> bool:
        """Whether prepared data come with something else than params.yaml means, or soon will."""
        if self.settings.derived[name].row in self.planned:
            return True
        try:
            data = prepared.load(name)
            check_start(data, self.settings)
            check_relevance(data, self.settings)
        except UserError:
            return True
        return False

    def _otherwise(self, name: str) -> bool:
        stage = f"prepare@{name}"
        return self.signed.digests.get(stage, self.digests[stage]) != self.digests[stage]

    def _measured(self, key: str) -> bool:
        """Whether all that a row trained was measured, by code like that here."""
        run, found = records.read_run(key), records.read_evaluation(key)
        if run is None or found is None:
            return False
        stands = Standing(self.settings.rows[key], None)
        measured = {(one.level, one.seed): one for one in found.replicas}
        ours = [measured.get((one.level, one.seed)) for one in run.replicas]
        return all(
            one is not None and one.weights == trained.weights and not stands.measured_otherwise(one)
            for one, trained in zip(ours, run.replicas, strict=True)
        )


def _files(stage: str, key: str) -> list[Path]:
    """The small files that a row's stage writes."""
    return {
        "train": [records.run_path(key), records.history_path(key)],
        "evaluate": [records.evaluation_path(key)],
        "ledger": [records.ledger_path(key)],
    }[stage]
