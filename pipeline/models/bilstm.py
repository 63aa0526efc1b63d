"""BiLSTM with one dense layer for texts, as in Davody et al. Tables 4 and 7; optional layer normalisation.

`torch.nn.LSTM` is opaque to `torch.func`, so the recurrence is written out here, with equal results.
"""

import torch
from torch import Tensor, nn

from dprepro.pipeline.models.model import Model

VERSION = 1  # raise it if the same settings would give other numbers
PADDING = 0  # token in place of a word, at the end of a text only
EMBEDDING = 100
HIDDEN = 32


class Direction(nn.Module):
    """Weights of an LSTM in one direction, with gates in the order of `torch.nn.LSTM`: i, f, g, o.

    Normalisation is LN(W_x x_t) + LN(W_h h_{t-1}), as in Ba et al. 2016 (arXiv:1607.06450); the shift of the
    first LN is the bias. Ba et al. also normalise the cell, which is left out here, because Davody et al.
    normalise only outputs of weight matrices.
    """

    def __init__(self, inputs: int, hidden: int, epsilon: float | None):
        """Initialise as `torch.nn.LSTM`, but with a forget bias of 1; ``epsilon`` None: no normalisation."""
        super().__init__()
        self.inputs = nn.Linear(inputs, 4 * hidden, bias=epsilon is None)
        # torch has a second bias here, which is added to the first
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)
        self.inputs_norm = _norm(4 * hidden, epsilon)
        self.recurrent_norm = _norm(4 * hidden, epsilon)
        for parameter in (*self.inputs.parameters(), *self.recurrent.parameters()):
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)
        bias = self.get_parameter("inputs.bias" if epsilon is None else "inputs_norm.bias")
        nn.init.ones_(bias[hidden : 2 * hidden])  # a cell remembers until it has learnt to forget

    def from_inputs(self, inputs: Tensor) -> Tensor:
        """Contribution (B, T, 4 H) of all inputs (B, T, I) to the gates."""
        return self.inputs_norm(self.inputs(inputs))

    def from_state(self, hidden: Tensor) -> Tensor:
        """Contribution (B, 4 H) of the previous hidden state (B, H) to the gates."""
        return self.recurrent_norm(self.recurrent(hidden))


class BiLSTM(nn.Module):
    """Both directions of an LSTM over a text, in one loop over time.

    Padding leaves the state unchanged. So the backward direction starts at a text's last word, both
    directions end as `torch.nn.LSTM` on a packed sequence, and a text without words ends in zeros.
    """

    def __init__(self, inputs: int, hidden: int, epsilon: float | None = None):
        """``hidden`` units per direction; ``epsilon`` None: no normalisation."""
        super().__init__()
        self.hidden = hidden
        self.ahead = Direction(inputs, hidden, epsilon)
        self.back = Direction(inputs, hidden, epsilon)

    def forward(self, inputs: Tensor, present: Tensor) -> Tensor:
        """Final hidden states (B, 2 H), forward then backward, of ``inputs`` (B, T, I).

        ``present`` (B, T) is False at padding.
        """
        # unbind: its gradient is one stack; indexing each step would give T tensors of T steps each
        inputs_ahead = self.ahead.from_inputs(inputs).unbind(1)
        inputs_back = self.back.from_inputs(inputs).unbind(1)[::-1]
        words = torch.stack([present, present.flip(1)], 2)[..., None].unbind(1)  # T of (B, 2, 1)
        hidden = cell = inputs.new_zeros(len(inputs), 2, self.hidden)
        for step_ahead, step_back, word in zip(inputs_ahead, inputs_back, words, strict=True):
            hidden_ahead, hidden_back = hidden.unbind(1)
            ahead_gates = step_ahead + self.ahead.from_state(hidden_ahead)
            back_gates = step_back + self.back.from_state(hidden_back)
            gates = torch.stack([ahead_gates, back_gates], 1)  # (B, 2, 4 H)
            input_gate, forget_gate, cell_input, output_gate = gates.chunk(4, -1)
            new_cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * cell_input.tanh()
            hidden = torch.where(word, output_gate.sigmoid() * new_cell.tanh(), hidden)
            cell = torch.where(word, new_cell, cell)
        return hidden.flatten(1)


class Classifier(nn.Module):
    """Logits (B, classes) of texts: tokens (B, T), or word vectors (B, 1, T, E) with zeros as padding."""

    def __init__(self, model: Model, shape: tuple[int, ...], classes: int):
        """``unnormalized`` of the model: 1 leaves out the dense layer's normalisation, 2 also the LSTM's."""
        super().__init__()
        epsilon = model.epsilon if model.normalization == "layer" else None
        takes_tokens = len(shape) == 2
        width = EMBEDDING if takes_tokens else shape[2]
        self.embedding = nn.Embedding(shape[1], width, padding_idx=PADDING) if takes_tokens else None
        self.lstm = BiLSTM(width, HIDDEN, epsilon if model.unnormalized <= 1 else None)
        self.dense = nn.Linear(2 * HIDDEN, classes)
        self.dense_norm = _norm(classes, epsilon if model.unnormalized == 0 else None)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits from the final hidden states of both directions."""
        if self.embedding is not None:
            words, present = self.embedding(inputs), inputs != PADDING
        else:
            words = inputs.squeeze(1)
            present = (words != 0).any(2)
        return self.dense_norm(self.dense(self.lstm(words, present)))


def _norm(size: int, epsilon: float | None) -> nn.Module:
    return nn.Identity() if epsilon is None else nn.LayerNorm(size, eps=epsilon)


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Embedding of size 100, BiLSTM with 32 units per direction, one dense layer on the final hidden states.

    With 'layer', a layer normalisation follows every weight matrix: two in each direction, and the dense one.

    Args:
        model: its normalisation is 'none' or 'layer'.
        shape: (T, V) for tokens: length of a text, and size of the vocabulary with padding. (1, T, E) for
            word vectors, which are not trained.
        classes: number of logits.

    Raises:
        ValueError: the normalisation is for images.
    """
    if model.normalization not in ("none", "layer"):
        raise ValueError(f"normalization {model.normalization!r} is for images; allowed: none, layer")
    return Classifier(model, shape, classes)
