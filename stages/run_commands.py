"""`python -m dprepro.stages.run_commands COMMANDS`: several `dprepro` commands in one process.

`dprepro repro` trains, evaluates and accounts for a row in this way, because starting Python and torch for
each command takes longer than training a small row. The process ends when its standard input does: the
coordinator holds the other end, here and through `srun`, so a killed coordinator leaves no trainer.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from platform import node
from threading import Thread

from dprepro.pipeline.cluster.coordinator import ENDED, STARTED
from dprepro.stages.app import main


def run_commands(commands: Sequence[Sequence[str]]) -> int:
    """Run the commands until one fails, and return the status of the last one."""
    for words in commands:
        sys.argv = ["dprepro", *words]  # the command that records name
        if sys.argv[1] == "train":  # a trainer whose launcher was killed may still write its checkpoint
            from dprepro.pipeline.results.records import CHECKPOINTS
            from dprepro.pipeline.training.checkpoints import checkpoint_lock

            with checkpoint_lock(CHECKPOINTS / sys.argv[2], wait=True):
                pass
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                return int(ended.code)
    return 0


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # a training writes its checkpoint


if __name__ == "__main__":
    print(f"{STARTED} {node()}", flush=True)
    Thread(target=_end_with_input, daemon=True).start()
    if cores := os.environ.get("SLURM_CPUS_ON_NODE"):
        os.environ.setdefault("OMP_NUM_THREADS", cores)
    status = run_commands(json.loads(sys.argv[1]))
    print(f"{ENDED} {status}", flush=True)
    sys.exit(status)
