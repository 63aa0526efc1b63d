"""A row's trainings are lines: git merges those of two machines, and the same training twice is told."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Replaced, RowTrainings, TrainingRecord
from tests.checkout import commit, git
from tests.made_records import made_up_training
from tests.not_none import not_none

ROW, ROOT = "small", Path(__file__).parents[2]


def training(seed: int, **changes: Any) -> TrainingRecord:
    return made_up_training(None, 1, row=ROW, seed=seed, **changes)


def write(root: Path, *trainings: TrainingRecord, **more: Any) -> None:
    records.write(RowTrainings(row=ROW, trainings=trainings, **more), root)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    curves = {"train_loss": ((1, 0.5, 2.25), (2, 1.0, 1e-9))}
    run = RowTrainings(
        row=ROW,
        trainings=(training(0, curves=curves), training(1, frozen=(0.1,), noise="grid")),
        replaced=(training(0, ended=9.0, replaced=True), Replaced(trainings=3, spent=None)),
    )
    path = records.write(run, tmp_path)
    assert len(path.read_text().splitlines()) == 4
    assert records.read_run(ROW, tmp_path) == run
    assert [*run.replaced_spent()] == 4 * [None]


def test_a_later_training_leaves_the_lines_of_earlier_ones_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, training(0))
    before = records.run_path(ROW, tmp_path).read_text()
    write(tmp_path, *not_none(records.read_run(ROW, tmp_path)).trainings, training(1))
    assert records.run_path(ROW, tmp_path).read_text().startswith(before)


@pytest.mark.parametrize("common", [(), (training(0),)])
def test_git_merges_the_trainings_of_two_machines(tmp_path: Path, common: tuple[TrainingRecord, ...]) -> None:
    git("init", "--quiet", "--initial-branch=here", folder=tmp_path)
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    if common:
        write(tmp_path, *common)
    commit(tmp_path)
    git("checkout", "--quiet", "-b", "there", folder=tmp_path)
    write(tmp_path, *common, training(2), training(3))
    commit(tmp_path)
    git("checkout", "--quiet", "here", folder=tmp_path)
    write(tmp_path, *common, training(1), training(2))  # seed 2 at both: the same one
    commit(tmp_path)
    git("merge", "--quiet", "--no-edit", "there", folder=tmp_path)
    seeds = {each.seed for each in not_none(records.read_run(ROW, tmp_path)).trainings}
    assert seeds == {1, 2, 3} | {each.seed for each in common}


def test_two_trainings_of_one_seed_are_told_until_one_is_a_replaced_one(tmp_path: Path) -> None:
    write(tmp_path, training(0))
    path = records.run_path(ROW, tmp_path)
    first, other = path.read_text(), training(0, ended=9.0)
    write(tmp_path, other)
    both = first + path.read_text()
    path.write_text(both)
    with pytest.raises(UserError, match=r"two trainings of sigma=1, seed 0; allowed: one that is not"):
        records.read_run(ROW, tmp_path)
    path.write_text(first.replace("}\n", ',"replaced":true}\n') + path.read_text()[len(first) :])
    run = not_none(records.read_run(ROW, tmp_path))
    assert (run.trainings, len(run.replaced)) == ((other,), 1)
