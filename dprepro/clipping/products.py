"""Matrix products inside `nn.MultiheadAttention` and `nn.LSTM`, which hooks on layers don't see."""

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.overrides import TorchFunctionMode

# Layers whose parameters are factors and terms of `linear` in this module; the last one is attention's last
OPENED = (nn.MultiheadAttention, nn.LSTM, NonDynamicallyQuantizableLinear)
_INSIDE = ("multi_head_attention_forward", "_in_projection_packed", "_in_projection")
OnUse = Callable[[str, Tensor, Tensor], Tensor | None]
Matrices = dict[str, tuple[nn.Module, str]]  # by name: layer and attribute


def matrices(layers: Mapping[str, nn.Module]) -> Matrices:
    """Trained matrices in ``layers`` of `OPENED`."""
    return {
        f"{name}.{key}" if name else key: (layer, key)
        for name, layer in layers.items()
        if type(layer) in OPENED
        for key, value in layer.named_parameters(recurse=False)
        if "weight" in key and value.requires_grad
    }


def bias_of(matrix: str) -> str:
    """Name of the bias beside a matrix: 'lstm.bias_ih_l0' beside 'lstm.weight_ih_l0'."""
    name, dot, key = matrix.rpartition(".")
    return f"{name}{dot}{key.replace('weight', 'bias')}"


class Products(TorchFunctionMode):
    """Mode that calls ``on_use`` at each `linear` with one of ``matrices``.

    ``on_use`` gets the name, inputs and outputs (..., C); a result replaces the outputs. Attention runs
    torch's own code. An LSTM runs a step after the other, by the equations of `nn.LSTM`, because torch has
    no `vmap` of its kernel.
    """

    def __init__(self, matrices: Matrices, on_use: OnUse):
        """Set the matrices."""
        super().__init__()
        self.matrices, self.on_use = matrices, on_use
        changed = {"linear": self._linear, "has_torch_function": lambda tensors: False}
        inside: dict[str, Any] = vars(F) | changed
        for name in _INSIDE:
            function = inside[name]
            inside[name] = FunctionType(function.__code__, inside, name, function.__defaults__)
            inside[name].__kwdefaults__ = function.__kwdefaults__
        self.attention = inside[_INSIDE[0]]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Result of ``function``."""
        options, name = kwargs or {}, getattr(function, "__name__", "")
        if name == "linear":
            return self._linear(*args, **options)
        if name == _INSIDE[0]:
            return self.attention(*args, **options)
        if name == "lstm":
            return self._lstm(*args, **options)
        return function(*args, **options)

    def _linear(self, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        output = F.linear(inputs, weight, bias)
        # a call may replace a layer's tensors by copies
        own = (name for name, (layer, key) in self.matrices.items() if layer._parameters[key] is weight)
        if (name := next(own, None)) is None:
            return output
        replaced = self.on_use(name, inputs, output)
        return output if replaced is None else replaced

    def _lstm(
        self,
        inputs: Tensor,
        start: tuple[Tensor, Tensor],
        weights: list[Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        training: bool,
        both_ways: bool,
        batch_first: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (T, N, C), and last states (layers, N, H), of `torch.lstm`'s arguments for padded texts."""
        size = 4 if has_biases else 2
        if len(weights) != size * layers * (1 + both_ways):
            raise NotImplementedError("no fast per-example gradient for an LSTM with projections")
        values, last = inputs.transpose(0, 1) if batch_first else inputs, list[tuple[Tensor, Tensor]]()
        for layer in range(layers):
            outputs = []
            for way in range(1 + both_ways):
                place = len(last)
                into, over, *biases = weights[size * place : size * (place + 1)]
                of_input, of_state = biases or (None, None)
                states, steps = [], self._linear(values, into, of_input).unbind(0)
                # `vmap` has a first product with each example's state, not one for all
                of_each = torch.zeros_like(steps[0].chunk(4, -1)[0])
                hidden, memory = start[0][place] + of_each, start[1][place]
                for step in reversed(steps) if way else steps:
                    entry, kept, new, shown = (step + self._linear(hidden, over, of_state)).chunk(4, -1)
                    memory = kept.sigmoid() * memory + entry.sigmoid() * new.tanh()
                    hidden = shown.sigmoid() * memory.tanh()
                    states.append(hidden)
                outputs.append(torch.stack(states[::-1] if way else states))
                last.append((hidden, memory))
            values = torch.cat(outputs, -1)
            if dropout and training and layer < layers - 1:
                values = F.dropout(values, dropout)
        hidden, memory = (torch.stack(parts) for parts in zip(*last, strict=True))
        return values.transpose(0, 1) if batch_first else values, hidden, memory
