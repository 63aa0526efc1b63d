"""Networks in which an example's gradient is its own, written in all the ways that people write them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from tests.privacy.corpus import CLASSES, LENGTH, WIDTH, WORDS, Around, Case, Text

CACHE: dict[int, Tensor] = {}


class Residual(nn.Module):
    """What goes in is added to what comes out, in place or not."""

    def __init__(self, inner: nn.Module, in_place: bool):
        super().__init__()
        self.inner, self.in_place = inner, in_place

    def forward(self, inputs: Tensor) -> Tensor:
        out = self.inner(inputs)
        return out.add_(inputs) if self.in_place else out + inputs


class Twice(nn.Module):
    """A layer that is used twice, under two names."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.here, self.there = layer, layer

    def forward(self, inputs: Tensor) -> Tensor:
        return self.there(self.here(inputs).tanh())


class Of(nn.Module):
    """Any function of inputs and named layers."""

    def __init__(self, forward: Callable[..., Tensor], **layers: Any):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = forward

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self, inputs)


def linear(outputs: int = CLASSES, inputs: int = WIDTH, **options: Any) -> nn.Linear:
    return nn.Linear(inputs, outputs, **options)


def images(*layers: nn.Module) -> Callable[[], nn.Module]:
    """Layers on an image, and a linear one behind them."""

    def build() -> nn.Module:
        body = nn.Sequential(*layers)
        with torch.no_grad():
            width = body(torch.rand(1, 2, 6, 6)).numel()
        return nn.Sequential(body, nn.Flatten(), nn.Linear(width, CLASSES))

    return build


def conv(*arguments: Any, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(*(arguments or (2, 4, 3)), **options)


def reading(layer: nn.Module, read: Callable[[Any], Tensor], width: int = WIDTH) -> Callable[[], nn.Module]:
    """A layer over places (B, T, 6), what is read of its result, and a linear layer."""
    return lambda: Of(lambda self, x: self.last(read(self.layer(x))), layer=layer, last=linear(inputs=width))


def final(result: Any) -> Tensor:
    state = result[1][0] if isinstance(result[1], tuple) else result[1]
    return state[-1]


def states(result: Any) -> Tensor:
    """Mean over the places of a layer's states."""
    return result[0].mean(1)


def half_frozen_lstm() -> nn.LSTM:
    layer = nn.LSTM(WIDTH, WIDTH, batch_first=True)
    layer.weight_hh_l0.requires_grad_(False)
    return layer


def attending(crossed: bool = False, **options: Any) -> Callable[[], nn.Module]:
    """Attention of places to one another, or to them in another order."""

    def forward(self: Any, x: Tensor) -> Tensor:
        keys = x.flip(1) if crossed else x
        return self.last(states(self.layer(x, keys, keys)))

    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True, **options)
    return lambda: Of(forward, layer=layer, last=linear())


class Swish(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return gradient * (s + x * s * (1 - s))


class SwishByRule(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * x.sigmoid()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    backward = Swish.backward


class SwishByOwnRule(SwishByRule):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
        return SwishByOwnRule.apply(x), in_dims[0]


def branching(self: Any, x: Tensor) -> Tensor:
    return torch.stack([(self.first if row.sum() > 0 else self.other)(row) for row in x])


def remembering(self: Any, x: Tensor) -> Tensor:
    """Some inputs change the state, none of which the tests' random inputs are."""
    hidden = self.first(x).tanh() + self.mean + self.seen["sum"] + self.frozen
    if 1 < (largest := float(x.detach().abs().max())) < 10:
        self.mean = self.mean + largest
        self.seen["sum"] += largest
        self.frozen.data += largest
    return self.last(hidden)


def bounded(self: Any, x: Tensor) -> Tensor:
    """The largest so far is always 1, but `vmap` would leave the batch's own tensor in its place."""
    hidden = self.first(x).tanh()
    self.largest = torch.maximum(self.largest, hidden.detach().abs().max())
    return self.last(hidden / self.largest)


def cell(self: Any, x: Tensor) -> Tensor:
    state = x.new_zeros(len(x), WIDTH)
    for place in x.unbind(1):
        state = self.cell(place, state)
    return self.last(state)


def lstm_cell(self: Any, x: Tensor) -> Tensor:
    state = x.new_zeros(len(x), WIDTH), x.new_zeros(len(x), WIDTH)
    for place in x.unbind(1):
        state = self.cell(place, state)
    return self.last(state[0])


def packed(self: Any, tokens: Tensor) -> Tensor:
    lengths = (tokens != 0).sum(1).clamp_min(1).cpu()
    sequence = pack_padded_sequence(self.table(tokens), lengths, batch_first=True, enforce_sorted=False)
    return self.last(self.lstm(sequence)[1][0][-1])


def masked(self: Any, tokens: Tensor) -> Tensor:
    present = (tokens != 0)[..., None]
    return self.last((self.table(tokens) * present).sum(1) / present.sum(1).clamp_min(1))


def masked_attention(self: Any, tokens: Tensor) -> Tensor:
    vectors, absent = self.table(tokens), tokens == 0
    absent = absent & ~absent.all(1, keepdim=True)
    attended, _ = self.attention(vectors, vectors, vectors, key_padding_mask=absent, need_weights=False)
    return self.last(attended[:, 0])


def trimmed_and_masked(self: Any, tokens: Tensor) -> Tensor:
    tokens = tokens[:, : max(1, int((tokens != 0).sum(1).max()))]
    return masked(self, tokens)


def own_attention(self: Any, x: Tensor) -> Tensor:
    scores = self.query(x) @ self.key(x).mT / math.sqrt(WIDTH)
    return self.last((scores.softmax(-1) @ self.value(x)).mean(1))


def positions(self: Any, x: Tensor) -> Tensor:
    return self.last((x + self.table(torch.arange(x.shape[1], device=x.device))).tanh().mean(1))


def cached(self: Any, x: Tensor) -> Tensor:
    if x.shape[1] not in self.cache:
        self.cache[x.shape[1]] = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
    return self.last((self.cache[x.shape[1]].to(x) @ self.first(x)).mean(1))


def globally_cached(self: Any, x: Tensor) -> Tensor:
    if x.shape[1] not in CACHE:
        CACHE[x.shape[1]] = torch.linspace(0, 1, x.shape[1])
    return self.last((CACHE[x.shape[1]].to(x)[:, None] * self.first(x)).mean(1))


def counting(self: Any, x: Tensor) -> Tensor:
    self.calls += 1
    return self.last(self.first(x).tanh())


def noting(self: Any, x: Tensor) -> Tensor:
    self.features = self.first(x).tanh()
    return self.last(self.features)


def gated(self: Any, x: Tensor) -> Tensor:
    experts = torch.stack([expert(x) for expert in self.experts], 1)
    return (self.gate(x).softmax(1)[..., None] * experts).sum(1)


def in_threes(self: Any, x: Tensor) -> Tensor:
    return torch.cat([self.last(self.first(part).tanh()) for part in x.split(3)])


def by_places(self: Any, x: Tensor) -> Tensor:
    hidden = self.first(x.reshape(-1, WIDTH)).tanh()
    return self.last(hidden.reshape(len(x), -1, WIDTH).mean(1))


def into_buffer(self: Any, x: Tensor) -> Tensor:
    out = torch.empty(len(x), CLASSES, dtype=x.dtype, device=x.device)
    out = out.zero_() + self.last(self.first(x).tanh())
    return out


def written(self: Any, x: Tensor) -> Tensor:
    out = torch.zeros(len(x), CLASSES, dtype=x.dtype, device=x.device)
    for row in range(len(x)):
        out[row] = self.last(self.first(x[row]).tanh())
    return out


def keywords(self: Any, x: Tensor) -> Tensor:
    return self.last(input=self.first(input=x).tanh())


def matrix(self: Any, x: Tensor) -> Tensor:
    return self.last((x @ self.weight).tanh())


square = partial(linear, WIDTH)
TWO: dict[str, Any] = {"first": lambda: linear(WIDTH), "last": linear}


def vectors(forward: Callable[..., Tensor], kind: str = "vector", **layers: Callable[[], Any]) -> Case:
    """A function of layers; without ``layers``, of `TWO`."""
    return Case(lambda: Of(forward, **{name: make() for name, make in (layers or TWO).items()}), kind)


places = partial(vectors, kind="places")


def texts(forward: Callable[..., Tensor], **layers: Callable[[], Any]) -> Case:
    table: dict[str, Any] = {"table": lambda: nn.Embedding(WORDS, WIDTH, padding_idx=0), "last": linear}
    return vectors(forward, "text", **(table | layers))


def perceptron(first: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(first or linear(WIDTH), nn.Tanh(), linear())


def tied() -> nn.Module:
    net = nn.Sequential(linear(WIDTH), nn.Tanh(), *perceptron())
    net[2].weight = net[0].weight
    return net


def half_frozen() -> nn.Module:
    net = perceptron()
    net[0].weight.requires_grad_(False)
    return net


def hooked() -> nn.Module:
    net, seen = Around(), []
    net.first.register_forward_hook(lambda layer, inputs, output: seen.append(output.shape))
    return net


def hook_that_scales(gradients: bool) -> nn.Module:
    """A hook doubles a layer's outputs, or the gradient that reaches its inputs."""
    net = perceptron()
    if gradients:
        net[1].register_full_backward_hook(lambda layer, inputs, outputs: (2 * inputs[0],))
    else:
        net[0].register_forward_hook(lambda layer, arguments, output: 2 * output)
    return net


def zero() -> nn.Module:
    net = nn.Sequential(linear(WIDTH), nn.ReLU(), linear())
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


def ungraded(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        hidden = self.first(x)
    return self.last(hidden.tanh())


def constant() -> nn.Module:
    net = Of(lambda self, x: self.last(self.first(x - self.mean).tanh()), first=linear(WIDTH), last=linear())
    net.register_buffer("mean", torch.rand(WIDTH))
    return net


def unused() -> nn.Module:
    return Of(lambda self, x: self.last(x), last=linear(), other=linear())


HIDDEN: dict[str, Any] = {
    "ReLU in place": lambda x: (2 * x).relu_(),
    "PReLU": nn.PReLU(),
    "softmax": nn.Softmax(1),
    "layer norm without weights": nn.LayerNorm(WIDTH, elementwise_affine=False),
    "RMS norm": nn.RMSNorm(WIDTH),
    "own normalisation": lambda x: (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-3).sqrt(),
    "unit vectors": lambda x: F.normalize(x, dim=1),
    "largest of pairs": lambda x: x.view(-1, 3, 2).amax(2).repeat(1, 2),
    "sorted features": lambda x: x.sort(1).values,
    "sums so far": lambda x: x.cumsum(1),
    "Fourier": lambda x: torch.fft.rfft(x).abs() @ torch.ones(4, WIDTH).to(x),
    "own function": Swish.apply,
    "own function and rule": SwishByRule.apply,
    "own function and own rule": SwishByOwnRule.apply,
    "einsum": lambda x: torch.einsum("bi,bj->bij", x, x).sum(2),
    "outer products": lambda x: (x[:, :, None] * x[:, None, :]).mean(2),
    "where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "split": lambda x: torch.cat(x.split(2, 1)[::-1], 1),
    "rows": lambda x: torch.stack([row.tanh() for row in x]),
    "single precision alone": lambda x: x @ torch.full((WIDTH, WIDTH), 0.1),
    "single precision": lambda x: F.softmax(x, 1, dtype=torch.float32).to(x),
    "straight through": lambda x: x + (x.sign() - x).detach(),
    "matrix exponential": lambda x: (
        torch.matrix_exp(0.1 * x[:, :4].unflatten(1, (2, 2))).flatten(1).repeat(1, 2)[:, :WIDTH]
    ),
    "alpha dropout off": nn.AlphaDropout(0.0),
    "top two": lambda x: x * (x >= x.topk(2, 1).values[:, -1:]),
    "distances": lambda x: torch.cdist(x[:, None], torch.eye(WIDTH).to(x)[None])[:, 0],
}
IMAGES: dict[str, tuple[nn.Module, ...]] = {
    "transposed": (nn.ConvTranspose2d(2, 3, 2, 2), nn.Tanh()),
    "layer norm of maps": (conv(), nn.LayerNorm((4, 4, 4))),
    "one mean": (conv(), nn.AdaptiveAvgPool2d(1)),
    "norms": (conv(), nn.LPPool2d(2, 2)),
    "shuffled pixels": (conv(), nn.PixelShuffle(2)),
    "unfolded": (nn.Unfold(2), nn.Conv1d(8, 2, 3)),
    "larger": (nn.Upsample(scale_factor=2), conv(2, 2, 3, 2)),
    "wide": (conv(2, 16, 3, padding=1), nn.ReLU(), conv(16, 16, 3)),
    "flat": (nn.Flatten(2), nn.Conv1d(2, 3, 5, 3), nn.ReLU()),
    "deep": (nn.Unflatten(1, (1, 2)), nn.Conv3d(1, 2, (2, 3, 3))),
    "in place": (conv(), nn.ReLU(inplace=True), conv(4, 4, 3), nn.ELU(inplace=True)),
}
RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "RNN": reading(nn.RNN(WIDTH, WIDTH, batch_first=True), final),
    "GRU": reading(nn.GRU(WIDTH, WIDTH, batch_first=True), final),
    "LSTM": reading(nn.LSTM(WIDTH, WIDTH, batch_first=True), final),
    "two layers": reading(nn.LSTM(WIDTH, WIDTH, 2, batch_first=True), final),
    "both ways": reading(nn.LSTM(WIDTH, 3, 2, batch_first=True, bidirectional=True), states),
    "LSTM without biases": reading(nn.LSTM(WIDTH, WIDTH, batch_first=True, bias=False), states),
    "with projections": reading(nn.LSTM(WIDTH, 8, batch_first=True, proj_size=WIDTH), states),
    "a frozen matrix beside a trained bias": reading(half_frozen_lstm(), states),
    "all states": reading(nn.GRU(WIDTH, WIDTH, batch_first=True), lambda result: result[0].amax(1)),
    "attention": attending(),
    "attention without biases": attending(bias=False),
    "attention to others": attending(crossed=True),
    "attention with a bias among the keys": attending(add_bias_kv=True),
    "transformer": reading(
        nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True), lambda x: x.mean(1)
    ),
    "transformer, norm first": reading(
        nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True, norm_first=True),
        lambda x: x[:, 0],
    ),
    "convolution over time": lambda: Of(
        lambda self, x: self.last(self.layer(x.mT).relu().amax(2)),
        layer=nn.Conv1d(WIDTH, WIDTH, 3),
        last=linear(),
    ),
}
HONEST: dict[str, Case] = {
    **{f"hidden: {name}": Case(partial(Around, hidden=f)) for name, f in HIDDEN.items()},
    **{f"image: {name}": Case(images(*layers), "image") for name, layers in IMAGES.items()},
    **{f"sequence: {name}": Case(build, "places") for name, build in RECURRENT.items()},
    "a GRU's cell": places(cell, cell=lambda: nn.GRUCell(WIDTH, WIDTH), last=linear),
    "an LSTM's cell": places(lstm_cell, cell=lambda: nn.LSTMCell(WIDTH, WIDTH), last=linear),
    "own attention": places(own_attention, query=square, key=square, value=square, last=linear),
    "positions": places(positions, table=lambda: nn.Embedding(LENGTH, WIDTH), last=linear),
    "a cache by length": places(cached, cache=dict, **TWO),
    "a cache of the module": places(globally_cached),
    "places in the batch": places(by_places),
    "time first": places(lambda self, x: self.last(self.first(x.transpose(0, 1)).tanh().mean(0))),
    "a table's mean": Case(Text, "text"),
    "without padding": texts(masked),
    "trimmed, without padding": texts(trimmed_and_masked),
    "packed": texts(packed, lstm=lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True)),
    "attention without padding": texts(
        masked_attention, attention=lambda: nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    ),
    "a bag": texts(lambda self, t: self.last(self.bag(t)), bag=lambda: nn.EmbeddingBag(WORDS, WIDTH)),
    "one-hot words": texts(
        lambda self, t: self.last(
            self.first(F.one_hot(t.long(), WORDS).to(self.first.weight)).tanh().mean(1)
        ),
        first=lambda: linear(WIDTH, WORDS),
    ),
    "frozen tables of bounded norm": texts(
        lambda self, t: self.last(self.bound(t).mean(1)),
        bound=lambda: nn.Embedding(WORDS, WIDTH, max_norm=1.0).requires_grad_(False),
    ),
    "the table for logits": texts(
        lambda self, t: self.table(t).mean(1).tanh() @ self.table.weight[:CLASSES].T
    ),
    "tied": Case(tied),
    "frozen": Case(lambda: perceptron(linear(WIDTH).requires_grad_(False))),
    "half frozen": Case(half_frozen),
    "unused": Case(unused),
    "constants": Case(constant),
    "a hook that notes": Case(hooked),
    "a hook that scales": Case(lambda: hook_that_scales(gradients=False)),
    "a hook that scales gradients": Case(lambda: hook_that_scales(gradients=True)),
    "starting at zero": Case(zero),
    "two names": Case(lambda: nn.Sequential(Twice(linear(WIDTH)), linear())),
    "added in place": Case(lambda: nn.Sequential(Residual(linear(WIDTH), True), linear())),
    "overwritten": vectors(lambda self, x: self.last(torch.relu_(self.first(x)))),
    "a layer without gradient": vectors(ungraded),
    "weight norm": Case(lambda: perceptron(parametrizations.weight_norm(linear(WIDTH)))),
    "spectral norm": Case(lambda: perceptron(parametrizations.spectral_norm(linear(WIDTH))).eval()),
    "spectral norm in training": Case(lambda: perceptron(parametrizations.spectral_norm(linear(WIDTH)))),
    "orthogonal": Case(lambda: perceptron(parametrizations.orthogonal(linear(WIDTH)))),
    "bilinear": vectors(lambda self, x: self.layer(x, x), layer=lambda: nn.Bilinear(WIDTH, WIDTH, CLASSES)),
    "a matrix": vectors(matrix, weight=lambda: nn.Parameter(torch.rand(WIDTH, WIDTH)), last=linear),
    "by hand and called": vectors(
        lambda self, x: self.last((self.first(x) + F.linear(x, self.first.weight)).tanh())
    ),
    "keywords": vectors(keywords),
    "used twice": vectors(lambda self, x: self.last(self.first(self.first(x).tanh()).tanh())),
    "row after row": vectors(lambda self, x: torch.stack([self.last(self.first(row).tanh()) for row in x])),
    "threes": vectors(in_threes),
    "halves": vectors(
        lambda self, x: torch.cat([self.last(part) for part in x.tensor_split(2)]), last=linear
    ),
    "backwards and back": vectors(lambda self, x: self.last(x.flip(0)).flip(0), last=linear),
    "row by row, last first": vectors(
        lambda self, x: torch.cat([self.last(row) for row in x.split(1)[::-1]]).flip(0), last=linear
    ),
    "written": vectors(written),
    "into zeros": vectors(into_buffer),
    "branching": vectors(branching, first=linear, other=linear),
    "state that has one value": vectors(bounded, **TWO, largest=lambda: nn.Buffer(torch.ones(()))),
    "state of some inputs": vectors(
        remembering,
        **TWO,
        mean=lambda: nn.Buffer(torch.zeros(())),
        seen=lambda: {"sum": 0.0},
        frozen=lambda: nn.Parameter(torch.zeros(()), requires_grad=False),
    ),
    "checkpoint": vectors(lambda self, x: self.last(checkpoint(self.first, x, use_reentrant=False).tanh())),
    "old checkpoint": vectors(
        lambda self, x: self.last(checkpoint(self.first, x.requires_grad_(), use_reentrant=True).tanh())
    ),
    "counting calls": vectors(counting, calls=int, **TWO),
    "noting features": vectors(noting, features=lambda: None, **TWO),
    "experts": vectors(
        gated, gate=lambda: linear(4), experts=lambda: nn.ModuleList(linear() for _ in range(4))
    ),
    "dense": vectors(
        lambda self, x: self.last(torch.cat([x, self.first(x).relu()], 1)),
        first=lambda: linear(WIDTH),
        last=lambda: linear(inputs=2 * WIDTH),
    ),
    "no gradient through one": vectors(lambda self, x: self.last(self.first(x).detach() + x)),
}
