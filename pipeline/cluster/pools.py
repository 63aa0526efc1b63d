"""Where tasks run: in this process's own child, or on slots that Parsl keeps.

Parsl is imported only where it is asked for. It starts blocks (processes here, jobs of Slurm), hands a job to
a free slot of them, starts a lost block anew, and says which job's worker died.
"""

import logging
import os
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.cluster import slot
from pipeline.cluster.slot import Ended, Job
from pipeline.cluster.tasks import Task
from pipeline.errors import UserError, shown
from pipeline.params import Settings
from pipeline.training.checkpoints import CHECKPOINTS

if TYPE_CHECKING:
    from parsl.config import Config

STATE = Path(".dprepro/repro")
LOCAL, SLURM = "local", "slurm"
TIED = (sys.executable, "-m", "pipeline.cluster.tied")
WALLTIME = "24:00:00"  # of a Slurm job; SBATCH_TIMELIMIT says otherwise


class Died(Exception):
    """A job's worker is gone."""


class Pool(Protocol):
    """Slots."""

    labels: tuple[str, ...]  # of the kinds of slot there are
    threads: int | None  # a slot's share of cores, where it is the same for all

    def label(self, task: Task) -> str:
        """The kind of slot for a task."""

    def submit(self, label: str, job: Job) -> Future[Ended]:
        """Have a job done.

        The future raises `Died` where its worker died, and `UserError` where no slot works.
        """

    def gpus(self, label: str) -> bool:
        """Whether slots of a kind have a GPU."""

    def progress(self, row: str) -> float:
        """What grows with every checkpoint of a row; 0: there is none."""

    def close(self) -> None:
        """End all that runs; trainers leave a checkpoint."""


class Here:
    """One slot: children of this process, with nothing else between. As `Pool` says."""

    labels: tuple[str, ...] = (LOCAL,)
    threads: int | None = None

    def __init__(self) -> None:
        """One thread, which waits for the child."""
        self._thread = ThreadPoolExecutor(1)

    def label(self, task: Task) -> str:
        """Its executor."""
        return LOCAL

    def submit(self, label: str, job: Job) -> Future[Ended]:
        """Hand a job to a slot."""
        return self._thread.submit(slot.work, job)

    def gpus(self, label: str) -> bool:
        """Ask a slot."""
        return slot.gpu_here()

    def progress(self, row: str) -> float:
        """When its newest checkpoint was written."""
        return _newest_checkpoint(row)

    def close(self) -> None:
        """End all that runs."""
        slot.end_all()
        self._thread.shutdown(wait=True, cancel_futures=True)


class Slots:
    """Slots of Parsl's executors. As `Pool` says."""

    def __init__(
        self,
        config: "Config",
        place: Callable[[str, str], str] | None = None,
        threads: int | None = None,
    ):
        """``place`` gives the label of the executor for a row and what it needs; None: any."""
        import parsl
        from parsl.executors import HighThroughputExecutor

        for executor in config.executors:
            if isinstance(executor, HighThroughputExecutor):
                # it keeps a killed coordinator's workers waiting for ever otherwise
                command, *more = executor.interchange_launch_cmd
                found = shutil.which(
                    command, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
                )
                executor.interchange_launch_cmd = [*TIED, found or command, *more]
        config.retries = 0  # whether a task is tried again is decided by what became of it
        config.run_dir = str(STATE / "parsl")
        self.labels = tuple(executor.label for executor in config.executors)
        self.threads = threads
        self._place = place
        # Parsl's own lines are in its folder, whoever else in this process sets up logging
        logging.getLogger("parsl").propagate = False
        self._kernel = parsl.load(config)

    def label(self, task: Task) -> str:
        """Its executor."""
        if self._place is None:
            return self.labels[0]
        found = self._place(task.name, task.needs)
        if found not in self.labels:
            raise UserError(
                f"place({task.name!r}, {task.needs!r}): {found!r}; allowed: {', '.join(self.labels)}"
            )
        return found

    def submit(self, label: str, job: Job) -> Future[Ended]:
        """Hand a job to a slot."""
        return self.call(label, slot.work, job)

    def gpus(self, label: str) -> bool:
        """Ask a slot."""
        return bool(self.call(label, slot.gpu_here).result())

    def progress(self, row: str) -> float:
        """When its newest checkpoint was written."""
        return _newest_checkpoint(row)

    def close(self) -> None:
        """End all that runs."""
        import parsl

        self._kernel.cleanup()
        parsl.clear()

    def call(self, label: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a slot call a function. The future raises what `Pool.submit` says."""
        from parsl.errors import ParslError
        from parsl.executors.high_throughput.errors import ManagerLost, WorkerLost

        given: Future[Any] = Future()

        def passed_on(came: Future[Any]) -> None:
            problem = came.exception()
            if problem is None:
                given.set_result(came.result())
            elif isinstance(problem, (ManagerLost, WorkerLost)):
                given.set_exception(Died(str(problem)))
            elif isinstance(problem, ParslError):
                given.set_exception(UserError(f"{label}: no slot works: {shown(str(problem))}"))
            else:
                given.set_exception(problem)

        future = self._kernel.submit(
            function,
            app_args=arguments,
            executors=[label],
            cache=False,
            ignore_for_cache=None,
            app_kwargs={},
        )
        future.add_done_callback(passed_on)
        return given


def pool(on: str, jobs: int, settings: Settings, every: float) -> Callable[[], Pool]:
    """What starts the slots that ``--on`` and ``--jobs`` ask for; whether they can be had is checked before.

    Args:
        on: see `dprepro repro`.
        jobs: slots.
        settings: all settings.
        every: seconds between checkpoints, which travel where machines share no folder.

    Raises:
        UserError: Parsl is needed and not installed; a file of slots is none; more slots than GPUs can share;
            machines that share no folder can't have what is here.
    """
    if on == LOCAL and jobs == 1:
        return Here
    try:
        import parsl  # noqa: F401
    except ImportError as problem:
        raise UserError(
            f"--jobs {jobs} --on {on}: needs Parsl; install the extra: pip install 'dprepro[cluster]'"
        ) from problem
    if on == LOCAL:
        return partial(Slots, *_local(jobs))
    if on == SLURM:
        return partial(Slots, _slurm(jobs))
    config, place, clone = _of_file(Path(on))
    if clone is None:
        return partial(Slots, config, place)
    from pipeline.cluster.machines import Machines
    from pipeline.cluster.origin import source_of

    source = source_of(clone)
    return partial(Machines, partial(Slots, config, place), source, settings, every)


def _local(jobs: int) -> "tuple[Config, None, int]":
    """Blocks on this machine: one with a slot each, or on GPUs one block that hands the GPUs to its slots."""
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import LocalProvider

    gpus = _gpus_here()
    if gpus and jobs > gpus and jobs % gpus:
        raise UserError(f"--jobs {jobs}: can't share {gpus} GPUs; allowed: up to {gpus}, or a multiple of it")
    blocks = 1 if gpus else jobs
    executor = HighThroughputExecutor(
        label=LOCAL,
        address="127.0.0.1",
        max_workers_per_node=jobs // blocks,
        available_accelerators=jobs if gpus else (),
        heartbeat_period=3,
        heartbeat_threshold=20,
        block_error_handler=_broken(jobs),
        encrypted=False,
        provider=LocalProvider(init_blocks=blocks, max_blocks=blocks, worker_init=_same_python()),
    )
    threads = max(1, len(os.sched_getaffinity(0)) // jobs)
    return _config(executor, 3), None, threads


def _slurm(jobs: int) -> "Config":
    """A Slurm job a slot. Its partition, account and GPUs are told by Slurm's own variables, SBATCH_*."""
    from parsl.executors import HighThroughputExecutor
    from parsl.providers import SlurmProvider

    executor = HighThroughputExecutor(
        label=SLURM,
        max_workers_per_node=1,
        heartbeat_period=10,
        heartbeat_threshold=60,
        block_error_handler=_broken(jobs),
        provider=SlurmProvider(
            init_blocks=jobs,
            max_blocks=jobs,
            walltime=WALLTIME,
            exclusive=False,
            worker_init=_same_python(),
        ),
    )
    return _config(executor, 10)


def _config(executor: Any, period: int) -> "Config":
    from parsl.config import Config

    return Config(
        executors=[executor], strategy="simple", strategy_period=period, max_idletime=7 * 24 * 3600.0
    )


def _same_python() -> str:
    """Lines of shell that give a worker this process's Python, and its modules."""
    folder = str(Path(sys.executable).parent)
    modules = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(Path(__file__).parents[2]))))
    return f"export PATH={shlex.quote(folder)}:$PATH PYTHONPATH={shlex.quote(modules)}"


def _broken(jobs: int) -> Callable[..., None]:
    """Gives up when the first blocks all fail by themselves, as with a partition that isn't there."""
    from parsl.jobs.error_handlers import windowed_error_handler

    return partial(windowed_error_handler, threshold=3 * jobs)


def _of_file(path: Path) -> "tuple[Config, Callable[[str, str], str] | None, str | None]":
    """A file's `config`, and its `place` and `clone` where it has them.

    Raises:
        UserError: it can't be run, or has no Parsl `Config`.
    """
    from parsl.config import Config

    if not path.is_file():
        raise UserError(
            f"--on {path}: no such file; allowed: {LOCAL}, {SLURM}, or a file with a Parsl `config`"
        )
    try:
        found: Mapping[str, Any] = runpy.run_path(str(path))
    except Exception as problem:  # whatever somebody's file raises
        raise UserError(f"--on {path}: {type(problem).__name__}: {shown(str(problem))}") from problem
    config, place, clone = (found.get(name) for name in ("config", "place", "clone"))
    if not isinstance(config, Config):
        raise UserError(f"--on {path}: `config` must be a parsl.config.Config")
    if place is not None and not callable(place):
        raise UserError(f"--on {path}: `place` must be a function of a row's key and what it needs")
    if clone is not None and (not isinstance(clone, str) or not clone or clone.startswith("-")):
        raise UserError(f"--on {path}: `clone` must be the URL of a git repository")
    return config, place, clone


def _newest_checkpoint(row: str) -> float:
    return max((path.stat().st_mtime for path in (CHECKPOINTS / row).rglob("*.pt")), default=0.0)


def _gpus_here() -> int:
    import torch

    return torch.cuda.device_count()
