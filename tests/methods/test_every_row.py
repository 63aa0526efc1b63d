"""The clipping bound on neighbouring samples, for the network of every private row; large ones are narrow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dprepro.clipping.limits import ClipLimits
from dprepro.pipeline.data.prepared import Split
from dprepro.pipeline.methods.base import Relevances
from dprepro.pipeline.methods.laplace.perturbed import Perturbed
from dprepro.pipeline.methods.laplace.settings import IlmSettings
from dprepro.pipeline.methods.samples import Sample, padded
from dprepro.pipeline.params import Row
from tests.methods.conftest import build
from tests.methods.examples import CPU, SAMPLE, Shape, made_up, shape_of
from tests.paper_rows import paper_rows
from tests.small_networks import small_networks

OWN = paper_rows()


@pytest.fixture(autouse=True)
def _narrow() -> Iterator[None]:
    with small_networks():
        yield


def variant(row: Row) -> tuple[Any, ...]:
    """What a row's clipping depends on besides its network; one level stands for all."""
    settings = row.resolved[0]
    if row.method == "batch_clipping":
        return settings.clipping, settings.set_size == 1
    return (getattr(settings, "augment", None),)


# every network of every method that clips, with every way of clipping it
CLIPPED = {
    (row.method, row.model, shape_of(row, OWN), variant(row)): key
    for key, row in OWN.rows.items()
    if row.method in {"dpsgd", "tan"} or (row.method == "batch_clipping" and row.resolved[0].private)
}
# of the Laplace mechanisms, every network with every way to noise its data
PERTURBED = {
    (
        row.method,
        row.model,
        shape_of(row, OWN),
        configured.variant,
        configured.sensitivity,
    ): key
    for key, row in OWN.rows.items()
    if row.method in {"adlm", "ilm"}
    for configured in row.resolved
    if configured.private
}


@pytest.mark.parametrize("key", CLIPPED.values())
def test_one_record_moves_every_part_of_a_sum_by_at_most_its_distance(key: str, tmp_path: Path) -> None:
    """A record more of 'dpsgd' and 'tan', and another in place of the first of batch clipping."""
    row, shape = OWN.rows[key], shape_of(OWN.rows[key], OWN)
    changes: dict[str, Any] = {"batch": SAMPLE}
    if row.method == "dpsgd":
        changes |= {"epsilon": 8, "epochs": 1}
    elif row.method == "tan":
        changes["copies"] = 1 if row.resolved[0].augment == "none" else 2
    else:
        changes = {"batch": 4, "mini_set": 1 if row.resolved[0].set_size == 1 else 2}
    configured = row.configured(row.levels[0], changes)
    method = build(made_up(row.model, shape, tmp_path), row.model, configured, how=CPU)
    state = method.init()
    tensors = method.network(method.model(state), 0)
    if row.method == "batch_clipping":
        bounds = [ClipLimits(**method.new_bounds(state, 0)["bounds"])]
        tensors = state["parameters"]
        orders = (torch.tensor(order) for order in ([0, 1, 2, 3], [5, 1, 2, 3]))
        sets = [order.reshape(configured.sets, configured.set_size) for order in orders]
        chosen = [each[:, 0] if method.single else each for each in sets]
        samples = [Sample(each, torch.ones(len(each))) for each in chosen]
    else:
        bounds = [method.bounds(clip) for clip in (0.05, 1.0)]
        samples = [padded(np.arange(count), CPU.device) for count in (SAMPLE, SAMPLE - 1)]
    joint = row.method == "dpsgd" and row.model.normalization == "batch_bn"
    assert bool(joint) <= bool(method.broken)
    for bound in bounds:
        first, other = (method.clipped_sums(tensors, sample, bound, 0).sums for sample in samples)
        if row.model.trainable == "linear":
            assert not any(name.startswith("1.") for name in first)  # the first convolution is frozen
        names = list(first)[: len(bound.members)]  # without statistics of mini-sets
        squares = torch.stack([(first[name] - other[name]).square().sum() for name in names])
        moved = (squares @ bound.members).sqrt()
        if joint:  # the ledger's reason, seen in the very network that the row trains
            assert moved > 1.05 * bound.limits
        else:
            assert (moved <= configured.distance * bound.limits * (1 + 1e-3)).all()
            assert moved.max() > (0.1 * bound.limits.max() if bound is bounds[0] else 0)


def perturbed(key: str, configured: IlmSettings, shape: Shape, folder: Path, last: int) -> Perturbed:
    """The row's method on random examples, of which the last has this brightness all over, and its class."""
    row, data = OWN.rows[key], made_up(OWN.rows[key].model, shape, folder)
    for name, split in data.splits.items():
        inputs, labels = split.inputs.copy(), split.labels.copy()
        inputs[-1], labels[-1] = last, last % 4
        data.splits[name] = Split(inputs, labels)
    random = torch.Generator().manual_seed(0)
    mean = torch.rand(data.splits["train"].inputs.shape[1:], generator=random, dtype=torch.float64)
    relevance = Relevances(mean, SAMPLE, informed=False)
    method: Perturbed = build(data, row.model, configured, how=CPU, relevance=relevance)
    return method


@pytest.mark.parametrize("case", PERTURBED, ids=list(PERTURBED.values()))
def test_one_record_moves_nothing_of_the_data_but_its_own_release(
    case: tuple[Any, ...], tmp_path: Path
) -> None:
    key, shape = PERTURBED[case], case[2]
    level = OWN.rows[key].resolved[-1]
    noise_batch = None if level.variant == "sound" else level.scale_batch
    configured = level.model_copy(update={"batch": SAMPLE, "epochs": 2.0, "noise_batch": noise_batch})
    first, other = (perturbed(key, configured, shape, tmp_path, last) for last in (0, 255))
    guarantee = first.guarantee()
    if configured.variant == "code":
        assert guarantee.broken  # the ledger's reason stands in place of a bound
        return
    assert guarantee.broken == ()
    spent = {part.quantity: part for part in guarantee.spending.laplace}
    for part, name in ((spent["inputs"], "inputs"), (spent["labels"], "first")):
        moved = (getattr(first.release, name) - getattr(other.release, name)).flatten(1).abs()
        assert not moved[:-1].any()
        assert (moved[-1] > 0).sum() <= len(part.scales) * part.repeats
        rounding = 1e-6 * max(part.scales)  # much noise leaves float32 few digits
        assert moved[-1].max() == pytest.approx(part.distance, abs=1e-5 + rounding)
    # and training reads the release alone
    blind = perturbed(key, configured, shape, tmp_path, 255)
    blind.release = first.release
    models = []
    for method in (first, blind):
        state = method.init()
        for step in range(2):
            state, _ = method.step(state, step)
        models.append(method.model(state))
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())
