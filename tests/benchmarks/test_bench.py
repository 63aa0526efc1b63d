"""The benchmark runs every way there is, and says what it measured."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.__main__ import table
from benchmarks.measuring import Measured, compare
from benchmarks.steps import CASES, GHOST, OURS, PLAIN, WAYS, Contender, with_torch_batch_norm


@pytest.mark.parametrize(
    "contender",
    [
        *(Contender("lenet5", way, 8) for way in WAYS),
        Contender("lenet5_tanh-bc", OURS, 16),
        Contender("bilstm", PLAIN, 4),
        *(Contender(case, OURS, 8) for case in ("mlp", "frozen-trunk", "resnet18-lora")),
    ],
    ids=str,
)
def test_every_way_takes_a_step(contender: Contender) -> None:
    contender.step()()


def test_plain_sgd_has_torchs_batch_norm() -> None:
    """Of the same numbers as the project's own measures."""
    net = with_torch_batch_norm(CASES["lenet5_tanh-bc"].net)
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in net.modules()) == 3
    inputs = torch.rand(5, 6, 4, 4)
    expected = F.batch_norm(inputs, None, None, training=True)
    torch.testing.assert_close(net[2](inputs), expected)


def test_contenders_take_turns_and_a_failure_is_a_result() -> None:
    impossible = Contender("lenet-300-100", OURS, 4, device="nowhere")
    speeds, problem = compare([Contender("lenet-300-100", PLAIN, 4), impossible], 1, 0.0, pinned=True)
    assert isinstance(speeds, Measured)
    assert 0 < speeds.wall < 10
    assert isinstance(problem, Exception)


def test_ratios_are_to_plain_sgd_of_the_same_step() -> None:
    ways = [Contender("lenet5", way, 8) for way in (PLAIN, OURS, GHOST)]
    measured: list[Measured | Exception] = [
        Measured(0.01, 0.01, 50.0),
        Measured(0.012, 0.015, 60.0),
        RuntimeError("it can't\nnever"),
    ]
    assert [" | ".join(line) for line in table(ways, 1, measured)] == [
        "lenet5 | 8 | 1 | plain SGD | 10 | 1.00 | 10 | 1.00 | 50 | 1.00",
        "lenet5 | 8 | 1 | ours | 12 | 1.20 | 15 | 1.50 | 60 | 1.20",
        "lenet5 | 8 | 1 | Opacus, ghost clipping | left out: it can't |  |  |  |  | ",
    ]
