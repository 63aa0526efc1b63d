"""Layer-wise relevance propagation (Bach et al. 2015) as in Phan et al. 2017, section II-C.

The relevance R_m of an output m is divided among the inputs p in proportion to their contributions: R_p = sum
over m of z_pm / (z_m + mu sign(z_m)) R_m, with z_pm = x_p w_pm (input times weight) and z_m = sum over p of
z_pm, plus the bias (Eqs. 4 to 8). The small mu > 0 avoids division by zero. So R_p is x_p times the gradient
of the weighted sum of the outputs, in which output m has the constant weight R_m / (z_m + mu sign(z_m)). This
takes one backward pass per layer (Montavon et al. 2019, section 10.2.1). A bias keeps its share of the
relevance. Without biases the relevances of the inputs add up to the network's output (Eq. 9).

captum's LRP is not used: it has no rule for this project's normalisations, loses relevance behind a ReLU
(0.9.0), and leaves hooks in the network. Tests compare the two for networks that captum supports.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from dprepro.clipping.normalization import BatchStatistics
from dprepro.errors import UserError
from dprepro.pipeline.models.normalization import LocalResponse

STABILIZER = 1e-9  # mu, against division by zero
# Layers with one input per unit: relevance passes unchanged. `LocalResponse` multiplies by a positive
# factor, which counts as a constant (Binder et al. 2016).
PASSING = (nn.ReLU, nn.Tanh, nn.Dropout, nn.Identity, LocalResponse)
# Layers whose outputs are weighted sums of inputs plus a constant: a maximum is the sum of its largest input
# alone, and `BatchStatistics` uses fixed statistics.
SUMMING = (
    nn.Conv2d,
    nn.Linear,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Flatten,
    nn.GroupNorm,
    BatchStatistics,
)


def relevances(net: nn.Module, inputs: Tensor) -> Tensor:
    """Relevance of each feature to the predicted class, from 0 to 1 (text below Eq. 9).

    An example's smallest relevance becomes 0, and its largest becomes 1. If all are equal, as for a black
    image, the result is zeros. A feature with value 0 has relevance 0 before this scaling; after it, the
    relevance is above 0 if another feature's was negative.

    Args:
        net: `nn.Sequential`, also nested, of layers that have a rule, in evaluation mode.
        inputs: (B, C, H, W) images.

    Returns:
        (B, C, H, W) relevances in [0, 1].

    Raises:
        UserError: a layer has no rule.
    """
    relevance = propagate_relevance(net, inputs)
    flat = relevance.flatten(1)
    least, most = (bound.reshape(-1, *(1,) * (inputs.dim() - 1)) for bound in flat.aminmax(dim=1))
    return (relevance - least) / torch.where(most > least, most - least, 1)


@torch.no_grad()
def propagate_relevance(net: nn.Module, inputs: Tensor) -> Tensor:
    """(B, ...) unscaled relevance of each feature to the largest output; arguments as for `relevances`."""
    layers = list(_chain("", net))
    values = [inputs]
    for layer in layers:
        values.append(layer(values[-1]))
    outputs = values.pop()
    predicted = outputs.argmax(1, keepdim=True)
    relevance = torch.zeros_like(outputs).scatter(1, predicted, outputs.gather(1, predicted))
    for layer, value in zip(reversed(layers), reversed(values), strict=True):
        if isinstance(layer, SUMMING):
            relevance = _input_relevance(_linearized(layer, value), value, relevance)
    return relevance


def _chain(name: str, layer: nn.Module) -> Iterator[nn.Module]:
    """Layers of the network ``layer`` in order; ``name`` begins their names in messages.

    Raises:
        UserError: a layer has no rule, such as a container other than `nn.Sequential`.
    """
    if type(layer) is nn.Sequential:
        # not `named_children`, which leaves out a layer's second use
        for number, inner in enumerate(layer):
            yield from _chain(f"{name}{number}.", inner)
    elif isinstance(layer, (*PASSING, *SUMMING)):
        yield layer
    else:
        known = ", ".join(sorted(rule.__name__ for rule in (*PASSING, *SUMMING)))
        raise UserError(
            f"network, {name.removesuffix('.') or 'as a whole'}: no rule to propagate relevance through "
            f"{type(layer).__name__}; allowed: Sequential of {known}"
        )


def _input_relevance(layer: Callable[[Tensor], Tensor], value: Tensor, relevance: Tensor) -> Tensor:
    """Relevance of a layer's inputs ``value`` from the relevance of its outputs (Eqs. 4 and 5)."""
    outputs, back = torch.func.vjp(layer, value)[:2]
    stable = outputs + STABILIZER * torch.where(outputs < 0, -1.0, 1.0)
    return value * back(relevance / stable)[0]


def _linearized(layer: nn.Module, value: Tensor) -> Callable[[Tensor], Tensor]:
    """Layer as a weighted sum of its inputs. All layers but group norm are such sums already.

    Group norm subtracts the group's mean, which is such a sum. It then divides by a standard deviation, here
    fixed at that of ``value``, so that relevance is conserved (Ali et al. 2022).
    """
    if not isinstance(layer, nn.GroupNorm):
        return layer
    groups, shape = layer.num_groups, (1, -1, *(1,) * (value.dim() - 2))
    variances = value.reshape(len(value), groups, -1).var(2, unbiased=False, keepdim=True)

    def norm(inputs: Tensor) -> Tensor:
        grouped = inputs.reshape(len(inputs), groups, -1)
        scaled = (grouped - grouped.mean(2, keepdim=True)) / (variances + layer.eps).sqrt()
        outputs = scaled.reshape(inputs.shape)
        if layer.affine:
            outputs = outputs * layer.weight.reshape(shape) + layer.bias.reshape(shape)
        return outputs

    return norm
