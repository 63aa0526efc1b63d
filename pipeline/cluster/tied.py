"""`python -m pipeline.cluster.tied PID COMMAND...`: a command that is asked to end once its parent is gone.

Else a coordinator or a worker that is killed would leave trainers behind. Where the system has no such signal
they go on, and whoever is given the same row waits for its lock.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of sys/prctl.h


def tied(*command: str) -> list[str]:
    """``command`` so that it ends with this process."""
    # not `-m` alone, which would take modules from the current folder first
    return [sys.executable, "-P", "-m", "pipeline.cluster.tied", str(os.getpid()), *command]


if __name__ == "__main__":
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    except (OSError, AttributeError):
        pass
    else:
        if os.getppid() != int(sys.argv[1]):  # gone before it could be asked for
            sys.exit(128 + signal.SIGTERM)
    os.execvp(sys.argv[2], sys.argv[2:])
