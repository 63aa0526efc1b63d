"""State that a network keeps between calls: detection, names, and calls without it."""

import functools
import hashlib
import random
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dprepro.clipping.functional import Inputs, fresh_state, functional_call, outputs_of

# Attributes that hold a layer's tensors and parts; each tensor and part has a name of its own
_PARTS = ("_parameters", "_buffers", "_modules")
_DEEPEST = 12  # largest depth of nested objects
# Packages whose functions and classes keep no state for a network
_FOREIGN = {*sys.stdlib_module_names, "torch", "numpy"}
Prints = dict[str, Any]  # comparable fingerprints of values, by name


def call(net: nn.Module, tensors: dict[str, Tensor], inputs: Inputs, resets: bool) -> Any:
    """`outputs_of` ``net`` for ``inputs``, with ``tensors`` for its own; ``resets``: on copied state."""
    arguments = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not resets:
        return outputs_of(functional_call(net, tensors, arguments), inputs)
    with fresh_state(net):
        tensors = {name: value.clone() for name, value in tensors.items()}
        return outputs_of(functional_call(net, tensors, arguments), inputs)


@contextmanager
def restored_randomness(devices: Iterable[torch.device | int] | None = None) -> Iterator[None]:
    """Restore the random states of torch, numpy and Python after the block.

    ``devices``: CUDA devices whose states are restored; None: all.
    """
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(range(torch.cuda.device_count()) if devices is None else devices):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


@contextmanager
def fixed_randomness(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Seed torch's, numpy's and Python's random numbers during the block, and restore their states."""
    with restored_randomness([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        yield


def prints_inside(net: nn.Module) -> Prints:
    """Fingerprints of ``net``'s tensors and attributes, by name: state that `fresh_state` copies."""
    prints: Prints = {}
    for prefix, layer in net.named_modules():
        for name, value in vars(layer).items():
            values = value if name in ("_parameters", "_buffers") else {name: value}
            for key, part in values.items() if name != "_modules" else ():
                prints[f"{prefix}.{key}" if prefix else key] = _print(part, {}, inside=True)
    return prints


def prints_outside(net: nn.Module) -> Prints:
    """Fingerprints of attributes, and of what ``net``'s functions refer to in closures, modules, classes."""
    prints: Prints = {}
    # a method refers to its class, and so to all other methods
    seen: dict[int, Any] = {id(kind): kind for layer in net.modules() for kind in type(layer).__mro__}
    for prefix, layer in net.named_modules():
        for kind in type(layer).__mro__:
            if not _is_foreign(kind):
                for name, value in vars(kind).items():
                    prints[f"{kind.__qualname__}.{name}"] = _print(value, seen, inside=False)
        for name, value in vars(layer).items():
            if name not in _PARTS:
                prints[f"{prefix}.{name}" if prefix else name] = _print(value, seen, inside=False)
    return prints


def changed(before: Prints, after: Prints) -> list[str]:
    """Names that are new in ``after``, or whose value differs."""
    return [name for name in after if name not in before or before[name] != after[name]]


def _print(value: Any, seen: dict[int, Any], inside: bool, depth: int = 0) -> Any:
    """Fingerprint of a value: equal values have equal fingerprints.

    Args:
        value: any object.
        seen: visited objects by id.
        inside: True to follow only what `copy.deepcopy` copies, False to follow references of functions too.
        depth: depth of the recursion.

    Returns:
        A comparable fingerprint.
    """
    if isinstance(value, Tensor):
        try:
            return tuple(value.shape), hashlib.sha256(value.detach().cpu().numpy().tobytes()).digest()
        except (RuntimeError, TypeError, ValueError):  # the type is unknown to numpy, or there are no values
            return tuple(value.shape), str(value.dtype)
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes() if value.dtype != object else repr(value)
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, str | bytes | bool | int | float | complex | types.ModuleType | None):
        return repr(value)
    if id(value) in seen or depth > _DEEPEST or isinstance(value, nn.Module):
        return type(value).__name__
    seen[id(value)] = value  # the reference keeps the object alive, so that no other object gets its id
    follow = functools.partial(_print, seen=seen, inside=inside, depth=depth + 1)
    if isinstance(value, Mapping):
        return [(follow(key), follow(part)) for key, part in list(value.items())]
    if isinstance(value, list | tuple):
        return [follow(part) for part in value]
    if isinstance(value, types.MethodType):
        return follow(value.__self__), follow(value.__func__)
    if isinstance(value, functools.partial):
        return follow(value.func), follow(value.args), follow(value.keywords)
    if isinstance(value, staticmethod | classmethod):
        return follow(value.__func__)
    if isinstance(value, property):
        return follow(value.fget)
    if isinstance(value, types.FunctionType):
        return [] if inside or _is_foreign(value) else [follow(part) for part in _referred(value)]
    if isinstance(value, type):
        return [] if inside or _is_foreign(value) else follow(dict(vars(value)))
    if _is_foreign(type(value)):
        # the text of an itertools counter has its position, and the text of a set its elements
        return repr(value) if type(value).__repr__ is not object.__repr__ else ""
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    attributes = {name: getattr(value, name, None) for name in slots} | getattr(value, "__dict__", {})
    return follow(attributes), [] if inside else follow(type(value))


def _is_foreign(made: Any) -> bool:
    """Return whether a function or class is of the standard library, torch or numpy."""
    return str(made.__module__).split(".")[0] in _FOREIGN


def _referred(function: types.FunctionType) -> Iterator[Any]:
    """Values that a function closes over, has as defaults, and finds in its module by name."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not set yet
            yield None
    yield from (function.__defaults__, function.__kwdefaults__, vars(function))
    codes = [function.__code__]
    for code in codes:  # grows by the functions that it defines
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        for name in code.co_names:
            yield function.__globals__.get(name)
