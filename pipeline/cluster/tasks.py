"""Missing work, from records and dvc.lock: data for DVC to prepare, and a task for each row."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dprepro.errors import UserError
from dprepro.pipeline.data.declaration import prepared_here
from dprepro.pipeline.identity import entries
from dprepro.pipeline.identity.plan import rows_to_train
from dprepro.pipeline.identity.status import lacks_measuring
from dprepro.pipeline.params import Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.transport import dvclock

LOGS = Path(".dprepro/repro/logs")


@dataclass(frozen=True)
class RowWork:
    """Commands that one process runs in turn for a row."""

    name: str  # the row's key
    commands: tuple[tuple[str, ...], ...]  # arguments of dprepro: ('train', 'ROW')
    seconds: float = 0.0  # expected duration of the training; 0: none or not known
    needs: str = "cpu"  # or 'gpu'

    @property
    def log(self) -> Path:
        """Path of the commands' log."""
        return LOGS / f"{self.name}.log"


def rounds(settings: Settings, rows: Iterable[str]) -> list[list[str]]:
    """``rows`` in rounds. Rows whose networks are in other rows' data come earlier, even if not named."""
    found = [list(rows)]
    while behind := [settings.derived[name].row for name in _derived(settings, found[0])]:
        found.insert(0, behind)
    first = {key: number for number, keys in reversed([*enumerate(found)]) for key in keys}
    return [[key for key in dict.fromkeys(keys) if first[key] == number] for number, keys in enumerate(found)]


def _derived(settings: Settings, rows: Iterable[str]) -> list[str]:
    return [name for name in {settings.rows[key].data: None for key in rows} if name in settings.derived]


def missing_data(settings: Settings, rows: Sequence[str]) -> list[str]:
    """DVC stages of prepared data that ``rows`` need and that are missing here or outdated."""
    lock, digests = dvclock.Lock(), entries.entries(settings)
    lacking = {
        settings.rows[task.name].data for task in todo(settings, rows) if task.commands[0][0] != "ledger"
    }

    def usable(name: str) -> bool:
        from dprepro.pipeline.pretrained.loading import check_joined  # imports torch

        command, data = settings.stage_of(name), prepared_here(name, settings)
        digest = digests[command][name]
        if data is None or lock.digests.get(f"{command}@{name}", digest) != digest:
            return False  # not as declared now, or not by this version of the code
        with suppress(UserError):
            check_joined(data, settings)
            return True
        return False

    def trained_again(name: str) -> bool:
        path = records.run_path(settings.derived[name].row)
        return lock.read_another(f"{settings.stage_of(name)}@{name}", path)

    derived = [
        name
        for name in _derived(settings, rows)
        if trained_again(name) or (name in lacking and not usable(name))
    ]
    plain = {*(lacking - settings.derived.keys()), *(settings.derived[name].data for name in derived)}
    names = [*(name for name in sorted(plain) if not usable(name)), *derived]
    return [f"{settings.stage_of(name)}@{name}" for name in names]


def todo(settings: Settings, rows: Iterable[str], options: Sequence[str] = ()) -> list[RowWork]:
    """Missing results of ``rows``; ``options`` are further arguments of `dprepro train`.

    A row whose results lack only an entry in dvc.lock has its ledger computed again.
    """
    planned = {each.row: each for each in rows_to_train(settings, gpu=True)}
    digests, lock, dvc = entries.entries(settings), dvclock.Lock(), dvclock.available()
    tasks = []
    for key in rows:
        missing, commands = planned.get(key), list[tuple[str, ...]]()
        files = {
            "train": [records.run_path(key)],
            "evaluate": [records.evaluation_path(key)],
            "ledger": [records.ledger_path(key)],
        }
        if missing:
            commands.append(("train", key, *options))
        if missing or lacks_measuring(key):
            commands.append(("evaluate", key))
        if commands or not all(
            lock.holds(f"{stage}@{key}", digests[stage][key], paths) if dvc else all(map(Path.exists, paths))
            for stage, paths in files.items()
        ):
            commands.append(("ledger", key))
            needs = settings.rows[key].needs if missing else "cpu"
            tasks.append(RowWork(key, tuple(commands), (missing and missing.seconds) or 0.0, needs))
    return tasks
