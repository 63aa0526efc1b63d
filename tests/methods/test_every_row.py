"""The clipping bound on neighbouring samples, for the network of every private row; large ones are narrow."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import params
from pipeline.data.prepared import Split
from pipeline.methods.base import Relevances
from pipeline.methods.batch_clipping.method import BatchClipping
from pipeline.methods.dpsgd.method import Dpsgd
from pipeline.methods.dpsgd.settings import DpsgdSettings
from pipeline.methods.laplace.perturbed import Perturbed
from pipeline.methods.laplace.settings import IlmSettings
from pipeline.methods.registry import build_method
from pipeline.methods.samples import Sample, padded
from pipeline.methods.tan.method import Tan
from pipeline.models.model import Model
from pipeline.privacy.gradients import Bounds
from pipeline.privacy.laplace import Releases
from pipeline.training.loop import Replica, make_task
from tests.methods.examples import CPU, SAMPLE, Shape, made_up, shape_of
from tests.narrow import narrow

OWN = params.load(Path(__file__).parents[2] / "params.yaml")


@pytest.fixture(autouse=True)
def _narrow() -> Iterator[None]:
    with narrow():
        yield


MODELS = {(row.model, shape_of(row, OWN)): key for key, row in OWN.rows.items() if row.method == "dpsgd"}
# of batch clipping, every network with every way of clipping it; one noise level stands for all
LAYERWISE = {
    (row.model, shape_of(row, OWN), row.resolved[0].clipping, row.resolved[0].set_size == 1): key
    for key, row in OWN.rows.items()
    if row.method == "batch_clipping" and row.resolved[0].private
}
# of TAN, every network with and without copies
COPIED = {
    (row.model, shape_of(row, OWN), row.resolved[0].augment): key
    for key, row in OWN.rows.items()
    if row.method == "tan"
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


@pytest.mark.parametrize(("model", "shape"), MODELS, ids=list(MODELS.values()))
def test_one_record_moves_what_is_released_by_at_most_the_clip(
    model: Model, shape: Shape, tmp_path: Path
) -> None:
    configured = DpsgdSettings(batch=SAMPLE, epochs=1, learning_rate=1, epsilon=8, delta=1e-5)
    data = made_up(model, shape, tmp_path)
    method = Dpsgd(
        make_task([Replica("epsilon=8", 0, configured)], model, True, data, CPU),
        [configured],
        model.normalization,
    )
    network = {name: value[0] for name, value in method.network(method.model(method.init()), 0).items()}
    trained = {name for name, value in method.task.net.named_parameters() if value.requires_grad}
    assert trained <= set(network)
    if model.trainable == "linear":
        assert not any(name.startswith("1.") for name in network)  # the first convolution is frozen
    indices = torch.arange(SAMPLE)
    for clip in (0.05, 1.0):
        sums, bounds = [], Bounds(*(part[0] for part in method.bounds(torch.tensor([clip]))))
        for count in (SAMPLE, SAMPLE - 1):
            mask = (indices < count).float()
            inputs = method.statistics.example.new_tensor(data.splits["train"].inputs / (255 if shape else 1))
            sums.append(method.clipper(network, inputs, method.task.labels, mask, bounds).sums)
        assert set(sums[0]) == set(network)
        moved = torch.cat([(sums[0][name] - sums[1][name]).flatten() for name in network]).norm()
        if not method.broken:
            assert 0 < moved <= clip * (1 + 1e-4)
        elif model.normalization == "batch_bn":
            # the ledger's reason, seen in the very network that the row trains
            assert moved > 1.05 * clip


@pytest.mark.parametrize(("model", "shape", "clipping", "single"), LAYERWISE, ids=list(LAYERWISE.values()))
def test_one_record_moves_every_layer_by_at_most_twice_its_clip(
    model: Model, shape: Shape, clipping: str, single: bool, tmp_path: Path
) -> None:
    row = OWN.rows[LAYERWISE[model, shape, clipping, single]]
    configured = row.configured(row.levels[0], {"batch": 4, "mini_set": 1 if single else 2})
    data = made_up(model, shape, tmp_path)
    task = make_task([Replica("level", 0, configured)], model, True, data, CPU)
    method = BatchClipping(task, [configured], model.normalization)
    state = method.init()
    state |= method.new_bounds(state, 0)
    bounds = Bounds(*(state["bounds"][name] for name in Bounds._fields))
    # the last record, unlike the others, in the place of the first
    sets = [
        torch.tensor(order).reshape(1, configured.sets, configured.set_size)
        for order in ([0, 1, 2, 3], [5, 1, 2, 3])
    ]
    sums = [
        method.sums(state, Sample(index, torch.ones_like(index).float()), bounds, 0)[0]
        for index in (chosen[..., 0] if method.single else chosen for chosen in sets)
    ]
    squares = torch.stack([(sums[0][name] - sums[1][name]).square().sum() for name in method.names])
    moved = ((squares * bounds.weights[0] ** 2) @ bounds.members[0]).sqrt()
    assert (moved <= 2 * bounds.limits[0] * (1 + 1e-3)).all()
    assert moved.max() > 0.1 * bounds.limits.max()
    assert configured.distance == 2.0


@pytest.mark.parametrize(("model", "shape", "augment"), COPIED, ids=list(COPIED.values()))
def test_one_record_moves_the_sum_over_copies_by_at_most_the_clip(
    model: Model, shape: Shape, augment: str, tmp_path: Path
) -> None:
    copies = 1 if augment == "none" else 2
    row = OWN.rows[COPIED[model, shape, augment]]
    configured = row.configured(row.levels[0], {"batch": SAMPLE, "copies": copies, "augment": augment})
    task = make_task([Replica("level", 0, configured)], model, True, made_up(model, shape, tmp_path), CPU)
    method = Tan(task, [configured], model.normalization)
    parameters = method.init()["parameters"]
    samples = [padded([np.arange(count)], CPU.device) for count in (SAMPLE, SAMPLE - 1)]
    for clip in (0.1, configured.clip):
        bounds = method.bounds(torch.tensor([clip]))
        sums = [method.clipped_sums(parameters, sample, bounds, 0).sums for sample in samples]
        moved = torch.cat([(sums[0][name] - sums[1][name]).flatten() for name in parameters]).norm()
        assert 0.5 * clip < moved <= clip * (1 + 1e-4)


def perturbed(key: str, configured: IlmSettings, shape: Shape, folder: Path, last: int) -> Perturbed:
    """The row's method on random examples, of which the last has this brightness all over, and its class."""
    row, data = OWN.rows[key], made_up(OWN.rows[key].model, shape, folder)
    for name, split in data.splits.items():
        inputs, labels = split.inputs.copy(), split.labels.copy()
        inputs[-1], labels[-1] = last, last % 4
        data.splits[name] = Split(inputs, labels)
    task = make_task([Replica("level", 0, configured)], row.model, True, data, CPU)
    mean = torch.rand(task.inputs.shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    relevance = Relevances(mean, SAMPLE, public=False, informed=False)
    method = build_method(
        row.method, replace(task, relevance=relevance), [configured], row.model.normalization
    )
    assert isinstance(method, Perturbed)
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
    guarantee = first.guarantee(0)
    if configured.variant == "code":
        assert guarantee.broken  # the ledger's reason stands in place of a bound
        return
    assert guarantee.broken == ()
    assert isinstance(guarantee.spending, Releases)
    spent = {part.quantity: part for part in guarantee.spending.laplace}
    for part, name in ((spent["inputs"], "inputs"), (spent["labels"], "first")):
        moved = (getattr(first.release, name) - getattr(other.release, name))[0].flatten(1).abs()
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
