"""The planner of private trainings."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from dprepro.accountants.opacus import opacus_rdp
from dprepro.pipeline.planning.budget import SuggestedBudget, suggest_budget
from dprepro.stages.app import app
from tests.refusal import refusal_of


@pytest.fixture(scope="module")
def planned() -> SuggestedBudget:
    return suggest_budget(50_000, 1e-5, 8.0, steps=2500, copies=16)


def test_every_choice_spends_epsilon_and_not_more(planned: SuggestedBudget) -> None:
    for choice in planned.choices:
        second = opacus_rdp(choice.batch / 50_000, choice.sigma, choice.steps, 1e-5)
        assert 7.9 < second <= 8.0
        assert choice.epsilon_rdp == pytest.approx(second, rel=1e-6)
        assert choice.epsilon_pld is not None
        assert choice.epsilon_pld < second
        assert (choice.steps, choice.processed) == (2500, choice.batch * 2500 * 16)


def test_the_papers_batch_is_the_smallest_off_the_wall(planned: SuggestedBudget) -> None:
    assert [choice.batch for choice in planned.choices] == [2**power for power in range(7, 16)]
    assert [choice.batch for choice in planned.choices if choice.behind_wall] == [128, 256, 512, 1024, 2048]
    assert planned.recommended.batch == 4096
    assert planned.recommended.sigma == pytest.approx(2.73, abs=0.01)
    noise = [choice.noise for choice in planned.choices]
    assert noise == sorted(noise, reverse=True)
    assert noise[-1] == 1
    # at the same S it is sigma / B
    first, last = planned.choices[0], planned.choices[-1]
    assert noise[0] == pytest.approx((first.sigma / first.batch) / (last.sigma / last.batch))


def test_the_simulation_keeps_tan_and_spends_hundreds(planned: SuggestedBudget) -> None:
    whole, small = planned.recommended, planned.simulation
    assert (small.batch, small.steps, 16 * small.processed) == (256, 2500, whole.processed)
    assert small.eta == pytest.approx(whole.eta)
    assert small.epsilon_pld is not None
    assert small.epsilon_rdp is not None
    assert 300 < small.epsilon_pld < small.epsilon_rdp < 600


def test_compute_is_shared_by_batch_copies_and_steps() -> None:
    planned = suggest_budget(60, 1e-5, 4.0, compute=1e4, copies=2, simulate=4)
    for choice in planned.choices:
        assert 0.9e4 < choice.processed <= 1e4
        assert choice.steps == int(1e4 / 2 / choice.batch)
    assert planned.recommended.sigma >= 2


def test_at_a_small_epsilon_two_is_no_wall() -> None:
    planned = suggest_budget(40, 1e-5, 0.2, steps=5, simulate=4)
    overcharged = [choice for choice in planned.choices if choice.sigma > 2 and choice.noise > 1.5]
    assert overcharged
    assert all(choice.behind_wall for choice in overcharged)


def test_small_data_have_no_batch_off_the_wall() -> None:
    planned = suggest_budget(10, 1e-3, 50.0, steps=100, simulate=4)
    assert planned.recommended == planned.choices[-1]
    assert planned.recommended.behind_wall


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 2e-5}, "delta: 2e-05 means nothing; allowed: below 1/50000, 2e-05"),
        ({"epsilon": -1.0}, "epsilon: -1.0 is not allowed: Input should be greater than or equal to 0.05"),
        ({"steps": None}, "steps, compute: both are lengths of the training"),
        ({"steps": None, "compute": 3.0, "copies": 4}, "compute: 3; allowed: 4"),
        ({"steps": 0}, "steps: 0 is not allowed: Input should be greater than or equal to 1"),
        ({"steps": None, "compute": float("inf")}, "compute: inf is not allowed: Input should be less"),
    ],
)
def test_a_contradiction_is_one_line(changes: dict[str, Any], message: str) -> None:
    wishes: dict[str, Any] = {"examples": 50_000, "delta": 1e-5, "epsilon": 8.0, "steps": 2500, **changes}
    assert message in refusal_of(lambda: suggest_budget(**wishes))


def test_the_command_prints_the_plan() -> None:
    options = {"examples": 10, "delta": 1e-4, "epsilon": 4, "steps": 100, "simulate": 1}
    wishes = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    shown = CliRunner().invoke(app, ["tan", "plan", *wishes])
    assert shown.exit_code == 0, shown.output
    assert max(map(len, shown.stdout.splitlines())) <= 100
    for_scripts = CliRunner().invoke(app, ["tan", "plan", *wishes, "--json"])
    printed = SuggestedBudget.model_validate(json.loads(for_scripts.stdout))
    assert f"Take B {printed.recommended.batch}, sigma {printed.recommended.sigma:g}, S 100" in shown.stdout
    assert printed.simulation is not None
    assert f"Tune with B 1, sigma {printed.simulation.sigma:.6g}" in shown.stdout
    line = next(line for line in shown.stdout.splitlines() if "<- take" in line)
    assert line.split()[:3] == [str(printed.recommended.batch), f"{printed.recommended.sigma:.4g}", "100"]
