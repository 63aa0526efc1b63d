"""`python -m pipeline.cluster.hand_back ROW FILE`: pack a row with the weights that this machine has made."""

import sys
from pathlib import Path

from pipeline import params
from pipeline.errors import UserError
from pipeline.transport import pack

if __name__ == "__main__":
    row, target = sys.argv[1:]
    try:
        pack(params.load(), [row], Path(target), weights="here")
    except UserError as problem:
        sys.exit(f"dprepro: {problem}")
