"""What tests of MLflow's store share."""

import os
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress

import pytest

from dprepro.pipeline.params import Settings
from dprepro.pipeline.results.schema import Record
from tests.reporting.made_up import dpsgd as example


@pytest.fixture
def port() -> int:
    """One that is free, and below those that the system gives to others before it is used."""
    first = 20_000 + os.getpid() % 10_000
    for number in range(first, first + 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", number)):
            return number
    raise AssertionError("no port is free")


def answers(address: str, process: subprocess.Popen) -> None:
    """Wait until a server does."""
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until
            time.sleep(0.2)


def small(key: str, declared: Settings, shift: float = 0.0) -> Record:
    """A row's record with two levels and three seeds."""
    record = example.record(key, declared, shift=shift)
    kept = tuple(
        training
        for training in record.trainings
        if training.level in ("epsilon=inf", "epsilon=3") and training.seed < 3
    )
    return record.model_copy(update={"trainings": kept})
