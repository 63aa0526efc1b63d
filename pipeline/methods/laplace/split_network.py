"""Network split at its first bias and below its output layer, the places of the noise in Phan et al. 2017."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dprepro.clipping.functional import Tensors, functional_call, has_shared_tensors
from dprepro.errors import UserError


@dataclass(frozen=True)
class SplitNetwork:
    """Network as a function of its parameters."""

    features: nn.Sequential  # layers from the inputs to the |h_k| units of the last hidden layer
    output: nn.Linear
    prefix: str  # of the names of the output layer's parameters
    bias: str | None  # name of the first affine layer's bias
    maps: int  # number of that layer's feature maps, or of its units
    neurons: int  # number of its outputs

    @property
    def units(self) -> int:
        """Number of units of the last hidden layer, |h_k|."""
        return self.output.in_features

    @property
    def classes(self) -> int:
        """Number of outputs of the network, M."""
        return self.output.out_features

    def hidden(self, tensors: Tensors, inputs: Tensor, bias_factor: Tensor) -> Tensor:
        """(B, |h_k|) states of the |h_k| last hidden units; ``bias_factor`` () multiplies the first bias."""
        features = {name: value for name, value in tensors.items() if not name.startswith(self.prefix)}
        if self.bias is not None:
            # the bias of a frozen layer is in the network, not in ``tensors``
            bias = features.get(self.bias, self.features.get_parameter(self.bias))
            features[self.bias] = bias * bias_factor
        return functional_call(self.features, features, (inputs,))

    def outputs(self, tensors: Tensors, hidden: Tensor) -> Tensor:
        """(B, M) outputs for states (B, |h_k|); M is `classes`, and |h_k| is `units`."""
        output = {
            name.removeprefix(self.prefix): value
            for name, value in tensors.items()
            if name.startswith(self.prefix)
        }
        return functional_call(self.output, output, (hidden,))


def split_network(net: nn.Module, example: Tensor) -> SplitNetwork:
    """Split ``net``; it runs on ``example`` (1, ...) to count the first layer's neurons.

    Raises:
        UserError: the network is not a plain sequence from an affine layer to a linear output.
    """
    # not `named_children`, which leaves out a layer's second use, such as a shared ReLU
    layers = dict(net._modules) if isinstance(net, nn.Sequential) else {}
    names = [name for name, layer in layers.items() if not isinstance(layer, nn.Identity)]
    affine = [name for name in names if isinstance(layers[name], (nn.Conv2d, nn.Linear))]
    output = layers[affine[-1]] if affine else None
    if (
        not isinstance(net, nn.Sequential)
        or not isinstance(output, nn.Linear)
        or affine[-1] != names[-1]
        or has_shared_tensors(net)
    ):
        raise UserError(
            "model.name: methods 'adlm' and 'ilm' need a plain sequence of layers, which share nothing and "
            "end in a linear one without normalisation, such as adlm_cnn"
        )
    order = list(layers)
    with torch.no_grad():
        first = net[: order.index(affine[0]) + 1](example)
    return SplitNetwork(
        features=net[: order.index(affine[-1])],
        output=output,
        prefix=f"{affine[-1]}.",
        bias=None if layers[affine[0]].bias is None else f"{affine[0]}.bias",
        maps=first.shape[1],
        neurons=first[0].numel(),
    )
