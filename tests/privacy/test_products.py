"""Attention and LSTMs: their clipped sums beside those of one backward pass an example."""

import torch
from torch import nn

from dprepro.clipping.products import Products

WIDTH, LENGTH, CLASSES = 6, 5, 3


def test_an_lstm_step_by_step_is_torchs() -> None:
    """With states at the start."""
    net = nn.LSTM(WIDTH, 4, num_layers=2, bidirectional=True, dropout=0.0).double()
    inputs, start = torch.randn(LENGTH, 3, WIDTH).double(), tuple(torch.randn(2, 4, 3, 4).double())
    with Products({}, lambda *_: None):
        outputs, last = net(inputs, start)
    expected, states = net(inputs, start)
    torch.testing.assert_close((outputs, *last), (expected, *states))
