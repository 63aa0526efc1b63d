"""Networks of a corpus: what mixes examples is refused, others are clipped as one by one."""

import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dprepro
from dprepro.clipping.clippers import clipper_factory
from dprepro.clipping.gradients import BookKeeping, OneByOne, PerExample
from dprepro.clipping.network_state import changed, contents_of
from tests.privacy.corpus import WIDTH, Around, alone, batch, distance
from tests.privacy.corpus.honest import HONEST, final, linear, reading
from tests.privacy.corpus.mixing import IMPOSSIBLE, MIXING

CLIP = 0.1
SIZES = (2, 3, 4, 5, 8, 9, 16, 17, 64)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of vmap, attention and hooks
        yield


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
    case = HONEST[name]
    net = case.build()
    inputs, labels = batch(case.kind, 9)
    norms, sums = alone(net, inputs, labels, CLIP)
    before = {name: value.clone() for name, value in net.named_parameters()}
    actual = dprepro.clipped_sum(net, inputs.clone(), labels, CLIP)
    assert all(torch.equal(value, before[name]) for name, value in net.named_parameters())
    torch.testing.assert_close(actual.norms[:, 0], norms, rtol=1e-3, atol=1e-5)
    assert actual.sums.keys() == sums.keys()
    assert distance(actual.sums, sums) <= 1e-3 * CLIP


# Classes of the clippers
CLIPPERS: dict[str, type] = {
    "image: in place": BookKeeping,
    "overwritten": BookKeeping,
    "added in place": BookKeeping,
    "the table for logits": PerExample,
    "a layer without gradient": BookKeeping,
    "two names": BookKeeping,
    "a hook that scales": PerExample,
    "a hook that scales gradients": OneByOne,
    "time first": BookKeeping,
    "places in the batch": BookKeeping,
    "sequence: attention": BookKeeping,
    "sequence: transformer": BookKeeping,
    "sequence: two layers": BookKeeping,
    "sequence: both ways": BookKeeping,
    "sequence: LSTM without biases": BookKeeping,
    "sequence: with projections": OneByOne,
    "sequence: a frozen matrix beside a trained bias": OneByOne,
    "sequence: attention without biases": BookKeeping,
    "sequence: attention to others": PerExample,
    "sequence: attention with a bias among the keys": PerExample,
    "sequence: transformer, norm first": BookKeeping,
    "sequence: GRU": OneByOne,
    "weight norm": PerExample,
    "spectral norm": PerExample,
    "branching": OneByOne,
    "state that has one value": OneByOne,
    "state of some inputs": OneByOne,
    "starting at zero": BookKeeping,
    "hidden: single precision": BookKeeping,
    "hidden: single precision alone": BookKeeping,
}


@pytest.mark.parametrize("name", CLIPPERS)
def test_the_fastest_right_clipper_is_taken_and_leaves_the_network_as_it_was(name: str) -> None:
    case, kind, clip = HONEST[name], CLIPPERS[name], 0.7
    net, (inputs, labels) = case.build(), batch(case.kind, 5)
    norms, sums = alone(net, inputs, labels, clip)
    assert type(clipper_factory(net, inputs[:1])(net)) is kind
    for reference in (False, True):
        for _ in range(2):
            actual = dprepro.clipped_sum(net, inputs.clone(), labels, clip, reference=reference)
            torch.testing.assert_close(actual.norms[:, 0], norms, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(dict(actual.sums), sums, rtol=1e-4, atol=1e-5)


# Refused networks and their messages
REFUSED: dict[str, str] = {
    "layer: batch norm": "'of_hidden': batch norm mixes",
    "batch norm without weights": "layer '1': batch norm mixes examples; allowed: group norm, or eval()",
    "value, hidden: batch norm": "mixes examples: in a batch of 2",
    "value, hidden: centred": "mixes examples: in a batch of 2",
    "value, hidden: centred by a constant": "mixes examples",
    "value, hidden: turned around": "mixes examples: in a batch of 2",
    "layer: an LSTM that takes examples for times": "mixes examples: in a batch of 2",
    "every second": "(1, 3) of 2 examples; needed: (2, classes)",
    "folded into the batch": "makes (8, 3) of 1 examples; needed: (1, classes)",
    "folded into one": "makes (1, 6) of 2 examples; needed: (2, classes)",
    "moved": "the network",
    "state: buffer": "keeps something of its inputs in 'average', without noise",
    "state: attribute": "keeps something of its inputs between calls in 'seen'",
    "state: number": "keeps something of its inputs between calls in 'plain'",
    "state: class_variable": "keeps state between calls, outside of",
    "state: module_variable": "keeps state between calls, outside of",
    "state: closure": "keeps state between calls, outside of",
    "state: the largest so far, in a buffer": "keeps something of its inputs in 'of_inputs.largest'",
    "state: numpy_random_numbers": "draws random numbers",
    "random numbers": "draws random numbers",
    "a hook on a parameter": "parameter 'weight': has a hook",
    "weight norm that can't be copied": "layer '0': weight is computed from other parameters, as by",
    "pruned": "layer '0': weight is computed from other parameters, as by",
    "scripted": "network: scripted; allowed: the network before torch.jit",
    "a table of bounded norm": "layer '0': max_norm changes the rows that private data look up",
    "weights that a call clamps": "changes 'weight' when it runs, without noise",
    "half precision inside": "computes in torch.bfloat16, whose rounding moves a sum",
    "a frozen body in half precision": "computes in torch.bfloat16, whose rounding moves a sum",
    "another shape": "doesn't take one random input of shape (1, 6): mat1 and mat2 shapes cannot be mult",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_reason_and_changes_nothing(name: str) -> None:
    """By every way."""
    torch.manual_seed(0)
    case, said = {**MIXING, **IMPOSSIBLE}[name], re.escape(REFUSED[name])
    net, (inputs, labels) = case.build(), batch(case.kind, 5)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    numbers = torch.random.get_rng_state()
    for reference in (False, True):
        with pytest.raises(dprepro.UserError, match=said) as caught:
            dprepro.clipped_sum(net, inputs, labels, CLIP, reference=reference)
        assert "\n" not in str(caught.value)
        with pytest.raises(dprepro.UserError, match=said):
            clipper_factory(net, inputs[:1], reference=reference)(net)
    assert torch.equal(torch.random.get_rng_state(), numbers)
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 1.0]), []),
        (torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0]), ["kept"]),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32), ["kept"]),
        (torch.zeros(2), torch.zeros(1, 2), ["kept"]),
        (torch.zeros(2), [0.0, 0.0], ["kept"]),
        (1, 1.0, ["kept"]),
        ([torch.ones(2)], [torch.ones(2)], []),
        ([torch.ones(2)], [torch.ones(1, 2)], ["kept"]),
        (torch.ones(2, dtype=torch.complex128), torch.ones(2, dtype=torch.complex128) * 1j, ["kept"]),
    ],
)
def test_state_is_compared_by_its_bits(before: Any, after: Any, expected: list[str]) -> None:
    nets = [nn.Identity(), nn.Identity()]
    for net, value in zip(nets, (before, after), strict=True):
        net.kept = value
    assert changed(*map(contents_of, nets)) == expected


class Attentive(nn.Module):
    """Attention with dropout by a function, over places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = linear(WIDTH), linear()

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        return self.last(F.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=0.5).mean(1))


def test_dropout_is_no_mixing_and_draws_for_every_example() -> None:
    dropping = nn.TransformerEncoderLayer(WIDTH, 2, 8, batch_first=True)
    recurrent = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, dropout=0.5)
    for net, kind in (
        (Around(hidden=nn.Dropout(0.5)), "vector"),
        (Around(hidden=lambda x: F.dropout(x, 0.5)), "vector"),
        (reading(dropping, lambda result: result.mean(1))(), "places"),
        (reading(recurrent, final)(), "places"),
        (Attentive(), "places"),
    ):
        inputs, labels = batch(kind, 5)
        same = inputs[:1].expand_as(inputs).clone()
        norms = dprepro.clipped_sum(net, same, labels * 0, 1.0).norms[:, 0]
        assert len(set(norms.tolist())) > 1
    net, (inputs, labels) = Around(hidden=nn.Dropout(0.5)), batch("vector", 5)
    assert dprepro.clipped_sum(net, inputs, labels, 1.0, reference=True).norms.shape == (5, 1)
