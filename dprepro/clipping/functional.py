"""A network as a function of its tensors."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Tensors = dict[str, Tensor]  # by name
Inputs = Tensor | dict[str, Tensor]  # (B, ...) inputs of a network, or several by keyword
VECTOR = 16  # numbers in a vector register of a CPU


def of_each(inputs: Inputs, function: Callable[[Tensor], Tensor]) -> Inputs:
    """``function`` of the inputs, or of each one by keyword."""
    if isinstance(inputs, Mapping):
        return {name: function(value) for name, value in inputs.items()}
    return function(inputs)


def a_tensor(inputs: Inputs) -> Tensor:
    """The inputs, or the first ones by keyword: for the number of examples and the device."""
    return inputs if isinstance(inputs, Tensor) else next(iter(inputs.values()))


def split(inputs: Inputs, size: int) -> list[Inputs]:
    """The inputs in parts of at most ``size`` examples."""
    if isinstance(inputs, Tensor):
        return list(inputs.split(size))
    parts = zip(*(value.split(size) for value in inputs.values()), strict=True)
    return [dict(zip(inputs, part, strict=True)) for part in parts]


def joined(parts: list[Inputs]) -> Inputs:
    """Inputs of the examples of all ``parts``."""
    by_name = [part for part in parts if not isinstance(part, Tensor)]
    if not by_name:
        return torch.cat([a_tensor(part) for part in parts])
    return {name: torch.cat([part[name] for part in by_name]) for name in by_name[0]}


def run(net: nn.Module, inputs: Inputs) -> Any:
    """Call ``net`` on ``inputs``, which may have keywords."""
    return net(inputs) if isinstance(inputs, Tensor) else net(**inputs)


def has_own_loss(outputs: Any) -> bool:
    """Return whether a network computed its loss itself, as those of Hugging Face do if they get labels."""
    return isinstance(outputs, Mapping) and outputs.get("loss") is not None


def outputs_of(outputs: Any, inputs: Inputs) -> Any:
    """Tensor among the outputs of a network with names for its outputs: its own loss, or its ``logits``.

    Args:
        outputs: what the network returned.
        inputs: (B, ...) inputs of the network.

    Returns:
        (1, 1) loss of one example, or (B, K) logits; outputs without names, unchanged.

    Raises:
        ValueError: the loss is of several examples, which it mixes.
    """
    if has_own_loss(outputs):
        if (size := len(a_tensor(inputs))) != 1:
            raise ValueError(f"one loss of {size} examples; needed: of one")
        return outputs["loss"].reshape(1, 1)
    return outputs.get("logits", outputs) if isinstance(outputs, Mapping) else outputs


def functional_call(
    net: nn.Module, tensors: dict[str, Tensor], arguments: tuple[Tensor, ...] | dict[str, Tensor]
) -> Any:
    """Call ``net`` on ``arguments``, with ``tensors``, by name, in place of the network's own.

    Names are those of `named_parameters` and `named_buffers`; a tensor that several layers share is replaced
    in all of them. Unlike `torch.func.functional_call`, this function restores networks in which one layer
    has two names (torch replaces such a layer's tensors twice, and restores the replacement), and is faster.

    Returns:
        The network's outputs.

    Raises:
        KeyError: a name in ``tensors`` is not in the network.
    """
    first_names: dict[int, str] = {}
    replaced: list[tuple[dict[str, Tensor | None], str, Tensor | None, Tensor]] = []
    for prefix, layer in net.named_modules():  # every layer once
        for own in (layer._parameters, layer._buffers):
            for key, value in own.items():
                name = f"{prefix}.{key}" if prefix else key
                first_name = name if value is None else first_names.setdefault(id(value), name)
                if first_name in tensors:
                    replaced.append((own, key, value, tensors[first_name]))
    if unknown := tensors.keys() - first_names.values():
        raise KeyError(f"no tensor {min(unknown)!r} in {type(net).__name__}")
    try:
        for own, key, _, tensor in replaced:
            own[key] = tensor
        return net(**arguments) if isinstance(arguments, dict) else net(*arguments)
    finally:
        for own, key, value, _ in replaced:
            own[key] = value


def has_shared_tensors(net: nn.Module) -> bool:
    """Return whether a parameter has several names: two layers share it, or a layer is used twice."""
    return len(dict(net.named_parameters(remove_duplicate=False))) > len(dict(net.named_parameters()))


@contextmanager
def fresh_state(net: nn.Module) -> Iterator[None]:
    """Give ``net`` copies of its frozen parameters, buffers and attributes, and restore its own afterwards.

    A frozen table with a ``max_norm`` changes in place when it is used.
    """
    layers = list(net.modules())
    kept = [dict(vars(layer)) for layer in layers]
    memo: dict[int, Any] = {id(part): part for part in layers}
    memo |= {id(value): value for value in net.parameters() if value.requires_grad}
    try:
        for layer, attributes in zip(layers, kept, strict=True):
            others = {name: attributes[name] for name in attributes.keys() - {"_modules"}}
            vars(layer).update(copy.deepcopy(others, memo))
        yield
    finally:
        for layer, attributes in zip(layers, kept, strict=True):
            vars(layer).clear()
            vars(layer).update(attributes)


def trial_results(net: nn.Module, inputs: Inputs) -> tuple[Any, dict[str, Tensor]]:
    """Call ``net`` on ``inputs``; its state and torch's random state stay unchanged.

    Returns:
        Outputs, and buffers, by name, after the call.
    """
    device = a_tensor(inputs).device
    devices = [device] if device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices), fresh_state(net):
        return run(net, inputs), dict(net.named_buffers())


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Set all layers to evaluation mode during the block, which turns off dropout and Opacus's hooks."""
    training = [layer for layer in net.modules() if layer.training]
    try:
        for layer in training:
            layer.training = False
        yield
    finally:
        for layer in training:
            layer.training = True


def wants_channels_last(net: nn.Module) -> bool:
    """Check whether a CPU processes the network's images faster with their channels last in memory.

    Convolutions with many channels are faster, and max pooling with any number of channels. Few channels
    don't fill vector registers; then all other layers are slower. This was measured on every network here.

    Args:
        net: the network.

    Returns:
        True if it is faster.
    """
    layers = list(net.modules())
    channels = [layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d)]
    pools = any(isinstance(layer, nn.MaxPool2d) for layer in layers)
    return pools or (bool(channels) and min(channels) >= VECTOR)


def channels_last(inputs: Tensor) -> Tensor:
    """Copy of images (B, C, H, W) with their channels last in memory; other inputs unchanged."""
    if inputs.dim() != 4:
        return inputs
    # an image of one channel has both layouts; without a copy, later layers continue with channels first
    return torch.empty_like(inputs, memory_format=torch.channels_last).copy_(inputs)
