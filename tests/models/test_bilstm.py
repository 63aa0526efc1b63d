"""The written-out LSTM against torch's, and the model around it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from dprepro.errors import UserError
from dprepro.pipeline.models import bilstm
from dprepro.pipeline.models.bilstm import BiLSTM, Direction
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net

LENGTHS = (5, 1, 3)


def model(normalization: str = "none", unnormalized: int = 0) -> Model:
    return Model(name="bilstm", normalization=normalization, unnormalized=unnormalized)


def texts() -> tuple[Tensor, Tensor]:
    """Embedded texts with noise where there are no words, and where there are."""
    inputs = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    return inputs, torch.arange(6) < torch.tensor(LENGTHS)[:, None]


def pairs(ours: BiLSTM) -> list[tuple[Direction, str]]:
    return [(ours.ahead, "l0"), (ours.back, "l0_reverse")]


def test_equals_torch_on_packed_sequences_in_both_directions() -> None:
    torch.manual_seed(1)
    theirs, ours = nn.LSTM(4, 3, bidirectional=True, batch_first=True), BiLSTM(4, 3)
    with torch.no_grad():
        for direction, end in pairs(ours):
            direction.inputs.weight.copy_(getattr(theirs, f"weight_ih_{end}"))
            direction.inputs.bias.copy_(getattr(theirs, f"bias_ih_{end}") + getattr(theirs, f"bias_hh_{end}"))
            direction.recurrent.weight.copy_(getattr(theirs, f"weight_hh_{end}"))
    inputs, present = texts()
    mine, other = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    actual = ours(mine, present)
    packed = pack_padded_sequence(other, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    expected = theirs(packed)[1][0].transpose(0, 1).flatten(1)  # (2, B, H): ahead, back
    torch.testing.assert_close(actual, expected)
    upstream = torch.randn(actual.shape)
    actual.backward(upstream)
    expected.backward(upstream)
    torch.testing.assert_close(mine.grad, other.grad)
    for direction, end in pairs(ours):
        torch.testing.assert_close(direction.inputs.weight.grad, getattr(theirs, f"weight_ih_{end}").grad)
        torch.testing.assert_close(direction.inputs.bias.grad, getattr(theirs, f"bias_ih_{end}").grad)
        torch.testing.assert_close(direction.recurrent.weight.grad, getattr(theirs, f"weight_hh_{end}").grad)


@pytest.mark.parametrize("normalization", ["none", "layer"])
def test_padding_says_nothing_and_may_be_all_there_is(normalization: str) -> None:
    torch.manual_seed(3)
    net = bilstm.build(model(normalization), (7, 20), 4)
    tokens = torch.tensor([[5, 9, 2, 0, 0, 0, 0], [0] * 7])
    logits = net(tokens)
    torch.testing.assert_close(logits[:1], net(tokens[:1, :3]))
    torch.testing.assert_close(logits, net(tokens.int()))
    torch.testing.assert_close(logits[1], net.dense_norm(net.dense.bias))
    F.cross_entropy(logits, torch.tensor([0, 1])).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    assert net.embedding.weight.grad[0].abs().sum() == 0


@pytest.mark.parametrize(
    ("normalization", "unnormalized", "norms"),
    [("none", 0, 0), ("layer", 0, 5), ("layer", 1, 4), ("layer", 2, 0)],
)
def test_parameters_and_where_norms_are(normalization: str, unnormalized: int, norms: int) -> None:
    net = bilstm.build(model(normalization, unnormalized), (32, 1000), 4)
    assert sum(isinstance(layer, nn.LayerNorm) for layer in net.modules()) == norms
    lstm = 2 * 4 * 32 * (100 + 32 + (4 if norms > 1 else 1))  # a bias, or two gains and two shifts
    dense = 4 * (64 + 1 + (2 if norms == 5 else 0))
    assert sum(value.numel() for value in net.parameters()) == 1000 * 100 + lstm + dense


def test_refuses_normalisations_of_images() -> None:
    with pytest.raises(UserError, match=r"'group' is for images; allowed: none, layer"):
        build_net(model("group"), (32, 10), 4)


@pytest.mark.parametrize("normalization", ["none", "layer"])
def test_vectors_of_words_are_what_an_embedding_makes_of_their_tokens(normalization: str) -> None:
    by_tokens = build_net(model(normalization), (6, 9), 4)
    by_vectors = build_net(model(normalization), (1, 6, bilstm.EMBEDDING), 4)
    weights = by_tokens.state_dict()
    table = weights.pop("embedding.weight")
    by_vectors.load_state_dict(weights)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 8], [2, 7, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(by_vectors(table[tokens][:, None]), by_tokens(tokens))
