"""Rows that were trained elsewhere come home: whole, once, and only where they belong."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import params
from dprepro.pipeline.data.prepared import PREPARED
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.params import Settings
from dprepro.pipeline.params.documents import parse_yaml
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Replaced, TrainingRecord
from dprepro.pipeline.results.weights import RUNS, weights_path
from dprepro.pipeline.training.checkpoints import checkpoint_lock
from dprepro.pipeline.transport import dvclock
from dprepro.pipeline.transport.adopting import Adopted, adopt
from dprepro.pipeline.transport.archive import pack
from tests.faults import project
from tests.faults.project import PACK, ROW, edit, settings

Bring = Callable[..., list[Adopted]]


def declare(seeds: int) -> None:
    """In the current folder's params.yaml, so many seeds of the row."""
    Path("params.yaml").write_text(project.PARAMS.replace("seeds: 1", f"seeds: {seeds}"))


def train(seeds: int) -> None:
    declare(seeds)
    project.train()
    project.evaluate()


@pytest.fixture
def sender(workspace: Path) -> Path:
    """The machine that trained; the current folder."""
    return workspace


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    """A checkout with the same data, where nothing has been trained."""
    folder = shutil.copytree(made, tmp_path / "home")
    for name in ("reports", "runs", ".dprepro"):
        shutil.rmtree(folder / name)
    shutil.copytree(made / records.SEARCHES, folder / records.SEARCHES)
    return folder


@pytest.fixture
def bring(sender: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Bring:
    """Pack away, then adopt at home, as one."""

    def run(weights: bool = True, here: Settings | None = None) -> list[Adopted]:
        monkeypatch.chdir(sender)
        pack(settings(), [ROW], home / PACK, weights)
        monkeypatch.chdir(home)
        return adopt(here or settings(), PACK)

    return run


def placed(root: Path) -> list[str]:
    """Results that lie in a checkout, and anything half done; locks stay."""
    folders = [root / "reports", root / RUNS, root / ".dprepro"]
    return sorted(
        path.relative_to(root).as_posix()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.parent != root / records.SEARCHES and path.suffix != ".lock"
    )


RUN, MEASURED, LEDGERS, WEIGHTS = ALL = [
    path.as_posix()
    for path in (
        *(of(ROW) for of in (records.run_path, records.evaluation_path)),
        *(records.ledger_path(ROW), weights_path(ROW, "epsilon=3", 0)),
    )
]


def test_same_input_gives_the_same_bytes(sender: Path) -> None:
    pack(settings(), [ROW], sender / "one.tar.gz")
    (sender / RUN).touch()
    pack(settings(), [ROW, ROW], sender / "two.tar.gz")
    assert digest_file(sender / "one.tar.gz") == digest_file(sender / "two.tar.gz")


def test_a_row_comes_home_and_says_from_where(bring: Bring, home: Path, sender: Path) -> None:
    (adopted,) = bring()
    assert (adopted.row, adopted.trainings) == (ROW, 1)
    assert "no DVC pipeline here" in adopted.notes[0]
    assert placed(home) == sorted(ALL)
    record = records.read(ROW, settings().rows[ROW])
    assert record.provenance.adopted == f"{PACK} ({digest_file(home / PACK)})"
    # the ledger is computed here, from what ran there
    for path in (MEASURED, WEIGHTS, LEDGERS):
        assert (home / path).read_bytes() == (sender / path).read_bytes()


def test_a_search_over_the_row_comes_along_or_is_the_one_of_here(
    bring: Bring, home: Path, sender: Path
) -> None:
    """The row's ledger counts its trainings."""
    search = records.search_path("quick")
    ours = (home / search).read_bytes()
    edit(home / search, "candidates/0/seconds", 9.0)
    with pytest.raises(UserError, match="the pack has another record of this search"):
        bring()
    assert placed(home) == []
    (home / search).unlink()
    bring()
    assert (home / search).read_bytes() == ours
    assert (home / LEDGERS).read_bytes() == (sender / LEDGERS).read_bytes()


def test_a_row_that_is_trained_here_meanwhile_is_not_adopted(bring: Bring, home: Path) -> None:
    """Its training would end between the reading of the record and its writing, and its spending be lost."""
    with (
        checkpoint_lock(home / records.CHECKPOINTS / ROW),
        pytest.raises(UserError, match="held by another process that trains this row"),
    ):
        bring()
    assert not records.run_path(ROW, home).exists()
    assert bring()[0].trainings == 1


def test_adopting_again_changes_nothing(bring: Bring, home: Path) -> None:
    bring()
    before = {path: (home / path).read_bytes() for path in ALL}
    (adopted,) = adopt(settings(), PACK)
    assert adopted.trainings == 0
    assert {path: (home / path).read_bytes() for path in placed(home)} == before


def test_trainings_that_stopped_after_a_first_pack_count_here(bring: Bring, sender: Path, home: Path) -> None:
    """They are in the record after the settings were changed, and changed back."""
    bring()
    stopped = {"schema_version": 4, "row": ROW, "trainings": 2, "spent": None}
    edit(sender / RUN, "trainings", lambda lines: [*lines, stopped])
    for _ in range(2):
        bring()
        assert records.read_run(ROW).replaced == (Replaced(trainings=2, spent=None),)


def test_trainings_of_two_machines_are_one_row(
    bring: Bring, sender: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds 0 and 1 were trained here, 0, 1 and 2 there: those from here stand, and 2 is taken."""
    monkeypatch.chdir(home)
    train(2)
    kept = {path: path.read_bytes() for path in (home / "runs").rglob("*.safetensors")}
    here = records.read_evaluation(ROW)
    declare(3)
    monkeypatch.chdir(sender)
    train(3)
    edit(Path(MEASURED), "trainings/0/metrics/test_accuracy", 0.0)
    with pytest.raises(UserError, match="seed 0: test_accuracy: is 0, and its predictions reach"):
        bring()
    edit(sender / MEASURED, "trainings/0/test_errors", None)
    (adopted,) = bring()
    assert adopted.trainings == 1
    record = records.read(ROW, settings().rows[ROW])
    assert [training.seed for training in record.trainings] == [0, 1, 2]
    assert [record.origins[training.origin].adopted is None for training in record.trainings] == [
        True,
        True,
        False,
    ]
    assert [training.metrics for training in record.trainings[:2]] == [
        training.metrics for training in here.trainings
    ]
    assert {path: path.read_bytes() for path in kept} == kept
    assert weights_path(ROW, "epsilon=3", 2).exists()
    run = records.read_run(ROW)
    assert {training.seed for training in run.trainings if training.curves} == {0, 1, 2}
    # what either machine has replaced stays spent, and what both have is the same past
    # the two there of the same seeds
    assert [replaced.seed for replaced in run.replaced if isinstance(replaced, TrainingRecord)] == [0, 1]
    assert [*run.replaced_spent()] == [None, None]
    assert [note.partition(":")[0] for note in adopted.notes[:2]] == [
        "epsilon=3, seed 0",
        "epsilon=3, seed 1",
    ]
    assert "kept the one of here, which stands; the pack's is another training" in adopted.notes[0]
    (again,) = adopt(settings(), PACK)
    assert (again.trainings, again.packed, again.notes[2]) == (0, 3, "epsilon=3, seed 2: here already")
    assert records.read_run(ROW) == run


def test_a_row_is_signed_once_all_its_trainings_are_here(
    bring: Bring, sender: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC would take it for done before that, and train no more of it."""
    signed: list[list[str]] = []

    def sign(_: Settings, stages: list[str]) -> frozenset[str]:
        signed.append(stages)
        return frozenset(stages)

    monkeypatch.setattr(dvclock, "available", lambda: True)
    monkeypatch.setattr(dvclock, "sign", sign)
    monkeypatch.chdir(home)
    declare(2)
    for seeds in (1, 2):
        monkeypatch.chdir(sender)
        train(seeds)
        (adopted,) = bring()
        assert adopted.trainings == 1
        assert any("still missing" in note for note in adopted.notes) == (seeds == 1)
    assert signed == [[], [*dvclock.stages_of(ROW)]]


def test_what_was_made_from_something_else_is_refused(bring: Bring, sender: Path, home: Path) -> None:
    declared = parse_yaml(project.PARAMS.replace("batch: 32", "batch: 16"), Path("params.yaml"))
    empty = params.parse({**declared, "rows": {}, "searches": {}})
    for here, said in ((params.parse(declared), "made from other settings$"), (empty, f"no row '{ROW}'")):
        with pytest.raises(UserError, match=said):
            bring(here=here)
    run, measured = (sender / RUN).read_bytes(), (sender / MEASURED).read_bytes()
    edit(sender / MEASURED, "trainings/0/measured_by", 0)
    edit(sender / RUN, "trainings/0/origin/made_by/method", 0)
    with pytest.raises(UserError, match=rf"^{ROW}: not adopted: made from other measuring version, method"):
        bring()
    (sender / RUN).write_bytes(run)
    (sender / MEASURED).write_bytes(measured)
    manifest = home / PREPARED / "mnist/manifest.json"
    edit(manifest, "digests/train.inputs", f"sha256:{0:064}")
    with pytest.raises(UserError, match=r"made from other data$"):
        bring()
    assert placed(home) == []


def test_without_weights(bring: Bring, home: Path) -> None:
    (adopted,) = bring(weights=False)
    assert "without weights" in adopted.notes[-1]
    assert placed(home) == sorted({*ALL} - {WEIGHTS})


@pytest.mark.parametrize("path", [RUN, MEASURED, WEIGHTS])
def test_failure_on_the_way_leaves_what_was_there(
    bring: Bring, sender: Path, home: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for name in ("reports", "runs"):
        shutil.copytree(sender / name, home / name, dirs_exist_ok=True)
    # what an earlier version made would be replaced
    edit(home / RUN, "trainings/0/origin/made_by/method", 0)
    before = {path: (home / path).read_bytes() for path in placed(home)}
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if Path(target) == Path(path) and "replaced" not in Path(source).parts:
            raise OSError(28, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(UserError, match="No space left on device"):
            bring()
    assert {path: (home / path).read_bytes() for path in placed(home)} == before
    assert bring()[0].trainings == 1


@pytest.mark.parametrize("path", [RUN, MEASURED, WEIGHTS])
def test_a_missing_result_is_named(sender: Path, path: str) -> None:
    (sender / path).unlink()
    with pytest.raises(UserError, match=path):
        pack(settings(), [ROW], PACK)


def test_a_pack_takes_the_place_of_none_of_its_files(sender: Path) -> None:
    before = (sender / RUN).read_bytes()
    for target in (Path(RUN), sender / "reports" / ".." / WEIGHTS):
        with pytest.raises(UserError, match="is one of the files to pack; allowed: another file"):
            pack(settings(), [ROW], target)
    assert (sender / RUN).read_bytes() == before
