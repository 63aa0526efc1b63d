"""Weight files that a model's `build` reads, and a way to run `build` without these files.

An exported network contains all its tensors. To build it again, `build` needs only the names, shapes and
types in the weight files. So an export records these for each file that `build` reads. Later `build` gets
zeros in place of the files.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import safetensors.torch
import torch
import torch.hub
from torch import Tensor

from dprepro.errors import UserError
from dprepro.pipeline.extensions import in_use
from dprepro.pipeline.models.pretrained import declared_tensors

READERS: tuple[Callable[..., Any], ...] = (
    torch.load,
    torch.hub.load_state_dict_from_url,
    safetensors.torch.load_file,
    declared_tensors,
)
SCALARS = (bool, int, float, str, type(None))
# A file's outline in JSON: a tensor as [type, size, size, ...], mappings and scalars unchanged
Outline = Any


@contextmanager
def recording_reads() -> Iterator[list[Outline]]:
    """Record the outlines of all weight files that are read during the block, in order.

    Raises:
        UserError: a file holds more than mappings, tensors and scalars.
    """
    outlines: list[Outline] = []
    depth = 0

    def recording(reader: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(reader)
        def read(*arguments: Any, **options: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                content = reader(*arguments, **options)
            finally:
                depth -= 1
            if depth == 0:  # one reader may call another
                outlines.append(_outline(content))
            return content

        return read

    with _in_place_of_readers(recording):
        yield outlines


@contextmanager
def without_reads(outlines: Sequence[Outline]) -> Iterator[None]:
    """Let a `build` in this block read zeros in the shapes of ``outlines``, in order, instead of files.

    Without outlines, files are read as usual.
    """
    following = iter(outlines)

    def replaced(reader: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(reader)
        def read(*arguments: Any, **options: Any) -> Any:
            try:
                return _zeros(next(following))
            except StopIteration:
                raise UserError("`build` reads more files than when the network was exported") from None

        return read

    with _in_place_of_readers(replaced) if outlines else ExitStack():
        yield


@contextmanager
def _in_place_of_readers(replacement: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Use ``replacement(reader)`` for each of `READERS`, also where laboratories imported it by name."""
    packages = {
        "torch",
        "torch.hub",
        "torchvision",
        "safetensors.torch",
        "dprepro.pipeline.models.pretrained",
    }
    modules = [
        module
        for name, module in sys.modules.items()
        if name in packages or name.partition(".")[0] in {*in_use(), "torchvision"}
    ]
    with ExitStack() as stack:
        for reader in READERS:
            instead = replacement(reader)
            for module in modules:
                for name, value in [*vars(module).items()]:
                    if value is reader:
                        stack.enter_context(patch.object(module, name, instead))
        yield


def _outline(content: Any) -> Outline:
    if isinstance(content, Tensor):
        return [str(content.dtype).removeprefix("torch."), *content.shape]
    if isinstance(content, Mapping) and all(isinstance(key, str) for key in content):
        return {key: _outline(value) for key, value in content.items()}
    if isinstance(content, SCALARS):
        return content
    raise UserError(
        f"`build` reads a file that holds a {type(content).__name__}; allowed: dictionaries of tensors"
    )


def _zeros(outline: Outline) -> Any:
    if isinstance(outline, dict):
        return {key: _zeros(value) for key, value in outline.items()}
    if isinstance(outline, list):
        kind, *shape = outline
        return torch.zeros((), dtype=getattr(torch, kind)).expand(shape)  # takes no memory
    return outline
