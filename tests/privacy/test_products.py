"""Attention and LSTMs: their clipped sums beside those of one backward pass an example."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dprepro
from dprepro import sums
from dprepro.clipping.gradients import BookKeeping, OneByOne
from dprepro.clipping.limits import ClipLimits
from dprepro.clipping.products import Products

WIDTH, LENGTH, CLASSES = 6, 5, 3


class Pooled(nn.Module):
    """Mean over the places of a layer's outputs, and a last layer."""

    def __init__(self, layer: nn.Module, outputs: int = WIDTH, *, crossed: bool = False):
        super().__init__()
        self.layer, self.last, self.crossed = layer, nn.Linear(outputs, CLASSES), crossed

    def forward(self, inputs: Tensor) -> Tensor:
        if isinstance(self.layer, nn.MultiheadAttention):
            keys = inputs.flip(1) if self.crossed else inputs
            made: Any = self.layer(inputs, keys, keys)
        else:
            made = self.layer(inputs)
        states: Tensor = made[0] if isinstance(made, tuple) else made
        outputs: Tensor = self.last(states.mean(1))
        return outputs


def lstm(**options: Any) -> nn.Module:
    layer = nn.LSTM(WIDTH, 4, batch_first=True, **options)
    return Pooled(layer, (layer.proj_size or 4) * (1 + layer.bidirectional))


def encoder(**options: Any) -> nn.Module:
    return Pooled(nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True, **options))


def attention(crossed: bool = False, **options: Any) -> nn.Module:
    return Pooled(nn.MultiheadAttention(WIDTH, 2, batch_first=True, **options), crossed=crossed)


def half_frozen() -> nn.Module:
    net = lstm()
    net.get_parameter("layer.weight_hh_l0").requires_grad_(False)
    return net


# with whether book-keeping has their gradients
NETWORKS = {
    "an LSTM": (lstm, True),
    "of two layers": (lambda: lstm(num_layers=2), True),
    "both ways": (lambda: lstm(num_layers=2, bidirectional=True), True),
    "without biases": (lambda: lstm(bias=False), True),
    "with projections": (lambda: lstm(proj_size=3), False),
    "a frozen matrix beside a trained bias": (half_frozen, False),
    "an encoder's layer": (encoder, True),
    "normalised first": (lambda: encoder(norm_first=True), True),
    "attention": (attention, True),
    "attention without biases": (lambda: attention(bias=False), True),
    "attention to others": (lambda: attention(crossed=True), False),
    "attention with a bias among the keys": (lambda: attention(add_bias_kv=True), False),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_clipped_sums_are_those_of_one_backward_pass_an_example(name: str) -> None:
    build, is_kept = NETWORKS[name]
    torch.manual_seed(0)
    net, inputs, labels = build().double(), torch.randn(7, LENGTH, WIDTH).double(), torch.arange(7) % CLASSES
    tensors = {key: value.detach() for key, value in net.named_parameters() if value.requires_grad}
    alone = OneByOne(net)(
        tensors, inputs, labels, inputs.new_ones(7), ClipLimits.whole(inputs.new_tensor(1e9), len(tensors))
    )
    clip = float(alone.norms.median())  # some are clipped, others are not
    limits = ClipLimits.whole(inputs.new_tensor(clip), len(tensors))
    alone = OneByOne(net)(tensors, inputs, labels, inputs.new_ones(7), limits)
    summed = dprepro.clipped_sum(net, inputs, labels, clip)
    torch.testing.assert_close(summed.norms, alone.norms)
    for key, value in alone.sums.items():
        torch.testing.assert_close(summed.sums[key], value)
    ((factory, *_),) = sums._FACTORIES[net][2].values()
    assert (factory.way is BookKeeping) == is_kept
    one_less = dprepro.clipped_sum(net, inputs[1:], labels[1:], clip).sums
    moved = torch.cat([(summed.sums[key] - value).flatten() for key, value in one_less.items()]).norm()
    assert moved == pytest.approx(min(clip, float(alone.norms[0])))


def test_an_lstm_step_by_step_is_torchs() -> None:
    """With states at the start."""
    net = nn.LSTM(WIDTH, 4, num_layers=2, bidirectional=True, dropout=0.0).double()
    inputs, start = torch.randn(LENGTH, 3, WIDTH).double(), tuple(torch.randn(2, 4, 3, 4).double())
    with Products({}, lambda *_: None):
        outputs, last = net(inputs, start)
    expected, states = net(inputs, start)
    torch.testing.assert_close((outputs, *last), (expected, *states))
