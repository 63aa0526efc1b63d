"""What a laboratory's package brings is known as ours is: proved by a method of ours that moves there."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline import extensions, params
from pipeline.errors import UserError
from pipeline.extensions import Extension
from tests.conftest import forgetting

ROOT = Path(__file__).parents[1]
ROOM = "methods/batch_clipping"
# of every kind of replica that a small network has, what the golden values have to say against it
GOLDEN = """
import json
from pipeline.methods.rooms import method_settings
from tests.golden.test_golden import KINDS, SMALLEST, said
assert method_settings()["batch_clipping"].__module__ == "lab.methods.batch_clipping.settings"
kinds = [kind for kind in KINDS["batch_clipping"].values() if kind.row.model.name in SMALLEST]
print(json.dumps([said(kind) for kind in kinds]))
"""
PARAMS = """\
source: {kind: synthetic}
code: [lab]
raw:
  mnist: {train: 400, test: 100}
data:
  mnist: {raw: mnist, train: 300, validation: 40, public: {raw: mnist, count: 40}}
rows:
  moved:
    paper: mine
    table: t1
    label: LeNet-5
    data: mnist
    model: {name: lenet5}
    method: batch_clipping
    seeds: 1
    reproducible: true
    settings: {batch: 50, epochs: 1, learning_rate: 0.1, clipping: full, clip: 0.5, sigma: 2.0}
    levels: [{sigma: 2.0}]
searches:
  rates: {row: moved, grid: {learning_rate: [0.05, 0.1]}}
"""


@pytest.fixture
def run(tmp_path: Path, typed: Callable[..., str]) -> Callable[[str], str]:
    """This project without the room, which a laboratory has instead; runs a command there."""
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("pipeline", "stages", "tests/golden", "reports/searches"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    moved = tmp_path / "lab" / ROOM
    moved.parent.mkdir(parents=True)
    (tmp_path / "pipeline" / ROOM).rename(moved)
    for path in moved.glob("*.py"):
        path.write_text(
            path.read_text().replace("pipeline.methods.batch_clipping", "lab.methods.batch_clipping")
        )
    (tmp_path / "params.yaml").write_text(f"code: [lab]\n{(ROOT / 'params.yaml').read_text()}")

    return lambda line: typed(line, tmp_path, tmp_path)


def test_a_method_of_ours_works_from_a_laboratory(tmp_path: Path, run: Callable[[str], str]) -> None:
    (tmp_path / "golden.py").write_text(GOLDEN)
    said = json.loads(run("python golden.py").splitlines()[0])
    assert said
    assert set(said) == {None}
    (tmp_path / "params.yaml").write_text(PARAMS)
    for command in ("fetch mnist", "prepare mnist", "search rates", "train moved", "evaluate moved"):
        run(f"dprepro {command}")
    assert "claimed" in run("dprepro ledger moved")
    assert "shown" in run("dprepro audit moved")
    run("dprepro report --no-mlflow")
    assert "moved" in (tmp_path / "reports/summary.csv").read_text()
    assert (tmp_path / "reports/figures/moved-curves.svg").exists()


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Whatever is used here is not used afterwards."""
    with forgetting():
        yield


@pytest.mark.usefixtures("forgotten")
def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taking/models").mkdir(parents=True)
    (tmp_path / "taking/models/lenet5.py").write_text("def build(model, shape, classes): ...\n")
    extensions.use(["taking"], tmp_path)
    with pytest.raises(UserError, match=r"taking/models/lenet5.py: .*lenet5.py has that name too"):
        extensions.extensions("models")


@pytest.mark.usefixtures("forgotten")
def test_a_package_of_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    (tmp_path / "params.yaml").write_text("code: [json]\nraw: {}\ndata: {}\nrows: {}\n")
    with pytest.raises(UserError, match=r"params.yaml: code: 'json' is .*/json too; allowed: another name"):
        params.load(tmp_path / "params.yaml")


def test_every_kind_has_its_folder_here() -> None:
    for kind in extensions.BUILT_IN:
        there = extensions.extensions(kind)
        assert there
        assert all(isinstance(each, Extension) and each.path.is_file() for each in there.values())
