"""What a person sees while training."""

from dataclasses import replace

import pytest

from pipeline.training.loop import Progress
from stages import progress

STATE = Progress(
    group=1, groups=2, replicas=9, step=107, steps=430, epoch=1.99, noted=True, epsilon=(0.51, 4.62),
    train_loss=0.25, validation_accuracy=0.9412, seconds_left=754.2,
)  # fmt: skip


def test_a_line_tells_epsilon_spent_and_time_left() -> None:
    line = progress.describe(STATE)
    assert "epsilon spent 0.51 to 4.62" in line
    assert "validation 94.12 %" in line
    assert line.endswith("12:34 left")
    open_ = progress.describe(replace(STATE, epsilon=None, validation_accuracy=None))
    assert "not private" in open_
    assert "validation" not in open_


def test_a_terminal_of_80_columns_holds_the_longest_name_and_all_that_counts() -> None:
    assert len("davody-t5-bn-lenet5-literal") + 1 + 6 + 1 + len(progress.glance(STATE)) <= 80
    assert progress.glance(STATE) == "2/2 epoch 2.0 ε 0.51-4.6 acc 94.1% 12:34 left"


def test_plain_lines_come_at_an_epochs_end(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.showing("row") as show:  # pytest's output is no terminal
        show(replace(STATE, noted=False))
        show(STATE)
    assert capsys.readouterr().out == f"row: {progress.describe(STATE)}\n"
