"""`dprepro init`: what it writes, and what it refuses."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.params import PAPERS, papers
from dprepro.stages.init import init, stages
from tests.laboratory import run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def laboratory(tmp_path: Path) -> Path:
    init(tmp_path / "new/laboratory")
    return tmp_path / "new/laboratory"


def test_this_repository_is_a_laboratory_too(laboratory: Path) -> None:
    for name in (".dvcignore", ".dvc/config", ".dvc/.gitignore"):
        assert (laboratory / name).read_text() == (ROOT / name).read_text(), name
    here, there = (YAML(typ="safe").load(folder / "dvc.yaml") for folder in (ROOT, laboratory))
    # DVC sees this checkout's code, but not the installed code
    deps = here["stages"]["identity"].pop("deps")
    assert set(deps) == {"papers", "params.yaml", "pipeline", "reports/searches"}
    assert there["stages"]["identity"].pop("always_changed")
    assert here == there


def test_its_row_is_a_line_of_its_paper(laboratory: Path) -> None:
    settings = params.load(laboratory / "params.yaml")
    (row,) = settings.rows.values()
    table = papers.load(row.paper, laboratory / PAPERS).tables[row.table]
    assert [line.label for line in table.lines] == [row.label]
    assert set(table.columns) == {row.level(configured) for configured in row.resolved}
    assert not row.reproducible
    assert settings.source.kind == "digits"


def test_a_bare_repository_is_no_checkout_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "--quiet", "--bare", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    for name in ("laboratory", "-laboratory"):
        init(Path(name))
        assert Path(name, ".git/hooks/pre-commit").is_file()


def test_a_private_laboratory_has_no_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the same stages, and its rows have a purpose for their readers."""
    init(tmp_path / "private", private=True)
    init(tmp_path / "private", private=True)  # as after a kill
    monkeypatch.chdir(tmp_path / "private")
    assert not Path("papers").exists()
    assert not Path(".github").exists()  # it would upload the records
    assert Path("dvc.yaml").read_text() == stages((ROOT / "dvc.yaml").read_text())
    assert "mnist" not in Path("params.yaml").read_text()
    # the packages of two laboratories have one name
    Path("params.yaml").write_text(Path("params.yaml").read_text().replace("[lab]", "[]"))
    assert not params.load().rows
    np.savez("scans.npz", inputs=np.arange(60 * 784).reshape(60, 28, 28) % 251, labels=np.arange(60) % 2)
    run("new data mine --npz scans.npz")
    options = ["--data", "mine", "--model", "lenet5", "--method", "dpsgd", "--epsilon", "3", "--purpose"]
    run("new", "row", "triage", *options, "sort: scans")
    row = params.load().rows["triage"]
    assert row.purpose == "sort: scans"
    assert "paper" not in Path("params.yaml").read_text()


def test_it_is_under_git_by_itself_or_with_what_is_around_it(laboratory: Path) -> None:
    inner = laboratory / "inner"
    init(inner)
    assert (laboratory / ".git").is_dir()
    assert not (inner / ".git").exists()


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(UserError, match="is there and not empty; allowed: an empty folder, or a new one"):
            init(place)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[user\n")
    with monkeypatch.context() as patched:
        patched.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
        with pytest.raises(UserError, match="laboratory: git can't make a checkout of it: fatal: bad config"):
            init(tmp_path / "laboratory")
    assert not list((tmp_path / "laboratory").iterdir())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="git: not installed"):
        init(tmp_path / "laboratory")
