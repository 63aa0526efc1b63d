"""DVC over the real stages: what is declared, and that results travel without being trained again.

One tiny row is trained once, by the fixture `origin`; every other test works in a clone of it whose `dprepro`
refuses to train.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.files import digest_file
from pipeline.methods.rooms import METHOD_SETTINGS
from pipeline.params import Settings, parse
from pipeline.results import records

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
NAME = "rows.dprepro.tar.gz"
PARAMS = """\
source: {kind: synthetic}
raw:
  mnist: {train: 60, test: 20}
  kmnist: {train: 20, test: 10}
data:
  toy: {raw: mnist, train: 40, validation: 10, public: {raw: kmnist, count: 4}}
starts: {}
relevances: {}
accounts:
  described:
    paper: nguyen2023
    table: gdp
    label: BN-LeNet-5, L = 8
    settings: {sampling: fixed, examples: 1000, batch: 50, epochs: 1, delta: 1e-5}
    levels: [{noise_multiplier: 1.0}]
rows:
  toy:
    paper: davody2020
    table: t5
    label: DPSGD (LeNet-5)
    data: toy
    model: {name: lenet5}
    method: dpsgd
    seeds: 1
    reproducible: true
    settings: {batch: 8, epochs: 0.4, learning_rate: 0.1}
    levels: [{epsilon: .inf}]
"""
# `dprepro` as in a place where training must not happen
UNTRAINING = """\
#!/bin/sh
if [ "$1" = train ]; then echo "trained again" >&2; exit 1; fi
exec "{dprepro}" "$@"
"""


class Checkout:
    """A folder under git and DVC, and commands run in it."""

    def __init__(self, folder: Path, path: str) -> None:
        self.folder = folder
        # neither the variables of a git hook that runs the tests, nor somebody's MLflow
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "MLFLOW_"))}
        who = {f"GIT_{role}_{what}": "test" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        self.environment = {**kept, **who, "PATH": f"{path}:{BIN}:{os.environ['PATH']}"}
        # the library that the stages run is then the one they hash
        self.environment["PYTHONPATH"] = str(folder)

    def run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def commit(self, message: str) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", message)

    def status(self, *stages: str) -> dict:
        return json.loads(self.run("dvc", "status", "--json", *stages))

    def splits(self) -> dict[str, str]:
        """Digest of each prepared file."""
        folder = self.folder / "data/prepared/toy"
        return {path.name: digest_file(path) for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workshop")


@pytest.fixture(scope="module")
def origin(workshop: Path) -> Checkout:
    """A checkout where everything was run, and its results pushed to a folder."""
    folder = workshop / "origin"
    for name in (".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore", "dvc.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "params.yaml").write_text(PARAMS)
    checkout = Checkout(folder, "")
    checkout.run("git", "init", "--quiet", "--initial-branch", "main")
    checkout.run("dvc", "remote", "add", "--default", "store", str(workshop / "store"))
    checkout.commit("declared")
    checkout.run("git", "tag", "declared")
    checkout.run("dvc", "repro")
    checkout.commit("run")
    checkout.run("git", "tag", "run")
    checkout.run("dvc", "push", "--run-cache")
    checkout.run("dprepro", "pack", "toy", "--output", str(workshop / NAME))
    return checkout


@pytest.fixture
def clone(origin: Checkout, workshop: Path, tmp_path: Path) -> Iterator[Checkout]:
    """A second checkout, where training fails."""
    fake = tmp_path / "bin/dprepro"
    fake.parent.mkdir()
    fake.write_text(UNTRAINING.format(dprepro=BIN / "dprepro"))
    fake.chmod(0o755)
    checkout = Checkout(tmp_path / "clone", str(fake.parent))
    origin.run("git", "clone", "--quiet", str(origin.folder), str(checkout.folder))
    yield checkout
    shutil.rmtree(checkout.folder)  # torch runs leave megabytes; pytest would keep three sessions of them


def test_an_account_is_run_and_kept_in_git(origin: Checkout) -> None:
    record = records.read("described", origin.folder)
    assert record is not None
    assert record.history is None
    assert record.replicas[0].ledger.accounted is not None
    assert "reports/records/described.json" in origin.run("git", "ls-files")


def test_second_run_does_nothing(origin: Checkout) -> None:
    assert "Running stage" not in origin.run("dvc", "repro")


def test_clone_with_the_remote_does_not_train(clone: Checkout) -> None:
    clone.run("dvc", "pull")
    assert (clone.folder / "runs/toy/weights.pt").exists()
    said = clone.run("dvc", "repro")
    assert "train@toy' didn't change" in said
    assert "Running stage 'publish'" in said  # MLflow's store is each clone's own
    assert clone.status() == {}


def test_pull_report_leaves_rows_alone_that_nobody_ran(clone: Checkout) -> None:
    params = clone.folder / "params.yaml"
    declared, _, row = params.read_text().partition("  toy:\n    paper")
    params.write_text(f"{declared}  toy:\n    paper{row}  another:\n    paper{row}")
    recipe = (ROOT / "Makefile").read_text().partition("\npull-report:")[2].partition("\n\n")[0]
    commands = [line.split() for line in recipe.splitlines()[1:]]
    assert len(commands) == 2
    for _, *arguments in commands:
        clone.run("dvc", *arguments)
    assert (clone.folder / "runs/toy/weights.pt").exists()


def test_results_are_found_again_without_the_lock(clone: Checkout) -> None:
    (clone.folder / "dvc.lock").unlink()
    assert "is cached - skipping run" in clone.run("dvc", "repro", "--pull", "train@toy")


def test_clone_without_the_remote_renders_the_report(clone: Checkout) -> None:
    clone.run("dvc", "remote", "remove", "store")
    page = clone.folder / "reports/index.html"
    before = page.read_bytes()
    page.unlink()
    clone.run("dvc", "repro", "--single-item", "report")
    assert page.read_bytes() == before


def test_two_versions_of_a_split(clone: Checkout) -> None:
    clone.run("dvc", "pull", "prepare@toy", "--with-deps")
    old = clone.splits()
    params = clone.folder / "params.yaml"
    params.write_text(params.read_text().replace("validation: 10", "validation: 12"))
    clone.run("dvc", "repro", "prepare@toy")
    clone.commit("another split")
    new = clone.splits()
    assert new["validation.inputs.npy"] != old["validation.inputs.npy"]

    found = json.loads(clone.run("dvc", "diff", "--json", "run", "HEAD", "--targets", "data/prepared/toy"))
    modified = {Path(entry["path"]).name for entry in found["modified"]}
    assert {"manifest.json", "validation.inputs.npy"} <= modified
    assert "test.inputs.npy" not in modified

    clone.run("git", "checkout", "--quiet", "run")
    clone.run("dvc", "checkout", "prepare@toy")
    assert clone.splits() == old


def test_adopting_beside_the_data(clone: Checkout, workshop: Path) -> None:
    clone.run("git", "checkout", "--quiet", "declared")
    clone.run("dvc", "repro", "prepare@toy")
    assert clone.run("dprepro", "adopt", str(workshop / NAME)) == "toy: adopted\n"
    assert clone.status("train@toy", "evaluate@toy") == {}
    clone.run("dvc", "repro", "evaluate@toy")
    record = records.read("toy", clone.folder)
    assert record is not None
    assert record.provenance.adopted is not None


def test_adopting_without_the_data(clone: Checkout, workshop: Path) -> None:
    clone.run("git", "checkout", "--quiet", "declared")
    said = clone.run("dprepro", "adopt", str(workshop / NAME))
    assert "could not be compared" in said
    # DVC misses the data, and holds everything else for signed
    assert clone.status("evaluate@toy") == {
        "evaluate@toy": [{"changed deps": {"data/prepared/toy": "deleted"}}]
    }
    clone.run("dvc", "repro", "--allow-missing", "evaluate@toy")


def test_plan_says_what_would_be_trained(clone: Checkout) -> None:
    said = clone.run("dprepro", "plan")
    assert said.startswith("toy: 1 replicas, 0:00:")
    clone.run("dvc", "pull")
    assert clone.run("dprepro", "plan") == "to train: 0 rows, 0:00:00 by the records\n"


def stages(folder: Path) -> str:
    """dvc.yaml without its head, where the two pipelines differ."""
    return (folder / "dvc.yaml").read_text().partition("\nstages:")[2]


def test_demo_has_the_stages_of_the_real_thing() -> None:
    assert stages(ROOT / "demo") == stages(ROOT)


@pytest.mark.parametrize("folder", [ROOT, ROOT / "demo"])
def test_every_declared_file_is_there(folder: Path) -> None:
    yaml = YAML(typ="safe")
    code = yaml.load(folder / "dvc.yaml")["vars"][0]["code"]
    deps = {dep for stage in declared(folder).values() for dep in stage["deps"] if dep.startswith("${code}")}
    settings = parse(yaml.load(folder / "params.yaml"))
    for dep in deps:
        for path in expanded(dep.replace("${code}", code), settings):
            assert (folder / path).exists(), f"{dep}: no {path}"


def declared(folder: Path) -> dict[str, dict]:
    """Stages of dvc.yaml by name, whether there is one or one for each key."""
    found = YAML(typ="safe").load(folder / "dvc.yaml")["stages"]
    return {name: stage.get("do", stage) for name, stage in found.items()}


def expanded(dep: str, settings: Settings) -> set[str]:
    rows = settings.rows.values()
    return {
        dep.replace("${item.method}", row.method).replace("${item.model.name}", row.model.name)
        for row in rows
    }


# Left out of the dependencies because an edit there must not run everything again. What settings hand on is
# in `params`, and the catalogue's checksums are checked; the others read, write and describe.
BYSTANDERS = {"errors", "files", "method_settings", "provenance", "records", "settings", "strict"}
BYSTANDERS |= {f"data.{name}" for name in ("catalog", "folders", "prepared")}


@pytest.mark.parametrize(
    ("stage", "entry"),
    [
        ("prepare", "data.prepare"),
        ("train", "training"),
        ("start", "starts"),
        ("relevance", "average_relevance"),
        ("evaluate", "evaluation"),
        ("account", "accounts"),
    ],
)
def test_no_source_is_forgotten(stage: str, entry: str) -> None:
    """Every module that a stage's library imports is a dependency of the stage, or of one before it."""
    order = ("fetch", "prepare", "train", "start", "relevance", "evaluate")
    before = order[: order.index(stage) + 1] if stage in order else (stage,)
    found = declared(ROOT)
    deps = {dep for name in before for dep in found[name]["deps"]}
    listed = {dep.removeprefix("${code}/").removesuffix(".py").replace("/", ".") for dep in deps}
    if "methods.${item.method}" in listed:
        listed |= {f"methods.{name}" for name in METHOD_SETTINGS}
    assert imported(entry) <= listed | BYSTANDERS


def imported(entry: str) -> set[str]:
    """Modules of `pipeline` that one of them imports, directly or not, itself included."""
    found: set[str] = set()
    waiting = [entry]
    while waiting:
        module = waiting.pop()
        path = ROOT / "pipeline" / (module.replace(".", "/") + ".py")
        if module in found or not path.exists():
            continue
        found.add(module)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "pipeline":
                inside = node.module.removeprefix("pipeline").removeprefix(".")
                waiting.append(inside)
                waiting += [f"{inside}.{name.name}".removeprefix(".") for name in node.names]
    return found
