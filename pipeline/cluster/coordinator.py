"""Hands out tasks, signs what came back, and names what became of each."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

from filelock import FileLock, Timeout

from pipeline.cluster.logs import last_line
from pipeline.cluster.order import Order
from pipeline.cluster.pools import STATE, Died, Here, Pool
from pipeline.cluster.slot import Ended, Job
from pipeline.cluster.tasks import Task, Todo
from pipeline.errors import Stopped, UserError, writing
from pipeline.params import Settings
from pipeline.training.checkpoints import CHECKPOINTS
from pipeline.training.stopping import Asked, noting_signals
from pipeline.transport import dvclock

# Workers that a task may lose one after the other with no newer checkpoint between: then it is its own fault
MOST_DEATHS = 3
SIGN_EVERY = 60.0  # seconds; DVC takes some for a batch, however many stages there are in it
LOOK_EVERY = 1.0  # seconds between looks at the logs

Kind = Literal["began", "ended", "failed", "again", "left out", "signed", "not signed"]


@dataclass(frozen=True)
class Event:
    """What is worth a line."""

    kind: Kind
    name: str  # of a task, or how many stages were signed
    note: str = ""


@dataclass(frozen=True)
class Running:
    """A task on a slot."""

    task: Task
    label: str
    since: float  # of the monotonic clock
    line: str  # the last of its log


@dataclass
class Look:
    """Where everything stands, for whoever shows it."""

    tasks: int
    done: int = 0
    failed: int = 0
    running: list[Running] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)  # since the last look


@dataclass
class Summary:
    """What became of every task."""

    done: list[tuple[Task, Ended]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)  # names, and why
    left_out: list[str] = field(default_factory=list)  # that wait for a GPU
    seconds: float = 0.0


Show = Callable[[Look], None]


def run(
    settings: Settings,
    work: Todo,
    slots: Callable[[], Pool],
    jobs: int,
    show: Show,
    options: Sequence[str] = (),
    asked_for: Sequence[str] = (),
) -> Summary:
    """Do all there is to do, the data first, and sign it.

    Args:
        settings: all settings.
        work: what there is to do.
        slots: makes the place where tasks run; asked once the data are there.
        jobs: tasks at once, on each kind of slot.
        show: called about once a second.
        options: more arguments for `dprepro train`.
        asked_for: rows that were named, which are tried even where there is no GPU.

    Raises:
        UserError: another coordinator works here, or no slot works.
        Stopped: a signal asked for it; what runs leaves a checkpoint.
    """
    begun = time.monotonic()
    with _only_one(), noting_signals() as asked:
        summary = Summary()
        look = Look(len(work.data) + len(work.tasks))
        signing = _Signing(settings, look)
        try:
            if work.unsigned:
                signing.add([f"{stage}@{row}" for row in work.unsigned for stage in dvclock.STAGES_OF_A_ROW])
            if work.data:
                with closing(Here()) as place:
                    _Run(place, 1, work.data, summary, look, signing, show, asked, options).go()
            if summary.failed:
                summary.failed += [(task.name, "its data are not there") for task in work.tasks]
            elif work.tasks:
                with closing(slots()) as found:
                    tasks = _with_gpus(work.tasks, found, asked_for, summary, look)
                    _Run(found, jobs, tasks, summary, look, signing, show, asked, options).go()
        finally:
            signing.finish()
            summary.failed += signing.problems
            summary.seconds = time.monotonic() - begun
            show(look)
    return summary


@contextmanager
def _only_one() -> Iterator[None]:
    with writing(STATE):
        STATE.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(STATE / "lock").acquire(blocking=False):
            yield
    except Timeout as problem:
        raise UserError(
            f"{STATE / 'lock'}: another `dprepro repro` works here; wait for it or stop it"
        ) from problem


def _with_gpus(
    tasks: Sequence[Task], place: Pool, asked_for: Sequence[str], summary: Summary, look: Look
) -> list[Task]:
    """The tasks without those that need a GPU where there is none, and what waits for these."""
    labels = {task.name: place.label(task) for task in tasks}
    wanted = {labels[task.name] for task in tasks if task.needs == "gpu" and task.name not in asked_for}
    lacking = {label for label in wanted if not place.gpus(label)}
    kept = [
        task
        for task in tasks
        if task.needs != "gpu" or task.name in asked_for or labels[task.name] not in lacking
    ]
    out = {task.name for task in tasks} - {task.name for task in kept}
    while more := {task.name for task in kept if task.after & out}:
        out |= more
        kept = [task for task in kept if task.name not in more]
    summary.left_out += sorted(out)
    look.tasks -= len(out)
    look.events += [Event("left out", name, "waits for a GPU") for name in sorted(out)]
    return kept


class _Run:
    """Tasks, on their way through a pool."""

    def __init__(
        self,
        pool: Pool,
        jobs: int,
        tasks: Sequence[Task],
        summary: Summary,
        look: Look,
        signing: "_Signing",
        show: Show,
        asked: Asked,
        options: Sequence[str],
    ):
        self.pool, self.jobs, self.summary, self.look = pool, jobs, summary, look
        self.signing, self.show, self.asked, self.options = signing, show, asked, tuple(options)
        self.order = Order(tasks)
        self.running: dict[str, Running] = {}
        self.deaths: Counter[str] = Counter()
        self.checkpoints: dict[str, float] = {}
        self.came: SimpleQueue[tuple[Task, Future[Ended]]] = SimpleQueue()

    def go(self) -> None:
        """Until nothing is left that can be done."""
        while len(self.order):
            self._hand_out()
            try:
                task, future = self.came.get(timeout=LOOK_EVERY)
            except Empty:
                pass
            else:
                self._take_back(task, future)
            self.signing.now_and_then()
            self._show()
            if (signal := self.asked()) is not None:
                raise Stopped(
                    signal, "stopped, what ran has a checkpoint; the same command goes on from there"
                )

    def _hand_out(self) -> None:
        busy = Counter(one.label for one in self.running.values())
        for task in self.order.ready():
            if all(busy[label] >= self.jobs for label in self.pool.labels):
                return
            label = self.pool.label(task)
            if busy[label] >= self.jobs:
                continue
            busy[label] += 1
            self.order.take(task)
            log = _log(task)
            self.running[task.name] = Running(task, label, time.monotonic(), "")
            self.look.events.append(Event("began", task.name))
            lock = CHECKPOINTS.joinpath(task.trains).with_suffix(".lock") if task.trains else None
            commands = tuple(
                (*command, *(self.options if command[0] == "train" else ())) for command in task.commands
            )
            job = Job(
                commands,
                str(Path.cwd()),
                str(log.absolute()),
                None if lock is None else lock.as_posix(),
                self.pool.threads,
            )
            future = self.pool.submit(label, job)
            future.add_done_callback(partial(self._came, task))

    def _came(self, task: Task, future: Future[Ended]) -> None:
        self.came.put((task, future))

    def _take_back(self, task: Task, future: Future[Ended]) -> None:
        del self.running[task.name]
        problem = future.exception()
        if isinstance(problem, UserError):
            raise problem  # no slot works
        if problem is not None and not isinstance(problem, Died):
            self._failed(task, f"{type(problem).__name__}: {problem}")
            return
        if problem is not None or future.result().died:
            self._died(task, str(problem) if problem else f"ended by signal on {future.result().where}")
            return
        ended = future.result()
        if ended.status:
            self._failed(task, f"{last_line(_log(task)) or f'status {ended.status}'} ({_log(task)})")
            return
        self.order.done(task)
        self.look.done += 1
        self.summary.done.append((task, ended))
        self.look.events.append(Event("ended", task.name, f"{ended.seconds:.0f} s on {ended.where}"))
        self.signing.add(task.stages)

    def _died(self, task: Task, why: str) -> None:
        """Try it again, from its checkpoint, unless it never gets any further."""
        found = self.pool.progress(task.trains) if task.trains else 0.0
        if found > self.checkpoints.get(task.name, 0.0):
            self.deaths[task.name] = 0
        self.checkpoints[task.name] = found
        self.deaths[task.name] += 1
        if self.deaths[task.name] >= MOST_DEATHS:
            self._failed(
                task, f"its worker died {MOST_DEATHS} times with nothing done between: {why} ({_log(task)})"
            )
            return
        self.look.events.append(Event("again", task.name, why))
        self.order.put_back(task)

    def _failed(self, task: Task, why: str) -> None:
        lost = self.order.failed(task)
        self.look.failed += 1 + len(lost)
        self.summary.failed += [(task.name, why), *((one.name, f"needs {task.name}") for one in lost)]
        self.look.events.append(Event("failed", task.name, why))

    def _show(self) -> None:
        self.look.running = [
            Running(one.task, one.label, one.since, last_line(_log(one.task)))
            for one in self.running.values()
        ]
        self.show(self.look)
        self.look.events = []


class _Signing:
    """Signs what is done, many at once, beside the work."""

    def __init__(self, settings: Settings, look: Look):
        self.settings, self.look = settings, look
        self.waiting: list[str] = []
        self.problems: list[tuple[str, str]] = []
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None
        self._batch: list[str] = []
        self._last = time.monotonic()

    def add(self, stages: Sequence[str]) -> None:
        self.waiting += stages

    def now_and_then(self) -> None:
        """Sign what has gathered, if the last time is long enough ago."""
        if self._under_way is not None and self._under_way.done():
            self._finished()
        if self.waiting and self._under_way is None and time.monotonic() - self._last >= SIGN_EVERY:
            self._begin()

    def finish(self) -> None:
        """Sign what is left."""
        if self._under_way is not None:
            self._finished()
        if self.waiting:
            self._begin()
            self._finished(last=True)
        self._thread.shutdown()

    def _begin(self) -> None:
        self._batch, self.waiting = self.waiting, []
        self._under_way = self._thread.submit(_sign, self.settings, self._batch)

    def _finished(self, last: bool = False) -> None:
        assert self._under_way is not None
        problem = self._under_way.exception()  # waits
        self._under_way, self._last = None, time.monotonic()
        if problem is None:
            self.look.events.append(Event("signed", str(len(self._batch))))
            return
        if not isinstance(problem, UserError):
            raise problem
        # somebody else's DVC, as a rule: later it will do
        self.waiting = [*self._batch, *self.waiting]
        self.look.events.append(Event("not signed", str(len(self._batch)), str(problem)))
        if last:
            self.problems.append((f"signing {len(self._batch)} stages", str(problem)))


def _sign(settings: Settings, stages: Sequence[str]) -> None:
    rows = dict.fromkeys(
        key for kind, _, key in (one.partition("@") for one in stages) if kind in dvclock.STAGES_OF_A_ROW
    )
    of_rows = {f"{stage}@{row}" for stage in dvclock.STAGES_OF_A_ROW for row in rows}
    dvclock.sign(settings, list(rows), [one for one in stages if one not in of_rows])


def _log(task: Task) -> Path:
    return STATE / "logs" / f"{task.name}.log"
