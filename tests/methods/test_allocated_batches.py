"""Allocated batches in every method that draws them: sensitivity, steps, resumption and the ledger."""

from typing import Any

import numpy as np
import pytest
import torch

from dprepro.accountants.records import NeighboringRelation
from dprepro.clipping.functional import Tensors
from dprepro.clipping.limits import ClipLimits
from dprepro.noise.streams import Streams
from dprepro.pipeline.audits.pair import Without
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


def built(name: str, absent: bool = False) -> PrivateSteps:
    key, own = SETTINGS[name]
    settings = method_settings()[key].model_validate(SHARED | own)
    streams: Streams = Streams("one", True, ALONE.device)
    if absent:
        streams = Without("one", True, ALONE.device)
        streams.absent = np.array([EXAMPLES - 1])
    method: PrivateSteps = build(make_data(train=EXAMPLES), PLAIN, settings, how=ALONE, streams=streams)
    return method


def sums(method: PrivateSteps, steps: int) -> list[Tensors]:
    """Exact sums of each step, at the initial weights."""
    heard: list[Tensors] = []
    mechanism = method.mechanism

    class Silent:
        def release(self, values: Tensors, bounds: ClipLimits, *others: Any) -> Tensors:
            heard.append({name: value.clone() for name, value in values.items()})
            return {name: torch.zeros_like(value) for name, value in values.items()}

        def __getattr__(self, name: str) -> Any:
            return getattr(mechanism, name)

    method.mechanism = Silent()  # type: ignore[assignment]
    state = method.init()
    with torch.no_grad():
        for step in range(steps):
            state, _ = method.step(state, step)
    return heard


@pytest.mark.parametrize("name", SETTINGS)
def test_one_example_more_moves_the_sums_of_its_batches_of_an_epoch_alone(name: str) -> None:
    method = built(name)
    spending = method.guarantee().spending
    batches, joined = spending.batches, spending.participations
    pairs = zip(sums(method, 3 * batches), sums(built(name, absent=True), 3 * batches), strict=True)
    distances = torch.stack(
        [torch.cat([(ours[key] - theirs[key]).flatten() for key in ours]).norm() for ours, theirs in pairs]
    )
    moved = (distances > 1e-5).reshape(3, batches)
    assert moved.sum(1).tolist() == [joined] * 3
    assert distances.max() <= method.settings.distance * 0.5 * (1 + 1e-5)
    assert distances.max() > 0.1
    # drawn anew each epoch
    assert len({tuple(row) for row in moved.tolist()}) > 1


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
