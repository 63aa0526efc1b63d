"""Private files stay out of git, wherever they lie, and nobody makes any of them public unasked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pipeline import params, verification
from pipeline.data import prepared
from pipeline.data.own import private
from pipeline.data.own.files import FOLDER
from stages.app import app
from tests.refusal import refusal_of

COUNT = 90


def git(*command: str) -> str:
    return subprocess.run(["git", *command], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, and scans beside it."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    git("init", "--quiet")
    Path("params.yaml").write_text("raw: {}\ndata: {}\nrows: {}\n")
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "scans.npz", inputs=images, labels=np.arange(COUNT) % 3)
    return tmp_path / "project"


def new(*options: str) -> str:
    done = CliRunner().invoke(app, ["new", "data", "mine", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("copy", [False, True])
def test_files_from_anywhere_stay_there_or_are_copied_where_git_looks_away(project: Path, copy: bool) -> None:
    new("--npz", "../scans.npz", *(["--copy"] if copy else []))
    assert params.load().own["mine"].path == "data/own/mine.npz"
    place = FOLDER / "mine.npz"
    assert place.is_symlink() is not copy
    assert place.read_bytes() == Path("../scans.npz").read_bytes()
    git("add", "-A")
    assert set(git("ls-files").splitlines()) == {".gitignore", "params.yaml"}
    # the same command again, as after a kill
    if not copy:
        new("--npz", "../scans.npz")
    Path("../other.npz").write_bytes(b"")
    leads = "" if copy else f", a link to {project.parent}/scans.npz"
    assert refusal_of(lambda: private.placed("mine", "../other.npz", copy)).startswith(
        f"data/own/mine.npz: is there already{leads}; allowed: another name"
    )


def test_files_in_the_checkout_are_ignored_before_they_are_read(project: Path) -> None:
    Path("scans").mkdir()
    Path("scans/mine.npz").write_bytes(b"no npz")
    Path(".gitignore").write_bytes(b"*.pyc\ncaf\xe9")
    with private.placing("mine", "scans/mine.npz", copy=False):
        assert Path(".gitignore").read_bytes().startswith(b"*.pyc\ncaf\xe9\n/data/own\n")
        git("add", "-A")
        assert "scans/mine.npz" not in git("ls-files").splitlines()


@pytest.mark.parametrize(
    "options", [["--test", "89"], ["--labels", "none"], ["--public-from", "none"], ["--clip"]]
)
@pytest.mark.parametrize("given", ["../scans.npz", "inside.npz"])
@pytest.mark.parametrize("copy", [False, True])
def test_a_failure_leaves_nothing_behind(project: Path, options: list[str], given: str, copy: bool) -> None:
    """Wherever it comes; what an earlier command left of these data stays, and stays ignored."""
    os.link("../scans.npz", "inside.npz")
    before = sorted(Path().rglob("*"))
    refusal = refusal_of(lambda: new("--npz", given, *options, *(["--copy"] if copy else [])))
    assert "data/own" not in refusal
    assert sorted(Path().rglob("*")) == before
    Path("data/raw/mine").mkdir(parents=True)
    refusal_of(lambda: new("--npz", given, *options, *(["--copy"] if copy else [])))
    assert private._ignored(Path("data/raw/mine"), project)
    assert not private._ignored(Path("inside.npz"), project)


def test_what_git_has_is_refused(project: Path) -> None:
    """Before it is read, by `dprepro verify`, and before a commit; also under another name."""
    Path("mine.npz").write_bytes(Path("../scans.npz").read_bytes())
    git("add", "mine.npz")
    assert "mine.npz: private, and git tracks it" in refusal_of(lambda: new("--npz", "mine.npz"))
    git("rm", "--cached", "--quiet", "mine.npz")
    new("--npz", "mine.npz")
    assert not [found for found in verification.verify(params.load()) if found.wrong]
    Path("copies").mkdir()
    Path("copies/some other name").write_bytes(Path("mine.npz").read_bytes())
    git("add", "-A")
    (wrong,) = [found for found in verification.verify(params.load()) if found.wrong]
    assert wrong.subject == "own.mine"
    assert str(wrong.wrong).startswith("copies/some other name: private, and git tracks it")
    hook = ["python", "-m", "pipeline.data.own.private"]
    told = subprocess.run(hook, env=os.environ | {"DPREPRO": ""}, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith("copies/some other name: private, and git tracks it")
    git("rm", "--cached", "--quiet", "copies/some other name")
    git("add", "--force", "data/prepared/mine/train.inputs.npy")
    assert private.private_files(params.load().own) == {"mine": ["data/prepared/mine/train.inputs.npy"]}


def test_a_link_that_git_brought_is_not_followed(project: Path) -> None:
    new("--npz", "../scans.npz")
    git("add", "--force", "data/own/mine.npz")
    done = CliRunner().invoke(app, ["fetch", "mine"])
    assert "data/own/mine.npz: private, and git tracks it" in str(done.exception)


def test_a_link_whose_file_has_gone_is_told(project: Path) -> None:
    new("--npz", "../scans.npz")
    Path("../scans.npz").rename("../moved.npz")
    said = str(CliRunner().invoke(app, ["fetch", "mine"]).exception)
    assert said.endswith(f"own.mine.path: data/own/mine.npz, a link to {project.parent}/scans.npz")


def test_public_examples_are_asked_for(project: Path) -> None:
    assert "none is public" in new("--npz", "../scans.npz")
    assert [len(split) for split in prepared.load("mine").splits.values()] == [68, 7, 15, 0]
    row = ("new", "row", "x", "--data", "mine", "--model", "lenet5", "--epsilon", "3", "--method", "dpsgd")
    done = CliRunner().invoke(app, [*row, "--normalization", "public_bn"])
    said = str(done.exception)
    assert said.startswith("params.yaml: rows.x.data: 'mine' has no public examples, which 'dpsgd' with")
    assert said.endswith("allowed: data with some (`dprepro new data --public N` or `--public-from OTHER`)")
    assert CliRunner().invoke(app, [*row, "--normalization", "layer"]).exit_code == 0


def test_some_may_be_public_or_others(project: Path) -> None:
    assert "4 of them are public from here on" in new("--npz", "../scans.npz", "--public", "4")
    assert [len(split) for split in prepared.load("mine").splits.values()] == [64, 7, 15, 4]
    other = ["new", "data", "other", "--npz", "../scans.npz", "--public-from", "mine", "--public", "5"]
    done = CliRunner().invoke(app, other)
    # whose content is all private here
    assert "only 0 examples can be public" in str(done.exception)
    other[-3] = "third"
    assert "no such entry 'third'" in str(CliRunner().invoke(app, other).exception)


@pytest.mark.parametrize("name", ["scans [2024]", "photos ", "back\\slash", "all*", "why?"])
def test_a_folder_whose_name_is_a_pattern_to_git_is_ignored(project: Path, name: str) -> None:
    Path(name).mkdir()
    os.link("../scans.npz", Path(name) / "scans.npz")
    new("--npz", f"{name}/scans.npz")
    private.ignore([Path(name)])
    git("add", "-A")
    assert set(git("ls-files").splitlines()) == {".gitignore", "params.yaml"}


def test_what_is_copied_from_within_the_checkout_is_ignored_too(project: Path) -> None:
    os.link("../scans.npz", "scans.npz")
    new("--npz", "scans.npz", "--copy")
    git("add", "-A")
    assert set(git("ls-files").splitlines()) == {".gitignore", "params.yaml"}


def test_files_of_another_checkout_must_be_ignored_there(project: Path) -> None:
    git("init", "--quiet", "..")
    refusal = refusal_of(lambda: private.placed("mine", "../scans.npz", False))
    assert "scans.npz: private, and lies in the checkout" in refusal
    Path("../.gitignore").write_text("/scans.npz\n")
    git("-C", "..", "add", "--force", "scans.npz")
    tracked = "../scans.npz: private, and git tracks it"
    assert refusal_of(lambda: private.placed("mine", "../scans.npz", False)).startswith(tracked)
    git("-C", "..", "rm", "--cached", "--quiet", "scans.npz")
    new("--npz", "../scans.npz")
    git("-C", "..", "add", "--force", "scans.npz")
    assert private.private_files(params.load().own) == {"mine": ["../scans.npz"]}


def test_the_checkout_around_a_laboratory_is_looked_through(project: Path) -> None:
    """Whatever its files are called, and whatever the hook of a commit is told of its index."""
    shutil.rmtree(".git")
    git("init", "--quiet", "..")
    Path("../.gitignore").write_text("/scans.npz\n")
    new("--npz", "../scans.npz")
    hook = Path("../.git/hooks/pre-commit")
    hook.write_text(f"#!/bin/sh\ncd project && {sys.executable} -m pipeline.data.own.private\n")
    hook.chmod(0o755)
    somebody = ["-c", "user.name=x", "-c", "user.email=x"]
    line = ["git", "-C", "..", *somebody, "commit", "--quiet", "--message", "x"]
    git("-C", "..", "add", "--all")
    subprocess.run(line, check=True)
    copy = os.fsdecode(b"../caf\xe9.npz")
    shutil.copy("../scans.npz", copy)
    git("-C", "..", "add", "--all")
    assert private.private_files(params.load().own) == {"mine": [copy]}
    for more in ([], ["--all"]):
        done = subprocess.run([*line, *more], capture_output=True, text=True, check=False)
        assert done.stderr.startswith("../caf\\udce9.npz: private, and git tracks it")


def test_names_that_are_not_utf_8(project: Path) -> None:
    """Of other files in git they are none of ours; of data they can't be written into params.yaml."""
    odd = os.fsdecode(b"caf\xe9")
    Path(odd).write_text("x")
    git("add", "--all")
    Path("inside" + odd).write_bytes(Path("../scans.npz").read_bytes())
    assert "a name that is not UTF-8; rename it" in refusal_of(lambda: new("--npz", "inside" + odd))
    Path(f"../{odd}.npz").write_bytes(Path("../scans.npz").read_bytes())
    new("--npz", f"../{odd}.npz")
    assert not [found for found in verification.verify(params.load()) if found.wrong]


@pytest.mark.parametrize("given", [".", "params.yaml"])
def test_the_projects_own_files_are_no_data_and_stay_in_git(project: Path, given: str) -> None:
    assert "has or is params.yaml itself" in refusal_of(lambda: private.placed("mine", given, False))
    assert not Path(".gitignore").exists()
