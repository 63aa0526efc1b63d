"""Clipped sums: the fast way against the slow, both against one example at a time, both on neighbours."""

import opacus
import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from pipeline.models import lenet5
from pipeline.models.normalization import BatchStatistics, measuring
from pipeline.privacy.gradients import BookKeeping, PerExample, clip_factors
from pipeline.settings import Model


class Wide(nn.Sequential):
    """Every option the fast way claims: stride, padding by side, no bias, group norm on both shapes."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 4, (3, 5), stride=(2, 3), padding=(1, 2), bias=False),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Conv2d(4, 3, 1),
            nn.Flatten(),
            nn.Linear(3 * 14 * 10, 12, bias=False),
            nn.GroupNorm(3, 12),
            nn.ReLU(),
            nn.Linear(12, 10),
        )


def make(kind: str) -> nn.Module:
    torch.manual_seed(3)
    if kind == "wide":
        return Wide()
    return lenet5.build(Model(name="lenet5", normalization=kind), (1, 28, 28), 10)  # type: ignore[arg-type]


def tensors_of(net: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, and for batch norm statistics that are neither 0 nor 1."""
    found = {name: value.detach().clone() for name, value in net.named_parameters()}
    found |= {name: torch.rand_like(value) + 0.5 for name, value in net.named_buffers()}
    return found


def batch(size: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(size, 1, 28, 28, generator=generator), torch.randint(
        0, 10, (size,), generator=generator
    )


def weights_of(tensors: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: 0.7 for name in tensors if name.endswith((".mean", ".var"))}


def one_at_a_time(net, tensors, inputs, labels, weights):  # type: ignore[no-untyped-def]
    """The definition: an ordinary backward pass for each example alone."""
    gradients = []
    for example, label in zip(inputs, labels, strict=True):
        leaves = {name: value.clone().requires_grad_() for name, value in tensors.items()}
        loss = F.cross_entropy(functional_call(net, leaves, (example[None],)), label[None])
        found = torch.autograd.grad(loss, list(leaves.values()))
        gradients.append(
            torch.cat([weights.get(n, 1.0) * g.flatten() for n, g in zip(leaves, found, strict=True)])
        )
    return torch.stack(gradients)


KINDS = ("none", "layer", "group", "public_bn", "wide")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [0.01, 1.0, 1e6])
def test_both_ways_equal_one_example_at_a_time(kind: str, clip: float) -> None:
    net = make(kind)
    tensors, (inputs, labels) = tensors_of(net), batch()
    weights, mask = weights_of(tensors), torch.tensor([1.0] * 7 + [0.0] * 2)
    gradients = one_at_a_time(net, tensors, inputs, labels, weights)
    norms = gradients.norm(dim=1)
    expected = (gradients * (mask * torch.clamp(clip / norms, max=1))[:, None]).sum(0)
    for way in (PerExample(net, weights), BookKeeping(net, weights, inputs[:1])):
        found = way(tensors, inputs, labels, mask, torch.tensor(clip))
        flat = torch.cat([found.sums[name].flatten() for name in tensors])
        torch.testing.assert_close(found.norms, norms, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(flat, expected, rtol=1e-4, atol=1e-5)


def test_per_example_gradients_equal_opacus() -> None:
    net = make("layer")
    inputs, labels = batch()
    found = BookKeeping(net, {}, inputs[:1])(
        tensors_of(net), inputs, labels, torch.ones(len(labels)), torch.tensor(1.0)
    )
    wrapped = opacus.GradSampleModule(net, loss_reduction="sum")
    F.cross_entropy(wrapped(inputs), labels, reduction="sum").backward()
    samples = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], dim=1)
    torch.testing.assert_close(found.norms, samples.norm(dim=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_one_example_moves_the_sum_by_at_most_the_clip(kind: str) -> None:
    net = make(kind)
    tensors, (inputs, labels) = tensors_of(net), batch()
    inputs[0] *= 50  # an example with a large gradient
    for way in (PerExample(net, weights_of(tensors)), BookKeeping(net, weights_of(tensors), inputs[:1])):
        for gone in range(3):
            mask = torch.ones(len(labels))
            neighbour = mask.clone()
            neighbour[gone] = 0
            clip = torch.tensor(0.3)
            with_it = way(tensors, inputs, labels, mask, clip).sums
            without = way(tensors, inputs, labels, neighbour, clip).sums
            moved = torch.cat([(with_it[n] - without[n]).flatten() for n in tensors]).norm()
            assert moved <= 0.3 * (1 + 1e-4)
    assert moved > 0.29  # and the bound is met, so the test could fail


def test_replicas_by_vmap_equal_single_runs() -> None:
    net = make("group")
    inputs, labels = batch(12)
    stacked = {name: torch.stack([value, 1.1 * value]) for name, value in tensors_of(net).items()}
    inputs, labels = inputs.reshape(2, 6, 1, 28, 28), labels.reshape(2, 6)
    mask, clips = torch.ones(2, 6), torch.tensor([0.5, 2.0])
    way = BookKeeping(net, {}, inputs[0, :1])
    together = vmap(way)(stacked, inputs, labels, mask, clips)
    for index in range(2):
        alone = way(
            {n: v[index] for n, v in stacked.items()}, inputs[index], labels[index], mask[index], clips[index]
        )
        for name, value in alone.sums.items():
            torch.testing.assert_close(together.sums[name][index], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("present", [1.0, 0.0])
def test_an_example_whose_gradient_overflows_moves_nothing(kind: str, present: float) -> None:
    """Neither as a record of the sample nor as padding, which repeats the first record."""
    net = make(kind)
    tensors, (inputs, labels) = tensors_of(net), batch()
    inputs[4] = 3e38
    mask = torch.ones(len(labels))
    mask[4] = present
    others = torch.arange(len(labels)) != 4
    for way in (PerExample(net, weights_of(tensors)), BookKeeping(net, weights_of(tensors), inputs[:1])):
        found = way(tensors, inputs, labels, mask, torch.tensor(0.5))
        without = way(tensors, inputs[others], labels[others], mask[others], torch.tensor(0.5))
        assert not torch.isfinite(found.norms[4])
        for name in tensors:
            torch.testing.assert_close(found.sums[name], without.sums[name], rtol=1e-4, atol=1e-5)


def test_a_gradient_that_is_not_finite_has_factor_zero() -> None:
    norms = torch.tensor([1.0, float("nan"), float("inf"), 0.0])
    assert clip_factors(norms, torch.ones(4), torch.tensor(0.5)).tolist() == [0.5, 0.0, 0.0, 1.0]


def test_the_fast_way_refuses_what_it_has_no_rule_for() -> None:
    for layer in (
        nn.Conv2d(2, 2, 1, groups=2),
        nn.Conv2d(2, 2, 3, dilation=2),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
    ):
        with pytest.raises(NotImplementedError, match="no fast per-example gradient"):
            BookKeeping(nn.Sequential(layer), {}, torch.zeros(1, 2, 8, 8))
    with pytest.raises(NotImplementedError):
        BookKeeping(nn.Sequential(nn.LayerNorm(8)), {}, torch.zeros(1, 8))
    twice = nn.Linear(8, 8)
    with pytest.raises(NotImplementedError, match="used twice"):
        BookKeeping(nn.Sequential(twice, nn.ReLU(), twice), {}, torch.zeros(1, 8))


def test_measured_statistics_ignore_padding_and_equal_torch() -> None:
    layer = BatchStatistics(3, 1e-5)
    inputs = torch.randn(5, 3, 4, 4)
    mask = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    with measuring(layer, mask) as found:
        out = layer(inputs)
    expected = F.batch_norm(inputs[:3], None, None, training=True, eps=1e-5)
    torch.testing.assert_close(out[:3], expected)
    torch.testing.assert_close(found[".var"], inputs[:3].var((0, 2, 3), correction=0))
