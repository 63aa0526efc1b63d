"""`python -m dprepro.stages.in_turn COMMAND / COMMAND`: several `dprepro` commands in one process.

Workers train, evaluate and account for a row in this way, because starting Python and torch for each command
takes longer than training a small row.
"""

import sys
from itertools import groupby

from dprepro.pipeline.cluster.worker import BETWEEN
from dprepro.stages.app import main


def in_turn(arguments: list[str]) -> None:
    """Run the commands until one fails. This process ends with the status of the failed command."""
    for is_command, words in groupby(arguments, lambda word: word != BETWEEN):
        if not is_command:
            continue
        sys.argv = ["dprepro", *words]  # the command that records name
        if sys.argv[1] == "train":  # a trainer whose worker was killed may still write its checkpoint
            from dprepro.pipeline.training.checkpoints import CHECKPOINTS, checkpoint_lock

            with checkpoint_lock(CHECKPOINTS / sys.argv[2], wait=True):
                pass
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise


if __name__ == "__main__":
    in_turn(sys.argv[1:])
