"""Bounds at the edge: the lower one, the truth by mpmath to sixty digits and the upper one are in order."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
from mpmath import mpf

import dprepro
from dprepro.accountants.allocation import composed_epochs, spacing_of
from dprepro.accountants.bounds import bounds_of
from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.accountants.records import SampledGaussian
from dprepro.accountants.worst_instance import worst_epsilon
from dprepro.pipeline.planning.budget import suggest_budget

Delta = Callable[[mpf], mpf]
MILLION = 1_000_000


@pytest.fixture(autouse=True)
def _digits() -> object:
    with mpmath.workdps(60):
        yield


def spending(sampling: str, noise: float, examples: int, batch: int) -> SampledGaussian:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": examples, "batch": batch}
    return SampledGaussian.model_validate(values)


def check(mechanism: SampledGaussian, steps: int, delta: float, exact: Delta) -> tuple[float, float]:
    """A bound is in order where its own delta is: delta falls as epsilon rises."""
    bounds, _ = bounds_of(mechanism, steps, delta)
    upper = min(bound.epsilon for bound in bounds.values() if bound.epsilon is not None)
    lower = worst_epsilon(mechanism, steps, delta, upper)
    assert lower <= upper
    for bound in bounds.values():
        assert bound.epsilon is None or exact(mpf(bound.epsilon)) <= delta, bound
    assert lower == 0 or exact(mpf(lower)) >= delta
    return lower, upper


def gaussian(mu: mpf) -> Delta:
    """Balle and Wang 2018, Theorem 8."""
    return lambda epsilon: (
        mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
    )


@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-13, 1e-15, 1e-30, 1e-100])
@pytest.mark.parametrize(
    ("sampling", "noise", "steps"),
    [
        ("fixed", 0.3, 1),
        ("poisson", 1.1, 10_000),
        ("poisson", 50, 10_000),
        ("shuffled", 7, 30),
        ("shuffled", 0.002, 30),
        ("fixed", 300, 100_000),
    ],
)
def test_whole_batches_are_one_gaussian(sampling: str, noise: float, steps: int, delta: float) -> None:
    exact = gaussian(mpmath.sqrt(steps) / mpf(noise))
    lower, upper = check(spending(sampling, noise, 100, 100), steps, delta, exact)
    assert lower > (1 - 1e-4) * upper  # it is told nearly exactly, however small delta is


def one_step(noise: float, share: mpf) -> Delta:
    """With the record, a mixture, against without: Balle, Barthe and Gaboardi 2018, Theorem 2."""
    inner = gaussian(1 / mpf(noise))
    return lambda epsilon: share * inner(mpmath.log(1 + mpmath.expm1(epsilon) / share))


@pytest.mark.parametrize("delta", [1e-6, 1e-10, 1e-13, 1e-18])
@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize(
    ("noise", "examples", "batch"), [(1.0, MILLION, 1000), (0.5, 10_000, 100), (2.0, 100, 50)]
)
def test_one_step_of_a_sample(sampling: str, noise: float, examples: int, batch: int, delta: float) -> None:
    check(spending(sampling, noise, examples, batch), 1, delta, one_step(noise, mpf(batch) / examples))


@pytest.mark.parametrize("delta", [1e-5, 1e-11, 1e-13])
@pytest.mark.parametrize(("noise", "share"), [(1.0, 10), (0.7, 100)])
def test_two_steps_of_a_poisson_sample_by_integration(noise: float, share: int, delta: float) -> None:
    rate, square = mpf(1) / share, mpf(noise) ** 2

    def loss(place: mpf) -> mpf:
        return mpmath.log(1 - rate + rate * mpmath.exp((2 * place - 1) / (2 * square)))

    def second(epsilon: mpf) -> mpf:
        """Delta of one step at any epsilon: beyond a threshold the mixture is e^epsilon times as likely."""
        if epsilon <= mpmath.log(1 - rate):
            return 1 - mpmath.exp(epsilon)
        edge = square * mpmath.log((mpmath.exp(epsilon) - 1 + rate) / rate) + mpf(1) / 2
        without = mpmath.ncdf(-edge / noise)
        within = (1 - rate) * without + rate * mpmath.ncdf((1 - edge) / noise)
        return within - mpmath.exp(epsilon) * without

    def exact(epsilon: mpf) -> mpf:
        def density(place: mpf) -> mpf:
            return (1 - rate) * mpmath.npdf(place, 0, noise) + rate * mpmath.npdf(place, 1, noise)

        # it bends where nothing is left for the second step to tell
        bend = square * mpmath.log((mpmath.exp(epsilon) / (1 - rate) - 1 + rate) / rate) + mpf(1) / 2
        ends = sorted({mpf(-14) * noise, mpf(0), mpf(1), mpf(4), bend, 1 + mpf(16) * noise})
        with mpmath.workdps(25):
            return mpmath.quad(lambda place: density(place) * second(epsilon - loss(place)), ends)

    check(spending("poisson", noise, 1000, 1000 // share), 2, delta, exact)


def test_samples_of_a_fixed_size_move_by_twice_the_clipping_bound() -> None:
    """An example is replaced: -C becomes C. The noise is told over C."""
    for sampling in ("fixed", "shuffled"):
        spent = dprepro.epsilon(
            examples=100, batch=100, steps=1, noise_multiplier=1, delta=1e-5, sampling=sampling
        )
        assert spent.epsilon_upper == pytest.approx(gaussian_epsilon(2, 1e-5), rel=1e-4)
        assert 9.99 < spent.epsilon_lower <= spent.epsilon_upper
    added = dprepro.epsilon(examples=100, batch=100, steps=1, noise_multiplier=1, delta=1e-5)
    assert added.epsilon_upper == pytest.approx(gaussian_epsilon(1, 1e-5), rel=1e-4)


QUESTIONS: list[dict[str, Any]] = [
    {"epochs": 1e9},
    {"examples": 2**31, "epochs": 1},
    {"examples": 10**12, "batch": MILLION, "steps": 10**12, "sampling": "fixed"},
    {"epochs": 20, "delta": 1e-15},
    {"epochs": 20, "delta": 1e-100},
    {"epochs": 20, "noise_multiplier": 1e-9},
    {"epochs": 20, "noise_multiplier": 1e9},
    {"examples": MILLION, "batch": 1, "steps": 1, "noise_multiplier": 1e-3},
    {"examples": 10**12, "batch": MILLION, "steps": 1000},
    {"examples": MILLION, "batch": 1, "steps": MILLION},
    {"examples": MILLION, "batch": 1, "steps": 1000, "noise_multiplier": 0.06, "sampling": "fixed"},
    *(
        {"sampling": "allocation", "epochs": epochs, "noise_multiplier": noise}
        for noise, epochs in ((0.06, 200), (100, 2), (1e3, 200), (1e4, 2), (3e4, 200), (1e9, 2))
    ),
    *(
        {"sampling": "allocation", "examples": MILLION, "batch": 1, "epochs": 100, "noise_multiplier": noise}
        for noise in (1, 1e4)
    ),
]
CODE = """
import json, resource, sys, time
import dprepro, dprepro.accountants.opacus
for asked in json.loads(sys.argv[1]):
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    spent = dprepro.epsilon(**asked)
    seconds = time.process_time() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([asked, spent.epsilon_lower, spent.epsilon_upper, seconds, memory]), flush=True)
"""


def test_no_question_eats_a_machine() -> None:
    """In a process of its own, whose time is limited; memory is counted beyond torch's."""
    usual = {"examples": 60_000, "batch": 256, "noise_multiplier": 1.1, "delta": 1e-5}
    asked = [usual | question for question in QUESTIONS]
    limit = (600, 600)  # seconds: a process that goes on is killed
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, json.dumps(asked)],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(asked), done.stderr
    for question, lower, upper, seconds, memory in answers:
        assert 0 <= lower <= upper, question
        assert seconds < 30, question
        assert memory * (1 if sys.platform == "darwin" else 1024) < 1e9, question


@pytest.mark.parametrize(("noise", "batches"), [(100.0, 234), (1000.0, 20), (2.0, 3000)])
def test_a_coarsened_grid_of_an_epoch_stays_a_bound(noise: float, batches: int) -> None:
    """Above the bound on a grid of twice the points, less its own error, and above the lower bound."""
    finest = spacing_of(noise, batches) / 2
    bounds = [
        composed_epochs(noise, batches, 1, 2 * batches, spacing).get_epsilon_for_delta(1e-7)
        for spacing in (finest, 2 * finest, 8 * finest)
    ]
    assert bounds[0] <= bounds[1] * (1 + 1e-9) <= bounds[2] * (1 + 2e-9)


def test_a_plan_of_one_step_is_made_in_seconds() -> None:
    """However many examples there are, a batch takes as long: here are five."""
    began = time.process_time()
    assert suggest_budget(16, 1e-5, 0.05, steps=1, simulate=1).choices
    assert time.process_time() - began < 18


def test_noise_for_a_delta_below_what_losses_carry_is_found_by_renyi_dp() -> None:
    asked: dict[str, Any] = {"examples": 100, "batch": 100, "steps": 1000, "delta": 1e-14}
    noise = dprepro.noise_multiplier(3, **asked)
    assert gaussian_epsilon(1000**0.5 / noise, 1e-14) <= 3
