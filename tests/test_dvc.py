"""DVC over the real stages: what is declared, and that results travel without being trained again.

One tiny row is trained once, by the fixture `origin`; every other test works in a clone of it whose `dprepro`
refuses to train.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from ruamel.yaml import YAML

from dprepro.pipeline import params
from dprepro.pipeline.identity.entries import entries
from dprepro.pipeline.results import records
from dprepro.pipeline.training import rows
from dprepro.pipeline.transport import dvclock
from dprepro.pipeline.transport.dvclock import EMPTY
from dprepro.stages.init import stages, without_audits
from tests.checkout import copy_code
from tests.commands import answer, environment
from tests.docs.blocks import edit

ROOT = Path(__file__).parents[1]
WHOLE = (ROOT / "dvc.yaml").read_text()
NAME = "rows.dprepro.tar.gz"
ONE_SEED = "seeds: 1\n    reproducible: true\n    settings: {batch: 8"  # of `toy`
TWO_SEEDS = ONE_SEED.replace("1", "2", 1)
WEIGHTS = "runs/toy/epsilon=inf,seed=0.safetensors"
PARAMS = """\
source: {kind: synthetic}
raw:
  mnist: {train: 60, test: 20}
  kmnist: {train: 20, test: 10}
data:
  toy: {raw: mnist, train: 40, validation: 10, public: {raw: kmnist, count: 4}}
own: {}
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
  other:
    paper: davody2020
    table: t2
    label: LeNet-300-100
    data: toy
    model: {name: lenet_300_100}
    method: noisy_weights
    seeds: 2
    reproducible: false
    settings: {batch: 10, epochs: 0.5, learning_rate: 0.01, draws: 1}
    levels: [{sigma: 0.1}]
"""


class Checkout:
    """A folder under git and DVC, and commands run in it."""

    def __init__(self, folder: Path) -> None:
        """Its commands may do anything."""
        self.folder, self.library = folder, ROOT  # that whose code commands run
        self.before: dict[str, Callable[[], object]] = {}  # as `tests.commands.Before`

    def answer(self, *command: str) -> tuple[int, str, str]:
        """Status, output and standard error of a command."""
        return answer(shlex.join(command), self.folder, environment(self.library), self.before)

    def run(self, *command: str) -> str:
        status, said, noise = self.answer(*command)
        assert status == 0, f"{' '.join(command)}\n{said}\n{noise}"
        return said

    def commit(self, message: str) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", message)

    def status(self, *stages: str) -> dict:
        """What DVC says of stages."""
        return json.loads(self.run("dvc", "status", "--json", *stages))


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workshop")


@pytest.fixture(scope="module")
def origin(workshop: Path) -> Checkout:
    """A checkout where everything was run, and its results pushed to a folder."""
    folder = workshop / "origin"
    for name in (".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "dvc.yaml").write_text(without_audits(WHOLE))
    copy_code(folder)
    for name in ("examples/scattering/reports/summary.csv", "papers/none", "reports/searches/none"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()  # git has no empty folders
    (folder / "params.yaml").write_text(PARAMS)
    checkout = Checkout(folder)
    checkout.run("git", "init", "--quiet", "--initial-branch", "main")
    config = (ROOT / ".dvc/config").read_text().replace("[core]\n", "[core]\n    remote = store\n")
    config += f"['remote \"store\"']\n    url = {workshop / 'store'}\n"
    (folder / ".dvc/config").write_text(config)
    checkout.commit("declared")
    checkout.run("git", "tag", "declared")
    checkout.run("dvc", "repro")
    checkout.commit("run")
    checkout.run("git", "tag", "run")
    checkout.run("dvc", "push", "--run-cache")
    checkout.run("dprepro", "pack", "toy", "--output", str(workshop / NAME))
    checkout.run("dprepro", "pack", "other", "--output", str(workshop / "other.tar.gz"))
    return checkout


@pytest.fixture
def clone(origin: Checkout, tmp_path: Path) -> Iterator[Checkout]:
    """A second checkout, where training fails."""
    checkout = Checkout(tmp_path / "clone")
    checkout.before["train"] = lambda: sys.exit("trained again")
    origin.run("git", "clone", "--quiet", str(origin.folder), str(checkout.folder))
    yield checkout
    shutil.rmtree(checkout.folder)  # torch runs leave megabytes; pytest would keep three sessions of them


@pytest.fixture
def bare(clone: Checkout) -> Checkout:
    """A clone that has what git carries, and no remote."""
    shutil.copy(ROOT / ".dvc/config", clone.folder / ".dvc/config")
    return clone


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A web server over a folder, on this machine alone; its address."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_second_run_does_nothing_and_everything_small_is_in_git(origin: Checkout) -> None:
    assert origin.status() == {}
    small = {
        *("reports/trainings/toy.jsonl", "reports/evaluations/toy.jsonl", "reports/ledgers/toy.json"),
        "reports/ledgers/described.json",
        "reports/identity.json",
    }
    assert small <= set(origin.run("git", "ls-files", "reports").splitlines())
    assert not origin.run("git", "ls-files", "runs", "data/prepared")


def would_run(checkout: Checkout, *targets: str) -> set[str]:
    """Stages that `dvc repro --allow-missing` would run, but `identity`, which decides on them."""
    said = checkout.run("dvc", "repro", "--allow-missing", "--dry", *targets)
    return set(re.findall(r"Running stage '([^']+)'", said)) - {"identity"}


def test_a_fresh_clone_has_nothing_to_run_and_renders_its_report(bare: Checkout) -> None:
    """No remote, no weights, no data: what is committed stands."""
    whole = bare.run("git", "status", "--porcelain")
    assert "Running" not in bare.run("dvc", "repro", "--allow-missing")
    assert bare.run("git", "status", "--porcelain") == whole
    assert not any((bare.folder / name).exists() for name in ("data", "runs"))
    assert bare.run("dprepro", "plan").startswith("to train: 0 rows")


def test_a_fresh_clone_can_ask_what_a_target_would_run(bare: Checkout) -> None:
    """By force: else DVC hashes inputs that are not here (its issue 9818)."""
    for target in ("evaluate@other", "report", "prepare@toy", "ledger@toy"):
        said = bare.run("dvc", "repro", "--dry", "--force", target)
        assert re.findall(r"Running stage '([^']+)'", said)[-1] == target
        assert "Running stage 'fetch@mnist'" in said
        assert not (bare.folder / "data").exists()
    bare.run("dvc", "repro", "--allow-missing")
    (bare.folder / "reports/README.md").unlink()
    bare.run("dvc", "repro", "--single-item", "report")
    assert bare.run("git", "status", "--porcelain", "dvc.lock", "reports") == ""
    bare.run("dvc", "metrics", "show")  # of judged values, which it has none of
    # its rows are in no picture
    (bare.folder / "reports/figures/forest.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    plots = Path(bare.run("dvc", "plots", "show").strip().removeprefix("file://")).read_text()
    assert "<img" in plots
    assert "https://" not in plots  # nothing comes from elsewhere


def test_plan_and_dvc_agree_on_what_an_edit_or_a_version_trains(bare: Checkout) -> None:
    bare.run("dvc", "repro", "prepare@toy")  # which --allow-missing would not make anew

    def plan() -> str:
        bare.run("dprepro", "identity")
        return bare.run("dprepro", "plan")

    bare.library = bare.folder
    # a method's version trains its rows, and its code alone nothing: golden values would tell of that
    settings, method = (bare.folder / f"pipeline/methods/dpsgd/{name}.py" for name in ("settings", "method"))
    method.write_text(method.read_text().replace("value / self.batch", "2 * value / self.batch"))
    assert bare.run("dprepro", "plan").startswith("to train: 0 rows")
    settings.write_text(settings.read_text().replace("ClassVar[int] = 1", "ClassVar[int] = 2"))
    said = bare.run("dprepro", "plan")
    assert "toy: 1 training (method version)" in said
    assert "other" not in said
    bare.run("git", "checkout", "--quiet", "pipeline")
    edit(bare.folder / "params.yaml", "label: DPSGD (LeNet-5)", "label: DPSGD (LN-LeNet-5)")
    assert plan().startswith("to train: 0 rows")
    assert would_run(bare) == {"publish", "report"}
    edit(bare.folder / "params.yaml", ONE_SEED, TWO_SEEDS)
    said = plan()
    assert "toy: 1 training (never ran), 1 stand; about" in said
    assert "to train: 1 row," in said
    assert {stage for stage in would_run(bare) if stage.startswith("train@")} == {"train@toy"}
    edit(bare.folder / "params.yaml", "settings: {batch: 8,", "settings: {batch: 10,")
    said = plan()
    assert "toy: 2 trainings (settings, never ran);" in said
    assert "other" not in said


def test_a_new_seed_trains_itself_alone_where_a_remote_has_the_weights_of_the_other(clone: Checkout) -> None:
    clone.run("dvc", "pull", "train@toy")
    other = (clone.folder / "reports/trainings/other.jsonl").read_bytes()
    before = (clone.folder / "reports/trainings/toy.jsonl").read_text().splitlines()
    edit(clone.folder / "params.yaml", ONE_SEED, TWO_SEEDS)
    clone.before.clear()
    clone.run("dvc", "repro", "prepare@toy")
    said = clone.run("dvc", "repro", "--allow-missing", "ledger@toy", "evaluate@toy", "ledger@other")
    assert "toy: 1 trained, 1 stand" in said
    assert "Running stage 'train@other'" not in said
    assert (clone.folder / "reports/trainings/other.jsonl").read_bytes() == other
    lines = (clone.folder / "reports/trainings/toy.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [0, 1]
    assert lines[0] == before[0]
    assert pointers(clone)["toy"] == len(list((clone.folder / "runs/toy").iterdir())) == 2
    record = records.read("toy", params.load(clone.folder / "params.yaml").rows["toy"], clone.folder)
    assert [training.seed for training in record.trainings] == [0, 1]


# -- rebuilding --------------------------------------------------------------------------------------


def pointers(checkout: Checkout) -> dict[str, int]:
    """Number of files of weights that the lock points to, by row."""
    stages = YAML(typ="safe").load(checkout.folder / "dvc.lock")["stages"]
    outs = [out for stage in stages.values() for out in stage["outs"] if out["path"].startswith("runs/")]
    return {out["path"].removeprefix("runs/"): out["nfiles"] for out in outs}


def refused(checkout: Checkout, *command: str) -> str:
    """What a command says that fails; records and lock stay as they are."""
    before = checkout.run("git", "status", "--porcelain")
    status, *said = checkout.answer(*command)
    assert status != 0, said
    assert checkout.run("git", "status", "--porcelain") == before
    return "".join(said)


def kill_dvc() -> None:
    """Before a stage's command."""
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(1)


def test_a_clone_without_weights_rebuilds_what_it_is_asked_for(bare: Checkout) -> None:
    whole = {"toy": 1, "other": 2}
    before = records.read_run("other", bare.folder)
    # whoever trusts the records: nothing runs, and nothing changes
    assert would_run(bare) == set()
    bare.run("dvc", "repro", "--allow-missing")
    assert (
        bare.run("git", "status", "--porcelain", "dvc.lock", "reports/trainings", "reports/evaluations") == ""
    )
    assert not (bare.folder / "runs").exists()
    assert not (bare.folder / "data").exists()
    # no recorded number is printed as measured
    bare.run("dvc", "repro", "prepare@toy")
    for command in ("evaluate other", "export other model --seed 0"):
        said = refused(bare, "dprepro", *command.split())
        assert "runs/other: weights of" in said
        assert "`dvc repro evaluate@other` trains and measures them again, about 0:00:0" in said
        assert "accuracy" not in said
    assert pointers(bare) == whole
    # killed between training and measuring: the trainings stand, and the lock has their weights
    bare.before = {"evaluate": kill_dvc}
    status, said, _ = bare.answer("dvc", "repro", "evaluate@other")
    assert status == -signal.SIGKILL
    assert "weights of 3 trainings of 2 rows are not here" in said
    assert "other: 2 of 2 to train, about 0:00:0" in said
    assert pointers(bare) == whole
    bare.before.clear()
    # measured, and compared with what the record had
    said = bare.run("dvc", "repro", "evaluate@other")
    assert "train@other' didn't change" in said
    assert "percent recorded, " in said
    assert " rebuilt; difference " in said
    assert pointers(bare) == whole
    after = records.read_run("other", bare.folder)
    assert not {each.weights for each in before.trainings} & {each.weights for each in after.trainings}
    assert min(each.started for each in after.trainings) > max(each.ended for each in before.trainings)
    assert after.replaced == ()  # public data have no budget
    assert bare.run("git", "diff", "--stat", "--", "reports/ledgers", "reports/trainings/toy.jsonl") == ""
    # a row whose noise is seeded comes out as before
    bare.run("dvc", "repro", "train@toy")
    assert records.run_path("toy", bare.folder).read_text() != ""
    first = json.loads(bare.run("git", "show", "HEAD:reports/trainings/toy.jsonl").splitlines()[0])["weights"]
    assert records.read_run("toy", bare.folder).trainings[0].weights == first
    # weights and cache gone again: trained again, whatever the lock says
    shutil.rmtree(bare.folder / "runs/other")
    shutil.rmtree(bare.folder / ".dvc/cache")
    assert "other: 2 trained, 0 stand" in bare.run("dvc", "repro", "evaluate@other")
    assert pointers(bare) == whole


def kill_after_weights() -> None:
    """Kill this process and DVC once it has written a file of weights."""
    write = rows.write_weights

    def write_and_kill(path: Path, model: Any) -> str:
        write(path, model)
        for process in (os.getppid(), os.getpid()):
            os.kill(process, signal.SIGKILL)
        raise AssertionError("killed")

    rows.write_weights = write_and_kill


def test_no_command_loses_a_pointer(bare: Checkout, workshop: Path) -> None:
    """Each command, where a row has one of its two weights here, whether it succeeds or fails."""
    whole = {"toy": 1, "other": 2}
    bare.run("dvc", "repro", "prepare@toy")
    (bare.folder / "runs/other").mkdir(parents=True)
    shutil.copy(workshop / "origin/runs/other/sigma=0.1,seed=0.safetensors", bare.folder / "runs/other")
    packed, part = workshop / "other.tar.gz", bare.folder / "half"
    with tarfile.open(packed) as every, tarfile.open(part, "w:gz") as some:
        for member in every:
            if "seed=1" not in member.name:
                some.addfile(member, every.extractfile(member))
    said: dict[str, str] = {}
    dprepro = ["status", "plan other", "verify other", "adopt half", "ledger other", "evaluate other"]
    dprepro += ["export other model --seed 1", "pack other"]
    dvc = ["repro --allow-missing", "repro --dry --force evaluate@other", "status"]
    for command in (*(f"dprepro {each}" for each in dprepro), *(f"dvc {each}" for each in dvc)):
        _, said[command], _ = bare.answer(*command.split())
        assert pointers(bare) == whole, command
    assert "it is not signed" in said["dprepro adopt half"]
    bare.before = {"train": kill_after_weights}
    assert bare.answer("dvc", "repro", "evaluate@other")[0] == -signal.SIGKILL
    assert pointers(bare) == whole
    assert len(records.read_run("other", bare.folder).trainings) == 2
    bare.before.clear()
    bare.run("dprepro", "train", "other")
    assert pointers(bare) == whole
    bare.run("dvc", "repro", "evaluate@other")
    assert pointers(bare) == whole
    assert len(list((bare.folder / "runs/other").iterdir())) == 2


def test_signing_without_weights_keeps_the_pointer(bare: Checkout) -> None:
    """As `adopt` and `dprepro repro` sign; also where some of the weights are here."""

    def sign() -> None:
        with chdir(bare.folder):
            dvclock.sign(params.load(), dvclock.stages_of("other"))

    before = (bare.folder / "dvc.lock").read_text()
    sign()
    assert (bare.folder / "dvc.lock").read_text() == before
    path = bare.folder / "runs/other/sigma=0.1,seed=0.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one of two")
    sign()
    assert (bare.folder / "dvc.lock").read_text() == before


def test_one_command_brings_data_and_trains_in_a_fresh_clone(bare: Checkout) -> None:
    """DVC's own, with --allow-missing, skips what makes the data; without weights both seeds are trained."""
    edit(bare.folder / "params.yaml", ONE_SEED, TWO_SEEDS)
    bare.before.clear()
    assert not (bare.folder / "data").exists()
    bare.run("dprepro", "repro", "toy")
    run = records.read_run("toy", bare.folder)
    assert [training.seed for training in run.trainings] == [0, 1]
    assert [training.seed for training in records.read_evaluation("toy", bare.folder).trainings] == [
        0,
        1,
    ]
    assert "nothing to train" in bare.run("dprepro", "plan", "toy")


def test_what_is_pulled_from_a_web_server_runs_nothing_again(clone: Checkout, workshop: Path) -> None:
    """As `make pull-report` does; HTTP remotes have no run cache, and need none: the rest is in git."""
    recipe = (ROOT / "Makefile").read_text().partition("\npull-report:")[2].partition("\n\n")[0]
    (_, *pull), (_, *report) = (line.split() for line in recipe.splitlines()[1:])
    declared, _, row = (clone.folder / "params.yaml").read_text().partition("  toy:\n    paper")
    another = f"{declared}  toy:\n    paper{row}  another:\n    paper{row.partition('  other:')[0]}"
    (clone.folder / "params.yaml").write_text(another)  # which nobody ran
    with serving(workshop / "store") as address:
        clone.run("dvc", "remote", "remove", "store")
        clone.run("dvc", "remote", "add", "--default", "web", address)
        clone.run("dvc", *pull)
    clone.run("dvc", *report)
    assert (clone.folder / WEIGHTS).exists()
    clone.run("git", "checkout", "--quiet", ".")
    said = clone.run("dvc", "repro")
    assert "train@toy' didn't change" in said
    assert "Running stage" not in said
    assert clone.status() == {}


def test_adopting_without_the_data_and_beside_them(clone: Checkout, workshop: Path) -> None:
    # where all stands the lock keeps what it has of data that aren't here
    clone.run("dprepro", "adopt", str(workshop / NAME))
    assert clone.run("git", "status", "--porcelain") == ""
    clone.run("git", "checkout", "--quiet", "declared")
    said = clone.run("dprepro", "adopt", str(workshop / NAME))
    assert "could not be compared" in said
    assert "its data or weights are not here: it is not signed" in said
    assert "train@toy" not in (clone.folder / "dvc.lock").read_text()
    clone.run("dvc", "repro", "prepare@toy")
    assert clone.run("dprepro", "adopt", str(workshop / NAME)).startswith("toy: 0 of 1 training adopted\n")
    assert clone.status("train@toy", "evaluate@toy", "ledger@toy") == {}


def test_demo_has_all_stages_but_audits() -> None:
    demo, whole = (YAML(typ="safe").load(each)["stages"] for each in (without_audits(WHOLE), WHOLE))
    del whole["audit"]
    for reader in ("publish", "report"):
        whole[reader]["deps"].remove("reports/audits")
    assert demo == whole


def test_every_committed_stage_read_what_another_wrote() -> None:
    """Or `dvc repro --allow-missing` would run it again, in a clone that has none of what it reads."""
    stages = YAML(typ="safe").load(ROOT / "dvc.lock")["stages"]
    written = {out["path"]: out.get("md5") for stage in stages.values() for out in stage.get("outs", [])}
    other = [
        (name, dependency["path"])
        for name, stage in stages.items()
        for dependency in stage.get("deps", [])
        if written.get(dependency["path"], dependency.get("md5")) != dependency.get("md5")
    ]
    assert len(written) > len(stages) > 100
    assert other == []


def test_no_committed_pointer_to_weights_is_an_empty_folder() -> None:
    """Weights that were never kept have no hash: `dvc repro --allow-missing` lets them be missing."""
    stages = YAML(typ="safe").load(ROOT / "dvc.lock")["stages"]
    parts = [part for stage in stages.values() for kind in ("deps", "outs") for part in stage.get(kind, ())]
    weights = [part for part in parts if part["path"].startswith("runs/")]
    assert len(weights) > 100
    assert [part["path"] for part in weights if part.get("nfiles") == 0 or part.get("md5") == EMPTY] == []


def test_every_committed_stage_is_in_the_lock() -> None:
    """Or `dvc repro --allow-missing` would run it: `python -m dprepro.pipeline.transport.dvclock`."""
    stages = YAML(typ="safe").load(ROOT / "dvc.lock")["stages"]
    with chdir(ROOT):
        tables = entries(params.load())
    declared = {
        f"{kind}@{key}": digest
        for kind, keys in tables.items()
        if isinstance(keys, dict)
        for key, digest in keys.items()
    }
    assert [name for name in declared if name not in stages] == []
    signed = {name: [*stages[name]["params"]["reports/identity.json"].values()] for name in declared}
    assert [name for name, digest in declared.items() if signed[name] != [digest]] == []
    outs = [out for name in declared for out in stages[name]["outs"] if (ROOT / out["path"]).is_file()]
    digests = {out["path"]: hashlib.md5((ROOT / out["path"]).read_bytes()).hexdigest() for out in outs}
    assert [out["path"] for out in outs if out.get("md5") != digests[out["path"]]] == []


@pytest.mark.parametrize(("dependency", "text"), [("deps", WHOLE), ("always_changed", stages(WHOLE))])
def test_every_stage_has_its_digest_as_its_only_parameter(dependency: str, text: str) -> None:
    declared = {name: each.get("do", each) for name, each in YAML(typ="safe").load(text)["stages"].items()}
    assert dependency in declared.pop("identity")
    keys = entries(params.load(ROOT / "params.yaml")).keys()
    for name, stage in declared.items():
        (parameter,) = stage["params"]
        (entry,) = parameter["reports/identity.json"]
        assert entry == (name if name in ("report", "publish") else f"{name}.${{key}}")
        assert name in keys
        # no file of code and no settings: the digest speaks for them
        assert "params.yaml" not in stage.get("deps", [])
