"""Networks of texts, adapters of low rank, and networks as functions of their tensors."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from dprepro.clipping.clippers import clipper_factory
from dprepro.clipping.functional import functional_call
from dprepro.clipping.gradients import BookKeeping, OneByOne
from dprepro.clipping.limits import ClipLimits
from dprepro.errors import UserError
from dprepro.pipeline.models import bilstm
from dprepro.pipeline.models.adapters import add_adapters
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


CLASSES, RANK = 3, 2
FROZEN = ("0.", "4.")  # layers with adapters, `.layer` each


def trunk() -> nn.Sequential:
    """A network whose batch norm has statistics of its own."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(6)
    net = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, stride=2, padding=1), norm, nn.ReLU(inplace=True), nn.Flatten()),
        *(nn.Linear(6 * 16, 8), nn.ReLU(inplace=True), nn.Linear(8, 10)),
    )
    norm.running_mean = torch.randn(6)
    norm.running_var = torch.rand(6) + 0.5
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return net


def images(count: int) -> Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def trained(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in net.named_parameters() if value.requires_grad}


def test_fresh_adapters_leave_the_networks_output() -> None:
    net, public = add_adapters(trunk(), RANK, CLASSES), trunk().eval()
    assert {name.rpartition(".")[0] for name in trained(net)} == {
        *(f"{place}{part}" for place in FROZEN for part in ("down", "up")), "6"
    }  # fmt: skip
    assert sum(value.numel() for value in trained(net).values()) == (
        RANK * 27 + 6 * RANK + RANK * 96 + 8 * RANK + 9 * CLASSES
    )
    # up to the last layer, in training mode too
    torch.testing.assert_close(net[:6](images(5)), public[:6](images(5)))


@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_gradients_are_those_of_one_example_at_a_time_and_all_adapters_move(clip: float) -> None:
    net, inputs, labels = add_adapters(trunk(), RANK, CLASSES), images(6), torch.arange(6) % CLASSES
    frozen = {name: value.clone() for name, value in net.state_dict().items() if name not in trained(net)}
    factory = clipper_factory(net, inputs[:1])
    fast, slow = factory(net), OneByOne(net)
    assert isinstance(fast, BookKeeping)
    tensors, start = trained(net), trained(net)
    bounds = ClipLimits.whole(torch.tensor(clip), len(tensors))
    for step in range(3):
        sums = fast(tensors, inputs, labels, torch.ones(6), bounds).sums
        expected = slow(tensors, inputs, labels, torch.ones(6), bounds).sums
        for name, value in sums.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)
            # the second layers begin at zero, so that the first ones move one step later
            assert bool(value.any()) == (step > 0 or not name.endswith("down.weight")), name
        tensors = {name: value - 0.1 * sums[name] for name, value in tensors.items()}
    assert not any(torch.equal(value, start[name]) for name, value in tensors.items())
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in frozen.items())
    outputs = torch.func.functional_call(net, tensors, (inputs,))
    alone = torch.cat([torch.func.functional_call(net, tensors, (each[None],)) for each in inputs])
    torch.testing.assert_close(outputs, alone)


class Twice(nn.Module):
    """A network that uses a layer under two names, and whose layers share a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.again, self.other.bias = self.first, self.first.bias
        self.register_buffer("shift", torch.zeros(3))

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.isnan().any():
            raise ValueError("not a number")
        outputs: Tensor = self.other(self.again(self.first(inputs))) + self.shift
        return outputs


@pytest.mark.parametrize("inputs", [torch.ones(2, 3), torch.full((2, 3), torch.nan)])
def test_tensors_are_replaced_under_all_names_and_put_back(inputs: Tensor) -> None:
    net, replacement = Twice(), Twice()
    shift = torch.ones(3)
    replacement.register_buffer("shift", shift)
    own = {name: (value, value.clone()) for name, value in (*net.named_parameters(), *net.named_buffers())}
    tensors = dict(replacement.named_parameters()) | dict(replacement.named_buffers())
    if inputs.isnan().any():
        with pytest.raises(ValueError, match="not a number"):
            functional_call(net, tensors, (inputs,))
    else:
        assert torch.equal(functional_call(net, tensors, (inputs,)), replacement(inputs))
        only = functional_call(net, {"shift": shift}, (inputs,))
        assert torch.equal(only, net(inputs) + 1)
    after = dict(net.named_parameters()) | dict(net.named_buffers())
    assert all(after[name] is value and torch.equal(value, copy) for name, (value, copy) in own.items())
    assert net.again is net.first
    assert net.other.bias is net.first.bias
    with pytest.raises(KeyError, match="no tensor 'third' in Twice"):
        functional_call(net, {"third": inputs}, (inputs,))
