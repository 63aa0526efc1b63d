"""What fails because somebody else does the same in the same moment, and then doesn't."""

import random
import time
from collections.abc import Callable

from mlflow.exceptions import MlflowException

TRIES = 5
PAUSE = 0.2  # seconds, at most, before the second try; then twice as long each time


def tried(act: Callable[[], object]) -> None:
    """Do what two can't do at once: the first tag or data set of a name, which MLflow looks for, then makes.

    Raises:
        MlflowException: it fails every time.
    """
    for number in range(TRIES - 1):
        try:
            act()
            return
        except MlflowException:
            time.sleep(random.uniform(0, PAUSE * 2**number))
    act()
