"""A corpus of networks: an example moves no clipped sum by more than the clip, and what is honest goes."""

import copy
import math
import re
import warnings
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dprepro
from tests.privacy.corpus import batch
from tests.privacy.corpus.honest import HONEST
from tests.privacy.corpus.mixing import MIXING

CLIP = 0.1
NOTES_OUTSIDE = ("a hook that notes",)  # changes a variable from call to call, which is said
SIZES = (2, 3, 4, 5, 8, 9, 16, 17, 64)


def alone(net: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Norms and clipped sum of the gradients of each example, by a copy of ``net`` that has seen nothing."""
    named = {name: value for name, value in net.named_parameters() if value.requires_grad}
    sums, norms = {name: torch.zeros_like(value) for name, value in named.items()}, []
    for example, label in zip(inputs, labels, strict=True):
        fresh = copy.deepcopy(net)
        leaves = [value for value in fresh.parameters() if value.requires_grad]
        loss = F.cross_entropy(fresh(example[None].clone()), label[None])
        gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
        norms.append(torch.cat([gradient.flatten() for gradient in gradients]).norm())
        for name, gradient in zip(named, gradients, strict=True):
            sums[name] += gradient * torch.clamp(CLIP / norms[-1], max=1)
    return torch.stack(norms), sums


def distance(some: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float((some[name] - others[name]).square().sum()) for name in some))


def test_there_are_enough() -> None:
    assert len(MIXING) >= 100
    assert len(HONEST) >= 100


@pytest.mark.parametrize("name", MIXING)
def test_no_example_moves_the_clipped_sum_of_a_network_that_mixes_by_more_than_the_clip(name: str) -> None:
    """It is refused by name, or each example has the gradient that it has alone."""
    torch.manual_seed(0)
    case = MIXING[name]
    net = case.build()
    with suppress(dprepro.UserError):
        for size in SIZES:
            inputs, labels = batch(case.kind, size)
            whole = dprepro.clipped_sum(net, inputs.clone(), labels, CLIP).sums
            without = dprepro.clipped_sum(net, inputs[1:].clone(), labels[1:], CLIP).sums
            assert distance(whole, without) <= CLIP * (1 + 1e-4)


@pytest.mark.parametrize("name", HONEST)
def test_a_network_that_mixes_nothing_has_the_clipped_sum_of_a_loop(name: str) -> None:
    torch.manual_seed(0)
    case = HONEST[name]
    net = case.build()
    inputs, labels = batch(case.kind, 9)
    norms, sums = alone(net, inputs, labels)
    with warnings.catch_warnings():
        if name not in NOTES_OUTSIDE:
            warnings.filterwarnings("error", "the network changes variables")
        actual = dprepro.clipped_sum(net, inputs.clone(), labels, CLIP)
    torch.testing.assert_close(actual.norms[:, 0], norms, rtol=1e-3, atol=1e-5)
    assert actual.sums.keys() == sums.keys()
    assert distance(actual.sums, sums) <= 1e-3 * CLIP


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("state: buffer", "keeps something of its inputs in 'average', without noise"),
        ("state: attribute", "keeps something of its inputs between calls in 'seen'"),
        ("state: number", "keeps something of its inputs between calls in 'plain'"),
        ("state: class_variable", "keeps state between calls in 'Keeping.shared', outside of"),
        ("state: module_variable", "keeps state between calls in 'Keeping._module_variable', outside of"),
        ("state: closure", "keeps state between calls in 'of_hidden', outside of"),
        ("state: numpy_random_numbers", "draws random numbers"),
        ("backward: a hook from 8 on", "mixes examples: in a batch of 8 gradients are"),
        ("value, inputs: over the largest, if large", "mixes examples: in a batch of"),
        ("length: trimmed", "mixes examples: in a batch of"),
    ],
)
def test_a_refusal_names_the_reason(name: str, said: str) -> None:
    torch.manual_seed(0)
    case = MIXING[name]
    inputs, labels = batch(case.kind, 4)
    with pytest.raises(dprepro.UserError, match=re.escape(said)) as caught:
        dprepro.clipped_sum(case.build(), inputs, labels, CLIP)
    assert "\n" not in str(caught.value)
