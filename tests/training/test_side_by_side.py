"""Replicas of a CPU in processes of their own, against the same in one process."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training.test_training import context, quiet, weights

from pipeline.data.prepared import Prepared
from pipeline.errors import Stopped, UserError
from pipeline.methods.base import Execution
from pipeline.training import side_by_side
from pipeline.training.loop import Progress, Replica
from pipeline.training.side_by_side import train_replicas
from tests.conftest import dpsgd


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "WORTH", 1)


def wanted(epochs: float = 1) -> list[Replica]:
    """Three replicas that share their steps, and one that doesn't."""
    private = [Replica("epsilon=3", seed, dpsgd(epochs=epochs)) for seed in range(3)]
    return [*private, Replica("epsilon=8", 0, dpsgd(epochs=epochs, epsilon=8, batch=10))]


def test_two_processes_give_what_one_gives(tiny: Prepared, cpu: Execution, tmp_path: Path) -> None:
    shown: list[Progress] = []
    one = train_replicas(wanted(), context(tiny, cpu, tmp_path / "one"))
    two = train_replicas(wanted(), context(tiny, cpu, tmp_path / "two", show=shown.append), workers=2)
    assert [len(group.replicas) for group in one] == [3, 1]
    assert [len(group.replicas) for group in two] == [2, 1, 1]
    for key, value in weights(one).items():
        torch.testing.assert_close(weights(two)[key], value, rtol=1e-4, atol=1e-6)

    def lines(groups: list) -> set:
        return {line[:5] for group in groups for line in group.history}

    assert lines(one) == lines(two)
    assert {state.group for state in shown} == {0, 1, 2}
    assert all(state.groups == 3 for state in shown)


def test_a_signal_ends_all_with_checkpoints_and_they_go_on(
    tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    sent = []

    def interrupt(state: Progress) -> None:
        if not sent:  # a second signal would end the process at once
            sent.append(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)

    own = context(tiny, cpu, tmp_path / "stopped", checkpoint_every=1e9)
    with pytest.raises(Stopped, match="the same command goes on from there") as problem:
        train_replicas(wanted(12), replace(own, show=interrupt), workers=2)
    assert problem.value.status == 128 + signal.SIGTERM
    assert list((tmp_path / "stopped").glob("*.pt"))
    resumed = train_replicas(wanted(12), own, workers=2)
    unbroken = train_replicas(wanted(12), context(tiny, cpu, tmp_path / "unbroken"), workers=2)
    for key, value in weights(unbroken).items():
        assert torch.equal(value, weights(resumed)[key])


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
    assert len(train_replicas(wanted(), context(tiny, cpu, tmp_path / "short"), workers=2)) == 2
    gpu = context(tiny, replace(cpu, device=torch.device("cuda")), tmp_path / "gpu", show=quiet)
    monkeypatch.setattr(side_by_side, "WORTH", 1)
    assert side_by_side._worth([wanted()], gpu, 2) == 1
