"""Clipped sums: the fast way against the slow, both against one example at a time, both on neighbours."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from dprepro.clipping import gradients
from dprepro.clipping.gradients import (
    BookKeeping,
    Clipper,
    Parts,
    PerExample,
    clip_and_sum,
    clip_factors,
    works_by_example,
)
from dprepro.clipping.layer_gradients import Full, Outer, OuterSums
from dprepro.clipping.limits import ClipLimits
from dprepro.clipping.normalization import BatchStatistics, measuring
from dprepro.pipeline.models import bilstm, lenet5
from dprepro.pipeline.models.model import Model

TEXTS = {"text": "none", "text_layer": "layer"}  # kind of network to its normalisation
KINDS = ("none", "layer", "group", "public_bn", "wide", "shared", *TEXTS)
WORDS, LENGTH = 12, 8  # vocabulary and tokens of the small texts
RARE = WORDS - 1  # a word that `enlarge` alone uses


class Wide(nn.Sequential):
    """Options the fast way claims: stride, padding by side, no bias, group norm on both shapes."""

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
            nn.LayerNorm(10, bias=False),
        )


class Shared(nn.Module):
    """Every layer twice in a pass, in different shapes where that can be; rows looked up again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 6)
        self.padded = nn.Embedding(WORDS, 6, padding_idx=0)
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.conv = nn.Conv2d(1, 1, 3, padding=1)
        self.group_norm = nn.GroupNorm(1, 1)
        self.out = nn.Linear(6, 10, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens) + self.padded(tokens).tanh() * self.embedding(tokens.flip(1))
        hidden = hidden + self.padded(tokens[:, 0])[:, None]
        hidden = self.norm(self.linear(hidden))[:, None]  # (B, 1, T, 6), an image of one channel
        for _ in range(2):
            hidden = self.group_norm(self.conv(hidden.relu()))
        return self.out(self.norm(self.linear(hidden[:, 0].mean(1))))


def make(kind: str) -> nn.Module:
    torch.manual_seed(3)
    if kind == "wide":
        return Wide()
    if kind == "shared":
        return Shared()
    if kind in TEXTS:
        model = Model(name="bilstm", normalization=TEXTS[kind])
        return bilstm.build(model, (LENGTH, WORDS), 10)
    return lenet5.build(Model(name="lenet5", normalization=kind), (1, 28, 28), 10)


def tensors_of(net: nn.Module) -> dict[str, Tensor]:
    """Parameters, and for batch norm statistics that are neither 0 nor 1."""
    tensors = {name: value.detach().clone() for name, value in net.named_parameters()}
    tensors |= {name: torch.rand_like(value) + 0.5 for name, value in net.named_buffers()}
    return tensors


def batch(kind: str, size: int = 9) -> tuple[Tensor, Tensor]:
    """Inputs and labels; texts repeat words and end in padding, the second is nothing else."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 10, (size,), generator=generator)
    if kind not in (*TEXTS, "shared"):
        return torch.rand(size, 1, 28, 28, generator=generator), labels
    tokens = torch.randint(1, RARE, (size, LENGTH), generator=generator)
    lengths = torch.randint(1, LENGTH + 1, (size, 1), generator=generator)
    lengths[:2, 0] = torch.tensor([LENGTH, 0])
    return torch.where(torch.arange(LENGTH) < lengths, tokens, 0).int(), labels


def enlarge(inputs: Tensor, tensors: dict[str, Tensor], example: int, value: float) -> None:
    """Multiply what the network sees of one example; of a text, its first word."""
    if inputs.is_floating_point():
        inputs[example] *= value
    else:
        inputs[example, 0] = RARE
        tensors["embedding.weight"][RARE] *= value


def ways(net: nn.Module, example: Tensor, copies: int = 1) -> list[Clipper]:
    """All there are: the reference, and the fast way, with taps, and in pieces.

    The last of the pieces is smaller, and each is under vmap.
    """
    pieces = BookKeeping(net, example, copies)
    pieces.measured, pieces.by_example = pieces.measured._replace(examples_per_pass=2), False
    tapped = BookKeeping(net, example, copies, taps=True)
    return [PerExample(net, copies), BookKeeping(net, example, copies), tapped, pieces]


def whole(tensors: dict[str, Tensor], clip: float) -> ClipLimits:
    """One part clipped to ``clip``."""
    return ClipLimits.whole(torch.tensor(clip), len(tensors))


def one_at_a_time(net, tensors, inputs, labels):
    """The definition: an ordinary backward pass for each example alone."""
    gradients = []
    for example, label in zip(inputs, labels, strict=True):
        leaves = {name: value.clone().requires_grad_() for name, value in tensors.items()}
        loss = F.cross_entropy(functional_call(net, leaves, (example[None],)), label[None])
        actual = torch.autograd.grad(loss, list(leaves.values()))
        gradients.append(torch.cat([gradient.flatten() for gradient in actual]))
    return torch.stack(gradients)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("copies", "clip"), [(1, 0.01), (1, 1.0), (1, 1e6), (3, 0.01), (3, 1e6)])
def test_all_ways_equal_one_example_at_a_time(kind: str, copies: int, clip: float) -> None:
    """Copies of an example are averaged before clipping."""
    net = make(kind)
    tensors, (inputs, labels) = tensors_of(net), batch(kind)
    labels = labels[::copies]
    mask = torch.ones(len(labels))
    mask[-1] = 0
    gradients = one_at_a_time(net, tensors, inputs, labels.repeat_interleave(copies))
    means = gradients.unflatten(0, (-1, copies)).mean(1)
    norms = means.norm(dim=1)
    expected = (means * (mask * torch.clamp(clip / norms, max=1))[:, None]).sum(0)
    for way in ways(net, inputs[:1], copies):
        actual = way(tensors, inputs, labels, mask, whole(tensors, clip))
        flat = torch.cat([actual.sums[name].flatten() for name in tensors])
        torch.testing.assert_close(actual.norms[:, 0], norms, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(flat, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["layer", "shared", "text"])
def test_a_weighted_loss_is_clipped_as_any_other(kind: str) -> None:
    """Each way equals one weighted example at a time; no weight moves a sum by more than the bound."""
    net = make(kind)
    tensors, (inputs, labels) = tensors_of(net), batch(kind)
    mask = torch.linspace(0, 3, len(labels))
    gradients = mask[:, None] * one_at_a_time(net, tensors, inputs, labels)
    clip = float(gradients.norm(dim=1).median())
    contributions = gradients * torch.clamp(clip / gradients.norm(dim=1).clamp_min(1e-12), max=1)[:, None]
    assert (contributions.norm(dim=1) < 0.99 * clip).any()
    assert (contributions.norm(dim=1) > 0.99 * clip).any()
    for way in ways(net, inputs[:1]):
        sums = way(tensors, inputs, labels, mask, whole(tensors, clip)).sums
        flat = torch.cat([sums[name].flatten() for name in tensors])
        torch.testing.assert_close(flat, contributions.sum(0), rtol=1e-4, atol=1e-5 * clip)
        for gone in range(len(labels)):
            fewer = mask.clone()
            fewer[gone] = 0
            without = way(tensors, inputs, labels, fewer, whole(tensors, clip)).sums
            moved = torch.cat([(sums[name] - without[name]).flatten() for name in tensors])
            assert moved.norm() <= clip * (1 + 1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("present", [1.0, 0.0])
def test_an_example_whose_gradient_overflows_moves_nothing(kind: str, present: float) -> None:
    """Neither as a record of the sample nor as padding, which repeats the first record."""
    net = make(kind)
    tensors, (inputs, labels) = tensors_of(net), batch(kind)
    enlarge(inputs, tensors, 4, 3e38)
    mask = torch.ones(len(labels))
    mask[4] = present
    others = torch.arange(len(labels)) != 4
    for way in ways(net, inputs[:1]):
        actual = way(tensors, inputs, labels, mask, whole(tensors, 0.5))
        without = way(tensors, inputs[others], labels[others], mask[others], whole(tensors, 0.5))
        assert not torch.isfinite(actual.norms[4, 0])
        for name in tensors:
            torch.testing.assert_close(actual.sums[name], without.sums[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("broken", [None, 2, 10])
def test_groups_of_examples_are_summed_as_gradients_in_memory(
    broken: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "GROUP_FLOATS", 4 * (3 * 5 + 2 * 4))
    random = torch.Generator().manual_seed(0)
    shapes = ((6, 3), (6, 5), (6, 2), (6, 4), (7,))
    values = [torch.randn(11, *shape, generator=random).double() for shape in shapes]
    if broken is not None:
        values[1][broken] = values[4][broken] = torch.inf
    kinds: dict[str, Any] = {"a": OuterSums(*values[:2]), "b": Full(values[4]), "c": OuterSums(*values[2:4])}
    mask, losses = torch.rand(11, generator=random).double(), torch.zeros(11)
    members = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).double()
    bounds = ClipLimits(members, torch.tensor([3.0, 1.0]).double())
    in_groups = clip_and_sum(kinds, losses, mask, bounds, Parts((11,), False, False))
    written = {
        name: Full(torch.einsum("bpo,bpi->boi", *value)) if isinstance(value, OuterSums) else value
        for name, value in kinds.items()
    }
    expected = clip_and_sum(written, losses, mask, bounds)
    torch.testing.assert_close(in_groups, expected)
    assert len(set(in_groups.norms[:, 0].tolist())) == 11
    assert all(value.isfinite().all() for value in in_groups.sums.values())


def test_each_part_has_a_bound_and_a_factor_of_its_own() -> None:
    """Tensors 0 and 2 are one part; what isn't finite is its own part's alone."""
    bounds = ClipLimits(
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]),
        torch.tensor([0.5, 3.0]),
    )
    infinity = float("inf")
    squares = torch.tensor([[16.0, 36.0, 9.0], [0.04, infinity, 0.0], [float("nan"), 0.0, 1.0]])
    factors, norms = clip_factors(squares, torch.ones(3), bounds)
    torch.testing.assert_close(norms, torch.tensor([[5.0, 6.0], [0.2, infinity], [infinity, 0.0]]))
    torch.testing.assert_close(factors, torch.tensor([[0.1, 0.5, 0.1], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))


def test_nothing_passes_a_bound_that_is_too_small_for_float32() -> None:
    """The noise of such a part may be rounded to 0, and then its sum was released as it is."""
    bounds = ClipLimits(torch.eye(2), torch.tensor([1e-44, 0.5]))
    factors, _ = clip_factors(torch.ones(3, 2), torch.ones(3), bounds)
    assert factors.tolist() == [[0.0, 0.5]] * 3


def test_frozen_layers_have_no_part_and_need_no_rule() -> None:
    """The trained rest gets the gradients that it has alone; statistics left as buffers are constants."""
    torch.manual_seed(5)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, dilation=2),  # no rule
        BatchStatistics(4, 1e-3),
        nn.ReLU(),
        nn.Conv2d(4, 2, 3, stride=3),
        BatchStatistics(2, 1e-3),
        nn.Flatten(),
        nn.Linear(2 * 8 * 8, 10),
    )
    net[:2].requires_grad_(False)
    net[4].var.fill_(0.3)
    tensors = {name: value.detach() for name, value in net.named_parameters() if value.requires_grad}
    inputs, labels = batch("none")
    gradients = one_at_a_time(net, tensors, inputs, labels)
    factors = torch.clamp(0.5 / gradients.norm(dim=1), max=1)
    for way in ways(net, inputs[:1])[1:]:
        assert isinstance(way, BookKeeping)
        assert way.layers.keys() == {"3", "4", "6"}
        actual = way(tensors, inputs, labels, torch.ones(len(labels)), whole(tensors, 0.5))
        assert actual.sums.keys() == tensors.keys()
        torch.testing.assert_close(actual.norms[:, 0], gradients.norm(dim=1), rtol=1e-4, atol=1e-5)
        flat = torch.cat([value.flatten() for value in actual.sums.values()])
        torch.testing.assert_close(flat, (gradients * factors[:, None]).sum(0), rtol=1e-4, atol=1e-5)


def test_a_tiny_vector_can_not_hide_a_huge_one_from_clipping() -> None:
    outer = Outer(torch.full((1, 3), 1e-24), torch.full((1, 3), 1e30))
    torch.testing.assert_close(outer.square_norms().sqrt(), torch.tensor([3e6]))
    assert Outer(torch.zeros(1, 3), torch.ones(1, 3)).square_norms() == 0


def test_cancelling_uses_of_a_word_can_not_hide_a_gradient_from_clipping() -> None:
    """Thousands up and thousands down leave 1: the pairs' products, rounded, would say 0."""

    class Cancelling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(2, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.table(tokens).mT @ torch.tensor([8e4, -8e4, 1.0])

    net = Cancelling()
    tokens, labels = torch.ones(1, 3, dtype=torch.long), torch.zeros(1, dtype=torch.long)
    tensors = {"table.weight": torch.zeros(2, 2)}
    expected = one_at_a_time(net, tensors, tokens, labels).norm()
    for way in ways(net, tokens)[1:]:
        actual = way(tensors, tokens, labels, torch.ones(1), whole(tensors, 0.1))
        torch.testing.assert_close(actual.norms[0, 0], expected)
        torch.testing.assert_close(actual.sums["table.weight"].norm(), torch.tensor(0.1))


class Centred(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs - inputs.mean(0))


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net[0].register_forward_hook(lambda layer, inputs, output: output),
        lambda net: net[0].register_forward_pre_hook(lambda layer, inputs: None),
        lambda net: net.register_full_backward_hook(lambda layer, inputs, outputs: None),
        lambda net: net[4].register_full_backward_pre_hook(lambda layer, outputs: None),
        lambda net: setattr(net[2], "forward", lambda inputs: inputs - inputs.mean(0)),
        lambda net: net.append(nn.Softmax(0)),
        lambda net: net.append(nn.Flatten(0)),
        lambda net: net.append(nn.Sequential(nn.BatchNorm1d(5))),
        lambda net: net.append(Centred(5, 5)),
        lambda net: parametrizations.weight_norm(net[5][0]),
    ],
)
def test_only_torchs_own_layers_run_on_the_batch(change: Callable[[nn.Module], Any]) -> None:
    head = nn.Sequential(nn.Linear(4 * 13 * 13, 5), nn.Tanh())
    body = (nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    net = nn.Sequential(*body, head)
    assert works_by_example(net)
    assert BookKeeping(net, torch.rand(1, 1, 28, 28)).by_example
    assert not BookKeeping(net, torch.rand(1, 1, 28, 28), taps=True).by_example
    change(net)
    assert not works_by_example(net)


def test_the_fast_way_refuses_what_it_has_no_rule_for() -> None:
    image, text = torch.zeros(1, 2, 8, 8), torch.zeros(1, 8, dtype=torch.long)
    for layer, example in (
        (nn.Conv2d(2, 2, 1, groups=2), image),
        (nn.Conv2d(2, 2, 3, dilation=2), image),
        (nn.Conv2d(2, 2, 3, padding="same"), image),
        (nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), image),
        (nn.BatchNorm2d(2), image),
        (nn.LayerNorm((8, 8)), image),
        (nn.Embedding(3, 2, max_norm=1.0), text),
        (nn.Embedding(3, 2, scale_grad_by_freq=True), text),
    ):
        with pytest.raises(NotImplementedError, match="no fast per-example gradient"):
            BookKeeping(nn.Sequential(layer), example)
    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    tied[1].weight = tied[0].weight
    with pytest.raises(NotImplementedError, match="two layers share"):
        BookKeeping(tied, torch.zeros(1, 8))
    idle = nn.Sequential(nn.Linear(8, 8))
    idle[0].add_module("idle", nn.Linear(2, 2))
    with pytest.raises(NotImplementedError, match="isn't used"):
        BookKeeping(idle, torch.zeros(1, 8))


def test_measured_statistics_ignore_padding_and_equal_torch() -> None:
    layer = BatchStatistics(3, 1e-5)
    inputs = torch.randn(5, 3, 4, 4)
    mask = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0])
    with measuring(layer, mask) as statistics:
        out = layer(inputs)
    expected = F.batch_norm(inputs[:3], None, None, training=True, eps=1e-5)
    torch.testing.assert_close(out[:3], expected)
    torch.testing.assert_close(statistics[".var"], inputs[:3].var((0, 2, 3), correction=0))
