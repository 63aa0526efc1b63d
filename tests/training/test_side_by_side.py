"""Trainings in processes of their own, against the same in one process."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dprepro.errors import Stopped, Unproven, UserError
from dprepro.pipeline import extensions
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.training import side_by_side
from dprepro.pipeline.training.loop import Progress, SeedRun
from dprepro.pipeline.training.side_by_side import train_runs
from tests.conftest import dpsgd, forgetting
from tests.training.running import context, weights


@pytest.fixture(scope="module", autouse=True)
def _worth_it() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_by_side, "WORTH", 1)
        yield


def wanted() -> list[SeedRun]:
    """Seeds of a level, and another level."""
    private = [SeedRun("epsilon=3", seed, dpsgd(epochs=4)) for seed in range(3)]
    return [*private, SeedRun("epsilon=8", 0, dpsgd(epochs=4, epsilon=8, batch=10))]


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Model, Path]]:
    """A laboratory's model, which workers have to know, and its folder, where they note torch's seeds."""
    folder = tmp_path_factory.mktemp("laboratory")
    (folder / "brought/models").mkdir(parents=True)
    (folder / "brought/models/theirs.py").write_text(
        "from multiprocessing import parent_process\n"
        "from pathlib import Path\n"
        "import torch\n"
        "from dprepro.pipeline.methods.private_steps import PrivateSteps\n"
        "from dprepro.pipeline.models import lenet5\n"
        "build = lenet5.build\n"
        "compare = PrivateSteps._compare_with_alone\n"
        "def note(*arguments):\n"
        "    Path(__file__).parents[2].joinpath(f'{torch.initial_seed()}.seed').touch()\n"
        "    return compare(*arguments)\n"
        "if parent_process() is not None:\n"
        "    PrivateSteps._compare_with_alone = note\n"
    )
    with forgetting():
        extensions.use(["brought"], folder)
        yield Model(name="theirs", normalization="layer"), folder


def test_processes_that_a_signal_ends_go_on_to_what_one_process_gives(
    brought: tuple[Model, Path], tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    """And draw numbers of their own for dropout."""
    model, laboratory = brought
    shown: list[Progress] = []

    def interrupt(state: Progress) -> None:
        shown.append(state)
        if len(shown) == 1:  # a second signal would end the process at once
            signal.raise_signal(signal.SIGTERM)

    folder = tmp_path / "two"
    training_context = context(tiny, cpu, folder, model=model)
    with pytest.raises(Stopped) as problem:
        list(train_runs(wanted(), replace(training_context, show=interrupt), workers=2))
    # as is said where workers train: this process alone would say it of one training
    assert str(problem.value) == "stopped, what ran has a checkpoint; the same command goes on from there"
    assert problem.value.status == 128 + signal.SIGTERM
    assert list(folder.glob("*.pt"))
    trainings = list(train_runs(wanted(), replace(training_context, show=shown.append), workers=2))
    assert len(trainings) == 4
    assert len(list(laboratory.glob("*.seed"))) > 1
    # a training that a worker ended while it was being stopped is there already, and shows no more
    assert {0, 1} <= {state.number for state in shown} <= {0, 1, 2, 3}
    assert all(state.trainings == 4 for state in shown)
    unbroken = list(train_runs(wanted(), replace(training_context, checkpoint=tmp_path / "one")))
    # a seed of every level before the next
    assert [finished.run.key for finished in unbroken] == [
        ("epsilon=3", 0), ("epsilon=8", 0), ("epsilon=3", 1), ("epsilon=3", 2),
    ]  # fmt: skip
    for key, value in weights(unbroken).items():
        assert torch.equal(weights(trainings)[key], value)
    assert sorted(line for finished in unbroken for line in finished.history) == sorted(
        line for finished in trainings for line in finished.history
    )


def test_what_a_worker_cannot_do_is_told_once(
    tiny: Prepared, cpu: Execution, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").write_text("a file where checkpoints should go")
    with pytest.raises(UserError, match="full"):
        list(train_runs(wanted(), context(tiny, cpu, tmp_path / "full"), workers=2))
    assert "Traceback" not in capfd.readouterr().err


def test_a_worker_whose_examples_meet_is_not_trained_again_with_other_samples(
    tiny: Prepared, cpu: Execution, tmp_path: Path
) -> None:
    (tmp_path / "meeting/models").mkdir(parents=True)
    (tmp_path / "meeting/models/meets.py").write_text(
        "from multiprocessing import parent_process\n"
        "from dprepro.errors import Unproven\n"
        "from dprepro.pipeline.methods.private_steps import PrivateSteps\n"
        "from dprepro.pipeline.models import lenet5\n"
        "build = lenet5.build\n"
        "def stop(*_):\n"
        "    raise Unproven('step 0: examples meet')\n"
        "if parent_process() is not None:\n"
        "    PrivateSteps._compare_with_alone = stop\n"
    )
    with forgetting():
        extensions.use(["meeting"], tmp_path)
        model = Model(name="meets", normalization="layer")
        with pytest.raises(Unproven, match="examples meet") as problem:
            list(train_runs(wanted(), context(tiny, cpu, tmp_path / "two", model=model), workers=2))
    assert problem.value.trainings in (1, 2)  # the other worker may have been stopped before its first step
