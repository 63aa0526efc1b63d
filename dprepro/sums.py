"""Clipped per-example gradients of any network, and their noisy sum."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from math import ceil
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from pydantic import Field, SkipValidation
from torch import Tensor, distributed, nn
from torch.nn.parameter import is_lazy

from dprepro.accountants.records import SampledGaussian
from dprepro.checking import checked, refuse_sparse
from dprepro.clipping.clippers import (
    ClipperFactory,
    clipper_factory,
    in_types_of,
    random_inputs,
    unchanged,
)
from dprepro.clipping.functional import (
    Inputs,
    a_tensor,
    has_own_loss,
    of_each,
    outputs_of,
    split,
    trial_results,
)
from dprepro.clipping.gradients import BookKeeping, ClippedSum, Clipper, Loss, Parts
from dprepro.clipping.limits import ClipLimits
from dprepro.errors import UserError, printable
from dprepro.fields import Count, Positive
from dprepro.noise.mechanisms import IN_FLOAT32, GaussianMechanism, roundings
from dprepro.noise.streams import Streams

# By shape and type of inputs: clipper, number of classes, whether the network computes its own loss
_Tested = dict[Any, tuple[ClipperFactory, int, bool]]
# State of a network at its tests, references to the objects whose ids are in this state, clippers
_FACTORIES: WeakKeyDictionary[nn.Module, tuple[Any, list[ref[Any]], _Tested]] = WeakKeyDictionary()
TOGETHER = 4  # sums of parts that float32 adds before float64 does, which takes three times as long
LEAST_SUM = 16  # fewest gradients whose sum in float32 is faster than one in float64
_PLAIN = (bool, int, float, str)


class Repeated(NamedTuple):
    """Replacements for a step that `replay` repeats with networks that are equal but for their weights."""

    entropy: Callable[[int], bytes]  # seeded bytes in place of the operating system's
    factories: _Tested  # of the first network, by its layers and its inputs


REPEATED: ContextVar[Repeated | None] = ContextVar("repeated", default=None)


@checked
def noisy_sum(
    network: nn.Module,
    inputs: SkipValidation[Tensor | Mapping[str, Tensor]],
    labels: Tensor | None,
    clip: Annotated[Positive, Field(ge=1e-12, le=1e12)],
    noise_multiplier: Annotated[Positive, Field(ge=1e-6, le=1e6)],
    *,
    loss: Loss | None = None,
    at_once: Count | None = None,
    group: SkipValidation[Any] = None,
) -> dict[str, Tensor]:
    """Release of a step of DP-SGD: `clipped_sum` plus Gaussian noise, without a floating-point leak.

    The noise has standard deviation ``noise_multiplier`` * ``clip``. It comes from AES-128 with a key of the
    operating system for each call, so no seed repeats it. It is on a grid, and up to .5 % larger, to cover
    the rounding of gradients and sums (`dprepro.noise.mechanisms`). Divide the result by the expected
    batch size; the true size is private.

    Args:
        network: as in `clipped_sum`.
        inputs: as in `clipped_sum`, of the whole sample; B may be 0.
        labels: as in `clipped_sum`.
        clip: clipping bound C of each example's gradient, from 1e-12 to 1e12.
        noise_multiplier: standard deviation of the noise, divided by ``clip``, as in `epsilon`; from 1e-6 to
            1e6.
        loss: as in `clipped_sum`.
        at_once: most examples in one pass, to save memory; None: all.
        group: processes (`torch.distributed.ProcessGroup`) that each have a part of the sample, such as by
            the ``rank`` of a sampler. The release is of their joint sum. The first process adds the noise,
            once, and all get the same release. None: this process has the whole sample.

    Returns:
        Noisy sum by parameter name, in the shapes and types of the parameters.

    Raises:
        UserError: as in `clipped_sum`, or the processes of ``group`` differ in ``clip``, ``noise_multiplier``
            or parameters.
    """
    given, size = _examples(inputs, labels, loss)
    at_once = min(at_once or size, size)
    # a batch of 0 examples has one part
    parts = [None] * max(1, ceil(size / max(1, at_once))) if labels is None else labels.split(at_once)
    sums = ClippedSum.of(
        _clipped_sum(network, *batch, clip, loss, False, _parts(size, len(a_tensor(batch[0])), group is None))
        for batch in zip(split(given, at_once), parts, strict=True)
    ).sums
    if group is not None:
        sums = _joint(sums, group, (clip, noise_multiplier))
    first = next(iter(sums.values()))
    # in float64 for every sample, because another rounding, and so another grid, would betray a sample's size
    bounds = _bounds(clip, len(sums), torch.float64, first.device)
    streams = Streams("noisy_sum", False, first.device)
    if repeated := REPEATED.get():
        streams.entropy = repeated.entropy(32)
    released = _mechanism(noise_multiplier).release(sums, bounds, streams, 0)
    if group is not None:
        for value in released.values():
            distributed.broadcast(value, distributed.get_global_rank(group, 0), group)
    own = getattr(network, "_orig_mod", network).named_parameters()  # of torch.compile
    types = {name: value.dtype for name, value in own}
    return {name: value.to(types[name]) for name, value in released.items()}


def _parts(size: int, at_once: int, is_whole: bool) -> Parts | None:
    """Parts of a pass whose sums float32 may compute, and add up if there is one pass; None: no division.

    Args:
        size: examples of the whole sample.
        at_once: examples of the pass.
        is_whole: whether this process has the whole sample; if not, parts are single examples.

    Returns:
        The parts.
    """
    if not is_whole:
        return Parts.of(at_once, 1)
    if at_once == size and roundings(size, size) <= IN_FLOAT32:
        return Parts((size,), False, False)
    most = IN_FLOAT32 // size  # roundings of a vector
    parts = Parts.of(at_once, max(1, most - 1))
    if at_once == size and roundings(size, parts.sizes[0], len(parts.sizes)) <= IN_FLOAT32:
        return parts._replace(in_float64=False)
    return Parts.of(at_once, most - TOGETHER, TOGETHER) if most >= LEAST_SUM + TOGETHER else parts


@lru_cache(maxsize=1)
def _mechanism(noise_multiplier: float) -> GaussianMechanism:
    """Mechanism of a step; the steps of a training share one, and with it the scales of the noise."""
    spending = SampledGaussian(sampling="poisson", noise_multiplier=noise_multiplier, examples=1, batch=1)
    return GaussianMechanism(spending, 1.0)


@lru_cache(maxsize=2)  # of sums, and of noise
def _bounds(clip: float, tensors: int, dtype: torch.dtype, device: torch.device) -> ClipLimits:
    """`ClipLimits.whole`, the same object for all steps of a training."""
    return ClipLimits.whole(torch.tensor(clip, dtype=dtype, device=device), tensors)


@checked
def clipped_sum(
    network: nn.Module,
    inputs: SkipValidation[Tensor | Mapping[str, Tensor]],
    labels: Tensor | None,
    clip: Positive,
    *,
    loss: Loss | None = None,
    reference: bool = False,
) -> ClippedSum:
    """Sum over examples of their gradients, each clipped to an L2 norm of ``clip``.

    For a Poisson sample, this sum plus noise of standard deviation z * ``clip`` is one step of DP-SGD with
    noise multiplier z (Abadi et al. 2016). The network runs on one example at a time: under `torch.func.vmap`
    or, if that is impossible, in a loop. On a CPU, a plain sequence of torch's layers that treat examples
    separately runs on the batch. Before the first sum of inputs of a shape, and after a change of the network
    or its mode, tests run the network on synthetic inputs (`dprepro.clipping.clippers`). They refuse a
    network that mixes examples, such as by `nn.BatchNorm2d` in training, and choose the fastest correct way
    for the others.

    A Poisson sample may be empty. Its sum is 0 and needs noise like every other sum: a skipped step reveals
    that the sample was empty, and accountants don't cover that.

    Args:
        network: function from inputs to outputs (B, K), or to named outputs with ``logits`` (B, K), as in
            Hugging Face's transformers. Gradients are of its parameters with ``requires_grad``. A network of
            ``torch.compile`` runs without compilation, and its parameters have their names before it.
        inputs: (B, ...) inputs of the network, or several by keyword; B may be 0.
        labels: (B,) classes, from 0 to K - 1; for K = 1, numbers. With ``loss``, any tensor (B, ...). None:
            labels are among the inputs by keyword, and ``outputs.loss`` is the loss of one example.
        clip: clipping bound; below 1e-18 the sum is 0.
        loss: loss of one example, from its outputs (K,) and its label, under `torch.func.vmap`. Everything
            else that it uses, such as class weights, must be public. Nothing tests that: a loss that uses a
            statistic of the batch, or keeps something from call to call, voids the guarantee. None:
            cross-entropy, or the squared error if K is 1.
        reference: compute one gradient per example, by `torch.func.vmap(grad)` or, if that is impossible, in
            a loop. The default is faster and equal up to rounding.

    Returns:
        `sums` by parameter name, in the parameters' shapes; `norms` (B, 1) before clipping; `losses` (B,).

    Raises:
        UserError: ``clip`` is not above 0 and finite; inputs, labels or ``loss`` don't fit; no parameter is
            trained; the network mixes examples, keeps their state between calls, or fails on the inputs; a
            parameter has no size yet. Half precision, `torch.autocast` and matrix products in TF32 are
            refused, because their rounding would move the sum by more than ``clip``.

    """
    given, _ = _examples(inputs, labels, loss)
    return _clipped_sum(network, given, labels, clip, loss, reference)


def _joint(sums: dict[str, Tensor], group: Any, settings: tuple[float, ...]) -> dict[str, Tensor]:
    """Add the sums of all processes of a group.

    Returns:
        In the first process, the total; in the others 0, of which nothing is released.

    Raises:
        UserError: the processes differ in ``settings`` or in the number of entries.
    """
    flat = torch.cat([value.double().flatten() for value in sums.values()])
    numbers = flat.new_tensor([*settings, len(flat)])
    ends = torch.cat([numbers, -numbers])
    distributed.all_reduce(ends, distributed.ReduceOp.MAX, group)
    largest, smallest = ends.split(len(numbers))
    if not torch.equal(largest, -smallest):
        raise UserError("group: processes with other clip, noise_multiplier or parameters; needed: the same")
    distributed.reduce(flat, distributed.get_global_rank(group, 0), group=group)
    flat *= distributed.get_rank(group) == 0
    parts = flat.split([value.numel() for value in sums.values()])
    return {name: part.view(value.shape) for part, (name, value) in zip(parts, sums.items(), strict=True)}


def _examples(inputs: Any, labels: Tensor | None, loss: Loss | None) -> tuple[Inputs, int]:
    """Check that inputs and labels are of the same examples.

    Returns:
        Inputs, as a tensor or a dict; number of examples.

    Raises:
        UserError: inputs and labels aren't of the same examples.
    """
    given: Any = dict(inputs) if isinstance(inputs, Mapping) else inputs
    if isinstance(given, dict) and not given:
        raise UserError("inputs: no tensor; needed: one by keyword, or more")
    by_name = {f"inputs[{name!r}]": value for name, value in given.items()} if isinstance(given, dict) else {}
    for name, value in (by_name or {"inputs": given}).items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise UserError(f"{name}: {kind} is not allowed; allowed: a tensor, or a dict of tensors")
        refuse_sparse(name, value)
    if labels is None and not by_name:
        raise UserError("labels: None; allowed: with inputs by keyword, of which the network computes a loss")
    if labels is None and loss is not None:
        raise UserError("labels: None, with a loss; allowed: one of both")
    for name, value in by_name.items():
        if value.shape[:1] != a_tensor(given).shape[:1] or not value.dim():
            others = tuple(a_tensor(given).shape)
            raise UserError(f"{name}: of shape {tuple(value.shape)}, beside {others}; needed: (B, ...)")
    shape = a_tensor(given).shape
    if labels is not None and (
        labels.shape[:1] != shape[:1] or (loss is None and labels.dim() != 1) or not labels.dim()
    ):
        raise UserError(
            f"labels: of shape {tuple(labels.shape)}, inputs {tuple(shape)}; needed: (B,) and (B, ...)"
        )
    return given, shape[0]


def _own_loss(outputs: Tensor, label: Tensor) -> Tensor:
    """Loss () that a network computed of one example, its output (1,)."""
    return outputs[0]


def _clipped_sum(
    network: nn.Module,
    inputs: Inputs,
    labels: Tensor | None,
    clip: float,
    loss: Loss | None,
    reference: bool,
    parts: Parts | None = None,
) -> ClippedSum:
    """`clipped_sum`; ``parts``: as in `_parts`."""
    network = getattr(network, "_orig_mod", network)  # of torch.compile
    layers = list(network.modules())
    is_compiled = any("_orig_mod" in layer._modules or layer._compiled_call_impl for layer in layers)
    with torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
        return _sum_of_network(network, layers, inputs, labels, clip, loss, reference, parts)


def _sum_of_network(
    network: nn.Module,
    layers: list[nn.Module],
    inputs: Inputs,
    labels: Tensor | None,
    clip: float,
    loss: Loss | None,
    reference: bool,
    parts: Parts | None,
) -> ClippedSum:
    """`_clipped_sum` of a network that runs without compilation."""
    each = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    device = each[0].device
    if torch.is_inference_mode_enabled() or any(value.is_inference() for value in each):
        raise UserError("torch.inference_mode: its tensors have no gradients; allowed: outside of it")
    if torch.is_autocast_enabled(device.type):
        raise UserError(
            "torch.autocast: its rounding moves a sum by more than its bound; allowed: outside of it"
        )
    backend = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    if (precision := backend.matmul.fp32_precision) not in ("none", "ieee"):
        raise UserError(
            f"torch's matrix products: {precision}, whose rounding moves a sum by more than its bound; "
            'allowed: torch.set_float32_matmul_precision("highest")'
        )
    if any(base.__module__.startswith("opacus.grad_sample") for base in type(network).__mro__):
        raise UserError(
            f"network: {type(network).__name__} of Opacus, whose hooks store gradients; allowed: "
            "the network before it is wrapped, or its to_standard_module()"
        )
    parameters = dict(network.named_parameters())
    if lazy := next((name for name, value in parameters.items() if is_lazy(value)), None):
        raise UserError(f"network: {lazy} has no size yet; allowed: after a first call of the network")
    tensors = {name: value.detach() for name, value in parameters.items() if value.requires_grad}
    if not tensors:
        raise UserError("network: no parameter has requires_grad; needed: one")
    for name, value in tensors.items():
        if value.dtype not in (torch.float32, torch.float64):
            raise UserError(
                f"network: {name} is {value.dtype}, whose rounding moves a sum by more than its bound; "
                "allowed: float32, float64"
            )
    state = (tuple(tensors), _state(layers))
    last, objects, tested = _FACTORIES.get(network, (None, [], {}))
    if last != state or any(each() is None for each in objects):  # an object that is gone may leave its id
        objects, tested = _references(layers), {}
        _FACTORIES[network] = state, objects, tested
    names = () if isinstance(inputs, Tensor) else tuple(inputs)
    kind: Any = (names, *((value.shape[1:], value.dtype, value.device) for value in each), reference)
    if repeated := REPEATED.get():
        values = tuple(value for _, _, value in state[1] if isinstance(value, _PLAIN))
        tested, kind = repeated.factories, (repr(network), state[0], values, *kind)
    if kind not in tested:
        example = of_each(inputs, lambda value: value.new_zeros((1, *value.shape[1:])))
        factory = clipper_factory(network, example, 1, reference)
        tested[kind] = factory, *_classes(network, factory.example)
    factory, classes, is_own = tested[kind]
    if is_own != (labels is None):
        what = "given, and the network returns a loss" if is_own else "None, and the network returns no loss"
        raise UserError(f"labels: {what}; needed: labels as an argument, or among the inputs")
    unit = next(iter(tensors.values())).new_ones(())
    if labels is None:
        labels, loss = unit.new_zeros(len(each[0])), _own_loss
    labels = labels.to(device) if loss else _labels(labels, device, classes, unit.dtype)
    if not len(labels):
        zeros = {name: torch.zeros_like(value) for name, value in tensors.items()}
        return ClippedSum(zeros, unit.new_zeros(0, 1), unit.new_zeros(0))
    bounds = _bounds(clip, len(tensors), unit.dtype, unit.device)
    try:
        # the network's own, of which a private input would change others than the tests' inputs do
        own = parameters | dict(network.named_buffers())
        with torch.no_grad(), unchanged(own):
            clipper: Clipper = factory(network, loss)
            if parts is not None:
                is_divided = len(parts.sizes) > 1 or parts.in_float64
                is_fast = isinstance(clipper, BookKeeping)
                if is_divided and not (is_fast and parts.sizes[0] >= LEAST_SUM):
                    bounds = bounds.double()
                if isinstance(clipper, BookKeeping):
                    clipper = partial(clipper, parts=parts)
            return clipper(tensors, inputs, labels, unit.expand(len(labels)), bounds)
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except IndexError as problem:
        if all(value.is_floating_point() for value in each):
            raise _failure(problem, loss) from problem
        raise UserError(f"inputs: {problem}; allowed: tokens that the network's embeddings have") from problem
    except Exception as problem:  # the network's code may raise any exception
        raise _failure(problem, loss) from problem


def _failure(problem: Exception, loss: Loss | None) -> UserError:
    if loss and "does not require grad" in str(problem):
        return UserError("loss: without a gradient; needed: a differentiable function of the outputs")
    text, subject = printable(str(problem).split("\n")[0]), "inputs or loss" if loss else "inputs"
    return UserError(f"{subject}: the network doesn't take them, though it takes others like them: {text}")


def _labels(labels: Tensor, device: torch.device, outputs: int, dtype: torch.dtype) -> Tensor:
    """``labels`` (B,) on the device for K ``outputs``: numbers of ``dtype`` if K is 1, otherwise classes."""
    if outputs == 1:
        return labels.to(device, dtype)
    if not torch.can_cast(labels.dtype, torch.int64):
        raise UserError(f"labels: {labels.dtype}; allowed: whole numbers, such as torch.int64")
    least, largest = map(int, labels.aminmax()) if len(labels) else (0, 0)
    if least < 0 or largest >= outputs:
        raise UserError(f"labels: {least} to {largest}; allowed: 0 to {outputs - 1}")
    return labels.to(device, torch.int64)


def _classes(network: nn.Module, example: Inputs) -> tuple[int, bool]:
    """Number of classes K, and whether the network computes a loss, for a made-up input of an ``example``."""
    inputs = in_types_of(example, random_inputs(network, example, 1))
    try:
        outputs = trial_results(network, inputs)[0]
        logits: Tensor = outputs_of(outputs, inputs)
    except Exception as problem:  # the network's code may raise any exception
        subject = f"inputs: {a_tensor(example).dtype} on {a_tensor(example).device}"
        raise UserError(f"{subject}, which the network doesn't take: {printable(str(problem))}") from problem
    return logits.shape[1], has_own_loss(outputs)


def _references(layers: list[nn.Module]) -> list[ref[Any]]:
    """Weak references to layers and their attributes, except simple ones and containers."""
    objects = (part for layer in layers for part in (layer, *vars(layer).values()))
    return [ref(part) for part in objects if type(part).__weakrefoffset__]


def _state(layers: list[nn.Module]) -> list[Any]:
    """Attributes of layers: values of simple ones, ids of others, and keys, such as of hooks."""
    return [
        (
            id(layer),
            name,
            value if isinstance(value, _PLAIN) else (id(value), isinstance(value, dict) and tuple(value)),
        )
        for layer in layers
        for name, value in vars(layer).items()
    ]
