"""Clipped per-example gradients of any network, and their noisy sum."""

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Annotated, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dprepro.accountants.records import SampledGaussian
from dprepro.checking import checked, refuse_sparse, warn
from dprepro.clipping.clippers import ClipperFactory, clipper_factory, random_inputs, unchanged
from dprepro.clipping.functional import trial_results
from dprepro.clipping.gradients import BookKeeping, ClippedSum, Loss, Parts
from dprepro.clipping.limits import ClipLimits
from dprepro.errors import UserError, printable
from dprepro.fields import Count, Positive
from dprepro.noise.mechanisms import IN_FLOAT32, GaussianMechanism, roundings
from dprepro.noise.streams import Streams

# By shape and type of inputs: clipper, number of classes
_Tested = dict[Any, tuple[ClipperFactory, int]]
# State of a network at its tests, references to the objects whose ids are in this state, clippers
_FACTORIES: WeakKeyDictionary[nn.Module, tuple[Any, list[ref[Any]], _Tested]] = WeakKeyDictionary()
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
    inputs: Tensor,
    labels: Tensor,
    clip: Annotated[Positive, Field(ge=1e-12, le=1e12)],
    noise_multiplier: Annotated[Positive, Field(ge=1e-6, le=1e6)],
    *,
    loss: Loss | None = None,
    at_once: Count | None = None,
) -> dict[str, Tensor]:
    """Release of a step of DP-SGD: `clipped_sum` plus Gaussian noise, without a floating-point leak.

    The noise has standard deviation ``noise_multiplier`` * ``clip``. It comes from AES-128 with a key of the
    operating system for each call, so no seed repeats it. It is on a grid, and up to .5 % larger, to cover
    the rounding of gradients and sums (`dprepro.noise.mechanisms`). Divide the result by the expected
    batch size; the true size is private.

    Args:
        network: as in `clipped_sum`.
        inputs: (B, ...) inputs of the whole sample; B may be 0.
        labels: (B, ...) labels of the inputs.
        clip: clipping bound C of each example's gradient, from 1e-12 to 1e12.
        noise_multiplier: standard deviation of the noise, divided by ``clip``, as in `epsilon`; from 1e-6 to
            1e6.
        loss: as in `clipped_sum`.
        at_once: most examples in one pass, to save memory; None: all.

    Returns:
        Noisy sum by parameter name, in the shapes and types of the parameters.

    Raises:
        UserError: as in `clipped_sum`.

    Warns:
        UserWarning: as in `clipped_sum`.
    """
    _check_shapes(inputs, labels, loss)
    size = len(labels)
    at_once = at_once or size
    # of gradients in one float32 sum; such sums are added in float64
    in_float32 = None
    if at_once < size or roundings(size, at_once) > IN_FLOAT32:
        in_float32 = min(at_once, max(0, IN_FLOAT32 // size - 1))
    batches = zip(inputs.split(at_once), labels.split(at_once), strict=True)
    sums = ClippedSum.of(
        _clipped_sum(network, *batch, clip, loss, False, in_float32) for batch in batches
    ).sums
    first = next(iter(sums.values()))
    # in float64 for every sample, because another rounding, and so another grid, would betray a sample's size
    bounds = ClipLimits.whole(first.new_tensor(clip, dtype=torch.float64), len(sums))
    spending = SampledGaussian(sampling="poisson", noise_multiplier=noise_multiplier, examples=1, batch=1)
    streams = Streams("noisy_sum", False, first.device)
    if repeated := REPEATED.get():
        streams.entropy = repeated.entropy(32)
    released = GaussianMechanism(spending, 1.0).release(sums, bounds, streams, 0)
    return {name: value.to(network.get_parameter(name).dtype) for name, value in released.items()}


@checked
def clipped_sum(
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
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
        network: function from inputs to outputs (B, K). Gradients are of its parameters with
            ``requires_grad``.
        inputs: (B, ...) inputs of the network; B may be 0.
        labels: (B,) classes, from 0 to K - 1; for K = 1, numbers. With ``loss``, any tensor (B, ...).
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

    Warns:
        UserWarning: the network changes variables outside itself, so tests are the only evidence of
            independent gradients.
    """
    _check_shapes(inputs, labels, loss)
    return _clipped_sum(network, inputs, labels, clip, loss, reference)


def _check_shapes(inputs: Tensor, labels: Tensor, loss: Loss | None) -> None:
    refuse_sparse("inputs", inputs)
    if labels.shape[:1] != inputs.shape[:1] or (loss is None and labels.dim() != 1) or not labels.dim():
        raise UserError(
            f"labels: of shape {tuple(labels.shape)}, inputs {tuple(inputs.shape)}; needed: (B,) and (B, ...)"
        )


def _clipped_sum(
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    clip: float,
    loss: Loss | None,
    reference: bool,
    in_float32: int | None = None,
) -> ClippedSum:
    """`clipped_sum`; ``in_float32``: number of gradients that float32 may sum, before float64; None: all."""
    if torch.is_inference_mode_enabled() or inputs.is_inference():
        raise UserError("torch.inference_mode: its tensors have no gradients; allowed: outside of it")
    if torch.is_autocast_enabled(inputs.device.type):
        raise UserError(
            "torch.autocast: its rounding moves a sum by more than its bound; allowed: outside of it"
        )
    backend = torch.backends.cuda if inputs.device.type == "cuda" else torch.backends.mkldnn
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
    if lazy := next((name for name, value in network.named_parameters() if is_lazy(value)), None):
        raise UserError(f"network: {lazy} has no size yet; allowed: after a first call of the network")
    tensors = {name: value.detach() for name, value in network.named_parameters() if value.requires_grad}
    if not tensors:
        raise UserError("network: no parameter has requires_grad; needed: one")
    for name, value in tensors.items():
        if value.dtype not in (torch.float32, torch.float64):
            raise UserError(
                f"network: {name} is {value.dtype}, whose rounding moves a sum by more than its bound; "
                "allowed: float32, float64"
            )
    state = (tuple(tensors), _state(network))
    last, objects, tested = _FACTORIES.get(network, (None, [], {}))
    if last != state or any(each() is None for each in objects):  # an object that is gone may leave its id
        if any(hasattr(part, "_orig_mod") or part._compiled_call_impl for part in network.modules()):
            raise UserError("network: compiled; allowed: the network without torch.compile")
        objects, tested = _references(network), {}
        _FACTORIES[network] = state, objects, tested
    kind: Any = (inputs.shape[1:], inputs.dtype, inputs.device, reference)
    if repeated := REPEATED.get():
        values = tuple(value for _, _, value in state[1] if isinstance(value, _PLAIN))
        tested, kind = repeated.factories, (repr(network), state[0], values, *kind)
    if kind not in tested:
        example = inputs.new_zeros((1, *inputs.shape[1:]))
        factory = clipper_factory(network, example, 1, reference)
        if factory.isolation == "tried":
            warn(
                "the network changes variables outside of itself from call to call; that these carry nothing "
                "from one example to another is tried, not proven"
            )
        tested[kind] = factory, _classes(network, example)
    factory, classes = tested[kind]
    unit = next(iter(tensors.values())).new_ones(())
    labels = labels.to(inputs.device) if loss else _labels(labels, inputs.device, classes, unit.dtype)
    if not len(labels):
        zeros = {name: torch.zeros_like(value) for name, value in tensors.items()}
        return ClippedSum(zeros, unit.new_zeros(0, 1), unit.new_zeros(0))
    bounds = ClipLimits.whole(clip * unit, len(tensors))
    try:
        with torch.no_grad(), unchanged(tensors):
            clipper = factory(network, loss)
            if in_float32 is not None:
                if isinstance(clipper, BookKeeping) and in_float32 >= LEAST_SUM:
                    clipper = partial(clipper, parts=Parts.of(len(labels), in_float32))
                else:
                    bounds = bounds.double()
            return clipper(tensors, inputs, labels, unit.expand(len(labels)), bounds)
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except IndexError as problem:
        if inputs.is_floating_point():
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
    if len(labels) and (labels.min() < 0 or labels.max() >= outputs):
        raise UserError(f"labels: {int(labels.min())} to {int(labels.max())}; allowed: 0 to {outputs - 1}")
    return labels.to(device, torch.int64)


def _classes(network: nn.Module, example: Tensor) -> int:
    """Number of classes K, from a made-up input of the type and on the device of ``example`` (1, ...)."""
    try:
        logits: Tensor = trial_results(network, random_inputs(network, example, 1).to(example))[0]
    except Exception as problem:  # the network's code may raise any exception
        subject = f"inputs: {example.dtype} on {example.device}"
        raise UserError(f"{subject}, which the network doesn't take: {printable(str(problem))}") from problem
    return logits.shape[1]


def _references(network: nn.Module) -> list[ref[Any]]:
    """Weak references to a network's layers and their attributes, except simple ones and containers."""
    objects = (part for layer in network.modules() for part in (layer, *vars(layer).values()))
    return [ref(part) for part in objects if type(part).__weakrefoffset__]


def _state(network: nn.Module) -> list[Any]:
    """Attributes of a network's layers: values of simple ones, ids of others, and keys, such as of hooks."""
    return [
        (
            id(layer),
            name,
            value if isinstance(value, _PLAIN) else (id(value), isinstance(value, dict) and tuple(value)),
        )
        for layer in network.modules()
        for name, value in vars(layer).items()
    ]
