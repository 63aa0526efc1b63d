"""A declared number of examples in place of N: no release follows the data's own number."""

from typing import Any

import numpy as np
import pytest

from dprepro.pipeline.ledgers.ledger import ledger_of
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.samples import parts_of
from tests.conftest import dpsgd, make_data
from tests.ledgers.test_of_a_training import trained
from tests.methods.conftest import ALONE, PLAIN, build

NOMINAL = 60
SAMPLINGS: dict[str, dict[str, Any]] = {"poisson": {}, "allocation": {"accountant": "pld"}}


def built(examples: int, sampling: str, nominal: int | None) -> PrivateSteps:
    settings = dpsgd(batch=12, epochs=4, sampling=sampling, nominal_examples=nominal, **SAMPLINGS[sampling])
    method: PrivateSteps = build(make_data(train=examples), PLAIN, settings, how=ALONE, seeded=False)
    return method


def released(method: PrivateSteps) -> tuple[Any, ...]:
    """Steps, learning rates, spending and its end, which an observer of the model may know."""
    resumable = [method.resumable(step) for step in range(method.steps)]
    return method.steps, method.rate(0), method.guarantee(), resumable


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_neighbours_release_the_same_numbers(sampling: str) -> None:
    """An example more moves noise and steps by the data's own number, and nothing by a declared one."""
    assert released(built(49, sampling, NOMINAL)) == released(built(50, sampling, NOMINAL))
    assert released(built(50, sampling, NOMINAL)) == released(built(NOMINAL, sampling, None))
    assert released(built(48, sampling, None)) != released(built(60, sampling, None))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("examples", [40, 90])
def test_an_examples_rate_is_the_declared_one(examples: int, sampling: str) -> None:
    method = built(examples, sampling, NOMINAL)
    steps = 20 * 12 // 12 * 5
    joined = np.zeros(examples)
    for step in range(steps):
        sample = method.sample(step)
        joined[sample.chosen[sample.mask > 0].numpy()] += 1
    # 90 examples' means over 100 steps: seven standard deviations of the rate of .2
    assert abs(joined.mean() / steps - 12 / NOMINAL) < 7 * (0.2 * 0.8 / (steps * examples)) ** 0.5
    assert (joined[-10:] > 0).all(), "examples beyond the declared number are drawn too"


def test_parts_of_a_sample_keep_examples_beyond_the_declared_number() -> None:
    assert sum(parts_of(np.array([1, 59, 60, 88]), NOMINAL, 4)) == 4


def test_the_ledger_says_which_number_is_public() -> None:
    run = trained()
    keys = {use.key for use in ledger_of(run, None).not_covered}
    nominal = run.model_copy(update={"settings": {**run.settings, "nominal_examples": NOMINAL}})
    declared = {use.key for use in ledger_of(nominal, None).not_covered}
    assert keys ^ declared == {"examples_public", "examples_recorded"}
    assert "examples_public" in keys
