"""Replicas of a CPU in processes of their own, against the same in one process."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from pipeline import extensions
from pipeline.data.prepared import Prepared
from pipeline.errors import Stopped, UserError
from pipeline.methods.base import Execution
from pipeline.models.model import Model
from pipeline.training import side_by_side
from pipeline.training.loop import Group, Progress, Replica, grouped, train_group
from pipeline.training.side_by_side import train_replicas
from tests.conftest import dpsgd, forgetting, make_data
from tests.training.running import context, quiet, weights


@pytest.fixture(scope="module", autouse=True)
def _worth_it() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_by_side, "WORTH", 1)
        yield


def wanted() -> list[Replica]:
    """Three replicas that share their steps, and one that doesn't."""
    private = [Replica("epsilon=3", seed, dpsgd(epochs=4)) for seed in range(3)]
    return [*private, Replica("epsilon=8", 0, dpsgd(epochs=4, epsilon=8, batch=10))]


@dataclass(frozen=True)
class Told:
    """A training in two processes that a signal ends, and that goes on."""

    stopped: Stopped
    checkpoints: list[Path]
    shown: list[Progress]
    groups: list[Group]


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A laboratory's model, which workers have to know."""
    folder = tmp_path_factory.mktemp("laboratory")
    (folder / "brought/models").mkdir(parents=True)
    (folder / "brought/models/theirs.py").write_text(
        "from pipeline.models import lenet5\nbuild = lenet5.build\n"
    )
    with forgetting():
        extensions.use(["brought"], folder)
        yield Model(name="theirs", normalization="layer")


@pytest.fixture(scope="module")
def told(cpu: Execution, brought: Model, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("told")
    shown: list[Progress] = []

    def interrupt(state: Progress) -> None:
        shown.append(state)
        if len(shown) == 1:  # a second signal would end the process at once
            signal.raise_signal(signal.SIGTERM)

    own = context(make_data(), cpu, folder, checkpoint_every=1e9, model=brought)
    with pytest.raises(Stopped) as problem:
        train_replicas(wanted(), replace(own, show=interrupt), workers=2)
    left = list(folder.glob("*.pt"))
    groups = train_replicas(wanted(), replace(own, show=shown.append), workers=2)
    return Told(problem.value, left, shown, groups)


def test_a_signal_ends_all_with_checkpoints_and_they_go_on(
    told: Told, brought: Model, tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    # as is said where workers train: this process alone would say it of one group
    assert str(told.stopped) == (
        "stopped, every replica with a checkpoint; the same command goes on from there"
    )
    assert told.stopped.status == 128 + signal.SIGTERM
    assert told.checkpoints
    divided = side_by_side._divide(grouped(wanted()), 2)
    own = context(tiny, cpu, tmp_path, model=brought)
    unbroken = [train_group(part, own, at, len(divided), lambda: None) for at, part in enumerate(divided)]
    assert [len(group.replicas) for group in told.groups] == [2, 1, 1]
    for key, value in weights(unbroken).items():
        assert torch.equal(value, weights(told.groups)[key])


def test_two_processes_give_what_one_gives(
    told: Told, brought: Model, tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    one = train_replicas(wanted(), context(tiny, cpu, tmp_path, model=brought))
    assert [len(group.replicas) for group in one] == [3, 1]
    for key, value in weights(one).items():
        torch.testing.assert_close(weights(told.groups)[key], value, rtol=1e-4, atol=1e-6)

    def lines(groups: list[Group]) -> set:
        return {line[:5] for group in groups for line in group.history}

    assert lines(one) == lines(told.groups)
    assert {state.group for state in told.shown} == {0, 1, 2}
    assert all(state.groups == 3 for state in told.shown)


def test_what_a_worker_cannot_do_is_told_once(
    tiny: Prepared, cpu: Execution, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").write_text("a file where checkpoints should go")
    with pytest.raises(UserError, match="full"):
        train_replicas(wanted(), context(tiny, cpu, tmp_path / "full"), workers=2)
    assert "Traceback" not in capfd.readouterr().err


def test_short_trainings_and_gpus_take_one_process(
    tiny: Prepared, cpu: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("workers were started")

    monkeypatch.setattr(side_by_side, "_run", refuse)
    monkeypatch.setattr(side_by_side, "WORTH", 10**9)
    short = [Replica("epsilon=3", seed, dpsgd()) for seed in range(2)]
    assert len(train_replicas(short, context(tiny, cpu, tmp_path / "short"), workers=2)) == 1
    gpu = context(tiny, replace(cpu, device=torch.device("cuda")), tmp_path / "gpu", show=quiet)
    monkeypatch.setattr(side_by_side, "WORTH", 1)
    assert side_by_side._worthwhile_processes([wanted()], gpu, 2) == 1
