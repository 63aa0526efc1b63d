"""Slots of machines that share no folder with this one. All goes by the DVC remote, there and back.

Prepared data travel as DVC has them, checkpoints and packs by `Transit`. A row's files stay there until it is
taken in, so that whoever is given the row next, or a coordinator that is started again, finds what was done.
Tasks that train nothing run here.
"""

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from pipeline.cluster import apart
from pipeline.cluster.apart import Back, Errand
from pipeline.cluster.carrying import CHECKPOINTS, LINE, PACK
from pipeline.cluster.clones import Data, Source
from pipeline.cluster.logs import last_line
from pipeline.cluster.pools import STATE, Died, Here, Slots
from pipeline.cluster.slot import Ended, Job
from pipeline.cluster.tasks import Task
from pipeline.cluster.transit import Transit
from pipeline.data.prepared import PREPARED
from pipeline.errors import UserError, writing
from pipeline.files import write_text
from pipeline.identity import entries
from pipeline.identity.plan import lacks
from pipeline.params import Settings
from pipeline.results import records
from pipeline.transport import dvclock
from pipeline.transport.adopting import place_rows

HERE = "this machine"
LISTEN_EVERY = 1.0  # seconds at least between looks for what machines say
CLOSED_EVERY = 0.5  # seconds between looks whether a row is still waited for
AT_ONCE = 1000  # rows that are waited for; each is a thread that sleeps


class Machines:
    """Slots in clones of this checkout. As `Pool` says."""

    threads: int | None = None

    def __init__(self, slots: Callable[[], Slots], source: Source, settings: Settings, every: float):
        """Start the slots, if the remote is to be had.

        Args:
            slots: starts them.
            source: what machines clone.
            settings: all settings.
            every: seconds between checkpoints.
        """
        self._source, self._settings, self._every = source, settings, every
        self._digests = entries.entries(settings)
        self._folder = _checkout()
        self._transit = Transit(Path(), self._folder)
        self._data: dict[str, Data] = {}
        self._refused: dict[str, int] = {}  # by row, number of a pack that couldn't be taken in
        self._away: dict[str, Path] = {}  # rows on machines, and their logs here
        self._one = threading.Lock()  # who pushes data or takes in a pack
        self._closed = threading.Event()
        self._slots, self._here = slots(), Here()
        self.labels: tuple[str, ...] = (*self._slots.labels, HERE)
        self._waiting = ThreadPoolExecutor(AT_ONCE)
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def label(self, task: Task) -> str:
        """Its executor, where it trains."""
        return self._slots.label(task) if task.trains else HERE

    def submit(self, label: str, job: Job) -> Future[Ended]:
        """Hand a job to a slot of a machine, or to the one here."""
        if label == HERE:
            return self._here.submit(label, job)
        return self._waiting.submit(self._do, label, job)

    def gpus(self, label: str) -> bool:
        """Ask a slot."""
        return (self._here if label == HERE else self._slots).gpus(label)

    def progress(self, row: str) -> float:
        """The numbers of its checkpoints in the remote."""
        try:
            return float(sum(self._transit.numbers(f"{row}/{CHECKPOINTS}").values()))
        except UserError:
            return 0.0

    def close(self) -> None:
        """End all that runs."""
        self._closed.set()
        self._slots.close()
        self._here.close()
        self._waiting.shutdown(wait=True, cancel_futures=True)
        self._listening.join()

    def _do(self, label: str, job: Job) -> Ended:
        """A row, all the way.

        Raises:
            Died: its worker did.
            UserError: no slot works.
        """
        row, log = job.commands[0][1], Path(job.log)
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            if self._take_in(row):
                return Ended(0, 0.0, "a machine before")  # whose worker or coordinator died
        except UserError as problem:
            _failed(log, problem)  # it is trained again
        try:
            errand = self._errand(row, job)
        except UserError as problem:
            return _failed(log, problem)
        self._away[row] = log
        try:
            back = self._wait_for(self._slots.call(label, apart.work, errand))
        finally:
            del self._away[row]
        with log.open("a") as lines:
            lines.write(back.log)
        if back.status:
            return back
        try:
            if not self._take_in(row):
                raise UserError(f"{row}: it didn't come back from {back.where}, or not all of it")
        except UserError as problem:
            return _failed(log, problem)
        return back

    def _errand(self, row: str, job: Job) -> Errand:
        """What a machine is told; its data are in the remote then.

        Raises:
            UserError: they can't be brought there.
        """
        assert job.lock is not None
        paths = (records.run_path(row), records.history_path(row), records.evaluation_path(row))
        return Errand(
            row,
            # its ledger is computed here, when it is taken in
            tuple(command for command in job.commands if command[0] != "ledger"),
            self._source,
            self._pushed(self._settings.rows[row].data),
            tuple((path.as_posix(), path.read_text() if path.exists() else None) for path in paths),
            tuple((stage, self._digests[stage][row]) for stage in ("train", "evaluate")),
            Path(job.lock).with_suffix("").as_posix(),
            job.lock,
            self._folder,
            self._every,
        )

    def _pushed(self, name: str) -> Data:
        with self._one:
            if name not in self._data:
                lock = dvclock.push_data(self._settings, name)
                stage = f"{self._settings.stage_of(name)}@{name}"
                self._data[name] = Data(stage, (PREPARED / name).as_posix(), lock)
            return self._data[name]

    def _wait_for(self, future: Future[Back]) -> Back:
        while not wait([future], CLOSED_EVERY).done:
            if self._closed.is_set():
                raise Died("stopped")
        return future.result()

    def _take_in(self, row: str) -> bool:
        """Take in a row's pack; whether there was one, and nothing of the row is lacking now.

        Raises:
            UserError: it doesn't come, or isn't what would be made here. It stays there, as a full disk can
                be mended; what is handed back after it is newer.
        """
        name, pack = f"{row}/{PACK}", STATE / f"{row}.dprepro.tar.gz"
        number = self._transit.newest(name)
        if number == self._refused.get(row, 0):
            return False
        self._refused[row] = number
        try:
            self._transit.get(name, pack)
            with self._one:
                place_rows(self._settings, pack)
        finally:
            pack.unlink(missing_ok=True)
        del self._refused[row]
        self._transit.clear(row)
        return not lacks(self._settings, row)

    def _listen(self) -> None:
        """Write to the logs here what machines last said of their rows."""
        while not self._closed.wait(max(self._every, LISTEN_EVERY)):
            for row, log in list(self._away.items()):
                told = log.with_suffix(".line")
                try:
                    said = self._transit.get(f"{row}/{LINE}", told) and told.read_text()
                except UserError:
                    continue  # next time, or with the result
                told.unlink(missing_ok=True)
                if said and said != last_line(log) and row in self._away:
                    with log.open("a") as lines:
                        print(said, file=lines)


def _checkout() -> str:
    """This checkout's name in the remote, where others may have rows of the same names."""
    path = STATE / "name"
    with writing(path):
        if not path.exists():
            write_text(path, secrets.token_hex(8))
        return path.read_text()


def _failed(log: Path, problem: UserError) -> Ended:
    """As a command that failed: its last line says why."""
    with log.open("a") as lines:
        lines.write(apart.told(problem))
    return Ended(1, 0.0, HERE)
