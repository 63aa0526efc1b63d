"""The catalogue and `prepare` against real files: DPREPRO_MIRROR names a folder that holds them."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from pipeline.data import prepared
from pipeline.data.fetch import fetch
from pipeline.data.prepare import prepare
from pipeline.params import parse

pytestmark = pytest.mark.real


@pytest.fixture
def mirror() -> Path:
    folder = os.environ.get("DPREPRO_MIRROR")
    if not folder:
        reason = "DPREPRO_MIRROR is not set: NOTHING WAS CHECKED AGAINST REAL DATA"
        warnings.warn(reason, stacklevel=1)  # a skip alone is one letter in pytest's output
        pytest.skip(reason)
    return Path(folder)


def test_mnist_with_kmnist(mirror, tmp_path):
    kmnist, own = {"raw": "kmnist", "count": 128}, {"raw": "mnist", "count": 6_000}
    data = {
        "table": {"raw": "mnist", "train": 55_000, "validation": 5_000, "public": kmnist},
        "dpub": {"raw": "mnist", "train": 49_000, "validation": 5_000, "public": own},
    }
    settings = parse({"raw": {"mnist": {}, "kmnist": {}}, "data": data, "rows": {}})
    for raw in ("mnist", "kmnist"):
        assert fetch(raw, settings, tmp_path, mirror).edition == "official"
    for name, train, public in (("table", 55_000, 128), ("dpub", 49_000, 6_000)):
        prepare(name, settings, tmp_path)
        done = prepared.load(name, tmp_path)
        counts = {"train": train, "validation": 5_000, "test": 10_000, "public": public}
        assert done.manifest["counts"] == counts
        assert not any(done.manifest["duplicates"]["between"].values())
        assert done.manifest["public"]["passed_over"] == 0
        assert done.splits["test"].labels[:5].tolist() == [7, 2, 1, 0, 4]  # as on MNIST's page
        assert np.bincount(done.splits["test"].labels).tolist() == done.manifest["balance"]["test"]
    # No statistic of the data is in the manifest; here is one, to see that images were read the right way.
    mean = np.load(tmp_path / "data/prepared/table/train.inputs.npy").mean() / 255
    assert mean == pytest.approx(0.1307, abs=0.001)
