"""Small worlds that engine tests share. Images are LeNet-5's size, but few."""

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

from dprepro.pipeline import extensions
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings

# Files that take longest come first, so that workers (`pytest --no-loadscope-reorder`) end together
LONG = [
    "wheel", "kills", "contributing", "dvc", "golden", "corpus", "replay", "training", "planted", "table",
    "faults", "edges", "audit_training", "export", "bench", "own_tables", "trunk", "own_data",
    "pair", "floating_point",
]  # fmt: skip


# A variable with the folder of what takes long to make, and all workers share
SHARED = "DPREPRO_TESTS_SHARED"


def pytest_configure(config: pytest.Config) -> None:
    """Make that folder."""
    if hasattr(config, "workerinput"):
        return  # a worker, which inherits the variable
    folder = tempfile.mkdtemp(prefix="dprepro-tests-")
    os.environ[SHARED] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@contextmanager
def alone() -> Iterator[Path]:
    """The shared folder, while no other worker makes anything there."""
    folder = Path(os.environ[SHARED])
    with FileLock(folder / "lock"):
        yield folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # thousands of tiny operations: threads only get in each other's way
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeds() -> None:
    # random numbers that don't depend on the tests before
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


@pytest.fixture
def seeded_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded numbers in place of the operating system's, for tests that right code fails at times."""
    monkeypatch.setattr("secrets.token_bytes", random.randbytes)
    monkeypatch.setattr("secrets.randbits", random.getrandbits)


@pytest.fixture(scope="session")
def cpu() -> Execution:
    return Execution(torch.device("cpu"), physical=64)


def make_data(train: int = 200, validation: int = 40, test: int = 30) -> Prepared:
    """Ten learnable classes: a bright square whose place tells the class."""
    generator = np.random.default_rng(7)

    def split(count: int) -> Split:
        labels = generator.integers(0, 10, count)
        images = generator.integers(0, 60, (count, 1, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 5)
            image[0, 4 + 12 * row : 12 + 12 * row, 1 + 5 * column : 7 + 5 * column] = 230
        return Split(images, labels.astype(np.int64))

    sizes = {"train": train, "validation": validation, "test": test, "public": 8}
    manifest = {
        "classes": [str(number) for number in range(10)],
        "digests": {f"{name}.inputs": f"sha256:{name}" for name in sizes},
        "raw": {"mnist": {"edition": "synthetic", "title": "made up", "files": {}}},
        "counts": sizes,
        "input_shape": [1, 28, 28],
        "seed": 0,
    }
    return Prepared("tiny", {name: split(count) for name, count in sizes.items()}, manifest)


@contextmanager
def forgetting() -> Iterator[None]:
    """Whatever laboratory is used inside is not used afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extensions, "_laboratory", {})
        patch.setattr(sys, "path", [*sys.path])
        yield
        for name in [name for name in sys.modules if name.partition(".")[0] in extensions._laboratory]:
            del sys.modules[name]
    for kept in extensions._caches:
        kept.cache_clear()


@pytest.fixture
def tiny() -> Prepared:
    return make_data()


def dpsgd(**changes: object) -> DpsgdSettings:
    """Settings of a short private run."""
    values = {"batch": 20, "epochs": 0.5, "learning_rate": 0.5, "clip": 1.0, "epsilon": 3.0, "delta": 1e-3}
    return DpsgdSettings.model_validate(values | changes)
