"""`python -m stages.in_turn COMMAND / COMMAND`: `dprepro`'s commands one after the other, in one process.

What runs a row somewhere else trains, evaluates and accounts it so: to start Python and torch for each takes
longer than a small row does.
"""

import sys
from itertools import groupby

from pipeline.cluster.slot import BETWEEN
from stages.app import main


def in_turn(arguments: list[str]) -> None:
    """Run the commands until one fails; its status is this process's."""
    for is_command, found in groupby(arguments, lambda one: one != BETWEEN):
        if not is_command:
            continue
        sys.argv = ["dprepro", *found]  # as if it had been started alone: a record names its command
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise


if __name__ == "__main__":
    in_turn(sys.argv[1:])
