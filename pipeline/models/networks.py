"""Networks by their names in params.yaml."""

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dprepro.clipping.functional import trial_results
from dprepro.errors import UserError, printable
from dprepro.noise.streams import initial_seed
from dprepro.pipeline.extensions import extensions
from dprepro.pipeline.models.model import Model, architectures

OURS = Path(__file__).resolve().parent


def build_net(model: Model, shape: tuple[int, ...], classes: int, tested: bool = True) -> nn.Module:
    """Network of the model's file with fresh weights, for inputs of ``shape`` (`Prepared.input_shape`).

    The network is tested on two made-up inputs; weights, buffers and random state stay unchanged. ``tested``
    is False on the device 'meta': a test there would load torch's compiler, which takes seconds.

    Raises:
        UserError: the network can't be built for this shape or with these settings, or can't be trained for
            the classes.
    """
    part = extensions("models")[model.name]
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of layers without weights
            net: nn.Module = part.load().build(model, shape, classes)
        problem = _problem(net, shape, classes) if tested else None
    except UserError:
        raise
    except Exception as error:  # the model's code may raise any exception
        reason = (
            f"can't be built for inputs of shape {shape}: {type(error).__name__}: {printable(str(error))}"
        )
        if OURS in part.path.resolve().parents:  # torch's words help nobody who didn't write the model
            able = _models_for(shape, classes)
            if model.name not in able:  # otherwise its settings don't fit, as it says itself
                reason = f"can't take {_words(shape)}; allowed: {', '.join(able) or 'none'}"
                reason += "; `--size` of `new data --images` scales images" if len(shape) == 3 else ""
        raise UserError(f"{part.path}: model {model.name!r} {reason}") from error
    if problem is not None:
        raise UserError(f"{part.path}: model {model.name!r}: {problem}")
    return net


def _words(shape: tuple[int, ...]) -> str:
    """Inputs of ``shape`` in words."""
    if len(shape) == 1:
        return f"{shape[0]} features"
    return (
        f"texts of {shape[0]} numbers of words"
        if len(shape) == 2
        else f"images of {'x'.join(map(str, shape))}"
    )


def _models_for(shape: tuple[int, ...], classes: int) -> list[str]:
    """Models that can be built for inputs of ``shape`` without settings of their own."""
    found = []
    for name in architectures():
        with suppress(Exception):  # the model's code may raise any exception
            if _problem(
                extensions("models")[name].load().build(Model(name=name), shape, classes), shape, classes
            ):
                continue
            found.append(name)
    return found


def fresh_net(seed: int, model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Network of `build_net` with the initial weights of a training's ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(initial_seed(seed))
        return build_net(model, shape, classes)


def _problem(net: Any, shape: tuple[int, ...], classes: int) -> str | None:
    """Reason why ``net``, the result of a `build`, can't be trained, and what is allowed; None if it can."""
    if not isinstance(net, nn.Module):
        return f"`build` returned {type(net).__name__}; needed: a torch.nn.Module"
    for name, value in net.named_parameters():
        if is_lazy(value):  # noise and clipping need to know every weight
            return (
                f"{name}: has no size before data pass through it; allowed: layers with sizes, from "
                "`build`'s argument `shape`"
            )
        if value.requires_grad and value.dtype != torch.float32:
            return f"{name}: {value.dtype}; allowed: torch.float32"
    if not any(value.requires_grad for value in net.parameters()):
        return "no parameter has requires_grad; needed: one to train"
    texts = len(shape) == 2
    size = (2, shape[0]) if texts else (2, *shape)
    inputs = torch.full(size, shape[1] - 1, dtype=torch.int32) if texts else torch.ones(size)
    logits, buffers = trial_results(net, inputs)
    if not isinstance(logits, Tensor) or logits.shape != (2, classes):
        output = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        return f"makes {output} of two inputs; needed: (2, {classes}), a logit for each class"
    others = trial_results(net, (inputs / 2).to(inputs))[1] if buffers else {}
    for name, buffer in buffers.items():
        if not torch.equal(buffer.nan_to_num(), others[name].nan_to_num()):
            return (
                f"buffer {name!r} changes with the inputs, but no method trains buffers; allowed: group "
                "norm, this project's batch norms, or `eval()` in `build`"
            )
    return None
