"""Several publishers of the same records, each a process with a folder of its own, that begin at once."""

import os
import traceback
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import Empty
from typing import Any

from mlflow import MlflowClient

from pipeline.params import Settings
from pipeline.results.schema import Record
from pipeline.tracking.upserting import DIGEST, publications
from tests.reporting.made_up import dpsgd as example

ROWS = (example.LAYER, example.LITERAL)
RUNS = {example.LAYER: 7, example.LITERAL: 7}
PATIENCE = 300.0  # seconds for a round on a busy machine


def small(key: str, declared: Settings, shift: float = 0.0) -> Record:
    """A row's record with two levels and two seeds."""
    record = example.record(key, declared, shift=shift)
    kept = tuple(
        replica
        for replica in record.replicas
        if replica.level in ("epsilon=inf", "epsilon=3") and replica.seed < 2
    )
    return record.model_copy(update={"replicas": kept})


def one_of_each(address: str) -> Callable[[int], None]:
    """Fails unless the store holds every run of the newest records, once; and wrote it in this round."""
    before: set[str] = set()

    def check(_: int) -> None:
        client = MlflowClient(address)
        experiment = client.get_experiment_by_name("davody2020").experiment_id
        rows = publications(client, experiment)
        runs = [run for there in rows.values() for publication in there.values() for run in publication]
        assert {row: len(there) for row, there in rows.items()} == dict.fromkeys(RUNS, 1)
        assert Counter(run.data.tags["row"] for run in runs) == RUNS
        assert len({run.info.run_name for run in runs}) == sum(RUNS.values())
        heads = [run.data.tags["row"] for run in runs if DIGEST in run.data.tags]
        assert sorted(heads) == sorted(RUNS)
        now = {run.info.run_id for run in runs}
        assert not now & before
        before.update(now)

    return check


def at_once(address: str, count: int, rounds: int, folder: Path, check: Callable[[int], None]) -> None:
    """Let ``count`` publishers publish new records ``rounds`` times; call ``check`` after each round.

    Raises:
        AssertionError: one of them failed; with its traceback.
    """
    context = get_context("fork")  # they have imported all that takes seconds
    start, end = context.Barrier(count + 1), context.Barrier(count + 1)
    failed = context.Queue()
    processes = []
    for number in range(count):
        clone = folder / f"clone-{number}"
        clone.mkdir(parents=True)
        process = context.Process(
            target=_publisher, args=(address, clone, rounds, start, end, failed), daemon=True
        )
        process.start()
        processes.append(process)
    try:
        for number in range(rounds):
            start.wait(PATIENCE)
            end.wait(PATIENCE)
            _fail_with(failed)
            check(number)
        for process in processes:
            process.join(PATIENCE)
    finally:
        for process in processes:
            process.kill()


def _fail_with(failed: Any) -> None:
    try:
        problem = failed.get(timeout=0.1)
    except Empty:
        return
    raise AssertionError(problem)


def _publisher(address: str, root: Path, rounds: int, start: Barrier, end: Barrier, failed: Any) -> None:
    os.environ["MLFLOW_TRACKING_URI"] = address
    os.chdir(root)
    from pipeline.tracking.publishing import declared, publish

    settings = example.settings()
    for number in range(rounds):
        for row in ROWS:
            example.put(small(row, settings, shift=number / 10), root)
        records = declared(settings)
        start.wait(PATIENCE)
        try:
            publish(records, settings)
        except BaseException:
            failed.put(traceback.format_exc())
        end.wait(PATIENCE)
