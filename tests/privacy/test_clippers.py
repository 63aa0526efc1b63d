"""Networks are tried first: what mixes is refused, what a fast way gets wrong goes slower."""

import math
import warnings
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

import dprepro
from pipeline.privacy.clippers import clipper_factory
from pipeline.privacy.gradients import BookKeeping, Bounds, OneByOne, PerExample
from tests.faults.networks import Residual, Twice, one_by_one

WIDTH, CLASSES, WORDS = 6, 4, 9
INPUTS = {
    "vector": (WIDTH,),
    "places": (5, WIDTH),
    "image": (1, 8, 8),
    "text": (5,),
}


class Between(nn.Module):
    """A function or a layer of hidden vectors between two trained layers."""

    def __init__(self, between: Callable[[Tensor], Tensor] | nn.Module):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.between = between

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.between(self.first(inputs)))


class Around(nn.Module):
    """A trained layer whose inputs and outputs are shaped by functions."""

    def __init__(self, before: Callable[[Tensor], Tensor], after: Callable[[Tensor], Tensor]):
        super().__init__()
        self.layer, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.before, self.after = before, after

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(self.after(self.layer(self.before(inputs)).tanh()))


class Tied(nn.Module):
    """The table of the tokens is used as an output layer's weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.table(tokens).mean(1).tanh(), self.table.weight)


class Ungraded(nn.Module):
    """A layer that is used where no gradient is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.first(inputs)
        return self.last(hidden.tanh())


class Sequences(nn.Module):
    """A layer over (B, T, 6), and the mean over T."""

    def __init__(self, layer: nn.Module, out: int, calls: int = 1):
        super().__init__()
        self.layer, self.out, self.calls = layer, nn.Linear(out, CLASSES), calls

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.layer(*[inputs] * self.calls)
        return self.out((hidden[0] if isinstance(hidden, tuple) else hidden).mean(1))


class Branching(nn.Module):
    """What is computed depends on values, which `vmap` can't take."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([(self.first if row.sum() > 3 else self.last)(row) for row in inputs])


class Averaging(nn.Module):
    """Keeps an average of its inputs, as batch norm does."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        self.average = 0.9 * self.average + 0.1 * inputs.detach().mean(0)
        return inputs


def hooked(which: int, method: str, hook: Callable[..., object]) -> nn.Module:
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    getattr(net[which], method)(hook)
    return net


def with_parameter_hook() -> nn.Module:
    net = nn.Linear(WIDTH, CLASSES)
    net.weight.register_hook(lambda gradient: 2 * gradient)
    return net


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4),
        nn.ELU(inplace=True), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def zero() -> nn.Module:
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


# Network and kind of inputs, and what is said of it
REFUSED: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "batch norm": (lambda: Between(nn.BatchNorm1d(WIDTH)), "vector", "'between': batch norm mixes"),
    "batch norm without weights": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, affine=False), nn.Flatten(), nn.Linear(72, CLASSES)
        ),
        "image",
        "layer '1': batch norm mixes examples; allowed: group norm, or eval()",
    ),
    "functional batch norm": (
        lambda: Around(lambda x: x, lambda x: F.batch_norm(x.mT, None, None, training=True).mean(2)),
        "places",
        "mixes examples: in a batch of 2",
    ),
    "centred": (lambda: Between(lambda x: x - x.mean(0)), "vector", "mixes examples: in a batch of 2"),
    "centred by constants": (lambda: Between(lambda x: x - x.detach().mean(0)), "vector", "mixes examples"),
    "an LSTM that takes examples for times": (
        lambda: Sequences(nn.LSTM(WIDTH, 3), 3),
        "places",
        "mixes examples: in a batch of 2",
    ),
    "turned around": (lambda: Between(lambda x: x.flip(0)), "vector", "mixes examples: in a batch of 2"),
    "every second": (
        lambda: Between(lambda x: x[::2]),
        "vector",
        r"\(1, 4\) of 2 examples; needed: \(2, classes\)",
    ),
    "folded into the batch": (
        lambda: nn.Sequential(nn.Flatten(0, 1), nn.Linear(WIDTH, CLASSES)),
        "places",
        r"makes \(5, 4\) of 1 examples; needed: \(1, classes\)",
    ),
    "folded into one": (
        lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.Flatten(0), nn.Unflatten(0, (1, -1))),
        "vector",
        r"makes \(1, 8\) of 2 examples; needed: \(2, classes\)",
    ),
    "moved": (
        lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES), Around(lambda x: F.pad(x, (0, 2)), lambda x: x.T)),
        "vector",
        "the network",
    ),
    "running averages": (
        lambda: Between(Averaging()),
        "vector",
        "keeps something of its inputs in 'between.aver",
    ),
    "random numbers": (lambda: Between(lambda x: x + torch.randn_like(x)), "vector", "draws random numbers"),
    "a hook on a parameter": (with_parameter_hook, "vector", "parameter 'weight': has a hook"),
    "weight norm that can't be copied": (
        lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(WIDTH, CLASSES))),
        "vector",
        "deepcopy",
    ),
    "another shape": (
        lambda: nn.Linear(WIDTH + 1, CLASSES),
        "vector",
        "doesn't take .* shapes cannot be mult",
    ),
}
# The way by which it must go, where there is one replica and where there are several
TAKEN: dict[str, tuple[Callable[[], nn.Module], str, type, type]] = {
    "in place": (images, "image", BookKeeping, BookKeeping),
    "in place by a function": (lambda: Between(torch.relu_), "vector", BookKeeping, BookKeeping),
    "added in place": (
        lambda: nn.Sequential(Residual(nn.Linear(WIDTH, WIDTH), True), nn.Linear(WIDTH, CLASSES)),
        "vector",
        BookKeeping,
        BookKeeping,
    ),
    "a tied table": (Tied, "text", PerExample, PerExample),
    "a layer without gradient": (Ungraded, "vector", BookKeeping, BookKeeping),
    "two names": (
        lambda: nn.Sequential(Twice(nn.Linear(WIDTH, WIDTH)), nn.Linear(WIDTH, CLASSES)),
        "vector",
        BookKeeping,
        BookKeeping,
    ),
    "a hook that scales": (
        lambda: hooked(0, "register_forward_hook", lambda layer, arguments, output: 2 * output),
        "vector",
        PerExample,
        PerExample,
    ),
    "a hook that scales gradients": (
        lambda: hooked(1, "register_full_backward_hook", lambda layer, inputs, outputs: (2 * inputs[0],)),
        "vector",
        OneByOne,
        OneByOne,
    ),
    "examples second": (
        lambda: Around(lambda x: x.transpose(0, 1), lambda x: x.mean(0)),
        "places",
        BookKeeping,
        BookKeeping,
    ),
    "places folded into the batch": (
        lambda: Around(lambda x: x.flatten(0, 1), lambda x: x.unflatten(0, (-1, 5)).mean(1)),
        "places",
        BookKeeping,
        BookKeeping,
    ),
    "attention": (
        lambda: Sequences(nn.MultiheadAttention(WIDTH, 2, batch_first=True), WIDTH, 3),
        "places",
        PerExample,
        PerExample,
    ),
    "a transformer's layer": (
        lambda: Sequences(nn.TransformerEncoderLayer(WIDTH, 2, 8, batch_first=True, dropout=0.0), WIDTH),
        "places",
        PerExample,
        PerExample,
    ),
    "LSTM": (lambda: Sequences(nn.LSTM(WIDTH, 3, 2, batch_first=True), 3), "places", OneByOne, OneByOne),
    "GRU": (lambda: Sequences(nn.GRU(WIDTH, 3, batch_first=True), 3), "places", OneByOne, OneByOne),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, CLASSES))),
        "vector",
        PerExample,
        PerExample,
    ),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, CLASSES))).eval(),
        "vector",
        PerExample,
        PerExample,
    ),
    "branching": (Branching, "vector", OneByOne, OneByOne),
    "starting at zero": (zero, "vector", BookKeeping, BookKeeping),
    "single precision inside": (
        lambda: Between(lambda x: F.softmax(x, 1, dtype=torch.float32).to(x.dtype)),
        "vector",
        BookKeeping,
        BookKeeping,
    ),
    "single precision alone": (
        lambda: Between(lambda x: x @ torch.full((WIDTH, WIDTH), 0.1)),
        "vector",
        BookKeeping,
        BookKeeping,
    ),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of vmap, attention and hooks
        yield


def made(build: Callable[[], nn.Module], kind: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    net, labels = build(), torch.arange(5) % CLASSES
    if kind == "text":
        return net, torch.randint(WORDS, (5, *INPUTS[kind])), labels
    return net, torch.rand(5, *INPUTS[kind]), labels


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_is_no_function_of_single_examples_is_refused(name: str) -> None:
    build, kind, said = REFUSED[name]
    net, inputs, labels = made(build, kind)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    numbers = torch.random.get_rng_state()
    for reference in (False, True):
        with pytest.raises(dprepro.UserError, match=said) as caught:
            dprepro.clipped_sum(net, inputs, labels, 1.0, reference=reference)
        assert "\n" not in str(caught.value)
        with pytest.raises(dprepro.UserError, match=said):
            clipper_factory(net, inputs[:1], reference=reference, single_replica=False)(net)
    assert torch.equal(torch.random.get_rng_state(), numbers)
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize("name", TAKEN)
def test_others_are_clipped_rightly_by_the_fastest_way_that_is(name: str) -> None:
    build, kind, alone, _ = TAKEN[name]
    net, inputs, labels = made(build, kind)
    norms, sums = one_by_one(net, inputs, labels)
    net.zero_grad()
    assert type(clipper_factory(net, inputs[:1], single_replica=True)(net)) is alone
    for reference in (False, True):
        for _ in range(2):  # the first leaves the network as it was
            actual = dprepro.clipped_sum(net, inputs.clone(), labels, 0.7, reference=reference)
            assert actual.sums.keys() == sums.keys()
            torch.testing.assert_close(actual.norms[:, 0], norms, rtol=1e-4, atol=1e-6)
            for key, value in sums.items():
                torch.testing.assert_close(actual.sums[key], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", TAKEN)
def test_so_they_are_under_vmap_or_refused(name: str) -> None:
    build, kind, _, several = TAKEN[name]
    net, inputs, labels = made(build, kind)
    if several is OneByOne:  # which is a loop of ordinary passes
        with pytest.raises(dprepro.UserError, match="can't be taken under vmap"):
            clipper_factory(net, inputs[:1], single_replica=False)(net)
        return
    norms, _ = one_by_one(net, inputs, labels)
    clipper = clipper_factory(net, inputs[:1], single_replica=False)(net)
    assert type(clipper) is several
    tensors = {name: value.detach()[None] for name, value in net.named_parameters()}
    bounds = Bounds(*(part[None] for part in Bounds.whole(torch.tensor(0.7), len(tensors))))
    actual = vmap(clipper)(tensors, inputs[None], labels[None], torch.ones(1, 5), bounds)
    torch.testing.assert_close(actual.norms[0, :, 0], norms, rtol=1e-4, atol=1e-6)


def test_dropout_is_no_mixing_and_draws_for_every_example() -> None:
    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, inputs: Tensor) -> Tensor:
            hidden = self.first(inputs)
            return self.last(F.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=0.5).mean(1))

    for build, kind in (
        (lambda: Between(nn.Dropout(0.5)), "vector"),
        (lambda: Between(lambda x: F.dropout(x, 0.5)), "vector"),
        (lambda: Sequences(nn.TransformerEncoderLayer(WIDTH, 2, 8, batch_first=True), WIDTH), "places"),
        (lambda: Sequences(nn.LSTM(WIDTH, 3, 2, batch_first=True, dropout=0.5), 3), "places"),
        (Attentive, "places"),
    ):
        net, inputs, labels = made(build, kind)
        same = inputs[:1].expand_as(inputs).clone()
        norms = dprepro.clipped_sum(net, same, labels * 0, 1.0).norms[:, 0]
        assert len(set(norms.tolist())) > 1
    net, inputs, labels = made(lambda: Between(nn.Dropout(0.5)), "vector")
    assert dprepro.clipped_sum(net, inputs, labels, 1.0, reference=True).norms.shape == (5, 1)


def test_a_network_is_tried_once_and_again_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    clipper_factory = Mock(wraps=dprepro.gradients.clipper_factory)
    monkeypatch.setattr("dprepro.gradients.clipper_factory", clipper_factory)
    net, inputs, labels = made(lambda: Between(nn.BatchNorm1d(WIDTH)), "vector")
    net.eval()
    for number in (2, 5):
        dprepro.clipped_sum(net, inputs[:number], labels[:number], 1.0)
    assert clipper_factory.call_count == 1
    net.train()
    with pytest.raises(dprepro.UserError, match="batch norm mixes"):
        dprepro.clipped_sum(net, inputs, labels, 1.0)
    net.eval()
    net.first.register_forward_hook(lambda layer, arguments, output: 2 * output)
    norms, _ = one_by_one(net, inputs, labels)
    torch.testing.assert_close(dprepro.clipped_sum(net, inputs, labels, 1.0).norms[:, 0], norms)


def test_one_record_moves_the_sum_of_examples_that_lie_second_by_at_most_the_clip() -> None:
    for name in ("examples second", "places folded into the batch", "a tied table", "in place"):
        build, kind, *_ = TAKEN[name]
        net, inputs, labels = made(build, kind)
        whole, without = (dprepro.clipped_sum(net, inputs[:n], labels[:n], 0.1).sums for n in (5, 4))
        moved = math.sqrt(sum(float((whole[key] - without[key]).square().sum()) for key in whole))
        assert 0.099 < moved <= 0.1 * (1 + 1e-5)
