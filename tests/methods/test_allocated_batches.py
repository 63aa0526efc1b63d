"""Allocated batches and a declared number of examples: what is drawn, released and accounted for."""

from typing import Any

import numpy as np
import pytest
import torch

from dprepro.accountants.records import NeighboringRelation
from dprepro.pipeline.ledgers.ledger import ledger_of, make_ledger
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.samples import parts_of
from dprepro.pipeline.methods.settings import method_settings
from tests.conftest import dpsgd, make_data
from tests.ledgers.test_of_a_training import trained
from tests.methods.conftest import ALONE, PLAIN, build

EXAMPLES, BATCH, BATCHES = 41, 10, 4
SHARED = {"batch": BATCH, "learning_rate": 0.1, "clip": 0.5, "sampling": "allocation", "delta": 1e-5}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "dpsgd": ("dpsgd", {"epochs": 3, "epsilon": 3.0, "accountant": "pld"}),
    "tan": ("tan", {"steps": 3 * BATCHES, "sigma": 1.5}),
    "tan, two batches": ("tan", {"steps": 3 * 2 * BATCHES, "sigma": 1.5, "participations": 2}),
    "examples": ("batch_clipping", {"epochs": 3, "sigma": 1.5, "clipping": "full", "mini_set": 1}),
}


def built(name: str) -> PrivateSteps:
    key, own = SETTINGS[name]
    settings = method_settings()[key].model_validate(SHARED | own)
    method: PrivateSteps = build(make_data(train=EXAMPLES), PLAIN, settings, how=ALONE)
    return method


@pytest.mark.parametrize("name", SETTINGS)
def test_every_example_is_in_as_many_batches_of_an_epoch_as_are_accounted(name: str) -> None:
    method = built(name)
    spending = method.guarantee().spending
    for epoch in range(2):
        samples = map(method.sample, range(epoch * spending.batches, (epoch + 1) * spending.batches))
        joined = torch.cat([sample.chosen[sample.mask > 0].flatten() for sample in samples])
        assert joined.bincount(minlength=EXAMPLES).tolist() == [spending.participations] * EXAMPLES


@pytest.mark.parametrize("name", SETTINGS)
def test_the_guarantee_is_of_allocated_batches_and_is_proven(name: str) -> None:
    method = built(name)
    guarantee = method.guarantee()
    spending = guarantee.spending
    steps = method.steps
    assert (spending.sampling, spending.batches) == ("allocation", steps // 3)
    ledger = make_ledger(spending, steps, 1e-5, guarantee.claimed_by, others=())  # type: ignore[arg-type]
    assert ledger.neighbouring is NeighboringRelation.ADD_OR_REMOVE_ONE
    assert ledger.accountant.startswith("pld")
    assert (ledger.epsilon_lower or 0) <= (ledger.epsilon_upper or 0)
    if name == "dpsgd":
        assert 0.99 * 3 <= (ledger.epsilon_upper or 0) <= 3
        assert guarantee.claimed_by == "pld"
    if name != "tan, two batches":  # which are bounded in blocks
        assert (ledger.epsilon_upper or 0) <= 1.02 * (ledger.epsilon_lower or 0)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_goes_on_at_the_beginning_of_an_epoch_alone(name: str) -> None:
    method = built(name)
    batches = method.guarantee().spending.batches
    assert [done for done in range(2 * batches + 1) if method.resumable(done)] == [0, batches, 2 * batches]


NOMINAL = 60
SAMPLINGS: dict[str, dict[str, Any]] = {"poisson": {}, "allocation": {"accountant": "pld"}}


def numbered(examples: int, sampling: str, nominal: int | None) -> PrivateSteps:
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
    assert released(numbered(49, sampling, NOMINAL)) == released(numbered(50, sampling, NOMINAL))
    assert released(numbered(50, sampling, NOMINAL)) == released(numbered(NOMINAL, sampling, None))
    assert released(numbered(48, sampling, None)) != released(numbered(60, sampling, None))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("examples", [40, 90])
def test_an_examples_rate_is_the_declared_one(examples: int, sampling: str) -> None:
    method = numbered(examples, sampling, NOMINAL)
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
