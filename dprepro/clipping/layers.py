"""Trained layers of a network, and hooks on their inputs and outputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn


def trained_layers(net: nn.Module) -> dict[str, nn.Module]:
    """Layers with their own trained parameters, by name.

    Args:
        net: the network.

    Returns:
        The layers in the network's order.

    Raises:
        NotImplementedError: two layers share a parameter; its gradient would be a sum over both layers.
    """
    layers = {
        name: layer
        for name, layer in net.named_modules()
        if any(own is not None and own.requires_grad for own in layer._parameters.values())
    }
    # not `parameters`, which takes a hundredth of a small network's step
    owned = [id(own) for layer in layers.values() for own in layer._parameters.values() if own is not None]
    if len(set(owned)) < len(owned):
        raise NotImplementedError("no fast per-example gradient for a parameter that two layers share")
    return layers


@contextmanager
def watch_layers(layers: Mapping[str, nn.Module], on_use: Callable[..., Tensor | None]) -> Iterator[None]:
    """Call ``on_use`` with name, input and output at each use of a layer; a result replaces the output."""

    def hook(
        name: str,
        layer: nn.Module,
        arguments: tuple[Tensor, ...],
        named_arguments: dict[str, Tensor],
        output: Tensor,
    ) -> Tensor | None:
        return on_use(name, *arguments, *named_arguments.values(), output)

    handles = [
        layer.register_forward_hook(partial(hook, name), with_kwargs=True) for name, layer in layers.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
