"""The example's method: sensitivity and noise of its statistics, its steps, and what both spend together."""

from types import ModuleType
from typing import Any

import pytest
import torch
from dp_accounting import ComposedDpEvent, GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from dprepro.accountants.calibration import poisson_gaussian
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.base import Execution, Task

EXAMPLES, SHAPE, CLASSES = 120, (6, 3, 3), 4
CPU = Execution(torch.device("cpu"), physical=64)


@pytest.fixture
def room() -> ModuleType:
    from lab.methods.normalized_dpsgd import method

    return method


def features(count: int, seed: int) -> Tensor:
    """Of channels with means and deviations of their own, some examples far longer than others."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.rand(count, *SHAPE, generator=generator) * torch.linspace(0.1, 2, SHAPE[0])[:, None, None]
    return base * (1 + 3 * torch.rand(count, 1, 1, 1, generator=generator) ** 4)


def make(room: ModuleType, inputs: Tensor, name: str = "training", **changes: Any) -> Any:
    linear = torch.nn.Linear(6 * 9, CLASSES)
    net = torch.nn.Sequential(torch.nn.Flatten(), linear)
    torch.nn.init.normal_(linear.weight, generator=torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(linear.bias)
    task = Task(
        net=net,
        parameters={name: value.detach() for name, value in net.named_parameters()},
        inputs=inputs,
        labels=torch.arange(len(inputs)) % CLASSES,
        public=features(40, seed=9),
        public_labels=torch.zeros(40, dtype=torch.long),
        streams=Streams(name, True, CPU.device),
        execution=CPU,
    )
    values = {"batch": 30, "epochs": 10.0, "learning_rate": 0.5, "clip": 0.1, "epsilon": 3.0, "delta": 1e-4}
    configured = room.NormalizedDpsgdSettings(**{**values, **changes})
    return room.NormalizedDpsgd(task, configured, "none")


def public_limits(room: ModuleType) -> list[Tensor]:
    moments = room._moments(features(40, seed=9))
    return [moment.norm(dim=1).median() for moment in moments]


def test_one_example_moves_either_sum_by_no_more_than_its_bound(room: ModuleType) -> None:
    """Neighbours with one example less, of every length, an absurd one included, which reaches the bound."""
    inputs = features(EXAMPLES, seed=1)
    inputs[-1] *= 1e4
    limits = public_limits(room)
    whole = make(room, inputs).clipped_moments(limits)
    reached = 0
    for place in range(0, EXAMPLES, 7):
        place = EXAMPLES - 1 - place
        others = torch.cat([inputs[:place], inputs[place + 1 :]])
        for sum_of_all, sum_of_others, limit in zip(
            whole, make(room, others).clipped_moments(limits), limits, strict=True
        ):
            moved = float((sum_of_all - sum_of_others).norm())
            assert moved <= float(limit) * (1 + 1e-4)
            reached += moved > 0.999 * float(limit)
    assert reached > 2
    # and so does nothing that is within them lose anything
    short = features(EXAMPLES, seed=1) * 1e-3
    for moment, due in zip(make(room, short).clipped_moments(limits), room._moments(short), strict=True):
        assert torch.allclose(moment, due.double().sum(0), rtol=1e-4)


def test_the_noise_on_either_sum_is_as_many_times_its_bound(room: ModuleType) -> None:
    inputs, limits = features(EXAMPLES, seed=1), public_limits(room)
    methods = [make(room, inputs, f"training {number}", statistics_noise=8.0) for number in range(400)]
    means, squares = (total.float() for total in methods[0].clipped_moments(limits))
    statistics = [method.statistics() for method in methods]
    released = {name: torch.stack([each[name] for each in statistics]) for name in statistics[0]}
    noise = released[room.MEAN] * EXAMPLES - means
    assert float(noise.std()) == pytest.approx(8 * float(limits[0]), rel=0.05)
    assert float(noise.mean()) == pytest.approx(0, abs=8 * float(limits[0]) * 4 / noise.numel() ** 0.5)
    # where the variance was not cut off at 0 the noise on the squares can be told
    square = (released[room.VARIANCE] + released[room.MEAN].square()) * EXAMPLES
    known = released[room.VARIANCE] > 0
    assert known.float().mean() < 1
    above = (square - squares)[known]
    assert float(above.abs().max()) < 8 * float(limits[1]) * 6
    # with next to no noise both are what they must be
    exact = make(room, inputs, statistics_noise=1e-6).statistics()
    assert torch.allclose(exact[room.MEAN], means / EXAMPLES, rtol=1e-4)
    due = squares / EXAMPLES - (means / EXAMPLES).square()
    assert torch.allclose(exact[room.VARIANCE], due.clamp_min(0), rtol=1e-3, atol=1e-6)


def test_noise_of_statistics_and_of_steps_are_other_numbers(room: ModuleType) -> None:
    method = make(room, features(EXAMPLES, seed=1))
    size = 6
    first = method.task.streams.normal(room.BEFORE, size)
    assert all(not torch.equal(first, method.task.streams.normal(step, size)) for step in range(5))


def test_bounds_come_from_public_inputs_alone(room: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Tensor]] = []
    kind = room.NormalizedDpsgd
    real = kind.clipped_moments

    def noted(method: Any, limits: Any) -> Any:
        seen.append(list(limits))
        return real(method, limits)

    monkeypatch.setattr(kind, "clipped_moments", noted)
    for seed in (1, 2):
        make(room, features(EXAMPLES, seed)).statistics()
    assert seen[0] == seen[1] == public_limits(room)


def test_clipped_sums_are_those_of_single_normalised_examples(room: ModuleType) -> None:
    """The fast way beside one gradient after the other."""
    method = make(room, features(EXAMPLES, seed=1))
    state = method.init()
    sample = method.sample(3)
    batch = method.clipped_sums(state["parameters"], sample, method.clip_limits, 3, state["running"])
    mean, var = (state["running"][name][:, None, None] for name in (room.MEAN, room.VARIANCE))
    totals = {name: torch.zeros_like(value) for name, value in state["parameters"].items()}
    for place in sample.chosen[sample.mask > 0]:
        example = (method.task.inputs[place] - mean) / (var + 1e-5).sqrt() * (var > 0)
        leaves = {name: value.clone().requires_grad_() for name, value in state["parameters"].items()}
        loss = F.cross_entropy(
            functional_call(method.task.net, leaves, (example[None],)), method.task.labels[place][None]
        )
        parts = torch.autograd.grad(loss, list(leaves.values()))
        norm = torch.cat([part.flatten() for part in parts]).norm()
        for name, part in zip(leaves, parts, strict=True):
            totals[name] += part * min(1.0, 0.1 / float(norm))
    for name, total in totals.items():
        assert torch.allclose(batch.sums[name], total, atol=1e-5)


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_both_together_spend_the_target_by_another_librarys_composition(
    room: ModuleType, accountant: str
) -> None:
    """Two Gaussian releases at 8, and every step: dp-accounting composes them, told nothing by this code."""
    method = make(room, features(EXAMPLES, seed=1), accountant=accountant, statistics_noise=8.0)
    spending = method.guarantee().spending
    steps = poisson_gaussian(30 / EXAMPLES, spending.noise_multiplier, method.steps)
    event = ComposedDpEvent([GaussianDpEvent(8.0), GaussianDpEvent(8.0), steps])
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    epsilon = float(PLDAccountant(relation).compose(event).get_epsilon(1e-4))
    assert (0.98 if accountant == "pld" else 0.8) * 3 < epsilon <= 3 * 1.0001
    # the mechanism that ran has the noise that is accounted for
    (noise,) = method.mechanism.deviations(method.clip_limits).unique().tolist()
    assert noise == pytest.approx(spending.noise_multiplier * 0.1, rel=1e-5)
