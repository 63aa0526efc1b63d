"""Canaries in trainings with the right noise, with less and with none: bounds, power, and what is refused."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional as F

import dprepro
from dprepro.auditing.canaries import attainable_bounds, gaussian_mu, make_canaries
from dprepro.auditing.models import _Steps
from tests.refusal import refusal_of

WIDTH, CLASSES, DELTA = 32, 4, 1e-5


def data(examples: int) -> tuple[Tensor, Tensor]:
    """Clusters that are far apart."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(examples) % CLASSES
    centres = 3 * torch.randn(CLASSES, WIDTH, generator=generator)
    return centres[labels] + torch.randn(examples, WIDTH, generator=generator), labels


def network(hidden: int = 64) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


def private(
    noise: float,
    examples: int,
    steps: int = 1,
    hidden: int = 64,
    reduction: str = "mean",
    parts: int = 1,
    every: bool = False,
) -> Callable[..., Iterator[Any]]:
    """Opacus on all examples, in so many parts of a step; with ``every`` it yields after each part."""

    def train(inputs: Tensor, labels: Tensor) -> Iterator[Any]:
        wrapped = GradSampleModule(network(hidden), loss_reduction=reduction)
        sgd = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        claims = {"noise_multiplier": noise, "max_grad_norm": 1.0, "expected_batch_size": examples}
        optimizer = DPOptimizer(sgd, **claims, loss_reduction=reduction)
        yield wrapped, optimizer
        for part in list(range(parts)) * steps:
            optimizer.signal_skip_step(part < parts - 1)
            optimizer.zero_grad()
            loss = F.cross_entropy(wrapped(inputs[part::parts]), labels[part::parts], reduction=reduction)
            loss.backward()
            optimizer.step()
            if every or part == parts - 1:
                yield wrapped, optimizer

    return train


def learning_by_heart(inputs: Tensor, labels: Tensor) -> nn.Module:
    """Training without privacy, until all is remembered."""
    torch.manual_seed(1)
    net = network(256)
    adam = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(150):
        adam.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        adam.step()
    return net


def audited(train: Callable[..., Any], examples: int = 1200, **options: Any) -> dprepro.ModelAudit:
    return dprepro.audit_model(train, *data(examples), delta=DELTA, say=lambda line: None, **options)


def noise_of(epsilon: float, steps: int = 1) -> float:
    """Noise multiplier of as many steps on all examples."""
    return float(steps**0.5 / gaussian_mu(epsilon, DELTA))


def test_training_without_noise_shows_more_than_five() -> None:
    audit = audited(private(0.0, 1200), kind="gradient", epsilon_claimed=3.0)
    assert audit.attack.epsilon_lower > 5
    assert audit.verdict == "wrong"
    assert audit.sees == "every step"
    assert len(audit.without) + len(audit.within) == 1000


@pytest.mark.parametrize("kind", ["mislabelled", "extreme"])
def test_a_final_model_that_learnt_by_heart_shows_it(kind: str) -> None:
    audit = audited(learning_by_heart, 600, kind=kind, canaries=300, epsilon_claimed=2.0)
    assert audit.sees == "the final model"
    assert audit.attack.if_gaussian > (5 if kind == "mislabelled" else 3)
    assert audit.verdict == "wrong"
    blank = audited(lambda inputs, labels: network(), 600, kind=kind, canaries=300, epsilon_claimed=2.0)
    assert blank.verdict == "nothing found"
    assert str(audit).startswith("wrong: the attack shows epsilon")
    assert repr(blank).startswith("nothing found: a perfect attacker could have shown epsilon >= ")
    assert "<strong>wrong</strong>" in audit._repr_html_()


def test_right_noise_is_not_shown_to_be_above_the_proven_epsilon() -> None:
    """At 95 % at most five of a hundred, and the attack is nearly perfect."""
    torch.manual_seed(0)
    train = private(noise_of(3.0), 110, hidden=8)
    audits = [
        audited(train, 110, kind="gradient", canaries=100, epsilon_claimed=3.0, seed=seed)
        for seed in range(100)
    ]
    assert sum(audit.attack.epsilon_lower > 3 for audit in audits) <= 5
    assert sum(audit.attack.if_gaussian > 3 for audit in audits) <= 5
    assert np.median([audit.attack.if_gaussian for audit in audits]) > 0.5


def test_steps_that_opacus_skips_release_nothing() -> None:
    """The raw gradient of a batch's part was taken for a release."""
    each, whole = (seeded(private(1.0, 120, parts=10, every=every), 120) for every in (True, False))
    np.testing.assert_array_equal(each, whole)


def test_scores_from_sums_are_those_from_means() -> None:
    sums, means = (
        seeded(private(1.0, 128, reduction=reduction), 128, kind="gradient") for reduction in ("sum", "mean")
    )
    np.testing.assert_allclose(sums, means, rtol=1e-3)


def seeded(train: Callable[..., Any], examples: int, **options: Any) -> np.ndarray:
    """Scores of the canaries that are in, at one seed of the training."""
    torch.manual_seed(0)
    return audited(train, examples, canaries=50, **options).within


@pytest.mark.parametrize(
    "labels",
    [torch.eye(CLASSES)[data(100)[1]], data(100)[1] - 1, data(100)[1] + 0.5, data(100)[1] * torch.nan],
)
def test_what_are_no_classes_is_a_line(labels: Tensor) -> None:
    with pytest.raises(dprepro.UserError, match=r"labels: of shape .* needed: .* whole numbers from 0"):
        dprepro.audit_model(learning_by_heart, data(100)[0], labels, delta=DELTA, canaries=10)


def test_power_is_what_was_said_before_training_to_a_fifth() -> None:
    train = private(noise_of(8.0, 4), 1200, 4)
    audits = [audited(train, kind="gradient", epsilon_claimed=8.0, seed=seed) for seed in range(5)]
    for name, said in audits[0].could_show.items():
        assert np.median([audit.by[name] for audit in audits]) == pytest.approx(said, rel=0.2)


def test_half_the_noise_is_seen_by_one_canary_in_many_runs() -> None:
    """Which one run of a thousand canaries misses."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"kind": "gradient", "canaries": 1, "epsilon_claimed": 1.0}
    half = audited(private(noise_of(1.0) / 4, 16), 16, runs=300, **options)
    assert {"errors", "gaussian"} <= half.by.keys()
    assert half.verdict == "wrong"
    assert audited(private(noise_of(1.0), 16), 16, runs=300, **options).verdict == "nothing found"


def test_a_canary_that_no_batch_of_a_run_has_stops_no_audit() -> None:
    """Poisson samples in few steps often lack the canary; the first such run was refused."""
    torch.manual_seed(0)

    def rare(inputs: Tensor, labels: Tensor) -> Iterator[Any]:
        chosen = torch.rand(len(inputs)) < 0.5
        yield from private(1.0, 8)(inputs[chosen], labels[chosen])

    audit = audited(rare, 16, kind="gradient", canaries=1, runs=30)
    assert len(audit.without) + len(audit.within) == 30


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("as_numpy", [False, True])
def test_training_sees_the_canaries_that_are_in_and_no_other(replace: bool, as_numpy: bool) -> None:
    inputs, labels = data(40)
    seen: list[tuple[Any, Any]] = []

    def train(*batch: Any) -> Any:
        seen.append(batch)
        return (lambda rows: network()(torch.as_tensor(rows))) if as_numpy else network()

    given = (inputs.numpy(), labels.numpy()) if as_numpy else (inputs, labels)
    audit = dprepro.audit_model(
        train, *given, delta=DELTA, canaries=10, replace=replace, say=lambda line: None
    )
    ((some_inputs, some_labels),) = seen
    assert type(some_inputs) is type(given[0])
    out, within = len(audit.without), len(audit.within)
    assert out + within == 10
    assert len(some_labels) == (40 if replace else 40 - out)
    kept = {row.tobytes(): int(label) for row, label in zip(inputs.numpy(), labels, strict=True)}
    wrong = [
        int(label) != kept[np.asarray(row).tobytes()]
        for row, label in zip(some_inputs, some_labels, strict=True)
    ]
    assert sum(wrong) == within


def test_extreme_canaries_have_the_data_s_own_extremes() -> None:
    inputs = np.random.default_rng(0).integers(3, 200, (50, 1, 6, 6), dtype=np.uint8)
    made = make_canaries("extreme", inputs, np.arange(50) % 3, 20, 3, 0)
    assert made.inputs.dtype == np.uint8
    assert set(np.unique(made.inputs)) == {inputs.min(), inputs.max()}
    assert (made.inputs[0] == inputs.max()).all()
    assert len({row.tobytes() for row in made.inputs}) == 20


def test_projections_are_those_of_single_backward_passes() -> None:
    inputs, labels = data(12)
    canaries = make_canaries("mislabelled", inputs.numpy(), labels.numpy(), 6, CLASSES, 0)
    net = network(8)
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    released = {name: torch.randn_like(value) for name, value in before.items()}
    fast = _Steps(canaries, False, 12, torch.from_numpy(canaries.inputs))
    for name, parameter in net.named_parameters():
        parameter.grad = released[name]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)  # a step was made since
    projections = fast._projections(net, network(8), before)
    net.load_state_dict(before)
    for row, label, projection in zip(fast.given, fast.labels, projections, strict=True):
        loss = F.cross_entropy(net(row[None]), label[None])
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))])
        along = torch.cat([value.flatten() for value in released.values()]) @ gradient / gradient.norm()
        assert projection == pytest.approx(along.item(), rel=1e-4)


def test_steps_by_hand_are_attacked_by_their_gradients() -> None:
    """One canary and no noise: the step without it is half as long at most."""

    def train(inputs: Tensor, labels: Tensor) -> Iterator[nn.Module]:
        torch.manual_seed(0)
        net = network(8)
        yield net
        gradients = torch.zeros(sum(value.numel() for value in net.parameters()))
        for loss in F.cross_entropy(net(inputs), labels, reduction="none"):
            parts = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
            flat = torch.cat([part.flatten() for part in parts])
            gradients += flat / flat.norm().clamp_min(1)
        sizes = [value.numel() for value in net.parameters()]
        for parameter, part in zip(net.parameters(), gradients.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        yield net

    audit = audited(train, 8, canaries=1, runs=40, kind="extreme")
    assert audit.sees == "every step"
    assert audit.without.max() < audit.within.min()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("steps", [False, True])
def test_a_training_that_makes_tensors_of_arrays_is_attacked_like_one_of_tensors(
    steps: bool, kind: type
) -> None:
    def train(inputs: Any, labels: Any) -> Any:
        torch.manual_seed(0)
        net = network(8)

        def training() -> Iterator[nn.Module]:
            yield net
            loss = F.cross_entropy(net(torch.as_tensor(inputs).float()), torch.as_tensor(labels))
            loss.backward()
            yield net

        return training() if steps else net

    inputs, labels = data(20)
    options: dict[str, Any] = {"delta": 1e-5, "canaries": 10, "say": str}
    expected = dprepro.audit_model(train, inputs, labels, **options)
    audit = dprepro.audit_model(train, inputs.numpy().astype(kind), labels.numpy(), **options)
    np.testing.assert_allclose(audit.within, expected.within, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(audit.without, expected.without, rtol=1e-5, atol=1e-6)


def test_a_worst_start_has_learnt_the_data_and_leaves_the_network_alone() -> None:
    inputs, labels = data(200)
    net = network()
    weights = [value.clone() for value in net.parameters()]
    start = dprepro.worst_start(net, inputs, labels, epochs=20)
    assert (start(inputs).argmax(1) == labels).float().mean() > 0.95
    assert all(torch.equal(old, new) for old, new in zip(weights, net.parameters(), strict=True))


def test_a_worst_start_needs_a_class_for_each_example_and_an_output_for_each_class() -> None:
    inputs, labels = data(20)
    for wrong in (labels[:9], labels + 0.5, F.one_hot(labels)):
        says = refusal_of(partial(dprepro.worst_start, network(), inputs, wrong))
        assert f"labels {tuple(wrong.shape)}; needed: " in says
    # a label above the outputs was an IndexError, and -100 was left out of the loss
    says = refusal_of(partial(dprepro.worst_start, network(), inputs, labels + 1))
    assert says.startswith("logits: of shape (20, 4); needed: ")
    says = refusal_of(partial(dprepro.worst_start, network(), inputs, torch.full((20,), -100)))
    assert "classes from 0" in says


def test_a_perfect_attacker_shows_more_of_more_and_never_all_of_it() -> None:
    shown = [attainable_bounds(epsilon, DELTA, 500, False, 0.05) for epsilon in (1.0, 3.0, 8.0)]
    for name in ("one_run", "one_run_curve"):
        values = [each[name] for each in shown]
        assert values == sorted(values)
        assert all(value < epsilon for value, epsilon in zip(values, (1.0, 3.0, 8.0), strict=True))
    assert attainable_bounds(4.0, 0.0, 500, False, 0.05)["one_run"] < 4


def accumulating(inputs: Tensor, labels: Tensor) -> Iterator[Any]:
    """Opacus steps of two backward passes."""
    net = GradSampleModule(network())
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer = DPOptimizer(sgd, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=48)
    yield net, optimizer
    for half in (slice(24), slice(24, None)):
        F.cross_entropy(net(inputs[half]), labels[half]).backward()
    optimizer.step()
    yield net, optimizer


class ByName(nn.Module):
    """Network that takes inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 4)

    def forward(self, *, rows: Tensor) -> Tensor:
        outputs: Tensor = self.layer(rows)
        return outputs


def with_inputs_by_name(inputs: Tensor, labels: Tensor) -> Iterator[Any]:
    net = GradSampleModule(ByName())
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    yield net, DPOptimizer(sgd, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=48)
    net(rows=inputs)


def augmenting(inputs: Tensor, labels: Tensor) -> Iterator[Any]:
    return private(1.0, 48)(inputs + 1, labels)


def with_ghost_clipping(inputs: Tensor, labels: Tensor) -> Iterator[Any]:
    net = network()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    claims: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 48}
    yield net, DPOptimizerFastGradientClipping(sgd, **claims)


def test_inputs_in_bfloat16_are_audited_and_sparse_ones_are_a_line() -> None:
    inputs, labels = data(48)
    options: dict[str, Any] = {"delta": DELTA, "canaries": 10, "say": lambda line: None}
    given = []

    def train(rows: Tensor, _: Tensor) -> nn.Module:
        given.append(rows.dtype)
        return network().bfloat16()

    assert dprepro.audit_model(train, inputs.bfloat16(), labels, **options).sees == "the final model"
    assert given == [torch.bfloat16]
    says = refusal_of(lambda: dprepro.audit_model(train, inputs.to_sparse(), labels, **options))
    assert "inputs: torch.sparse_coo; allowed: dense" in says


@pytest.mark.parametrize(
    ("train", "options", "says"),
    [
        (learning_by_heart, {"canaries": 49}, "inputs: 48, labels: 48 of 4 classes; needed: "),
        (lambda *_: 3, {}, "train: returned int; needed: the network"),
        (lambda *_: iter([]), {}, "train: yielded no step"),
        (lambda *_: iter([network()] * 2), {}, "train: yielded a network without gradients"),
        (lambda *_: network(), {"kind": "gradient"}, "kind: gradient; needed: to yield"),
        (lambda *_: iter([network()]), {"kind": "gradient"}, "kind: gradient; needed: to yield pairs"),
        (private(1.0, 48, hidden=1), {"kind": "gradient", "canaries": 45}, "canaries: 45; allowed: as many"),
        (lambda *_: lambda inputs: inputs[:, :2], {}, "logits: of shape (10, 2); needed: (B, K)"),
        (lambda *_: network(), {"canaries": 1}, "needed: more, as no coin fell on one of its sides"),
        (accumulating, {"kind": "gradient"}, "needed: a step of the optimizer after each backward pass"),
        (with_inputs_by_name, {"kind": "gradient"}, "needed: a network whose inputs are its first argument"),
        (augmenting, {"kind": "gradient"}, "train: no batch had a canary's input; needed: inputs as they"),
        (with_ghost_clipping, {"kind": "gradient"}, "Opacus DPOptimizer, without ghost clipping"),
    ],
)
def test_what_cannot_be_audited_is_a_line(train: Any, options: dict[str, Any], says: str) -> None:
    assert says in refusal_of(lambda: audited(train, 48, **{"canaries": 10, **options}))
