"""A practitioner's walk, typed from a clean folder: private files elsewhere, one's own model, epsilon 3.

Nothing private gets into git, what is asked for is proven, and the search is told.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from ruamel.yaml import YAML

from pipeline.results import records
from tests.docs.blocks import begin
from tests.there import there

MODEL = '''"""A small network of one's own."""

from math import prod

from torch import nn

from pipeline.models.model import Model

VERSION = 1


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 16), nn.ReLU(), nn.Linear(16, classes))
'''
SEARCH = """
searches:
  mine:
    row: mine
    grid: {learning_rate: [0.5, 1.0]}
    settings: {epochs: 1}
"""


def test_the_walk(tmp_path: Path, typed: Callable[..., str]) -> None:
    lab = tmp_path / "lab"

    def run(line: str) -> str:
        return typed(line, lab, lab)

    # the project's code with nothing declared, and private files beside it
    begin(lab, library=True, git=True)
    (lab / "pipeline/models/hidden.py").write_text(MODEL)
    generator = np.random.default_rng(0)
    for number in range(240):
        place = tmp_path / f"scans/class-{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 60, (8, 8), dtype=np.uint8)
        pixels[:, 4 * (number % 2) : 4 + 4 * (number % 2)] += 180
        Image.fromarray(pixels).save(place / f"patient {number}.png")
    texts = [f'"{("good", "bad")[number % 2]} words {number}",{number % 2}' for number in range(120)]
    (tmp_path / "notes.csv").write_text("\n".join(["text,label", *texts]) + "\n")
    # files elsewhere stay there
    assert "none is public" in run("dprepro new data scans --images ../scans")
    run("dprepro new data notes --texts ../notes.csv")
    run("dprepro new row mine --data scans --model hidden --method dpsgd --epsilon 3 --epochs 40 --batch 16")
    declared = YAML(typ="safe").load(lab / "params.yaml")
    assert [each["path"] for each in declared["own"].values()] == ["data/own/scans", "data/own/notes.csv"]
    # one candidate a step size, and the row takes the better
    params = lab / "params.yaml"
    text = params.read_text().replace("    method: dpsgd\n", "    method: dpsgd\n    search: mine\n")
    params.write_text(text + SEARCH)
    run("dprepro search mine")
    run("dvc repro evaluate@mine ledger@mine")
    said = run("dprepro ledger mine")
    proven = there(re.search(r"epsilon = 3: epsilon at most ([\d.]+) proven", said))
    assert 2.97 <= float(proven[1]) <= 3
    together = there(re.search(r"and 2 trainings of its search have at most ε = ([\d.]+)", said))
    assert float(together[1]) > 3
    assert records.read_evaluation("mine", lab) is not None
    # nothing private is staged, however much is
    run("git add -A")
    staged = run("git ls-files").splitlines()
    assert "params.yaml" in staged
    assert not [
        name for name in staged if name.startswith("data/") or name.endswith((".png", ".csv.npy", ".npz"))
    ]
    assert "notes.csv" not in " ".join(staged)
    assert "1 rows stand" in run("dprepro status")
    assert "mine: 1 replicas stand; nothing to train" in run("dprepro plan mine")
    # in its own words
    run("dprepro report")
    first = (lab / "reports/index.html").read_text()
    assert "Rows of our own" in first
    assert "Does it reproduce?" not in (lab / "reports/papers/mine.html").read_text()
    assert re.search(r"\d papers? on differentially", first) is None
