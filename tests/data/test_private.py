"""Private files stay out of git, wherever they lie, and nobody makes any of them public unasked."""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import pytest

from dprepro.pipeline import params
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.own import private, rows
from dprepro.pipeline.data.own.files import FOLDER
from tests.checkout import git
from tests.laboratory import NOTHING, refused, run
from tests.refusal import refusal_of

COUNT = 90


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, and scans beside it."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    git("init", "--quiet")
    Path("params.yaml").write_text(NOTHING)
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "scans.npz", inputs=images, labels=np.arange(COUNT) % 3)
    return tmp_path / "project"


new = partial(run, "new", "data", "mine")


def test_files_from_anywhere_stay_there_and_git_looks_away(project: Path) -> None:
    new("--npz", "../scans.npz")
    assert params.load().own["mine"].path == "data/own/mine.npz"
    place = FOLDER / "mine.npz"
    assert place.is_symlink()
    assert place.read_bytes() == Path("../scans.npz").read_bytes()
    git("add", "-A")
    assert set(git("ls-files").splitlines()) == {".gitignore", "params.yaml"}
    new("--npz", "../scans.npz")  # the same command again, as after a kill
    Path("../other.npz").write_bytes(b"")
    line = refusal_of(lambda: new("--npz", "../other.npz"))
    assert line == (
        "data/own/mine.npz: is there already; allowed: another name, or `dprepro remove data mine` before"
    )


def test_files_in_the_checkout_are_ignored_before_they_are_read(project: Path) -> None:
    Path("scans").mkdir()
    Path("scans/mine.npz").write_bytes(b"no npz")
    Path(".gitignore").write_bytes(b"*.pyc\ncaf\xe9")
    with private.placing("mine", "scans/mine.npz"):
        assert Path(".gitignore").read_bytes().startswith(b"*.pyc\ncaf\xe9\n/data/own\n")
        git("add", "-A")
        assert "scans/mine.npz" not in git("ls-files").splitlines()


def test_a_template_makes_git_ignore_its_table(project: Path) -> None:
    for given in ("mine.csv", "../mine.csv"):
        Path(given).write_text("age,sick\n1,no\n")
        new("--table", given, "--label", "sick")
        Path("mine.schema.yaml").unlink()
    git("add", "-A")
    assert set(git("ls-files").splitlines()) == {".gitignore", "params.yaml"}
    git("add", "--force", "mine.csv")
    assert "git tracks it" in refusal_of(lambda: new("--table", "mine.csv", "--label", "sick"))


@pytest.mark.parametrize("said", ["test: 89", "public: {raw: none}"])
@pytest.mark.parametrize("given", ["../scans.npz", "inside.npz"])
def test_a_failure_leaves_no_link_and_git_ignoring(project: Path, said: str, given: str) -> None:
    os.link("../scans.npz", "inside.npz")
    Path("said.yaml").write_text(said)
    assert "data/own" not in refused("new", "data", "mine", "--npz", given, "--schema", "said.yaml")
    assert not FOLDER.exists() or not list(FOLDER.iterdir())
    if given == "inside.npz":
        assert private._ignored(Path("inside.npz"), project)


def test_what_git_has_is_refused(project: Path) -> None:
    """Before it is read, and before a commit; also under another name."""
    Path("mine.npz").write_bytes(Path("../scans.npz").read_bytes())
    git("add", "mine.npz")
    assert "mine.npz: private, and git tracks it" in refusal_of(lambda: new("--npz", "mine.npz"))
    git("rm", "--cached", "--quiet", "mine.npz")
    new("--npz", "mine.npz")
    assert not private.private_files(params.load().own)
    Path("copies").mkdir()
    Path("copies/some other name").write_bytes(Path("mine.npz").read_bytes())
    git("add", "-A")
    hook = [sys.executable, "-m", "dprepro.pipeline.data.own.private"]
    told = subprocess.run(hook, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith("copies/some other name: private, and git tracks it")
    git("rm", "--cached", "--quiet", "copies/some other name")
    git("add", "--force", "data/prepared/mine/train.inputs.npy")
    assert private.private_files(params.load().own) == {"mine": ["data/prepared/mine/train.inputs.npy"]}


@pytest.mark.parametrize("later", ["deleted", "changed"])
def test_a_copy_that_is_only_staged_is_noticed(people: Path, later: str) -> None:
    """A commit takes a file's content from the index, even if the file has changed since."""
    lines = people.read_text().splitlines(keepends=True)
    Path("notes.txt").write_text("".join(lines[20:26]))
    shutil.copy(people, "copy.csv")
    git("add", "-A")
    for name in ("notes.txt", "copy.csv"):
        Path(name).unlink()
        if later == "changed":
            Path(name).write_text("nothing\n")
    assert {*private.private_files(params.load().own)["people"]} == {"notes.txt", "copy.csv"}


def test_a_copy_of_what_changed_or_was_never_fetched_is_noticed(project: Path) -> None:
    new("--npz", "../scans.npz")
    shutil.rmtree("data/raw")
    shutil.copy("../scans.npz", "as-declared")
    git("add", "as-declared")
    assert private.private_files(params.load().own) == {"mine": ["as-declared"]}
    git("rm", "--cached", "--quiet", "as-declared")
    np.savez("../scans.npz", inputs=np.zeros((COUNT, 5, 5), np.uint8), labels=np.arange(COUNT) % 3)
    shutil.copy("../scans.npz", "as-it-is-now")
    git("add", "as-it-is-now")
    assert private.private_files(params.load().own) == {"mine": ["as-it-is-now"]}


def test_a_link_that_git_brought_is_not_followed(project: Path) -> None:
    new("--npz", "../scans.npz")
    git("add", "--force", "data/own/mine.npz")
    assert "data/own/mine.npz: private, and git tracks it" in refused("fetch mine")


def test_public_examples_are_asked_for(project: Path) -> None:
    assert "none is public" in new("--npz", "../scans.npz")
    assert [len(split) for split in prepared.load("mine").splits.values()] == [68, 7, 15, 0]
    row = "new row x --data mine --model lenet5 --epsilon 3 --method dpsgd --normalization"
    said = refused(f"{row} public_bn")
    assert said.startswith("params.yaml: rows.x.data: 'mine' has no public examples, which 'dpsgd' with")
    assert said.endswith("allowed: data with some (`public` in the --schema of `dprepro new data`)")
    run(f"{row} layer")


def test_some_may_be_public_or_others(project: Path) -> None:
    said = Path("said.yaml")
    said.write_text("public: {count: 4}")
    assert "4 of them are public from here on" in new("--npz", "../scans.npz", "--schema", "said.yaml")
    assert [len(split) for split in prepared.load("mine").splits.values()] == [64, 7, 15, 4]
    for public, line in (
        ("{raw: mine}", "'mine' has the examples of 'other' in another form"),
        ("{raw: third}", "no such entry 'third'"),
        ("{raw: other}", "data.other.public.count: missing"),  # its own become public by a number alone
        ("{}", "data.other.public.count: missing"),
        ("5", "data.other.public: '5' is not allowed"),
        ("{count: -1}", "data.other.public.count: -1 is not allowed"),
    ):
        said.write_text(f"public: {public}")
        assert line in refused("new data other --npz ../scans.npz --schema said.yaml")


@pytest.mark.parametrize("name", ["scans [2024].npz", "a\\b?*.npz", "#! .npz"])
def test_a_name_that_git_could_take_for_a_pattern_is_ignored(project: Path, name: str) -> None:
    """Also if the folder becomes a checkout later."""
    shutil.rmtree(".git")
    os.link("../scans.npz", name)
    new("--npz", name)
    Path("ends in blanks  ").mkdir()
    Path("ends in blanks  /scans.npz").touch()
    private.ignore([Path("ends in blanks  ")])
    git("init", "--quiet")
    git("add", "-A")
    assert set(git("ls-files").splitlines()) == {".gitignore", "params.yaml"}


def test_a_file_that_a_folder_tells_git_to_keep_is_refused(project: Path) -> None:
    Path("kept").mkdir()
    Path("kept/.gitignore").write_text("!*.npz\n")
    os.link("../scans.npz", "kept/scans.npz")
    line = refusal_of(lambda: new("--npz", "kept/scans.npz"))
    assert line.endswith(".gitignore can't make git ignore it; move or rename it")


def test_files_that_another_checkout_has_are_refused(project: Path) -> None:
    git("init", "--quiet", "..")
    git("-C", "..", "add", "--force", "scans.npz")
    tracked = "../scans.npz: private, and git tracks it"
    assert refusal_of(lambda: private.protected("../scans.npz")).startswith(tracked)
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
    hook.write_text(f"#!/bin/sh\ncd project && {sys.executable} -m dprepro.pipeline.data.own.private\n")
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


@pytest.mark.parametrize("given", [".", "params.yaml"])
def test_the_projects_own_files_are_no_data_and_stay_in_git(project: Path, given: str) -> None:
    assert "has or is params.yaml itself" in refusal_of(lambda: private.protected(given))
    assert not Path(".gitignore").exists()


@pytest.fixture
def people(project: Path) -> Path:
    """A table of people beside the checkout, declared as 'people'."""
    draw = np.random.default_rng(0)
    ages, incomes = draw.integers(18, 90, COUNT), draw.normal(3000, 500, COUNT).round(2)
    lines = [f"{age},{income},yes" for age, income in zip(ages, incomes, strict=True)]
    lines += ["40,1000.0,no"] * 5  # one that is common
    Path("../people.csv").write_text("\n".join(["age,income,loan", *lines]) + "\n")
    Path("people.schema.yaml").write_text(
        "classes: [no, yes]\ncolumns: {age: {range: [0, 100]}, income: {range: [0, 9000]}}\n"
    )
    run("new data people --table ../people.csv --label loan --schema people.schema.yaml")
    git("add", "-A")
    assert not private.private_files(params.load().own)
    return Path("../people.csv")


@pytest.mark.parametrize("form", ["csv", "columns", "wider", "parquet"])
def test_a_part_of_a_private_table_is_found(people: Path, form: str) -> None:
    """Some of its rows: alone, with other separators and numbers, with predictions, and as Parquet."""
    some = pandas.read_csv(people).iloc[20:26]
    if form == "csv":
        some.to_csv("notes.txt", index=False, header=False)
    elif form == "columns":
        some.assign(age=some["age"].astype(float))[["loan", "age", "income"]].to_csv("notes.txt", sep=";")
    elif form == "wider":
        some.assign(probability=0.5, guess="yes").to_csv("notes.txt", index=False)
    else:
        some.to_parquet("notes.parquet", index=False)
    git("add", "-A")
    (found,) = private.private_files(params.load().own)["people"]
    assert found == ("notes.parquet" if form == "parquet" else "notes.txt")


@pytest.mark.parametrize("form", ["new lines", "predictions", "semicolons", "parquet", "below a comment"])
def test_other_peoples_lines_in_the_columns_of_a_private_table_are_found(people: Path, form: str) -> None:
    others = pandas.DataFrame({"Income": [1.5, 2.5, 3.5], "note": "x", " age": [1, 2, 3]})
    name = "notes.parquet" if form == "parquet" else "notes.txt"
    if form == "parquet":
        others.to_parquet(name)
    else:
        others["class"] = "yes"
        text = others.to_csv(sep=";" if form == "semicolons" else ",", index=form == "predictions")
        Path(name).write_text("# of May\n" * (form == "below a comment") + text)
    Path("names.csv").write_text("age,income,loan\n")  # no lines
    Path("less.csv").write_text("age,loan\n1,yes\n2,no\n")
    git("add", "-A")
    assert private.private_files(params.load().own) == {"people": [name]}
    assert "`git commit --no-verify`" in refusal_of(lambda: private.refuse_tracked([name]))


def test_texts_with_commas_are_found_between_other_separators(tmp_path: Path) -> None:
    lines = [f'"one, two; number {row}",yes' for row in range(9)]
    private_table, copy = tmp_path / "texts.csv", tmp_path / "copy"
    private_table.write_text("\n".join(["text,label", *lines]))
    for separator in "\t;|":
        copy.write_text("\n".join(line.replace('",', f'"{separator}') for line in lines[:4]))
        assert rows.files_with_rows([private_table], [copy]) == [copy]


def test_a_file_of_many_rows_hides_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of more columns is compared twice."""
    monkeypatch.setattr(rows, "ROWS", 10)
    secret = [f"{row},person number {row}" for row in range(4)]
    contents = {
        "private": secret,
        "wide": [f"{row},public number,{row}" for row in range(40)],
        "copy": secret,
    }
    paths = {name: tmp_path / f"{name}.csv" for name in contents}
    for name, path in paths.items():
        path.write_text("\n".join(["age,name", *contents[name], ""]))
    assert rows.files_with_rows([paths["private"]], [paths["wide"], paths["copy"]]) == [paths["copy"]]


def test_common_rows_and_other_tables_raise_no_alarm(people: Path) -> None:
    lines = people.read_text().splitlines()
    other = [f"{number},{number}.5,yes" for number in range(1000, 1200)]
    Path("other.csv").write_text("\n".join(["years,pay,loan", *[lines[-1]] * 50, *other, *lines[5:7]]) + "\n")
    Path("binary").write_bytes(np.random.default_rng(0).bytes(100_000))
    Path("long").write_bytes(b"1," * 200_000 + b'\r,"')
    git("add", "-A")
    assert not private.private_files(params.load().own)
