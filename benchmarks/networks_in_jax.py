"""The benchmark's networks as functions of JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from torch import nn

Function = Callable[[Any, Any], Any]  # of a layer's weights and its inputs (B, ...)


def in_jax(net: nn.Module) -> tuple[list[dict[str, Any]], Function]:
    """Trained weights of a sequence of torch's layers, and a JAX function from weights and inputs to outputs.

    Raises:
        NotImplementedError: a layer has no JAX function here.
    """
    modules = [layer for _, layer in net.named_modules(remove_duplicate=False)]
    layers = [layer for layer in modules if not isinstance(layer, nn.Sequential)]
    weights = [
        {name: jnp.asarray(value.detach().numpy()) for name, value in layer.named_parameters()}
        for layer in layers
    ]
    functions = [_function(layer) for layer in layers]
    trained = [any(value.requires_grad for value in layer.parameters()) for layer in layers]

    def outputs(values: list[dict[str, Any]], inputs: Any) -> Any:
        remaining = iter(values)
        for function, fixed, is_trained in zip(functions, weights, trained, strict=True):
            inputs = function(next(remaining) if is_trained else fixed, inputs)
        return inputs

    return [value for value, is_trained in zip(weights, trained, strict=True) if is_trained], outputs


def _function(layer: nn.Module) -> Function:
    """JAX function of a layer."""
    if isinstance(layer, nn.Conv2d):
        assert not isinstance(layer.padding, str)
        strides, padding = layer.stride, [(side, side) for side in layer.padding]
        return lambda weights, inputs: (
            jax.lax.conv_general_dilated(inputs, weights["weight"], strides, padding)
            + weights["bias"][:, None, None]
        )
    if isinstance(layer, nn.MaxPool2d):
        size, stride = layer.kernel_size, layer.stride
        assert isinstance(size, int)
        assert isinstance(stride, int)
        window, strides = (1, 1, size, size), (1, 1, stride, stride)
        return lambda _, inputs: jax.lax.reduce_window(
            inputs, -jnp.inf, jax.lax.max, window, strides, "VALID"
        )
    simple: dict[type[nn.Module], Function] = {
        nn.Linear: lambda weights, inputs: inputs @ weights["weight"].T + weights["bias"],
        nn.ReLU: lambda _, inputs: jax.nn.relu(inputs),
        nn.Flatten: lambda _, inputs: inputs.reshape(len(inputs), -1),
        nn.Identity: lambda _, inputs: inputs,
    }
    if type(layer) not in simple:
        raise NotImplementedError(f"the benchmark has no function of JAX for {type(layer).__name__}")
    return simple[type(layer)]
