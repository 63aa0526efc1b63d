"""What each layer is clipped to, against the formulas of Nguyen et al.; and how noise is shared."""

import pytest
import torch
from torch import Tensor, nn

from pipeline.methods.batch_clipping.layer_bounds import bounds, expected_norms, layers_of, parts_of
from pipeline.methods.batch_clipping.settings import BatchClippingSettings
from pipeline.models.normalization import BatchStatistics
from pipeline.privacy.gradients import Bounds

NET = nn.Sequential(nn.Conv2d(1, 2, 3), BatchStatistics(2, 1e-5), nn.Flatten(), nn.Linear(8, 3))
NAMES = [name for name, _ in NET.named_parameters()]
ENTRIES = torch.tensor([float(value.numel()) for value in NET.parameters()])
# of two public gradients, for the six tensors
NORMS = torch.tensor([[3.0, 4.0, 1.0, 0.5, 8.0, 6.0], [3.0, 4.0, 0.0, 0.5, 4.0, 3.0]])


def settings(clipping: str, **changes: object) -> BatchClippingSettings:
    values = {"batch": 8, "epochs": 1, "learning_rate": 0.1, "sigma": 1.0, "clipping": clipping}
    return BatchClippingSettings.model_validate(values | changes)


def bounds_for(clipping: str, **changes: object) -> tuple[Bounds, Tensor]:
    configured = settings(clipping, **changes)
    layers = layers_of(NET, NAMES, configured.layers).members
    return bounds(configured, torch.tensor(0.2), layers, NORMS, ENTRIES)


def test_layers_are_tensors_or_modules() -> None:
    tensors, modules = layers_of(NET, NAMES, "tensor"), layers_of(NET, NAMES, "module")
    assert tensors.names == (
        *("conv/0.weight", "conv/0.bias", "norm/1.weight", "norm/1.bias", "linear/3.weight", "linear/3.bias"),
    )
    assert torch.equal(tensors.members, torch.eye(6))
    assert modules.names == ("conv/0", "norm/1", "linear/3")
    assert modules.members.T.tolist() == [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]


def test_expected_norms_are_means_of_norms_not_norms_of_means() -> None:
    modules = layers_of(NET, NAMES, "module").members
    torch.testing.assert_close(expected_norms(NORMS, torch.eye(6)), torch.tensor([3, 4, 0.5, 0.5, 6, 4.5]))
    by_module = torch.tensor([5.0, (1.25**0.5 + 0.5) / 2, 7.5])
    torch.testing.assert_close(expected_norms(NORMS, modules), by_module)


def test_adaptive_clipping_is_the_papers_and_zhangs() -> None:
    enhanced, _ = bounds_for("adaptive")
    torch.testing.assert_close(enhanced.limits, 0.2 * torch.tensor([3, 4, 0.5, 0.5, 6, 4.5]) / 6)
    older, _ = bounds_for("zhang")
    torch.testing.assert_close(older.limits, torch.tensor([3, 4, 0.5, 0.5, 6, 4.5]))
    modules, _ = bounds_for("adaptive", layers="module")
    assert modules.limits.max() == pytest.approx(0.2)
    assert modules.limits[0] == pytest.approx(0.2 * 5 / 7.5)


def test_even_shares_together_are_as_long_as_c() -> None:
    even, _ = bounds_for("layerwise")
    assert even.limits.square().sum().sqrt() == pytest.approx(0.2)
    assert len(set(even.limits.tolist())) == 1


@pytest.mark.parametrize("clipping", ["full", "multiplied"])
def test_the_whole_gradient_is_one_part(clipping: str) -> None:
    whole, _ = bounds_for(clipping)
    assert whole.members.tolist() == [[1.0]] * 6
    assert whole.limits.tolist() == pytest.approx([0.2])
    assert parts_of(settings(clipping), 6) == 1


def test_multiplication_factors_make_layers_alike_and_stay_finite() -> None:
    factors = bounds_for("multiplied")[0].weights
    torch.testing.assert_close(factors, 6 / torch.tensor([3, 4, 0.5, 0.5, 6, 4.5]))
    # after them every layer has the largest norm, in expectation
    torch.testing.assert_close(expected_norms(NORMS * factors, torch.eye(6)), torch.full((6,), 6.0))
    configured = settings("multiplied")
    dead = bounds(
        configured, torch.tensor(0.2), torch.eye(6), NORMS * torch.tensor([0, 1, 1, 1, 1, 1]), ENTRIES
    )[0]
    assert dead.weights[0] == 1000
    assert (
        bounds(configured, torch.tensor(0.2), torch.eye(6), 0 * NORMS, ENTRIES)[0].weights.tolist()
        == [1.0] * 6
    )


def test_groups_gather_layers_of_similar_norms() -> None:
    grouped, _ = bounds_for("adaptive", groups=2)
    assert grouped.members[:, 0].tolist() == [1, 0, 1, 1, 0, 0]  # e = 3, .5, .5 against 4, 6, 4.5
    together = expected_norms(NORMS, grouped.members)
    torch.testing.assert_close(grouped.limits, 0.2 * together / together.max())
    assert parts_of(settings("adaptive", groups=2), 6) == 2
    assert bounds_for("adaptive", groups=100)[0].members.shape == (6, 6)
    assert parts_of(settings("adaptive", groups=100), 6) == 6


def noise_energy(limits: Tensor, shares: Tensor) -> Tensor:
    return (ENTRIES * (limits / shares).square()).sum()


def test_least_noise_is_least_of_all_with_the_same_guarantee() -> None:
    layer_bounds, shares = bounds_for("adaptive", layer_noise="least")
    assert shares.square().sum() == pytest.approx(6)
    least = noise_energy(layer_bounds.limits, shares)
    assert least < noise_energy(layer_bounds.limits, torch.ones(6))
    for seed in range(20):
        other = shares * torch.exp(0.1 * torch.randn(6, generator=torch.Generator().manual_seed(seed)))
        other = other * (6 / other.square().sum()).sqrt()
        assert noise_energy(layer_bounds.limits, other) > least
