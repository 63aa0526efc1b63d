"""A person's own files, declared as `dprepro new` declares them, and a row that trains on them."""

from pathlib import Path
from typing import Any

import numpy as np

from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.data.own import describe
from dprepro.pipeline.data.prepare import prepare
from dprepro.pipeline.params import Settings, parse

ROW: dict[str, Any] = {
    **{"paper": "mine", "table": "t1", "label": "x", "data": "mine", "model": {"name": "lenet_300_100"}},
    **{"method": "dpsgd", "seeds": 1, "reproducible": True, "levels": [{"epsilon": 8}]},
    "settings": {"batch": 32, "epochs": 3, "learning_rate": 0.5, "delta": 0.001},
}


def declare(root: Path, kind: str, path: str, public: int = 0, **said: Any) -> dict[str, Any]:
    """An entry of `own` and one of `data`."""
    said |= {"path": path, "public": {"count": public}}
    own, data = describe.describe("mine", kind, said, root)
    entry = own.model_dump(mode="json", exclude_unset=True)
    return {"own": {"mine": entry}, "data": {"mine": data.model_dump(mode="json")}}


def write_features(root: Path, shape: tuple[int, ...], count: int = 240) -> None:
    """Write features in [-3, 3] of three classes; the first features separate the classes."""
    labels = np.arange(count) % 3
    features = np.random.default_rng(1).uniform(-1, 1, (count, *shape))
    features[:, 0] += 2 * (labels - 1).reshape(-1, *(1,) * (len(shape) - 1))
    np.savez(root / "mine.npz", inputs=features, labels=labels)


def settings_of(declared: dict[str, Any]) -> Settings:
    return parse({"source": {"kind": "synthetic"}, "raw": {}, "rows": {}, **declared})


def made(root: Path, settings: Settings) -> prepared.Prepared:
    fetch("mine", settings, root)
    prepare("mine", settings, root)
    return prepared.load("mine", root)
