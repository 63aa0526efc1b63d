"""A row trained again beside its record: what it says, and what it leaves alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dprepro.pipeline.files import digest_files
from dprepro.pipeline.rerun import Accuracy, Difference
from dprepro.pipeline.results import records
from tests.laboratory import declare, laboratory, new_data, new_row, refused, run, train
from tests.there import there


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Path]:
    """A laboratory with one row of two levels and two seeds, trained with secret noise."""
    with laboratory(tmp_path):
        new_data(300)
        new_row("r --data mine --model lenet_300_100 --method dpsgd --epsilon 8 --epochs 1 --seeds 2")
        declare(lambda it: it["rows"]["r"].update(levels=[{"epsilon": 8}, {"epsilon": 4}]))
        train("r")
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
    again, first = there(records.read_run("r", scratch)), there(records.read_run("r"))
    assert [replica.key for replica in again.replicas] == [("epsilon=4", 0), ("epsilon=4", 1)]
    weights = {replica.key: replica.weights for replica in first.replicas}
    assert all(replica.weights != weights[replica.key] for replica in again.replicas)
    # what was trained again once is compared once more, and not trained
    assert run("rerun r --level epsilon=4 --seeds 2").splitlines() == said.splitlines()[-3:]


def test_what_a_record_lacks_cannot_be_run_again(recorded: Path) -> None:
    assert "--seeds 3: epsilon=8 has 2 in its record" in refused("rerun r --seeds 3")
    assert "--level epsilon=5: not in its record; allowed: epsilon=8, epsilon=4" in refused(
        "rerun r --level epsilon=5"
    )
    measured = there(records.read_evaluation("r"))
    gap = tuple(replica for replica in measured.replicas if replica.key != ("epsilon=4", 0))
    records.evaluation_path("r").write_text(measured.model_copy(update={"replicas": gap}).model_dump_json())
    assert "epsilon=4, seed 0: not in its record" in refused("rerun r --level epsilon=4")
    kept = records.run_path("r").read_text()
    records.run_path("r").unlink()
    run("train r")  # its new weights have no accuracies yet
    assert "weights that are not measured" in refused("rerun r")
    records.run_path("r").write_text(kept)
    records.evaluation_path("r").unlink()
    assert "no record to compare with" in refused("rerun r")


def test_training_anew_is_compared_with_what_it_replaces(recorded: Path) -> None:
    records.run_path("r").unlink()  # as a message says where weights are damaged
    run("train r")
    said = run("evaluate r")
    assert said.count("trained again; difference ") == 2
    assert "difference" not in run("evaluate r")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ({0: 90.0}, {0: 90.0}, "same"),
        ({0: 90.0}, {0: 91.0}, "undecided"),
        ({0: 90.0, 1: 91.0, 2: 92.0}, {0: 90.2, 1: 90.9, 2: 92.0}, "no difference found"),
        ({0: 90.0, 1: 91.0, 2: 92.0}, {0: 88.0, 1: 89.1, 2: 89.9}, "differs"),
    ],
)
def test_verdicts(before: dict[int, float], after: dict[int, float], verdict: str) -> None:
    assert Difference("epsilon=3", Accuracy(before), Accuracy(after)).verdict == verdict
