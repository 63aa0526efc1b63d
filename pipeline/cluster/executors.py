"""Parsl executors that run tasks: threads that start processes on this machine, or workers elsewhere."""

import logging
import os
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import parsl
from parsl.config import Config
from parsl.dataflow.futures import AppFuture
from parsl.executors import HighThroughputExecutor, ThreadPoolExecutor
from parsl.jobs.error_handlers import windowed_error_handler
from parsl.providers import SlurmProvider

import dprepro
from dprepro.errors import UserError, shown
from dprepro.pipeline.cluster.tied import tied
from dprepro.pipeline.cluster.worker import Done, Task, work

STATE = Path(".dprepro/repro")
HERE, LOCAL, SLURM = "this machine", "local", "slurm"
WALLTIME = "24:00:00"  # of a Slurm job; SBATCH_TIMELIMIT overrides it

Submit = Callable[[Task, list[AppFuture]], AppFuture]  # from a task and the futures that it waits for


@dataclass(frozen=True)
class Slots:
    """Configuration of Parsl executors and of the tasks on these executors."""

    config: Config
    # label of the executor of a row, from the row's key and needs; None: the first executor
    place: Callable[[str, str], str] | None = None
    work: Callable[..., Done] = work
    ending: Event = field(default_factory=Event)  # set to end the tasks on this machine

    @contextmanager
    def started(self, cost_of_a_try: Callable[[Exception, Any], float], retries: int) -> Iterator[Submit]:
        """Start the executors, yield a function that submits tasks, and end them with all running tasks.

        Args:
            cost_of_a_try: cost of a failed try, from its exception and Parsl's record of the task.
            retries: largest total cost of a task's failed tries; above it the task fails.
        """
        labels = [executor.label for executor in self.config.executors]
        for executor in self.config.executors:
            if isinstance(executor, HighThroughputExecutor):
                # otherwise its workers would wait for ever after a kill of the coordinator
                executor.interchange_launch_cmd = tied(*executor.interchange_launch_cmd)
        self.config.run_dir = str(STATE / "parsl")
        self.config.retries, self.config.retry_handler = retries, cost_of_a_try
        # for Parsl's scripts, if this Python is not the shell's
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        # Parsl logs to its own folder, not to other log handlers of this process
        logging.getLogger("parsl").propagate = False
        kernel = parsl.load(self.config)
        kernel.add_executors([ThreadPoolExecutor(label=HERE, max_threads=1)])

        def work_here(task: Task, folder: str, inputs: Any) -> Done:
            return work(task, folder, ending=self.ending)

        def submit(task: Task, after: list[AppFuture]) -> AppFuture:
            label = self.place(task.name, task.needs) if self.place else labels[0]
            if label not in labels:
                raise UserError(f"place: {shown(label)} for {task.name}; allowed: {', '.join(labels)}")
            function, label = (work_here, HERE) if task.here else (self.work, label)
            app = parsl.python_app(function, data_flow_kernel=kernel, executors=[label])
            return app(task, str(Path.cwd()), inputs=after)

        try:
            yield submit
        finally:
            self.ending.set()
            kernel.cleanup()


def slots(on: str, jobs: int) -> Slots:
    """Configured executors for the options ``--on`` and ``--jobs``.

    Raises:
        UserError: the file that ``--on`` names can't be used, or ``--jobs`` is given with a file.
    """
    if on == LOCAL:
        return _local(jobs)
    return _slurm(jobs) if on == SLURM else _of_file(Path(on), jobs)


def _local(jobs: int) -> Slots:
    """Slots of this machine: threads that start processes, each with a share of cores and GPUs."""
    import torch

    free, ending = SimpleQueue[dict[str, str]](), Event()
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // jobs)))
    gpus = [str(number) for number in range(torch.cuda.device_count())]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        gpus = visible.split(",")[: len(gpus)]
    for slot in range(jobs):
        gpu = {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}
        free.put({"OMP_NUM_THREADS": threads, **gpu})

    def work_on_a_slot(task: Task, folder: str, inputs: Any) -> Done:
        environment = free.get()
        try:
            return work(task, folder, environment, ending)
        finally:
            free.put(environment)

    config = Config(executors=[ThreadPoolExecutor(label=LOCAL, max_threads=jobs)], strategy="none")
    return Slots(config, work=work_on_a_slot, ending=ending)


def _slurm(jobs: int) -> Slots:
    """Slots of Slurm, one job per slot; Slurm's variables SBATCH_* set partition, account and GPUs."""
    folder = shlex.quote(str(Path(sys.executable).parent))
    modules = os.pathsep.join(
        filter(None, (os.environ.get("PYTHONPATH"), str(Path(dprepro.__file__).parents[1])))
    )
    executor = HighThroughputExecutor(
        label=SLURM,
        max_workers_per_node=1,
        heartbeat_period=10,
        heartbeat_threshold=60,
        # gives up if the first jobs all fail, as with an unknown partition
        block_error_handler=partial(windowed_error_handler, threshold=3 * jobs),
        provider=SlurmProvider(
            init_blocks=0,
            max_blocks=jobs,
            walltime=WALLTIME,
            exclusive=False,
            # the Python and the modules of this process
            worker_init=f"export PATH={folder}:$PATH PYTHONPATH={shlex.quote(modules)}",
        ),
    )
    return Slots(Config(executors=[executor], strategy_period=10))


def _of_file(path: Path, jobs: int) -> Slots:
    """Slots of a Python file with a Parsl `config` and an optional function `place` (`Slots.place`)."""
    if not path.is_file():
        raise UserError(
            f"--on {path}: no such file; allowed: {LOCAL}, {SLURM}, or a file with a Parsl `config`"
        )
    if jobs != 1:
        raise UserError(f"--jobs {jobs}: not allowed with a file; {path} sets the number of rows at once")
    try:
        content = runpy.run_path(str(path))
    except Exception as problem:  # the file may raise any exception
        raise UserError(f"--on {path}: {type(problem).__name__}: {shown(str(problem))}") from problem
    config, place = content.get("config"), content.get("place")
    if not isinstance(config, Config):
        raise UserError(f"--on {path}: `config` must be a parsl.config.Config")
    if place is not None and not callable(place):
        raise UserError(f"--on {path}: `place` must be a function of a row's key and what it needs")
    return Slots(config, place)
