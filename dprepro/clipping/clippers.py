"""Choice of the fastest correct clipper for a network, by trials on random inputs.

`BookKeeping` and `PerExample` run the network as a function of one example under `torch.func.vmap`.
`OneByOne` runs the network on one example after the other. With all three, no network can mix examples; only
a network that `works_by_example` runs on the batch itself. But a clipper's gradients may be wrong, and a
network may keep state between calls, or may be meant to mix the examples of a batch. So a trial runs the
network on three random inputs, without data, and compares each example in a batch with the example alone.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.module_tracker import ModuleTracker

from dprepro.clipping.functional import Inputs, Tensors, a_tensor, joined, of_each, run, split
from dprepro.clipping.gradients import BookKeeping, Clipper, Loss, Measured, OneByOne, PerExample, loss_of
from dprepro.clipping.layers import watch_layers
from dprepro.clipping.limits import ClipLimits
from dprepro.clipping.network_state import Contents, call, changed, contents_of, fixed_randomness
from dprepro.clipping.normalization import initial_statistics
from dprepro.errors import UserError
from dprepro.fields import Isolation

SIZES = (2, 3)  # of batches that are compared with each example alone
HALVES = {torch.float16, torch.bfloat16}
COPYING = {"_to_copy", "clone", "copy", "embedding"}  # of numbers in half precision, without rounding
TINY = 1e-30  # in place of a norm of 0
# Functions of torch with dropout inside; their only positional number with a fraction is its probability
WITH_DROPOUT = {
    *("lstm", "gru", "rnn_tanh", "rnn_relu"),
    *("multi_head_attention_forward", "scaled_dot_product_attention"),
}
# Relative differences that count as rounding. In double precision, which is tried first, rounding is far
# smaller, but some layers always compute in single precision; networks of such layers differ by 1e-4.
TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3}


@dataclass(frozen=True)
class ClipperFactory:
    """Chosen clipper class with its options, for any copy of a network."""

    way: type[BookKeeping | PerExample | OneByOne]
    example: Inputs  # (1, ...), as in `random_inputs`
    copies: int
    resets: bool  # whether calls under `vmap` get copies of the network's state, as those of `OneByOne` do
    taps: bool  # as in `BookKeeping`
    measured: Measured | None = None  # by the first clipper

    @property
    def isolation(self) -> Isolation:
        """Reason why examples don't mix."""
        return "one_at_a_time" if self.way is OneByOne else "by_construction"

    def __call__(self, net: nn.Module, loss: Loss | None = None) -> Clipper:
        """Clipper for ``net``, with the loss of one example ``loss`` (`loss_of`)."""
        if self.way is BookKeeping:
            example = self.example if self.measured else random_inputs(net, self.example, 1)
            return BookKeeping(net, example, self.copies, self.resets, self.taps, loss, self.measured)
        if self.way is OneByOne:
            return OneByOne(net, self.copies, loss)
        return PerExample(net, self.copies, self.resets, loss)


def clipper_factory(
    net: nn.Module, example: Inputs, copies: int = 1, reference: bool = False
) -> ClipperFactory:
    """First of `BookKeeping`, `PerExample` and `OneByOne` that is correct for a network.

    Args:
        net: the network, in the mode (train or eval) in which it will be used.
        example: one of its inputs (1, ...), for shape, type and device only; maybe several by keyword.
        copies: K of `Clipper`, augmented copies of each example.
        reference: leave `BookKeeping` out.

    Returns:
        The factory of clippers.

    Raises:
        UserError: an error of `Trial`, or no clipper is correct.
    """
    # glibc keeps up to twice as much freed memory as the largest freed block had, if this had less than
    # 32 MiB. Without it, new pages take up to a tenth of a step, a quarter of noise by several threads
    torch.empty(8_000_000)
    if not isinstance(example, Tensor):
        example = largest_inputs(net, example)
    trial = Trial.of(net, example, copies)
    # of a network that changes layers' outputs, gradients at the outputs are wrong
    in_place = any(getattr(layer, "inplace", False) for layer in net.modules())
    fast = ((BookKeeping, True),) if in_place else ((BookKeeping, False), (BookKeeping, True))
    ways = ((PerExample, False), (OneByOne, False))
    for way, taps in ways if reference else (*fast, *ways):
        factory = ClipperFactory(way, example, copies, trial.resets, taps)
        if clipper := trial.right_clipper(factory):
            return (
                replace(factory, measured=clipper.measured) if isinstance(clipper, BookKeeping) else factory
            )
    raise UserError("the network's gradients change from call to call; allowed: the same for the same input")


class Called(NamedTuple):
    """State of a network after some calls, and results of the first and the last call."""

    state: Contents | None  # None: not asked for
    buffers: Tensors  # after the first call
    first: list[Tensor]
    last: list[Tensor]


def renews_state(net: nn.Module, example: Tensor) -> bool:
    """Check whether each mini-set needs a fresh copy of a network's state.

    Examples of one mini-set may mix.

    Args:
        net: the network.
        example: one of its inputs (1, ...).

    Returns:
        True if the network keeps state between calls.

    Raises:
        UserError: an error of `keeps_state`.
    """
    with fixed_randomness(example.device), NoDropout():
        return keeps_state(net, split(random_inputs(net, example, 4), 2))


def keeps_state(net: nn.Module, inputs: Sequence[Inputs], tolerance: float = 1e-3) -> bool:
    """Check whether calls change a network's attributes, buffers or parameters, on two different inputs.

    Args:
        net: the network.
        inputs: two different inputs (B, ...).
        tolerance: relative difference of outputs that counts as rounding.

    Returns:
        True if they may change; calls then need copies of them. No result depends on them.

    Raises:
        UserError: a buffer depends on inputs; outputs for an input depend on the input before it; outputs
            change from call to call, or with random numbers.
    """

    def calls(*batches: Inputs, seed: int = 0, reads: bool = False) -> Called:
        called = copy.deepcopy(net)
        buffers: Tensors = {}
        outcomes: list[list[Tensor]] = []  # two, each as large as the network
        for number, batch in enumerate(batches, 1):
            with fixed_randomness(a_tensor(batch).device, seed):
                results = _results(called, batch)
            if number == 1:
                buffers = {name: value.clone() for name, value in called.named_buffers()}
            if number in (1, len(batches)):
                outcomes.append([part.float() for part in results])
        # copies, because a network's own way to be copied may share tensors with later calls
        state = copy.deepcopy(contents_of(called)) if reads else None
        return Called(state, buffers, outcomes[0], outcomes[-1])

    def is_same(outcome: list[Tensor], other: list[Tensor]) -> bool:
        if [part.shape for part in outcome] != [part.shape for part in other]:
            return False
        if all(map(torch.equal, outcome, other)):
            return True
        values, expected = (torch.cat([part.flatten() for part in parts]) for parts in (outcome, other))
        return _is_near(values.nan_to_num()[None], expected.nan_to_num()[None], tolerance)

    first, second = inputs
    alone = calls(first, first, first)
    mixed = calls(first, second, first, reads=True)
    others = calls(second).buffers if alone.buffers else {}
    for name, value in others.items():
        if not torch.equal(value, alone.buffers[name]):
            raise UserError(f"the network keeps something of its inputs in {name!r}, without noise")
    pairs = [(mixed.first, alone.first), (mixed.last, alone.last), (calls(first, seed=1).first, alone.first)]
    if not all(is_same(*pair) for pair in pairs):
        after_first, after_second = calls(first, reads=True), calls(second, reads=True)
        if not is_same(alone.first, after_first.first) or not is_same(alone.first, mixed.first):
            raise UserError(
                "the network keeps state between calls, outside of its own attributes: the same input gives "
                "other gradients from call to call; allowed: the same"
            )
        if not is_same(alone.last, mixed.last):
            kept = ", ".join(map(repr, changed(after_first.state or {}, after_second.state or {})[:3]))
            raise UserError(
                f"the network keeps something of its inputs between calls{kept and f' in {kept}'}: the same "
                "input gives other gradients after another one; allowed: the same"
            )
        raise UserError("the network draws random numbers; allowed: those of dropout")
    state = mixed.state or {}
    if changed(contents_of(net), state) or None in state.values():
        return True
    return any(map(_is_bounded, net.modules()))  # other inputs may look up longer rows


def _results(net: nn.Module, inputs: Inputs) -> tuple[Tensor, ...]:
    """Outputs of ``net`` for ``inputs``, and gradients of its trained parameters."""
    with torch.enable_grad():
        trained = {name: value for name, value in net.named_parameters() if value.requires_grad}
        with unchanged(trained):
            outputs = call(net, {}, of_each(inputs, Tensor.clone), resets=False)
        if not isinstance(outputs, Tensor):
            raise UserError(f"the network makes {type(outputs).__name__} of its inputs; needed: (B, classes)")
        if not outputs.requires_grad:
            return (outputs,)
        weights = torch.arange(1, outputs.numel() + 1, device=outputs.device).to(outputs).cos()
        total = (outputs.flatten() * weights).sum()
        gradients = torch.autograd.grad(total, list(trained.values()), materialize_grads=True)
    return outputs.detach(), *gradients


@contextmanager
def unchanged(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Raise `UserError` if a call of a network inside the block changes one of its ``tensors`` in place."""
    versions = {name: value._version for name, value in tensors.items() if not value.is_inference()}
    yield
    if moved := next((name for name, version in versions.items() if tensors[name]._version > version), None):
        raise UserError(
            f"the network changes {moved!r} when it runs, without noise; allowed: to change it after a step"
        )


class Example(NamedTuple):
    """Random example of K augmented copies; its logits and gradients of T tensors, alone in its batch."""

    inputs: Inputs  # (K, ...)
    label: float  # a class, or a number if the network has one output
    logits: Tensor  # (K, classes)
    gradients: Tensors  # in float32, to save memory
    norms: Tensor  # (T,) of each gradient

    @property
    def norm(self) -> float:
        """L2 norm of the whole gradient."""
        return float(self.norms.norm())


class Trial:
    """Comparison of a network's results for single random examples with its results for batches.

    The trial uses a copy with slightly changed weights, in the network's own mode (train or eval): batch norm
    mixes examples only in training mode. Dropout is switched off, because its random numbers differ between
    an example alone and in a batch. A network that passes may still be wrong on other inputs or weights.
    """

    def __init__(self, net: nn.Module, example: Inputs, copies: int, dtype: torch.dtype):
        """Try a copy of ``net`` in precision ``dtype``; other arguments as in `clipper_factory`.

        Raises:
            UserError: an example's logits or gradients depend on its batch, or an error of `keeps_state`.
        """
        self.net, self.copies = copy.deepcopy(net).to(dtype), copies
        self.tolerance, self.device = TOLERANCES[dtype], a_tensor(example).device
        random = torch.Generator().manual_seed(0)
        for layer in self.net.modules():
            if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
                layer.dropout = 0.0
        for weight in self.net.parameters():
            # random weights, because zeros, or the threshold of a ReLU, could hide an effect
            size = max(1, weight[:1].numel() if weight.dim() > 1 else 1) ** -0.5
            change = weight.data.abs().add_(size).mul_(torch.randn(weight.shape, generator=random).to(weight))
            weight.data.add_(change, alpha=0.1)
        trained = {name: value for name, value in self.net.named_parameters() if value.requires_grad}
        self.tensors = {name: value.detach() for name, value in trained.items()}
        self.tensors |= initial_statistics(self.net)
        with fixed_randomness(self.device), NoDropout():
            inputs = random_inputs(self.net, example, max(SIZES) * copies)
            first, second, *_ = split(inputs, 1)
            # numbers beyond those that the network may have seen, such as its largest so far
            unusual = of_each(
                second, lambda value: 100 * (0.5 - value) if value.is_floating_point() else value
            )
            try:
                # a GPU doesn't recover from numbers that are no rows of a table
                others = unusual if self.device.type == "cpu" else second
                self.resets = keeps_state(self.net, (first, others), self.tolerance)
            except UserError:
                raise
            except Exception:  # the network takes no such numbers
                self.resets = keeps_state(self.net, (first, second), self.tolerance)
            classes = self._logits(self.tensors, split(inputs, copies)[0]).shape[1]
            labels = [place % classes if classes > 1 else 0.5 for place in range(max(SIZES))]
            examples = list(zip(split(inputs, copies), labels, strict=True))
            try:
                with TorchsOperations():
                    self.examples = [self._example(*examples[0])]
                self.has_custom_operations = False
            except Exception:  # the mode's, or torch has no rule of an operation for modes
                self.examples = [self._example(*examples[0])]
                self.has_custom_operations = True
            self.examples += [self._example(*example) for example in examples[1:]]
            for size in SIZES:
                self._compare(size)

    @classmethod
    def of(cls, net: nn.Module, example: Inputs, copies: int = 1) -> "Trial":
        """Trial in the best precision that the network supports."""
        _refuse_unsupported(net)
        refuse_half_precision(net, example)
        problem: Exception | None = None
        for dtype in TOLERANCES:
            try:
                return cls(net, example, copies, dtype)
            except UserError:
                raise
            except Exception as error:  # the network's code may raise any exception
                problem = error
        text = str(problem).split("\n")[0]
        shape = tuple(a_tensor(example).shape)
        raise UserError(f"the network doesn't take one random input of shape {shape}: {text}")

    def right_clipper(self, factory: ClipperFactory) -> Clipper | None:
        """Clipper of the copy; None if its sums over batches aren't those of single examples' gradients."""
        if factory.way is not OneByOne and self.has_custom_operations:
            return None
        with fixed_randomness(self.device), NoDropout(), _without_own_rules():
            try:
                net = copy.deepcopy(self.net)
                clipper = factory(net)
                is_right = all(self._is_right(clipper, self.examples[:size]) for size in SIZES)
                # a tensor of `vmap` that stays in the network, and can't be read, holds what is of a batch
                is_readable = self.resets or None not in contents_of(net).values()
            except Exception:  # the clipper has no rule for a layer, or torch none for an operation
                return None
        return clipper if is_right and is_readable else None

    def _example(self, inputs: Inputs, label: float) -> Example:
        """Example of ``inputs`` (K, ...) and ``label``, alone in its batch."""
        logits, gradients = self._gradient(inputs, [label], [1.0])
        norms = torch.stack([value.norm() for value in gradients.values()])
        if not (torch.isfinite(logits).all() and torch.isfinite(norms).all()):
            raise UserError("the network makes numbers of random inputs that aren't finite; needed: finite")
        kept = {name: value.float() for name, value in gradients.items()}
        return Example(inputs, label, logits, kept, norms)

    def _compare(self, size: int) -> None:
        """Refuse a network whose results for a batch differ from its results for each example alone."""
        chosen = self.examples[:size]
        weights = _weights(chosen)
        try:
            logits, gradients = self._gradient(
                joined([example.inputs for example in chosen]),
                [example.label for example in chosen],
                weights,
            )
        except UserError:
            raise
        except Exception:  # the network takes no such batch, so it can't mix one
            return

        def check(values: str, distance: float, scale: float) -> None:
            difference = distance / max(scale, TINY)
            if not difference <= self.tolerance:
                raise UserError(
                    f"the network mixes examples: in a batch of {size} {values} are {difference:.2g} of "
                    "their size away from what each example has alone"
                )

        usual = float(self.examples[0].logits.norm())
        for example, row in zip(chosen, logits.split(self.copies), strict=True):
            scale = max(float(example.logits.norm()), usual)
            check("logits", float((row - example.logits).norm()), scale)
        scale = sum(weight * example.norm for weight, example in zip(weights, chosen, strict=True))
        check("gradients", self._distance(gradients, chosen, weights), scale)

    def _is_right(self, clipper: Clipper, chosen: list[Example]) -> bool:
        """Return whether a clipper's norms, losses and weighted, unclipped sum agree with single examples."""
        weights = _weights(chosen)
        ones = next(iter(self.tensors.values())).new_ones(len(self.tensors))
        inputs = joined([example.inputs for example in chosen])
        labels = torch.tensor([example.label for example in chosen], device=self.device)
        mask = ones.new_tensor(weights)
        bounds = ClipLimits(ones.diag(), torch.inf * ones)  # every tensor is a part, and unclipped
        summed = clipper(self.tensors, inputs, labels, mask, bounds)
        expected = torch.stack([example.norms for example in chosen])
        scales = expected.norm(dim=1).clamp_min(self.examples[0].norm)
        losses = torch.stack([_loss(example.logits, example.label) for example in chosen])
        scale = sum(weight * example.norm for weight, example in zip(weights, chosen, strict=True))
        return (
            bool(((summed.norms - expected).norm(dim=1) <= self.tolerance * scales).all())
            and _is_near(summed.losses[None], losses[None], self.tolerance)
            and self._distance(summed.sums, chosen, weights) <= self.tolerance * scale
        )

    def _distance(self, sums: Tensors, chosen: list[Example], weights: list[float]) -> float:
        """L2 distance of ``sums`` from the weighted sum of the examples' gradients."""
        squares = 0.0
        for name in self.tensors:
            parts = [example.gradients[name] for example in chosen]
            left = sums[name].to(parts[0], copy=True)
            for part, weight in zip(parts, weights, strict=True):
                left.sub_(part, alpha=weight)
            squares += float(left.norm()) ** 2
        return squares**0.5

    def _gradient(self, inputs: Inputs, labels: list[float], weights: list[float]) -> tuple[Tensor, Tensors]:
        """Logits (B K, classes) of B examples (K copies), and gradients of their weighted losses."""
        leaves = {name: value.detach().requires_grad_() for name, value in self.tensors.items()}
        with torch.enable_grad():
            logits = self._logits(leaves, inputs)
            losses = [
                weight * _loss(rows, label)
                for rows, label, weight in zip(logits.split(self.copies), labels, weights, strict=True)
            ]
            parts = torch.autograd.grad(
                torch.stack(losses).sum(), list(leaves.values()), materialize_grads=True
            )
        return logits.detach(), dict(zip(leaves, parts, strict=True))

    def _logits(self, tensors: Tensors, inputs: Inputs) -> Tensor:
        """Logits (B, classes) of ``inputs`` (B, ...)."""
        torch.manual_seed(0)
        logits = call(self.net, tensors, of_each(inputs, Tensor.clone), self.resets)
        size = len(a_tensor(inputs))
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != size:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise UserError(f"the network makes {shape} of {size} examples; needed: ({size}, classes)")
        return logits


def _loss(logits: Tensor, label: float) -> Tensor:
    """Mean loss () of an example's copies, whose logits are (K, classes)."""
    return loss_of(logits, torch.full((len(logits),), label, device=logits.device))


def _weights(chosen: list[Example]) -> list[float]:
    """Weights that differ and give every example a visible share in a sum of gradients."""
    largest = max(TINY, *(example.norm for example in chosen))
    return [
        (1 + 0.3 * (position % 5)) * largest / max(example.norm, 1e-3 * largest)
        for position, example in enumerate(chosen)
    ]


def _is_near(values: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Return whether all rows are finite and differ by rounding only, relative to the largest row."""
    return bool((values - expected).norm(dim=1).max() <= tolerance * expected.norm(dim=1).max())


@contextmanager
def _without_own_rules() -> Iterator[None]:
    """Make the `vmap` rules of custom autograd functions raise: such a rule sees all examples."""

    def fail(*arguments: Any) -> Any:
        raise NotImplementedError("a rule of one's own for vmap sees all examples")

    kinds: list[Any] = [Function]
    for kind in kinds:
        kinds += kind.__subclasses__()
    own: dict[Any, Any] = {
        kind: vars(kind)["vmap"]
        for kind in kinds[1:]
        if "vmap" in vars(kind) and not kind.__module__.startswith("torch.")
    }
    try:
        for kind in own:
            kind.vmap = staticmethod(fail)
        yield
    finally:
        for kind, rule in own.items():
            kind.vmap = rule


class TorchsOperations(TorchDispatchMode):
    """Mode that refuses custom operations: their rules for `vmap` see all examples."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Result of one of torch's own operations."""
        if function.namespace not in ("aten", "prims"):
            raise NotImplementedError(f"{function}: a rule of one's own for vmap sees all examples")
        return function(*args, **(kwargs or {}))


class NoDropout(TorchFunctionMode):
    """Mode in which dropout returns its input, also within attention and recurrent layers."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Result of ``function`` without dropout."""
        name, options = getattr(function, "__name__", ""), kwargs or {}
        if "dropout" in name:
            return args[0]
        if name in WITH_DROPOUT:
            args = tuple(0.0 if isinstance(value, float) else value for value in args)
            options = {key: 0.0 if key == "dropout_p" else value for key, value in options.items()}
        return function(*args, **options)


def _is_bounded(layer: nn.Module) -> bool:
    """Return whether a layer is a table whose rows a call shrinks to `max_norm`."""
    return isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None


def _refuse_unsupported(net: nn.Module) -> None:
    """Refuse networks that are known to be wrong, with a better message than that of a trial."""
    for name, layer in net.named_modules():
        batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        if batch_norm and (layer.training or not layer.track_running_stats):
            raise UserError(f"layer {name!r}: batch norm mixes examples; allowed: group norm, or eval()")
        if isinstance(layer, torch.jit.ScriptModule):
            subject = f"layer {name!r}" if name else "network"
            raise UserError(f"{subject}: scripted; allowed: the network before torch.jit")
        computed = (key for key, value in vars(layer).items() if isinstance(value, Tensor) and value.grad_fn)
        if (key := next(computed, None)) is not None:
            raise UserError(
                f"layer {name!r}: {key} is computed from other parameters, as by weight_norm or prune of "
                "torch.nn.utils; allowed: torch.nn.utils.parametrizations, or prune.remove"
            )
        if _is_bounded(layer) and layer.weight.requires_grad:
            raise UserError(
                f"layer {name!r}: max_norm changes the rows that private data look up, without noise; "
                "allowed: max_norm=None, or frozen weights"
            )
    for name, parameter in net.named_parameters():
        if parameter._backward_hooks:
            raise UserError(
                f"parameter {name!r}: has a hook, through which no clipped gradient goes; allowed: none"
            )


class NoHalfPrecision(TorchDispatchMode):
    """Mode that refuses computations in half precision, as by `torch.autocast`; conversions are allowed."""

    def __init__(self, subject: str):
        """Set the ``subject`` of the refusal."""
        super().__init__()
        self.subject, self.tracker = subject, ModuleTracker()

    def __enter__(self) -> Self:
        """Begin, and follow the layer that runs."""
        self.tracker.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        """End."""
        super().__exit__(*problem)
        self.tracker.__exit__(*problem)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``function``.

        Returns:
            Its result.

        Raises:
            UserError: ``function`` computes in half precision, and not each number alone.
        """
        result = function(*args, **(kwargs or {}))
        halves = {value.dtype for value in args if isinstance(value, Tensor)} & HALVES
        alone = torch.Tag.pointwise in function.tags or function.overloadpacket.__name__ in COPYING
        is_view = any(each.alias_info for each in function._schema.returns)
        if halves and isinstance(result, Tensor) and result.dtype in HALVES and not (alone or is_view):
            layer = max(self.tracker.parents, key=len, default="").partition(".")[2]
            raise UserError(
                f"{self.subject}{layer and f', layer {layer!r}'}: computes in {min(map(str, halves))}, whose "
                "rounding moves a sum by more than its bound; allowed: float32, without torch.autocast"
            )
        return result


def refuse_half_precision(net: nn.Module, example: Inputs) -> None:
    """Raise `UserError` if ``net`` computes in half precision; ``example`` (1, ...): for shape and type."""
    try:
        tried, device = copy.deepcopy(net), a_tensor(example).device
        with torch.no_grad(), fixed_randomness(device), NoHalfPrecision("network"):
            run(tried, in_types_of(example, random_inputs(net, example, 1)))
    except UserError:
        raise
    except Exception:  # the trial has a message for whatever the network's code may raise
        return


def largest_inputs(net: nn.Module, example: dict[str, Tensor]) -> dict[str, Tensor]:
    """Largest whole numbers that a network takes by keyword, in the shapes and types of ``example`` (1, ...).

    A token is below the size of every embedding that looks up other rows if the token is another one. Numbers
    that no embedding gets, such as a mask or a class, are at most 1.

    Returns:
        The numbers; ones for inputs of other types.
    """
    tables = {
        name: layer
        for name, layer in net.named_modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag)
    }

    def looked_up(inputs: dict[str, Tensor]) -> dict[str, list[Tensor]]:
        rows: dict[str, list[Tensor]] = {name: [] for name in tables}
        watched = watch_layers(tables, lambda name, tokens, *_: rows[name].append(tokens))
        with fixed_randomness(a_tensor(inputs).device), torch.no_grad(), watched:
            call(net, {}, inputs, resets=True)
        return rows

    least = {name: torch.zeros_like(value) for name, value in example.items()}
    largest = {name: torch.ones_like(value) for name, value in example.items()}
    try:
        usual = looked_up(least)
        for name in (name for name, value in example.items() if not value.is_floating_point()):
            others = looked_up({**least, name: largest[name]})
            sizes = [
                layer.num_embeddings
                for table, layer in tables.items()
                if not all(map(torch.equal, usual[table], others[table]))
            ]
            largest[name] = torch.full_like(largest[name], min(sizes, default=2) - 1)
    except Exception:  # the trial has a message for whatever the network's code may raise
        pass
    return largest


def random_inputs(net: nn.Module, example: Inputs, count: int) -> Inputs:
    """Random inputs like an example: numbers in [0, 1), or tokens that every embedding has.

    Token 0 is left out if there are other tokens. It may be padding, which occurs only at the end of a text.

    Args:
        net: the network, whose embeddings limit tokens.
        example: (1, ...), for shape, type and device; by keyword, `largest_inputs`.
        count: number of inputs.

    Returns:
        (count, ...) inputs.
    """
    if isinstance(example, Tensor):
        words = [layer.num_embeddings for layer in net.modules() if isinstance(layer, nn.Embedding)]
        return _random(net, example, count, min(words, default=2))
    return {
        name: _random(net, value, count, int(value.max()) + 1, seed)
        for seed, (name, value) in enumerate(example.items(), 1)
    }


def _random(net: nn.Module, example: Tensor, count: int, most: int, seed: int = 1) -> Tensor:
    """`random_inputs` of one tensor; tokens are below ``most``."""
    random, shape = torch.Generator().manual_seed(seed), (count, *example.shape[1:])
    if example.is_floating_point():
        return torch.rand(shape, generator=random).to(example.device, next(net.parameters()).dtype)
    return torch.randint(min(1, most - 1), most, shape, generator=random).to(example)


def in_types_of(example: Inputs, inputs: Inputs) -> Inputs:
    """``inputs`` in the types and on the device of ``example``."""
    if isinstance(inputs, Tensor) or isinstance(example, Tensor):
        return of_each(inputs, lambda value: value.to(a_tensor(example)))
    return {name: value.to(example[name]) for name, value in inputs.items()}
