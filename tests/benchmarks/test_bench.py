"""The benchmark runs every way there is, and says what it measured."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.cases import CASES
from benchmarks.measuring import Measured, compare
from benchmarks.passes import outside
from benchmarks.results import Line, of_one_replica, ratio, write
from benchmarks.ways import OURS, PLAIN, REFERENCE, WAYS, Contender, ready, with_torch_batch_norm


@pytest.mark.parametrize("way", WAYS)
def test_every_way_takes_a_step(way: str) -> None:
    step, share = ready(Contender(CASES["lenet5"], way, 8))
    step()
    assert share.wall == 0


@pytest.mark.parametrize("case", ["lenet-300-100-noisy", "lenet5_tanh-bc", "bilstm", "adlm_cnn"])
def test_every_method_takes_a_step(case: str) -> None:
    for way in (PLAIN, OURS):
        step, share = ready(Contender(CASES[case], way, 16))
        step()
        # the public gradients' norms, once an epoch
        assert (share.wall > 0) == (case == "lenet5_tanh-bc" and way == OURS)


def test_plain_sgd_has_torchs_batch_norm() -> None:
    """Of the same numbers as the project's own measures."""
    net = with_torch_batch_norm(CASES["lenet5_tanh-bc"].net)
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in net.modules()) == 3
    inputs = torch.rand(5, 6, 4, 4)
    expected = F.batch_norm(inputs, None, None, training=True)
    torch.testing.assert_close(net[2](inputs), expected)


def test_time_outside_the_passes_is_told_from_time_in_them() -> None:
    layer, inputs = nn.Linear(300, 300), torch.rand(300, 300)

    def step(inside: float) -> None:
        for until, what in ((inside, lambda: layer(inputs)), (0.004, lambda: torch.rand(300, 300))):
            begun = time.perf_counter()
            while time.perf_counter() - begun < until:
                what()

    assert outside(lambda: step(0.0), 0.2) > 0.95
    assert outside(lambda: step(0.004), 0.4) == pytest.approx(0.5, abs=0.2)
    assert outside(lambda: step(0.036), 0.6) == pytest.approx(0.1, abs=0.1)


def test_contenders_take_turns_and_a_failure_is_a_result() -> None:
    case = CASES["lenet-300-100"]
    impossible = Contender(case, "no such way", 4, device="nowhere")
    found = compare([Contender(case, PLAIN, 4), impossible], 1, 0.1, lambda one: None)
    assert found[0].problem is None
    assert found[0].steps >= 5
    assert 0 < found[0].low <= found[0].seconds <= found[0].high
    assert found[1].problem is not None
    (ours,) = compare([Contender(case, OURS, 4)], 1, 0.1, lambda one: None)
    assert ours.outside is not None
    assert 0 < ours.outside < 1


def test_replicas_are_side_by_side_as_in_training() -> None:
    three = Contender(CASES["lenet-300-100"], OURS, 4, replicas=3)
    assert three.shares(1) == [3]
    assert three.shares(2) == [2, 1]
    assert three.shares(8) == [1, 1, 1]
    assert replace(three, device="cuda").shares(2) == [3]
    (found,) = compare([three], 2, 0.1, lambda one: None)
    assert found.problem is None
    assert found.steps >= 5
    assert found.processor > 0


def test_ratios_are_to_plain_sgd_of_the_same_step(tmp_path: Path) -> None:
    case = CASES["lenet5"]
    lines = [
        Line(Contender(case, PLAIN, 8), 1, Measured(0.01, 0.009, 0.011, 0.01, 9, 50.0)),
        Line(Contender(case, OURS, 8), 1, Measured(0.012, 0.011, 0.013, 0.015, 9, 60.0, 0.125)),
        Line(Contender(case, OURS, 8), 2, Measured(0.012, 0.011, 0.013, 0.015, 9, 60.0)),
        Line(Contender(case, REFERENCE, 8), 1, Measured(0, 0, 0, 0, 0, 0, problem="it can't")),
        Line(Contender(case, OURS, 8, replicas=2), 2, Measured(0.015, 0.014, 0.016, 0.03, 9, 120.0)),
    ]
    assert [ratio(line, lines) for line in lines] == [1.0, pytest.approx(1.2), None, None, None]
    assert [of_one_replica(line, lines) for line in lines] == [None] * 4 + [pytest.approx(1.25)]
    folder = write("few", lines, tmp_path)
    text = (folder / "few.md").read_text()
    assert "| lenet5 | 8 | 1 | ours | 1 | 12 | 11 to 13 | 1.20 | 15 | 1.50 | 60 | 12 |  |" in text
    assert "| lenet5 | 8 | 2 | ours | 2 | 15 | 14 to 16 |  | 30 |  | 120 |  | 1.25 |" in text
    assert "not possible: it can't" in text
    saved = json.loads((folder / "few.json").read_text())
    assert saved["machine"]["cores"]
    assert [step["ratio"] for step in saved["steps"]][1] == pytest.approx(1.2)
    assert (folder / "few.svg").read_text().startswith("<")
