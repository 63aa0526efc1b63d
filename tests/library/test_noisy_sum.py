"""A private step of one's own network: Poisson samples, clipped sums with noise, and what they spend."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import dprepro
from dprepro.clipping import gradients, layer_gradients
from dprepro.clipping.limits import ClipLimits
from dprepro.noise.mechanisms import COMPUTING, FINENESS, GaussianMechanism
from dprepro.noise.streams import Streams
from tests.privacy.corpus import alone

SEEDED = torch.Generator().manual_seed(0)
INPUTS, LABELS = torch.rand(400, 20, generator=SEEDED), torch.randint(3, (400,), generator=SEEDED)
SIGMA = 1.1


def network(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 200), nn.Tanh(), nn.Linear(200, outputs))


def released(net: nn.Module, inputs: Tensor = INPUTS, labels: Tensor = LABELS, **options: Any) -> Tensor:
    noisy = dprepro.noisy_sum(net, inputs, labels, 0.5, SIGMA, **options)
    return torch.cat([value.flatten() for value in noisy.values()])


def exact(net: nn.Module, inputs: Tensor = INPUTS, labels: Tensor = LABELS) -> Tensor:
    sums = dprepro.clipped_sum(net.double(), inputs.double(), labels, 0.5).sums
    net.float()
    return torch.cat([value.flatten() for value in sums.values()])


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(streams: Streams, step: int, size: int, bits: list[int]) -> Tensor:
        return torch.zeros(size, dtype=torch.float64)

    monkeypatch.setattr(Streams, "rounded_normal", zeros)


def test_the_noise_is_normal_independent_and_new_in_each_call() -> None:
    net = network()
    noise = torch.stack([released(net) - exact(net) for _ in range(16)]).numpy() / (0.5 * SIGMA)
    size = noise.size
    # of 1.1 times the bound, and at most .5 % larger for the rounding
    assert 1 - 7 / (2 * size) ** 0.5 < noise.std() < 1.005 + 7 / (2 * size) ** 0.5
    assert abs(noise.mean()) < 7 / size**0.5
    assert abs((noise**4).mean() / 3 - 1) < 0.15
    correlations = np.corrcoef(noise) - np.eye(16)
    assert np.abs(correlations).max() < 7 / noise.shape[1] ** 0.5


def test_seeds_of_torch_numpy_and_python_repeat_no_noise() -> None:
    values = []
    for _ in range(2):
        net = network()  # seeds torch
        np.random.seed(0)
        values.append(released(net))
    assert torch.isclose(values[0], values[1]).sum() < 5


@pytest.mark.parametrize("at_once", [None, 64])
@pytest.mark.usefixtures("without_noise")
def test_a_release_is_the_clipped_sum_to_the_rounding_that_its_noise_covers(at_once: int | None) -> None:
    net = network()
    covered = 0.5 * (COMPUTING / 2 + FINENESS)
    assert (released(net, at_once=at_once) - exact(net)).norm() < covered
    one = slice(0, 1)
    assert released(net, INPUTS[one], LABELS[one]).norm() < 0.5 * (1 + FINENESS)
    neighbours = released(net, at_once=at_once) - released(net, INPUTS[1:], LABELS[1:], at_once=at_once)
    assert neighbours.norm() <= 0.5 * (1 + COMPUTING + FINENESS)
    assert released(net, INPUTS[:0], LABELS[:0]).count_nonzero() == 0


@pytest.mark.parametrize("size", [150, 300, 1000])
@pytest.mark.usefixtures("without_noise")
def test_parts_in_float32_are_within_the_rounding_that_the_noise_covers(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of layers that an example uses once and at several places, in several passes."""
    monkeypatch.setattr(gradients, "CACHED_FLOATS", 0)
    monkeypatch.setattr(gradients, "GROUP_FLOATS", 11 * 256)
    monkeypatch.setattr(layer_gradients, "CACHE_FLOATS", 1000)
    torch.manual_seed(0)
    places = [nn.Unflatten(1, (5, 4)), nn.Linear(4, 64), nn.Tanh(), nn.Flatten(), nn.Linear(320, 3)]
    net, inputs, labels = nn.Sequential(*places), torch.rand(size, 20), torch.randint(3, (size,))
    whole = released(net, inputs, labels)
    assert (whole - exact(net, inputs, labels)).norm() < 0.5 * (COMPUTING / 2 + FINENESS)
    one_less = released(net, inputs[1:], labels[1:])
    assert (whole - one_less).norm() <= 0.5 * (1 + COMPUTING + FINENESS)


@pytest.mark.parametrize(
    ("size", "at_once", "expected"), [(150, None, False), (400, None, True), (9, 3, True)]
)
def test_sums_that_float32_would_round_too_far_are_in_float64(
    size: int, at_once: int | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds, limits, release = list[torch.dtype](), list[float](), GaussianMechanism.release

    def watched(
        mechanism: GaussianMechanism, sums: dict[str, Tensor], bounds: ClipLimits, *others: Any
    ) -> dict[str, Tensor]:
        kinds.extend(value.dtype for value in sums.values())
        limits.append(bounds.limits.item())
        return release(mechanism, sums, bounds, *others)

    monkeypatch.setattr(GaussianMechanism, "release", watched)
    passes = list[int]()

    def loss(outputs: Tensor, label: Tensor) -> Tensor:
        passes.append(1)
        return F.cross_entropy(outputs, label)

    values = dprepro.noisy_sum(network(), INPUTS[:size], LABELS[:size], 0.1, 1.0, loss=loss, at_once=at_once)
    assert len(passes) == size // (at_once or size)
    assert set(kinds) == {torch.float64 if expected else torch.float32}
    # what is released doesn't say how large the sample is, nor does its grid
    assert {value.dtype for value in values.values()} == {torch.float32}
    assert limits == [0.1]


class Odd(nn.Module):
    """Shared, unused, frozen and empty parameters, and one that is a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(20, 20), nn.Linear(20, 20), nn.Linear(5, 50)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(20, 20).requires_grad_(False)
        self.empty, self.scale = nn.Parameter(torch.empty(0, 3)), nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(self.frozen(inputs)).tanh())
        return outputs * self.scale + self.empty.sum()


def test_every_trained_parameter_gets_its_noise_and_its_share_of_the_sum() -> None:
    net, inputs, labels = Odd().double(), INPUTS[:9].double(), LABELS[:9]
    exact = dprepro.clipped_sum(net, inputs, labels, 0.5).sums
    noisy = [dprepro.noisy_sum(net, inputs, labels, 0.5, 3.0) for _ in range(100)]
    names = {"first.weight", "first.bias", "second.bias", "unused.weight", "unused.bias", "empty", "scale"}
    assert set(exact) == set(noisy[0]) == names
    assert {value.dtype for value in noisy[0].values()} == {torch.float64}
    for name in names - {"empty"}:
        noise = torch.stack([values[name] - exact[name] for values in noisy]).flatten() / 1.5
        assert noise.std().log() == pytest.approx(0, abs=0.005 + 7 / (2 * len(noise)) ** 0.5)
    torch.testing.assert_close(dict(exact), alone(net, inputs, labels, 0.5)[1])


class Keeping(nn.Linear):
    """Layer that may keep data of a call for the next."""

    kept = torch.zeros(())

    def __init__(self, keeps: bool) -> None:
        super().__init__(20, 20)
        self.keeps = keeps

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs) + self.kept
        if self.keeps:
            self.kept = outputs.detach().mean()
        return outputs


@pytest.mark.parametrize("differ", ["kept", "tied", "mixed"])
def test_a_replay_tests_networks_of_equal_layers_and_names_the_line_of_a_loss_that_mixes(differ: str) -> None:
    def make() -> Any:
        last = (Keeping(False), Keeping(True)) if differ == "kept" else (nn.Linear(20, 20), nn.Linear(20, 20))
        nets = [nn.Sequential(nn.Linear(20, 20), layer) for layer in last]
        if differ == "tied":
            nets[1][1].weight = nets[1][0].weight

        def step(inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            factor = (inputs - 0.5).sum(0) * 4 if differ == "mixed" else 1

            def loss(outputs: Tensor, label: Tensor) -> Tensor:
                return F.cross_entropy(outputs * factor, label)

            _, noisy = (dprepro.noisy_sum(net, inputs, labels, 1.0, SIGMA, loss=loss) for net in nets)
            return noisy

        return step

    claims: dict[str, Any] = {"clip": 1.0, "noise_multiplier": SIGMA, "expected_batch_size": 1}
    if differ == "kept":
        with pytest.raises(dprepro.UserError, match="keeps something of its inputs between calls"):
            dprepro.replay(make, INPUTS[:8], LABELS[:8], **claims)
        return
    violations = dprepro.replay(make, INPUTS[:8], LABELS[:8], **claims).violations
    assert {__file__ in (violation.place or "") for violation in violations} == (
        {True} if differ == "mixed" else set()
    )


@pytest.mark.usefixtures("seeded_secrets")
def test_a_training_of_samples_and_noisy_sums_spends_what_is_accounted() -> None:
    def train(examples: np.ndarray, sigma: float = SIGMA) -> Iterator[np.ndarray]:
        net = nn.Linear(examples.shape[1], 1, bias=False)
        data = TensorDataset(torch.from_numpy(examples), torch.zeros(len(examples)))
        sampler = dprepro.PoissonSampler(len(examples), len(examples) // 10, 60)
        for inputs, labels in DataLoader(data, sampler=sampler, batch_size=None):
            noisy = dprepro.noisy_sum(net, inputs, labels, 1.0, sigma, loss=lambda outputs, _: outputs[0])
            yield noisy["weight"].numpy()

    claims: dict[str, Any] = {"delta": 1e-5, "sample_rate": 0.1, "noise_multiplier": SIGMA}
    audited = dprepro.audit_training(train, **claims)
    assert audited.verdict == "nothing found"
    too_small = dprepro.audit_training(lambda examples: train(examples, SIGMA / 8), **claims)
    assert too_small.verdict != "nothing found"


class OneByOne(nn.Sequential):
    """Network that `torch.func.vmap` doesn't take."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs)
        return outputs * (1 + 0 * outputs.sum().item())


@pytest.mark.parametrize(
    ("way", "reference"), [(nn.Sequential, False), (nn.Sequential, True), (OneByOne, False)]
)
def test_a_loss_of_ones_own_is_that_of_one_example_at_a_time(way: type[nn.Module], reference: bool) -> None:
    net, targets = way(network(4)).double(), torch.rand(6, 4).double()
    inputs = INPUTS[:6].double()
    _, sums = alone(net, inputs, targets, 0.1, F.binary_cross_entropy_with_logits)
    actual = dprepro.clipped_sum(
        net, inputs, targets, 0.1, loss=F.binary_cross_entropy_with_logits, reference=reference
    )
    torch.testing.assert_close(dict(actual.sums), sums)


def test_a_loss_may_change_outputs_in_place() -> None:
    net = network()
    losses: list[Any] = [
        lambda outputs, label: outputs.mul_(2)[label],
        lambda outputs, label: outputs[label] * 2,
    ]
    in_place, expected = (dprepro.clipped_sum(net, INPUTS, LABELS, 0.1, loss=loss) for loss in losses)
    torch.testing.assert_close(in_place, expected)


def test_the_losses_by_default_are_cross_entropy_and_for_one_output_the_squared_error() -> None:
    for outputs, labels, loss in (
        (3, LABELS, F.cross_entropy),
        (1, INPUTS[:, 0], lambda outputs, label: (outputs[0] - label) ** 2),
    ):
        net = network(outputs)
        by_default, given = (
            dprepro.clipped_sum(net, INPUTS, labels, 0.1, loss=each) for each in (None, loss)
        )
        torch.testing.assert_close(by_default, given)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"loss": lambda outputs, label: outputs}, r"loss: of shape \(3,\) for one example; allowed: \(\)"),
        (
            {"loss": lambda outputs, label: outputs.log_softmax(1).sum()},
            r"loss: of one example, with outputs \(3,\) and label \(\): Dimension out of range",
        ),
        ({"loss": lambda outputs, label: outputs.detach().sum()}, "loss: without a gradient; needed"),
        ({"at_once": 0}, "at_once: 0 is not allowed"),
        ({"noise_multiplier": 1e-7}, "noise_multiplier: 1e-07 is not allowed"),
        ({"clip": 1e39}, "clip: 1e[+]39 is not allowed"),
        ({"labels": LABELS[1:]}, r"labels: of shape \(399,\), inputs \(400, 20\)"),
        ({"labels": LABELS[:, None]}, r"labels: of shape \(400, 1\), inputs \(400, 20\)"),
        ({"inputs": LABELS[0], "labels": LABELS[0], "loss": F.mse_loss}, r"labels: of shape \(\)"),
    ],
)
def test_what_has_no_noisy_sum_is_a_line(options: dict[str, Any], says: str) -> None:
    right = {"inputs": INPUTS, "labels": LABELS, "clip": 1.0, "noise_multiplier": 1.0}
    with pytest.raises(dprepro.UserError, match=says):
        dprepro.noisy_sum(network(), **{**right, **options})
