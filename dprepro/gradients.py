"""Clipped per-example gradients of any network."""

import warnings
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dprepro.checking import checked
from pipeline.errors import UserError, printable
from pipeline.fields import Positive
from pipeline.models.functional import trial_results
from pipeline.privacy.clippers import ClipperFactory, clipper_factory, random_inputs
from pipeline.privacy.gradients import Bounds, ClippedSum

# State of a network at its tests; by shape and type of its inputs, the clipper and the number of classes
_FACTORIES: WeakKeyDictionary[nn.Module, tuple[Any, dict[Any, tuple[ClipperFactory, int]]]] = (
    WeakKeyDictionary()
)
_PLAIN = (bool, int, float, str)


@checked
def clipped_sum(
    network: nn.Module, inputs: Tensor, labels: Tensor, clip: Positive, *, reference: bool = False
) -> ClippedSum:
    """Sum over examples of their cross-entropy gradients, each clipped to an L2 norm of ``clip``.

    For a Poisson sample, this sum plus noise of standard deviation z * ``clip`` is one step of DP-SGD with
    noise multiplier z (Abadi et al. 2016). The network runs on one example at a time: under `torch.func.vmap`
    or, if that is impossible, in a loop. On a CPU, a plain sequence of torch's layers that treat examples
    separately runs on the batch. Before the first sum of inputs of a shape, and after a change of the network
    or its mode, tests run the network on synthetic inputs (`pipeline.privacy.clippers`). They refuse a
    network that mixes examples, such as by `nn.BatchNorm2d` in training, and choose the fastest correct way
    for the others.

    A Poisson sample may be empty. Its sum is 0 and needs noise like every other sum: a skipped step reveals
    that the sample was empty, and accountants don't cover that.

    Args:
        network: function from inputs to logits (B, K). Gradients are of its parameters with
            ``requires_grad``.
        inputs: (B, ...) inputs of the network; B may be 0.
        labels: (B,) classes, from 0 to K - 1.
        clip: clipping bound.
        reference: compute one gradient per example, by `torch.func.vmap(grad)` or, if that is impossible, in
            a loop. The default is faster and equal up to rounding.

    Returns:
        `sums` by parameter name, in the parameters' shapes; `norms` (B, 1) before clipping; `losses` (B,).

    Raises:
        UserError: ``clip`` is not above 0 and finite, inputs or labels don't fit, or no parameter is trained;
            the network mixes examples, keeps their state between calls, or fails on the inputs; a parameter
            has no size yet. Half precision and `torch.autocast` are refused, because their rounding would
            move the sum by more than ``clip``.

    Warns:
        UserWarning: the network changes variables outside itself, so tests are the only evidence of
            independent gradients.
    """
    if labels.dim() != 1 or labels.shape != inputs.shape[:1]:
        raise UserError(
            f"labels: of shape {tuple(labels.shape)}, inputs {tuple(inputs.shape)}; needed: (B,) and (B, ...)"
        )
    if not torch.can_cast(labels.dtype, torch.int64):
        raise UserError(f"labels: {labels.dtype}; allowed: whole numbers, such as torch.int64")
    if torch.is_autocast_enabled(inputs.device.type):
        raise UserError(
            "torch.autocast: its rounding moves a sum by more than its bound; allowed: outside of it"
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
    if _FACTORIES.get(network, (None,))[0] != state:
        _FACTORIES[network] = state, {}
    tested = _FACTORIES[network][1]
    kind = (inputs.shape[1:], inputs.dtype, inputs.device, reference)
    if kind not in tested:
        example = inputs.new_zeros((1, *inputs.shape[1:]))
        single_replica = inputs.device.type == "cpu"
        factory = clipper_factory(network, example, 1, reference, single_replica)
        if factory.isolation == "tried":
            warnings.warn(
                "the network changes variables outside of itself from call to call; that these carry nothing "
                "from one example to another is tried, not proven",
                stacklevel=2,
            )
        tested[kind] = factory, _classes(network, example)
    factory, classes = tested[kind]
    labels = labels.to(inputs.device, torch.int64)
    unit = next(iter(tensors.values())).new_ones(())
    if not len(labels):
        zeros = {name: torch.zeros_like(value) for name, value in tensors.items()}
        return ClippedSum(zeros, unit.new_zeros(0, 1), unit.new_zeros(0))
    if labels.min() < 0 or labels.max() >= classes:
        raise UserError(f"labels: {int(labels.min())} to {int(labels.max())}; allowed: 0 to {classes - 1}")
    bounds = Bounds.whole(clip * unit, len(tensors))
    try:
        with torch.no_grad():
            return factory(network)(tensors, inputs, labels, unit.expand(len(labels)), bounds)
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except IndexError as problem:
        if inputs.is_floating_point():
            raise _failure(problem) from problem
        raise UserError(f"inputs: {problem}; allowed: tokens that the network's embeddings have") from problem
    except Exception as problem:  # the network's code may raise any exception
        raise _failure(problem) from problem


def _failure(problem: Exception) -> UserError:
    text = printable(str(problem).split("\n")[0])
    return UserError(f"inputs: the network doesn't take them, though it takes others like them: {text}")


def _classes(network: nn.Module, example: Tensor) -> int:
    """Number of classes K, from a made-up input of the type and on the device of ``example`` (1, ...)."""
    try:
        logits: Tensor = trial_results(network, random_inputs(network, example, 1).to(example))[0]
    except Exception as problem:  # the network's code may raise any exception
        subject = f"inputs: {example.dtype} on {example.device}"
        raise UserError(f"{subject}, which the network doesn't take: {printable(str(problem))}") from problem
    return logits.shape[1]


def _state(network: nn.Module) -> list[Any]:
    """Attributes and hooks of a network's layers: values of simple ones, ids of other objects."""
    return [
        (
            id(layer),
            name,
            value if isinstance(value, _PLAIN) else (id(value), isinstance(value, dict) and len(value)),
        )
        for layer in network.modules()
        for name, value in vars(layer).items()
    ]
