"""Mini-sets of a batch, and the gradient of a mini-set (Nguyen et al. 2023, Eqs. 6 and 7)."""

from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.clipping.functional import Tensors, fresh_state, functional_call
from dprepro.clipping.normalization import measuring
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.base import gradient as differentiated
from dprepro.pipeline.methods.batch_clipping.settings import BatchClippingSettings
from dprepro.pipeline.methods.samples import Sample, independent_sample, padded


def draw_mini_sets(streams: Streams, settings: BatchClippingSettings, step: int, examples: int) -> Sample:
    """Mini-sets of a step: K random sets of S examples.

    A Poisson sample or an allocated batch has no fixed size. Each of its examples goes into a random one of
    `settings.sets` sets, so an added example changes only one set. If `set_size` is 1, each example is a set.
    """
    batch, size = settings.batch, settings.set_size
    if settings.add_or_remove:
        drawn = independent_sample(streams, settings, step, examples)
        if size > 1:
            return _divide(streams, drawn, settings.sets, step)
        sample = padded(drawn, streams.device)
        return Sample(sample.chosen[:, None], sample.mask[:, None])
    draw = {"fixed": streams.fixed, "replacement": streams.replaced, "shuffled": streams.shuffled}
    index = draw[settings.sampling](step, examples, batch).unflatten(0, (settings.sets, size))
    return Sample(index, torch.ones(index.shape, device=index.device))


def _divide(streams: Streams, sample: np.ndarray, count: int, step: int) -> Sample:
    """Mini-sets: the sample, divided into ``count`` random sets, padded to the longest set."""
    uniform = streams.uniform_values(step, max(1, len(sample)), "mini-sets")[: len(sample)]
    number_of = (uniform * np.float32(count)).astype(np.int64)
    sets = [torch.from_numpy(sample[number_of == number]) for number in range(count)]
    longest = max(1, *(len(members) for members in sets))
    index = torch.zeros(count, longest, dtype=torch.long)
    mask = torch.zeros(index.shape)
    for number, members in enumerate(sets):
        # padded with an example of the set, so that no set depends on another
        index[number] = members[0] if len(members) else 0
        index[number, : len(members)] = members
        mask[number, : len(members)] = 1
    return Sample(index.to(streams.device), mask.to(streams.device))


class Gradient(NamedTuple):
    """Gradient, loss and statistics of one mini-set, before clipping."""

    values: Tensors  # g(w; S), in the shapes of the parameters
    loss: Tensor  # () mean loss of the examples
    statistics: Tensors  # of the batch-norm layers


def gradient(
    net: nn.Module, parameters: Tensors, resets: bool, inputs: Tensor, labels: Tensor, mask: Tensor
) -> Gradient:
    """Gradient of one mini-set of S examples, normalised by the mini-set's own batch statistics.

    ``inputs`` are (S, ...), ``labels`` and ``mask`` (S,); examples with mask 0 have no effect. If ``resets``,
    the network's state is renewed first, and the changed state is discarded.
    """
    # statistics without weights are faster; a GPU would wait for the comparison
    weights = None if mask.device.type == "cpu" and bool(mask.all()) else mask

    def loss(tensors: Tensors, inputs: Tensor) -> tuple[Tensor, tuple[Tensor, Tensors]]:
        renewed = fresh_state(net) if resets else nullcontext()
        # copies, as in `OneByOne`: a network may change its weights in place
        copies = {name: value.clone() for name, value in tensors.items()}
        with renewed, measuring(net, weights) as statistics:
            losses = F.cross_entropy(functional_call(net, copies, (inputs,)), labels, reduction="none")
        mean = (losses * mask).sum() / mask.sum().clamp_min(1)
        return mean, (mean, statistics)

    values, (mean, statistics) = differentiated(loss, net, parameters, inputs)
    return Gradient(values, mean, statistics)
