"""Rows on machines that share no folder: two blocks of Parsl here, each with a clone of its own."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import params
from pipeline.cluster import apart, carrying, clones, origin, pools, slot, tasks, transit
from pipeline.cluster.apart import Back, Errand
from pipeline.cluster.clones import Data, Source
from pipeline.cluster.machines import Machines
from pipeline.cluster.slot import Job
from pipeline.cluster.transit import Transit
from pipeline.errors import UserError
from pipeline.files import digest, write_text
from pipeline.identity import entries
from pipeline.ledgers.rows import row_ledgers
from pipeline.params.documents import read_yaml
from pipeline.results import records
from pipeline.training.checkpoints import CHECKPOINTS
from pipeline.transport import dvclock, pack
from stages.repro import repro
from tests.cluster import project
from tests.cluster.test_repro import MISFIT

ROW, BEHIND, DERIVED = "row-00", "relevant", "adlm"
SLOTS = """\
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

clone = "{origin}"
# each block is a machine: its shell's number names its folder
init = "export DPREPRO_WORK={machines}/$$"
config = Config(
    executors=[
        HighThroughputExecutor(
            label="apart",
            address="127.0.0.1",
            max_workers_per_node=1,
            heartbeat_period=1,
            heartbeat_threshold=10,
            encrypted=False,
            provider=LocalProvider(init_blocks=2, max_blocks=2, worker_init=init),
        )
    ],
    strategy="simple",
    strategy_period=1,
    max_idletime=600,
)
"""
REMOTE = """\
    remote = store
['remote "store"']
    url = %s
"""
LOCK_OF_NOTHING = """\
schema: '2.0'
stages:
  prepare@mnist:
    cmd: dprepro prepare mnist
    outs:
    - path: data/prepared/mnist
      hash: md5
      md5: 0123456789abcdef0123456789abcdef.dir
      size: 1
      nfiles: 1
"""


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    done = subprocess.run(
        ["git", *who, *arguments],
        cwd=folder,
        env=project.environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with data, where rows were trained without a break."""
    folder = tmp_path_factory.mktemp("unbroken")
    _make(folder)
    project.unbroken(folder, [ROW, BEHIND])
    row_ledgers(BEHIND, params.load(folder / "params.yaml"), folder)
    return folder


def _make(folder: Path) -> None:
    project.make(folder, 1, epochs=5)
    with (folder / "params.yaml").open("a") as file:
        file.write(MISFIT)


@pytest.fixture
def checkout(tmp_path: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: pushed, with a DVC remote, data that nobody signed, and the row behind others."""
    folder = tmp_path / "checkout"
    _make(folder)
    shutil.copytree(unbroken / "data", folder / "data")
    shutil.copytree(unbroken / "runs" / BEHIND, folder / "runs" / BEHIND)
    for path in (records.run_path, records.history_path, records.evaluation_path, records.ledger_path):
        path(BEHIND, folder).parent.mkdir()
        shutil.copy(path(BEHIND, unbroken), path(BEHIND, folder))
    with (folder / ".dvc/config").open("a") as config:
        config.write(REMOTE % (tmp_path / "store"))
    (tmp_path / "store").mkdir()
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "rows")
    git(tmp_path, "init", "--quiet", "--bare", "origin.git")
    git(folder, "push", "--quiet", str(tmp_path / "origin.git"), "HEAD:main")
    monkeypatch.chdir(folder)
    return folder


def in_transit(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "store" / transit.FOLDER).rglob("*") if path.is_file())


def of_machine(folder: Path) -> list[int]:
    """Processes of a block, by its folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            around = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"DPREPRO_WORK={folder}".encode() in around:
            found.append(int(entry.name))
    return found


def test_a_machine_that_is_lost(tmp_path: Path, checkout: Path, unbroken: Path) -> None:
    """Its row goes on elsewhere, from what it had sent; data that are derived here travel too."""
    dvclock.sign(params.load(), [BEHIND])
    machines = tmp_path / "machines"
    (tmp_path / "slots.py").write_text(SLOTS.format(origin=tmp_path / "origin.git", machines=machines))
    on = ("--jobs", "2", "--on", str(tmp_path / "slots.py"), "--checkpoint-every", "0.2")
    running = project.repro(checkout, ROW, DERIVED, *on)
    sent, until = tmp_path / "store" / transit.FOLDER, time.monotonic() + 600
    while not list(sent.glob(f"*/{ROW}/{carrying.CHECKPOINTS}/*/*/[0-9]*")):
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.1)
    killed = time.time()
    (lost,) = [path.parents[3] for path in machines.glob(f"*/*/{CHECKPOINTS}/{ROW}")]
    for pid in of_machine(lost):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(lost, ignore_errors=True)
    said, _ = running.communicate(timeout=600)

    assert running.returncode == 0, said
    assert f"{ROW}: its worker died, tried again" in said
    assert "3 done, 0 failed" in said  # with relevance@mnist-relevance, here
    assert "parsl." not in said  # its own lines stay in its folder
    assert _numbers(checkout, ROW) == _numbers(unbroken, ROW)
    for row in (ROW, DERIVED):
        run = records.read_run(row)
        assert run is not None
        assert run.origins[0].adopted is not None
        assert run.replicas[0].started < killed or row != ROW
    left = tasks.todo(params.load(), [ROW, DERIVED])
    assert (left.tasks, left.data, left.unsigned) == ((), (), ())
    signed = dvclock.Signed().stages
    for row in (ROW, DERIVED):  # weights are in DVC's cache
        (weights,) = [out.md5 for out in signed[f"train@{row}"].outs if out.path == f"runs/{row}"]
        assert weights is not None
        assert (checkout / ".dvc/cache/files/md5" / weights[:2] / weights[2:]).exists()
    assert in_transit(tmp_path) == []
    log = (checkout / f".dprepro/repro/logs/{ROW}.log").read_text()
    assert "goes on from another machine's checkpoint" in log


def _numbers(folder: Path, row: str) -> dict[str, Any]:
    """What counts of a row, wherever it was trained."""
    found = {name: kept for name, kept in project.numbers(folder).items() if Path(name).stem == row}
    for kept in found.values():
        for one in kept.get("origins", ()) if isinstance(kept, dict) else ():
            one.pop("adopted", None)
    return found


class _Nobody:
    """Slots that do nothing."""

    labels = ("away",)

    def __init__(self) -> None:
        self.asked: list[Errand] = []

    def call(self, label: str, function: Any, errand: Errand) -> Future[Back]:
        self.asked.append(errand)
        done: Future[Back] = Future()
        done.set_result(Back(0, 1.0, "there", "a line\n"))
        return done

    def close(self) -> None:
        pass


def test_packs_that_nobody_took_in_are_taken_in_first(
    checkout: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the coordinator was killed; what is refused is said, and trained anew."""
    own, slots = params.load(), _Nobody()
    found = Machines(lambda: slots, Source("url", "revision", ""), own, 60.0)  # type: ignore[arg-type,return-value]
    with closing(found):
        way, log = Transit(checkout, (pools.STATE / "name").read_text()), checkout / "row.log"
        monkeypatch.chdir(unbroken)
        pack(own, [ROW], checkout / "pack")
        monkeypatch.chdir(checkout)
        half = checkout / "half"
        half.write_bytes((checkout / "pack").read_bytes()[:-100])
        way.put(half, f"{ROW}/{carrying.PACK}")

        job = Job(
            (("train", ROW), ("evaluate", ROW), ("ledger", ROW)), "", str(log), f"{CHECKPOINTS}/{ROW}.lock"
        )
        ended = found.submit("away", job).result()
        (errand,) = slots.asked
        assert ended.status == 1
        refused, line, nothing = log.read_text().splitlines()
        assert "not a pack, or damaged" in refused
        assert (line, nothing) == (
            "a line",
            f"dprepro: {ROW}: it didn't come back from there, or not all of it",
        )
        assert errand.commands == (("train", ROW), ("evaluate", ROW))
        assert errand.checkpoints == f"{CHECKPOINTS}/{ROW}"
        assert errand.data.stage == "prepare@mnist"

        way.put(checkout / "pack", f"{ROW}/{carrying.PACK}")
        assert found.submit("away", job).result().status == 0
        assert len(slots.asked) == 1
    assert _numbers(checkout, ROW) == _numbers(unbroken, ROW)
    assert records.ledger_path(ROW).exists()
    assert in_transit(checkout.parent) == []


def test_a_pack_of_fewer_replicas_than_are_wanted_now(
    checkout: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are taken in, and a machine is told of them."""
    raw = read_yaml(Path("params.yaml"))
    raw["rows"][ROW]["seeds"] = 2
    own, slots = params.parse(raw), _Nobody()
    monkeypatch.chdir(unbroken)
    pack(params.load(), [ROW], checkout / "pack")
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(dvclock, "push_data", lambda *_: "lock")
    with closing(Machines(lambda: slots, Source("url", "revision", ""), own, 60.0)) as found:  # type: ignore[arg-type,return-value]
        Transit(checkout, (pools.STATE / "name").read_text()).put(checkout / "pack", f"{ROW}/{carrying.PACK}")
        job = Job((("train", ROW), ("evaluate", ROW)), "", "row.log", f"{CHECKPOINTS}/{ROW}.lock")
        assert found.submit("away", job).result().status == 1
    (errand,) = slots.asked
    run = records.read_run(ROW)
    assert run is not None
    assert len(run.replicas) == 1
    assert errand.records[0] == (records.run_path(ROW).as_posix(), records.run_path(ROW).read_text())


def test_what_fails_on_a_machine_is_named(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the last line of what comes back."""
    row, revision = "misfit", git(checkout, "rev-parse", "HEAD").strip()
    machine, url = tmp_path / "machine", str(tmp_path / "origin.git")
    monkeypatch.setenv(clones.WORK, str(machine))
    digests, way = entries.entries(params.load())["train"], "name/of/mine"
    errand = Errand(
        row,
        (("train", row),),
        Source(str(tmp_path / "nowhere.git"), revision, ""),
        Data("prepare@mnist", "data/prepared/mnist", LOCK_OF_NOTHING),
        ((records.run_path(row).as_posix(), None), (records.history_path(row).as_posix(), "a line\n")),
        (("train", "sha256:other"),),
        f"{CHECKPOINTS}/{row}",
        f"{CHECKPOINTS}/{row}.lock",
        way,
        60.0,
    )

    def said(errand: Errand) -> str:
        back = apart.work(errand)
        assert back.status == 1
        return back.log.splitlines()[-1]

    found = said(errand)
    assert found.startswith("dprepro: git fetch ")
    assert "nowhere.git' does not appear to be a git repository" in found
    assert not [path for path in machine.iterdir() if path.is_dir()]  # nothing half made

    errand = replace(errand, source=replace(errand.source, url=url))
    assert said(errand).startswith("dprepro: dvc pull --force prepare@mnist: ERROR: failed to pull")

    # as if the data had come
    folder = machine / revision
    shutil.copytree(checkout / errand.data.folder, folder / errand.data.folder)
    write_text(folder / ".dprepro/pulled/mnist", digest(errand.data.lock.encode()))
    assert "settings or code in the clone are not those of the coordinator (train)" in said(errand)
    assert records.history_path(row, folder).read_text() == "a line\n"

    found = said(replace(errand, digests=(("train", digests[row]),)))
    assert found.startswith("dprepro: ")
    assert "32x32 are needed" in found
    # the end of the log alone travels while it works
    sent = Transit(checkout, way)
    assert sent.numbers("") == {f"{row}/{carrying.LINE}": 1}


def _change_a_row(folder: Path) -> None:
    with (folder / "params.yaml").open("a") as file:
        file.write("# changed\n")


def _write_results(folder: Path) -> None:
    (folder / records.run_path(BEHIND)).write_text("other")
    (folder / "notes.txt").write_text("mine")


def _commit(folder: Path) -> None:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "not pushed")


def _push_more(folder: Path) -> None:
    head = git(folder, "rev-parse", "HEAD").strip()
    _commit(folder)
    git(folder, "push", "--quiet", str(folder.parent / "origin.git"), "HEAD:main")
    git(folder, "reset", "--quiet", "--hard", head)


def _no_remote(folder: Path) -> None:
    shutil.copy(project.ROOT / ".dvc/config", folder / ".dvc/config")
    git(folder, "commit", "--quiet", "--all", "--message", "no remote")


def _a_relative_remote(folder: Path) -> None:
    shutil.copy(project.ROOT / ".dvc/config", folder / ".dvc/config")
    with (folder / ".dvc/config").open("a") as config:
        config.write(REMOTE % "../store")
    git(folder, "commit", "--quiet", "--all", "--message", "a folder beside")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_change_a_row, "params.yaml: not as committed, .* commit it"),
        (_commit, "commit [0-9a-f]{12} is not there; push it"),
        (_no_remote, "the commit has no default remote"),
        (_a_relative_remote, "'store': ../store: is another folder on another machine"),
        (_write_results, None),
        (_push_more, None),
        (lambda folder: shutil.rmtree(folder / ".git"), "no checkout of git"),
        (lambda folder: shutil.rmtree(folder.parent / "origin.git"), "can't be read"),
    ],
)
def test_what_machines_could_not_have(
    checkout: Path, change: Callable[[Path], None], said: str | None
) -> None:
    change(checkout)
    url = str(checkout.parent / "origin.git")
    if said is None:
        assert origin.source_of(url).inside == ""
    else:
        with pytest.raises(UserError, match=said) as told:
            origin.source_of(url)
        assert "\n" not in str(told.value)


def test_nothing_begins_where_machines_could_not_have_it(tmp_path: Path, checkout: Path) -> None:
    _change_a_row(checkout)
    (tmp_path / "slots.py").write_text(SLOTS.format(origin=tmp_path / "origin.git", machines=tmp_path))
    with pytest.raises(UserError, match=r"params\.yaml: not as committed"):
        repro([ROW], on=str(tmp_path / "slots.py"), yes=True)
    assert not pools.STATE.exists()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A folder whose DVC has a remote, and nothing else."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n" + REMOTE % (tmp_path / "store"))
    return tmp_path


def test_half_a_file_is_never_read(remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way, target = Transit(remote, "mine"), remote / "target"
    (remote / "first").write_bytes(b"first" * 1000)
    (remote / "second").write_bytes(b"second" * 1000)

    def half(source: str, arriving: str) -> None:
        Path(arriving).write_bytes(Path(source).read_bytes()[:10])
        raise ConnectionError("gone")

    with monkeypatch.context() as broken:
        broken.setattr(way._files, "put_file", half)
        with pytest.raises(UserError, match=r"row/file: ConnectionError: 'gone'"):
            way.put(remote / "first", "row/file")
    assert (way.newest("row/file"), way.get("row/file", target)) == (0, 0)
    assert not target.exists()

    assert way.put(remote / "first", "row/file") == 1
    with monkeypatch.context() as broken:
        broken.setattr(way._files, "put_file", half)
        with pytest.raises(UserError):
            way.put(remote / "second", "row/file")
    assert way.get("row/file", target) == 1
    assert target.read_bytes() == b"first" * 1000
    assert way.put(remote / "second", "row/file") == 2
    assert way.numbers("") == {"row/file": 2}
    assert way.get("row/file", target) == 2
    assert target.read_bytes() == b"second" * 1000
    # nor is half of it, where it breaks off on the way back
    monkeypatch.setattr(way._files, "get_file", half)
    with pytest.raises(UserError):
        way.get("row/file", target)
    assert target.read_bytes() == b"second" * 1000
    assert Transit(remote, "other").numbers("") == {}
    way.clear("row")
    assert in_transit(remote) == []


def test_the_newest_checkpoint_is_taken_without_a_clock(remote: Path) -> None:
    way = Transit(remote, "mine")
    here, there = (remote / name / "row" for name in ("here", "there"))

    def write(folder: Path, text: str, written: int) -> None:
        path = folder / "identity/group.pt"
        write_text(path, text)
        os.utime(path, ns=(written, written))

    write(here, "step 10", 900)
    carrying.send(way, "row", here)
    carrying.send(way, "row", here)  # nothing new
    assert way.numbers("row") == {"checkpoints/identity/group.pt": 1}
    assert carrying.fetch(way, "row", there) == 1
    write(there, "step 20", 100)  # by a clock that is behind
    carrying.send(way, "row", there)
    assert carrying.fetch(way, "row", here) == 1
    assert (here / "identity/group.pt").read_text() == "step 20"
    write(here, "step 30", 950)  # killed before it was sent
    assert carrying.fetch(way, "row", here) == 0
    assert (here / "identity/group.pt").read_text() == "step 30"


def test_a_clones_own_code_runs_where_it_has_some(tmp_path: Path) -> None:
    for name, text in (
        ("__init__", ""),
        ("app", "def main(): print('of the clone')"),
        ("__main__", "from stages.app import main; main()"),
    ):
        write_text(tmp_path / f"stages/{name}.py", text)
    job = Job((("identity",),), str(tmp_path), str(tmp_path / "log"), modules=str(tmp_path))
    assert slot.work(job).status == 0
    assert (tmp_path / "log").read_text() == "of the clone\n"
