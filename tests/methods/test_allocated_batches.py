"""Allocated batches in every method that draws them: steps, resumption and the ledger.

`planted` attacks samples; one example's part of a sum is the same for every sampling.
"""

from typing import Any

import pytest
import torch

from dprepro.accountants.records import NeighboringRelation
from dprepro.pipeline.ledgers.ledger import make_ledger
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.settings import method_settings
from tests.conftest import make_data
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
