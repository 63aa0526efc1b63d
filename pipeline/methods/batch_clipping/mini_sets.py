"""Mini-sets of a batch, and the gradient of a mini-set (Nguyen et al. 2023, Eqs. 6 and 7)."""

from contextlib import nullcontext
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.clipping.functional import Tensors, fresh_state, functional_call
from dprepro.clipping.normalization import measuring
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.base import gradient as differentiated
from dprepro.pipeline.methods.batch_clipping.settings import BatchClippingSettings


def draw(streams: Streams, settings: BatchClippingSettings, step: int, examples: int) -> Tensor:
    """(K, S) positions of the examples of a step's mini-sets: K random sets of S examples."""
    draw = {"fixed": streams.fixed, "replacement": streams.replaced, "shuffled": streams.shuffled}
    size = settings.set_size
    return draw[settings.sampling](step, examples, settings.batch).unflatten(0, (settings.sets, size))


class Gradient(NamedTuple):
    """Gradient, loss and statistics of one mini-set, before clipping."""

    values: Tensors  # g(w; S), in the shapes of the parameters
    loss: Tensor  # () mean loss of the examples
    statistics: Tensors  # of the batch-norm layers


def gradient(net: nn.Module, parameters: Tensors, resets: bool, inputs: Tensor, labels: Tensor) -> Gradient:
    """Gradient of one mini-set of S examples, normalised by the mini-set's own batch statistics.

    ``inputs`` are (S, ...), ``labels`` (S,). If ``resets``, the network's state is renewed first, and the
    changed state is discarded.
    """

    def loss(tensors: Tensors, inputs: Tensor) -> tuple[Tensor, tuple[Tensor, Tensors]]:
        renewed = fresh_state(net) if resets else nullcontext()
        # copies, as in `OneByOne`: a network may change its weights in place
        copies = {name: value.clone() for name, value in tensors.items()}
        with renewed, measuring(net) as statistics:
            mean = F.cross_entropy(functional_call(net, copies, (inputs,)), labels)
        return mean, (mean, statistics)

    values, (mean, statistics) = differentiated(loss, net, parameters, inputs)
    return Gradient(values, mean, statistics)
