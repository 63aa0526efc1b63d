"""Networks in which one example may change another's gradient."""

import itertools
from collections import deque
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.utils import prune

from tests.privacy.corpus import CLASSES, WIDTH, WORDS, Around, Case, Text

CALLS: list[int] = []


def _quantized(x: Tensor) -> Tensor:
    scale = x.detach().abs().max().clamp_min(1e-3)
    return (x / scale * 127) + ((x / scale * 127).round() - x / scale * 127).detach()


def _scaled_if_large(x: Tensor) -> Tensor:
    return x / 8 if x.max() > 1 else x


def _centred_if_negative(x: Tensor) -> Tensor:
    return x - x.mean(0) if x.min() < -1 else x


def _without_outliers(x: Tensor) -> Tensor:
    return torch.minimum(x, x.detach().mean() + x.detach().std(correction=0))


def _ranked(x: Tensor) -> Tensor:
    order = x.sum(1).argsort()
    return x * (1 + torch.arange(len(x), device=x.device)[order.argsort()][:, None]) / len(x)


def _attending(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None])[0]


VALUES: dict[str, Any] = {
    "centred": lambda x: x - x.mean(0),
    "centred by a constant": lambda x: x - x.detach().mean(0),
    "over the largest": lambda x: x / x.abs().max().clamp_min(1),
    "over the largest, if large": _scaled_if_large,
    "centred if negative": _centred_if_negative,
    "cut at the median": lambda x: torch.where(x > x.median(), x, 0),
    "cut at the mean": lambda x: x.clamp(max=x.detach().mean().item()),
    "without outliers": _without_outliers,
    "sums so far": lambda x: x.cumsum(0),
    "turned around": lambda x: x + x.flip(0),
    "with the last": lambda x: x + x[-1:],
    "ranked": _ranked,
    "attending": _attending,
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True) if len(x) > 1 else x,
    "signs by the sum": lambda x: x * x.sum().sign(),
    "quantized": _quantized,
}


def _trimmed(tokens: Tensor) -> Tensor:
    return tokens[:, : max(1, int((tokens != 0).sum(1).max()))]


# What becomes of a text's vectors (B, T, 6), of whether a word is present (B, T), and of lengths (B,)
LENGTHS: dict[str, Any] = {
    "over the longest": lambda v, present, n: v.sum(1) / n.max().clamp_min(1),
    "over the mean length": lambda v, present, n: v.sum(1) / n.float().mean().clamp_min(1),
    "share of the longest": lambda v, present, n: v.mean(1) * (n / n.max().clamp_min(1))[:, None],
    "at the longest's end": lambda v, present, n: v[:, int(n.max().clamp_min(1)) - 1],
    "places present anywhere": lambda v, present, n: v.cumsum(1)[:, present.any(0)].mean(1),
    "shorter than the longest": lambda v, present, n: v.mean(1) * torch.where(n < n.max(), 1.0, 3.0)[:, None],
    "by the first text's length": lambda v, present, n: v[:, : max(1, int(n[0]))].mean(1),
    "by the shortest": lambda v, present, n: v[:, : max(1, int(n.min()))].mean(1),
    "words of all": lambda v, present, n: v.mean(1) + 0.1 * n.sum(),
}


class Lengths(Text):
    """Texts, with something of how long the longest of the batch is."""

    def __init__(self, hidden: Any):
        super().__init__()
        self.hidden = hidden

    def forward(self, tokens: Tensor) -> Tensor:
        present = tokens != 0
        return self.last(self.hidden(self.table(tokens), present, present.sum(1)))


def _if_size(condition: Any) -> Any:
    return lambda x: x - x.mean(0) if condition(len(x)) else x


def _in_groups(x: Tensor) -> Tensor:
    if len(x) % 4:
        return x
    groups = x.unflatten(0, (-1, 4))
    return F.layer_norm(groups, groups.shape[1:]).flatten(0, 1)


SIZES: dict[str, Any] = {
    **{f"from {size} on": _if_size(lambda n, size=size: n >= size) for size in (2, 4, 5, 8, 12, 16, 32, 64)},
    **{f"at {size}": _if_size(lambda n, size=size: n == size) for size in (2, 3, 7, 15, 16, 64)},
    "odd": _if_size(lambda n: n > 1 and n % 2),
    "even": _if_size(lambda n: n % 2 == 0),
    "groups of 4": _in_groups,
    "scaled by the size": lambda x: x * len(x) ** 0.5,
    "over the size": lambda x: x / len(x),
}


class Plain:
    """A plain object that a network changes."""

    def __init__(self) -> None:
        self.value: Any = 0.0


class Keeping(nn.Module):
    """State between calls, at a place of its own."""

    average: Tensor
    shared: ClassVar = [0.0]

    def __init__(self, kind: str):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.register_buffer("average", torch.zeros(WIDTH))
        self.kind, self.plain, self.calls = kind, Plain(), 0
        self.seen: Any = None
        self.recent: deque[Tensor] = deque(maxlen=3)
        self.numbers = itertools.count()
        self.array = np.zeros(1)
        self.random = torch.Generator().manual_seed(0)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs).tanh()
        return self.last(getattr(self, f"_{self.kind}")(hidden))

    def _buffer(self, x: Tensor) -> Tensor:
        self.average = 0.5 * self.average + 0.5 * x.detach().mean(0)
        return x - self.average

    def _buffer_in_place(self, x: Tensor) -> Tensor:
        self.average.mul_(0.5).add_(x.detach().mean(0))
        return x - self.average

    def _attribute(self, x: Tensor) -> Tensor:
        before, self.seen = self.seen, x.detach().mean(0)
        return x if before is None else x + before

    def _last_of_a_queue(self, x: Tensor) -> Tensor:
        self.recent.append(x.detach().sum(0))
        return x + 0.3 * sum(self.recent)

    def _number(self, x: Tensor) -> Tensor:
        before, self.plain.value = self.plain.value, float(x.detach().sum())
        return x + before

    def _flag(self, x: Tensor) -> Tensor:
        self.plain.value = not self.plain.value
        return x if self.plain.value else -x

    def _call_count(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (1 + self.calls)

    def _from_the_tenth_call(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x if self.calls < 10 else 5 * x

    def _from_the_hundredth_call(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x if self.calls < 100 else x - x.mean(0)

    def _iterator(self, x: Tensor) -> Tensor:
        return x * (1 + next(self.numbers) % 3)

    def _class_variable(self, x: Tensor) -> Tensor:
        Keeping.shared[0] = 1 - Keeping.shared[0]
        return x * (1 + Keeping.shared[0])

    def _module_variable(self, x: Tensor) -> Tensor:
        CALLS.append(len(CALLS))
        return x * (1 + len(CALLS) % 3)

    def _array(self, x: Tensor) -> Tensor:
        self.array += 1
        return x * float(self.array[0])

    def _own_random_numbers(self, x: Tensor) -> Tensor:
        return x + torch.rand(WIDTH, generator=self.random).to(x)

    def _numpy_random_numbers(self, x: Tensor) -> Tensor:
        return x * np.random.rand()


STATES = [name[1:] for name in vars(Keeping) if name.startswith("_") and name[1] != "_"]


def _closure() -> Any:
    calls = 0

    def count(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x * (1 + calls % 2)

    return count


class Largest(nn.Module):
    """Division by the largest input so far, or by 3, which came from public data."""

    largest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.tensor(3.0))

    def forward(self, inputs: Tensor) -> Tensor:
        self.largest = torch.maximum(self.largest, inputs.detach().abs().max())
        return inputs / self.largest


def _partial() -> Any:
    return partial(lambda seen, x: (seen.append(x.detach().sum().item()), x * (1 + abs(sum(seen))))[1], [])


def _local() -> Any:
    """An object that counts its calls and can't be pickled."""

    class Counter:
        calls = 0

        def __call__(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * (1 + self.calls)

    return Counter()


class _Backward(Function):
    """Hands its input on, and backwards what `mixed` makes of a gradient."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])


def _backwards(mixed: Any, by_rule: bool = False) -> Any:
    """A function with ``mixed`` of the gradient and the inputs as its backward pass."""

    class Mixed(_Backward):
        generate_vmap_rule = by_rule

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return mixed(gradient, ctx.saved_tensors[0])

    return Mixed.apply


def _own_rule(most: int) -> Any:
    """A function whose rule for vmap, which sees all examples, mixes more than ``most`` of them."""

    class Mixed(_Backward):
        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor) -> tuple[Tensor, int]:
            whole = x.movedim(in_dims[0], 0).clone()
            return (whole - whole.mean(0) if len(whole) > most else whole), 0

    return Mixed.apply


@torch.library.custom_op("dprepro_corpus::kept", mutates_args=())
def _kept(x: Tensor) -> Tensor:
    return x.clone()


@_kept.register_vmap
def _kept_of_all(info: Any, in_dims: Any, x: Tensor) -> tuple[Tensor, int]:
    whole = x.movedim(in_dims[0], 0).clone()
    return (whole - whole.mean(0) if len(whole) > 3 else whole), 0


_kept.register_autograd(lambda ctx, gradient: gradient)


def _hooked(change: Any) -> Any:
    def hook(x: Tensor) -> Tensor:
        y = x.clone()
        if y.requires_grad:
            y.register_hook(change)
        return y

    return hook


def _straight_through(mixed: Any) -> Any:
    return lambda x: x + mixed(x) - mixed(x).detach()


def with_backward_hook() -> nn.Module:
    net = Around()
    net.last.register_full_backward_hook(lambda layer, inputs, outputs: (inputs[0] - inputs[0].mean(0),))
    return net


BACKWARD: dict[str, Any] = {
    "minus the mean": _backwards(lambda g, x: g - g.mean(0)),
    "plus the mean, by a rule": _backwards(lambda g, x: g + g.mean(0), by_rule=True),
    "over the norm": _backwards(lambda g, x: g / g.norm().clamp_min(1e-6)),
    "times the largest input": _backwards(lambda g, x: g * x.abs().max()),
    "turned around if many": _backwards(lambda g, x: g.flip(0) if len(g) > 4 else g),
    "own rule": _own_rule(0),
    "own rule for batches that no trial has": _own_rule(8),
    "own rule of a custom operation": lambda x: _kept(x),
    "a hook that centres": _hooked(lambda g: g - g.mean(0)),
    "a hook that normalises": _hooked(lambda g: g / g.norm().clamp_min(1e-6)),
    "a hook from 8 on": _hooked(lambda g: g.flip(0) if len(g) >= 8 else g),
    "straight through the mean": _straight_through(lambda x: x.mean(0)),
    "straight through the sum": _straight_through(lambda x: x.sum()),
    "straight through the largest": _straight_through(lambda x: x.max()),
    "straight through sums so far": _straight_through(lambda x: x.cumsum(0)),
}
PRECISION: dict[str, Any] = {
    "in single precision": lambda x: x - x.mean(0) if x.dtype == torch.float32 else x,
    "in half precision": lambda x: (x.bfloat16() - x.bfloat16().mean(0)).to(x),
    "scaled to half precision": lambda x: (x / x.abs().max().clamp_min(1e-6)).half().to(x),
    "single precision and many": lambda x: x.flip(0) if x.dtype == torch.float32 and len(x) > 8 else x,
}


class Folded(nn.Module):
    """Places of all examples in one batch of a layer, normalised together."""

    def __init__(self, across: Any):
        super().__init__()
        self.layer, self.last, self.across = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3), across

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.across(self.layer(inputs)).mean(1))


def first_of(layer: nn.Module) -> Any:
    return lambda x: layer(x)[0]


MIXING: dict[str, Case] = {
    **{f"value, inputs: {name}": Case(partial(Around, inputs=f)) for name, f in VALUES.items()},
    **{f"value, hidden: {name}": Case(partial(Around, hidden=f)) for name, f in VALUES.items()},
    "length: trimmed": Case(lambda: Text(_trimmed), "text"),
    "length: trimmed, then the last": Case(lambda: Text(_trimmed, lambda v: v[:, -1]), "text"),
    "length: trimmed, then the largest": Case(lambda: Text(_trimmed, lambda v: v.amax(1) + v.std(1)), "text"),
    **{f"length: {name}": Case(partial(Lengths, hidden), "text") for name, hidden in LENGTHS.items()},
    **{f"size: {name}": Case(partial(Around, hidden=f)) for name, f in SIZES.items()},
    **{f"state: {name}": Case(partial(Keeping, name)) for name in STATES},
    "state: closure": Case(lambda: Around(hidden=_closure())),
    "state: the largest so far, in a buffer": Case(lambda: Around(inputs=Largest())),
    "state: partial": Case(lambda: Around(hidden=_partial())),
    "state: an object that can't be pickled": Case(lambda: Around(hidden=_local())),
    **{f"backward: {name}": Case(partial(Around, hidden=f)) for name, f in BACKWARD.items()},
    "backward: a layer's hook": Case(with_backward_hook),
    **{f"precision: {name}": Case(partial(Around, hidden=f)) for name, f in PRECISION.items()},
    "layer: batch norm": Case(lambda: Around(hidden=nn.BatchNorm1d(WIDTH))),
    "layer: batch norm without averages": Case(
        lambda: Around(hidden=nn.BatchNorm1d(WIDTH, track_running_stats=False).eval())
    ),
    "layer: places of all": Case(lambda: Folded(lambda x: x - x.mean((0, 1))), "places"),
    "layer: places standardised": Case(
        lambda: Folded(lambda x: F.layer_norm(x.mT, (x.shape[1],)).mT - x.mean(0)), "places"
    ),
    "layer: an LSTM that takes examples for times": Case(
        lambda: Folded(first_of(nn.LSTM(WIDTH, WIDTH))), "places"
    ),
}


def with_parameter_hook() -> nn.Module:
    net = nn.Linear(WIDTH, CLASSES)
    net.weight.register_hook(lambda gradient: 2 * gradient)
    return net


def clamping() -> nn.Module:
    """A layer that keeps its weights small whenever it runs."""
    net = nn.Linear(WIDTH, CLASSES)

    def clamp(layer: nn.Linear, _: object) -> None:
        with torch.no_grad():
            layer.weight.clamp_(-0.1, 0.1)

    net.register_forward_pre_hook(clamp)
    return net


def pruned() -> nn.Module:
    net = nn.Sequential(nn.Linear(WIDTH, CLASSES))
    prune.l1_unstructured(net[0], "weight", 0.3)
    return net


def in_half(hidden: Tensor) -> Tensor:
    """A product that autocast computes in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        return (hidden @ torch.ones(WIDTH, WIDTH)).float()


def half_body() -> nn.Module:
    body = nn.Linear(WIDTH, WIDTH).bfloat16().requires_grad_(False)
    return nn.Sequential(Around(hidden=lambda x: body(x.bfloat16()).float()), nn.Linear(CLASSES, CLASSES))


# Networks that make something else than one row of each example, or that can't be tried
IMPOSSIBLE: dict[str, Case] = {
    "every second": Case(lambda: Around(hidden=lambda x: x[::2])),
    "folded into the batch": Case(
        lambda: nn.Sequential(nn.Flatten(0, 1), nn.Linear(WIDTH, CLASSES)), "places"
    ),
    "folded into one": Case(
        lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.Flatten(0), nn.Unflatten(0, (1, -1)))
    ),
    "moved": Case(lambda: Around(hidden=lambda x: x.T)),
    "random numbers": Case(lambda: Around(hidden=lambda x: x + torch.randn_like(x))),
    "a hook on a parameter": Case(with_parameter_hook),
    "weight norm that can't be copied": Case(
        lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(WIDTH, CLASSES)))
    ),
    "a table of bounded norm": Case(
        lambda: nn.Sequential(nn.EmbeddingBag(WORDS, WIDTH, max_norm=1.0), nn.Linear(WIDTH, CLASSES)), "text"
    ),
    "weights that a call clamps": Case(clamping),
    "pruned": Case(pruned),
    "scripted": Case(lambda: torch.jit.script(nn.Linear(WIDTH, CLASSES))),
    "half precision inside": Case(lambda: Around(hidden=in_half)),
    "a frozen body in half precision": Case(half_body),
    "another shape": Case(lambda: nn.Linear(WIDTH + 1, CLASSES)),
    "batch norm without weights": Case(
        lambda: nn.Sequential(
            nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2, affine=False), nn.Flatten(), nn.Linear(32, CLASSES)
        ),
        "image",
    ),
}
