"""Which way of clipped sums a network is taken by: the fastest that is right for it.

Nobody can read from a network's code whether its examples see each other, or whether a fast way has thought
of all that it does. So it is tried: on random inputs, which know nothing of any data, in batches of two and
three, beside each example alone.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.overrides import TorchFunctionMode

from pipeline.errors import UserError
from pipeline.models.normalization import initial_statistics
from pipeline.privacy.gradients import BookKeeping, Bounds, ClippedSum, Clipper, OneByOne, PerExample

BATCHES = (2, 3)
# Relative differences that are rounding. In double precision, which is tried first, rounding is far smaller,
# but some layers compute in single precision whatever they are given; whole networks that do differ by 1e-4.
TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3}
ClipperFactory = Callable[[nn.Module], Clipper]


def clipper_factory(
    net: nn.Module, example: Tensor, copies: int = 1, reference: bool = False, single_replica: bool = False
) -> ClipperFactory:
    """The first of `BookKeeping`, `PerExample` and `OneByOne` that is right for a network.

    Args:
        net: the network, in the mode in which it will be used.
        example: one of its inputs (1, ...), of which shape, type and device are looked at, and no value.
        copies: K of `Clipper`.
        reference: leave `BookKeeping` out.
        single_replica: see `BookKeeping`. Otherwise the way must go under `vmap` too.

    Raises:
        UserError: as `Trial`, or no way is right.
    """

    def book_keeping(net: nn.Module) -> Clipper:
        return BookKeeping(net, random_inputs(net, example, 1), copies, single_replica)

    factories: list[ClipperFactory] = [
        book_keeping,
        partial(PerExample, copies=copies),
        partial(OneByOne, copies=copies),
    ]
    trial = Trial.of(net, example, copies)
    for factory in factories[reference:]:
        if trial.agrees(factory, under_vmap=not single_replica):
            return factory
    raise UserError(
        "the network's gradients can't be taken under vmap; allowed: one replica at a time on a CPU"
    )


def refuse_memory(net: nn.Module, example: Tensor) -> None:
    """Refuse a network that keeps something of its inputs in a buffer, where its examples may see each other.

    Raises:
        UserError: two batches leave other buffers behind.
    """
    with _without_randomness(example.device):
        _compare_buffers(*(_pass(net, pair)[1] for pair in random_inputs(net, example, 4).split(2)))


class Trial:
    """A network on random inputs, each example alone; and whether batches of them give the same.

    Dropout is switched off: it draws for every example apart. All else stays in the mode in which it is, as
    batch norm mixes examples in one mode and not in the other. Any network that passes is right on these
    inputs, at these weights; that is no proof for others.
    """

    def __init__(self, net: nn.Module, example: Tensor, copies: int, dtype: torch.dtype):
        """Of copies of ``net`` in precision ``dtype``; see `way_for`.

        Raises:
            UserError: an example's logits aren't those that it has alone, or the network keeps something of
                its inputs.
        """
        _refuse_unsupported(net)
        self.net, self.copies = copy.deepcopy(net).to(dtype), copies
        self.tolerance, self.device = TOLERANCES[dtype], example.device
        random = torch.Generator().manual_seed(0)
        for layer in self.net.modules():
            if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
                layer.dropout = 0.0
        for weight in self.net.parameters():
            # nothing hides behind weights that start at zero, or at the bend of a ReLU
            size = weight.detach().abs() + (weight[0].numel() if weight.dim() > 1 else 1) ** -0.5
            weight.data += 0.1 * size * torch.randn(weight.shape, generator=random).to(weight)
        self.inputs = random_inputs(self.net, example, max(BATCHES) * copies)
        with _without_randomness(self.device):
            self.labels = torch.arange(max(BATCHES), device=self.device) % self._classes()
            trained = {name: value for name, value in self.net.named_parameters() if value.requires_grad}
            self.tensors = {name: value.detach() for name, value in trained.items()}
            self.tensors |= initial_statistics(self.net)
            self.expected = [
                self._sums(OneByOne(copy.deepcopy(self.net), copies), slice(position, position + 1))
                for position in range(max(BATCHES))
            ]

    @classmethod
    def of(cls, net: nn.Module, example: Tensor, copies: int = 1) -> "Trial":
        """In the best precision that the network takes."""
        problem: Exception | None = None
        for dtype in TOLERANCES:
            try:
                return cls(net, example, copies, dtype)
            except UserError:
                raise
            except Exception as error:  # whatever the network's own code raises
                problem = error
        text = str(problem).split("\n")[0]
        raise UserError(f"the network doesn't take one random input of shape {tuple(example.shape)}: {text}")

    def agrees(self, factory: ClipperFactory, under_vmap: bool) -> bool:
        """Whether the sums of batches are those of single examples."""
        with _without_randomness(self.device):
            try:
                return all(
                    is_close(
                        self._sums(factory(copy.deepcopy(self.net)), slice(0, count), under_vmap),
                        ClippedSum.of(self.expected[:count]),
                        self.tolerance,
                    )
                    for count in BATCHES
                )
            except Exception:  # it has no rule for a layer, or torch none for an operation
                return False

    def _classes(self) -> int:
        """How many logits an example has; refused where one sees another, or leaves something behind."""
        passes = [self._pass(example) for example in self.inputs[: max(BATCHES)].split(1)]
        single_logits = torch.cat([logits for logits, _ in passes])
        _compare_buffers(*(buffers for _, buffers in passes[:2]))
        if not _is_near(self._pass(self.inputs[:1], seed=1)[0], single_logits[:1], self.tolerance):
            raise UserError("the network draws random numbers; allowed: those of dropout")
        for count in BATCHES:
            batch_logits, _ = self._pass(self.inputs[:count])
            if not _is_near(batch_logits, single_logits[:count], self.tolerance):
                difference = (batch_logits - single_logits[:count]).norm() / single_logits[:count].norm()
                raise UserError(
                    f"the network mixes examples: in a batch of {count} logits are {difference:.2g} of their "
                    "size away from what each example has alone"
                )
        return single_logits.shape[1]

    def _pass(self, inputs: Tensor, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits (B, classes) of ``inputs`` (B, ...) by a fresh copy, and its buffers afterwards."""
        torch.manual_seed(seed)
        logits, buffers = _pass(self.net, inputs)
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(inputs):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise UserError(
                f"the network makes {shape} of {len(inputs)} examples; needed: ({len(inputs)}, classes)"
            )
        return logits, buffers

    def _sums(self, clipper: Clipper, selection: slice, under_vmap: bool = False) -> ClippedSum:
        """Of some examples, each weighed differently; every tensor is a part of its own, and unclipped."""
        inputs = self.inputs[selection.start * self.copies : selection.stop * self.copies].clone()
        ones = next(iter(self.tensors.values())).new_ones(len(self.tensors))
        mask = ones.new_tensor([0.5**position for position in range(max(BATCHES))])[selection]
        bounds = Bounds(ones.diag(), torch.inf * ones, ones)
        if not under_vmap:
            return clipper(self.tensors, inputs, self.labels[selection], mask, bounds)
        tensors = {name: value[None] for name, value in self.tensors.items()}
        replicated = vmap(clipper, in_dims=(0, 0, 0, 0, None))
        summed = replicated(tensors, inputs[None], self.labels[None, selection], mask[None], bounds)
        sums = {name: value[0] for name, value in summed.sums.items()}
        return ClippedSum(sums, summed.norms[0], summed.losses[0])


@contextmanager
def _without_randomness(device: torch.device) -> Iterator[None]:
    """Without dropout, and with random numbers that nobody else misses."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), _NoDropout():
        yield


def _pass(net: nn.Module, inputs: Tensor) -> tuple[Any, dict[str, Tensor]]:
    """What a fresh copy of ``net`` makes of ``inputs``, and its buffers afterwards."""
    net = copy.deepcopy(net)
    with torch.no_grad():
        return net(inputs.clone()), dict(net.named_buffers())


def _compare_buffers(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Refuse buffers that differ after other inputs."""
    for name, value in first.items():
        if not torch.equal(value, second[name]):
            raise UserError(f"the network keeps something of its inputs in {name!r}, without noise")


def is_close(sums: ClippedSum, expected: ClippedSum, tolerance: float) -> bool:
    """Whether two ways agree in every example's norms, in the losses and in the sum."""
    flat = [
        torch.cat([clipped.sums[name].flatten() for name in expected.sums])[None]
        for clipped in (sums, expected)
    ]
    return (
        _is_near(sums.norms, expected.norms, tolerance)
        and _is_near(sums.losses[None], expected.losses[None], tolerance)
        and _is_near(flat[0], flat[1], tolerance)
    )


def _is_near(values: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Whether rows differ by rounding alone, beside the largest row's size; never if one isn't finite."""
    return bool((values - expected).norm(dim=1).max() <= tolerance * expected.norm(dim=1).max())


class _NoDropout(TorchFunctionMode):
    """Dropout as a function hands on what it is given, also within attention."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = getattr(function, "__name__", ""), kwargs or {}
        if "dropout" in name:
            return args[0]
        if name == "scaled_dot_product_attention":
            options = {**options, "dropout_p": 0.0}
        return function(*args, **options)


def _refuse_unsupported(net: nn.Module) -> None:
    """Refuse what is known to be wrong by its name, with a better line than what would be seen of it."""
    for name, layer in net.named_modules():
        batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if batch_norm and (layer.training or not layer.track_running_stats):
            raise UserError(f"layer {name!r}: batch norm mixes examples; allowed: group norm, or eval()")
    for name, parameter in net.named_parameters():
        if parameter._backward_hooks:
            raise UserError(
                f"parameter {name!r}: has a hook, through which no clipped gradient goes; allowed: none"
            )


def random_inputs(net: nn.Module, example: Tensor, count: int) -> Tensor:
    """``count`` inputs like ``example`` (1, ...): numbers in [0, 1), tokens that every embedding has."""
    random, shape = torch.Generator().manual_seed(1), (count, *example.shape[1:])
    if example.is_floating_point():
        return torch.rand(shape, generator=random).to(example.device, next(net.parameters()).dtype)
    words = [layer.num_embeddings for layer in net.modules() if isinstance(layer, nn.Embedding)]
    return torch.randint(min(words, default=2), shape, generator=random).to(example)
