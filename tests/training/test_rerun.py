"""A row trained again beside its record: what it says, and what it leaves alone."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dprepro.pipeline.files import digest_files
from dprepro.pipeline.reporting.verdict import SeedValues
from dprepro.pipeline.rerun import Difference
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import TrainingRecord
from dprepro.pipeline.results.weights import weights_path
from dprepro.stages.answers import compared
from tests.laboratory import copy_of, declare, laboratory, new_data, new_row, refused, run, train


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A laboratory with one row of two levels and two seeds, trained with secret noise."""
    with laboratory(tmp_path_factory.mktemp("made")) as folder:
        new_data(300)
        new_row("r --data mine --model lenet_300_100 --method dpsgd --epsilon 8 --epochs 1 --seeds 2")
        declare(lambda it: it["rows"]["r"].update(levels=[{"epsilon": 8}, {"epsilon": 4}]))
        train("r")
    return folder


@pytest.fixture
def recorded(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it of the test's own."""
    with copy_of(made, tmp_path):
        yield tmp_path


def everything() -> str:
    return digest_files(
        Path(),
        [path for folder in ("reports", "runs") for path in Path(folder).rglob("*") if path.is_file()],
    )


def test_a_rerun_compares_and_leaves_records_and_weights_alone(recorded: Path) -> None:
    before = everything()
    said = run("rerun r --level epsilon=4 --seeds 2")
    assert everything() == before
    assert "epsilon = 4: test accuracy " in said
    assert "epsilon = 8" not in said
    assert "trained again; difference " in said
    assert "the row's ledger does not count it" in said
    scratch = recorded / ".dprepro/reruns/r"
    again, first = records.read_run("r", scratch), records.read_run("r")
    assert [training.key for training in again.trainings] == [("epsilon=4", 0), ("epsilon=4", 1)]
    weights = {training.key: training.weights for training in first.trainings}
    assert all(training.weights != weights[training.key] for training in again.trainings)
    assert "r: 2 to train, about 0:00:0" in said
    # what was trained again once is compared once more, and not trained; a level's value names it
    assert run("rerun r --level 4 --seeds 2").splitlines() == said.splitlines()[-3:]
    assert "to train, about" not in run("rerun r --level 4.0 --seeds 2")


def test_what_a_record_lacks_cannot_be_run_again(recorded: Path) -> None:
    assert "--seeds 3: epsilon=8 has 2 in its record" in refused("rerun r --seeds 3")
    assert "--level epsilon=5: not in its record; allowed: epsilon=8, epsilon=4" in refused(
        "rerun r --level epsilon=5"
    )
    measured = records.read_evaluation("r")
    gap = tuple(training for training in measured.trainings if training.key != ("epsilon=4", 0))
    records.write(measured.model_copy(update={"trainings": gap}))
    assert "epsilon=4, seed 0: not in its record" in refused("rerun r --level epsilon=4")
    kept = records.run_path("r").read_text()
    records.run_path("r").unlink()
    run("train r")  # its new weights have no accuracies yet
    assert "weights that are not measured" in refused("rerun r")
    records.run_path("r").write_text(kept)
    records.evaluation_path("r").unlink()
    assert "no record to compare with" in refused("rerun r")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ({0: 90.0}, {0: 90.0}, "same"),
        ({0: 90.0}, {0: 91.0}, "undecided"),
        ({0: 90.0, 1: 91.0, 2: 92.0}, {0: 90.2, 1: 90.9, 2: 92.0}, "no difference found"),
        ({0: 90.0, 1: 91.0, 2: 92.0}, {0: 87.0, 1: 88.1, 2: 88.9}, "differs"),
        ({0: 90.0, 1: 91.0, 2: 92.0}, {0: 92.5}, "no difference found"),
        ({0: 90.0, 1: 91.0, 2: 92.0}, {0: 96.5}, "differs"),
    ],
)
def test_verdicts(before: dict[int, float], after: dict[int, float], verdict: str) -> None:
    assert Difference("epsilon=3", SeedValues.of(before), SeedValues.of(after)).verdict == verdict


def test_one_more_training_is_compared_with_the_prediction_interval() -> None:
    """Student's t with 2 degrees of freedom, 4.3027, times the spread 1, times the root of 1 + 1/3."""
    difference = Difference("epsilon=3", SeedValues.of({0: 90.0, 1: 91.0, 2: 92.0}), SeedValues.of({0: 92.5}))
    assert compared(difference, "trained again") == (
        "epsilon = 3: test accuracy 91.00 ± 2.48 (n = 3) percent recorded, 92.50 trained again: outside "
        "the range of the recorded seeds (90.00 to 92.00) and inside the 95 % prediction interval of one "
        "more training (86.03 to 95.97): no difference found"
    )


def test_a_rerun_makes_the_data_that_it_needs(recorded: Path) -> None:
    shutil.rmtree("data/prepared")
    shutil.rmtree("data/raw")
    said = run("rerun r --level 8 --seeds 1")
    assert "data/prepared/mine" in said
    assert "the 95 % prediction interval of one more training" in said
    assert records.read_run("r") is not None


def test_a_rebuilt_training_on_own_data_counts_beside_the_lost_one(recorded: Path) -> None:
    before = records.read_run("r")
    shutil.rmtree("runs/r")
    assert "weights of 4 of 4 trainings are not here" in refused("evaluate r")
    assert records.read_run("r") == before
    said = run("train r")
    assert "r: 4 of 4 to train, about 0:00:" in said
    assert "4 trained, 0 stand" in said
    after = records.read_run("r")
    assert not {each.weights for each in before.trainings} & {each.weights for each in after.trainings}
    identities = {each.identity for each in after.replaced if isinstance(each, TrainingRecord)}
    assert identities == {each.identity for each in before.trainings}
    assert len(list(Path("runs/r").iterdir())) == 4
    assert "0 trained, 4 stand" in run("train r")
    run("evaluate r")
    assert all(each.test_errors is None for each in records.read_evaluation("r").trainings)  # private labels
    weights_path("r", "epsilon=8", 1).write_bytes(b"damaged")
    assert "1 trained, 3 stand" in run("train r")
