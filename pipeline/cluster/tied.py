"""`python -m pipeline.cluster.tied COMMAND...`: run a command that ends when whoever started it is gone."""

import os
import sys

from pipeline.cluster.slot import dies_with

if __name__ == "__main__":
    dies_with(os.getppid())()
    os.execvp(sys.argv[1], sys.argv[1:])
