"""State that a network keeps between calls: its contents, and calls without it."""

import pickle
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dprepro.clipping.functional import Inputs, fresh_state, functional_call, outputs_of

Contents = dict[str, Any]  # of tensors and attributes, by name


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


def contents_of(net: nn.Module) -> Contents:
    """Contents of ``net``'s tensors and attributes, which `fresh_state` copies; None: can't be pickled."""
    contents: Contents = {}
    for prefix, layer in net.named_modules():
        for name, value in vars(layer).items():
            values = value if name in ("_parameters", "_buffers") else {name: value}
            for key, part in values.items() if name != "_modules" else ():
                contents[f"{prefix}.{key}" if prefix else key] = _content(part)
    return contents


def changed(before: Contents, after: Contents) -> list[str]:
    """Names that are new in ``after``, or whose contents differ."""
    return [name for name in after if name not in before or not _is_same(before[name], after[name])]


def _is_same(one: Any, other: Any) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return type(one) is type(other) and bool(one == other)
    is_alike = one.shape == other.shape and one.dtype == other.dtype
    return is_alike and torch.equal(_bits(one), _bits(other))


class _Pickler(pickle.Pickler):
    """Pickler of tensors by their values, and of layers and functions, which copies share, by name."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return list, ([tuple(value.shape), str(value.dtype), _bits(value).numpy().tobytes()],)
        if isinstance(value, nn.Module | FunctionType):
            return str, (getattr(value, "__qualname__", type(value).__qualname__),)
        return NotImplemented


def _bits(value: Tensor) -> Tensor:
    """Whole numbers of the same bits as a tensor's numbers, on the CPU; a copy only if it is needed."""
    whole = (torch.int8, torch.int16, torch.int32, torch.int64)[min(3, value.element_size().bit_length() - 1)]
    bits = value.detach().cpu().contiguous().flatten().view(whole)
    bits.numpy()  # fails for a tensor of `vmap`, which can't be read
    return bits


def _content(value: Any) -> bytes | Tensor | None:
    """A tensor, or equal bytes for equal values; None if the value can't be read or pickled."""
    pickled = BytesIO()
    try:
        if isinstance(value, Tensor):
            _bits(value)
            return value.detach()
        _Pickler(pickled).dump(value)
    except Exception:  # of the user's own classes
        return None
    return pickled.getvalue()
