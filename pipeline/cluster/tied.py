"""`python -m dprepro.pipeline.cluster.tied PID COMMAND...`: a command that gets SIGTERM when its parent ends.

Without it, a killed coordinator or worker would leave trainers behind. On systems without such a signal the
trainers go on, and the next process for the same row waits for the row's lock.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of sys/prctl.h


def tied(*command: str) -> list[str]:
    """Command line that runs ``command`` and ends it when this process ends."""
    # `-P`, because `-m` alone would search the current folder for modules first
    return [sys.executable, "-P", "-m", "dprepro.pipeline.cluster.tied", str(os.getpid()), *command]


if __name__ == "__main__":
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    except (OSError, AttributeError):
        pass
    else:
        if os.getppid() != int(sys.argv[1]):  # the parent ended before `prctl`
            sys.exit(128 + signal.SIGTERM)
    os.execvp(sys.argv[2], sys.argv[2:])
