"""The adaptive Laplace mechanism (Phan et al. 2017, Algorithm 1): relevant features have less noise."""

from dataclasses import replace
from functools import cached_property
from math import floor, log2

import numpy as np
import torch
from torch import Tensor

from dprepro.clipping.functional import Tensors
from dprepro.noise.mechanisms import FINENESS, release_laplace
from dprepro.pipeline.methods.base import Relevances, State
from dprepro.pipeline.methods.laplace.perturbed import Perturbed
from dprepro.pipeline.methods.laplace.settings import AdlmSettings
from dprepro.pipeline.methods.spending import Guarantee, RelevanceSizes, Sizes


class Adlm(Perturbed):
    """Adaptive mechanism: the inputs' epsilon_2 is divided among features by their noisy relevances."""

    settings: AdlmSettings

    @property
    def relevance(self) -> Relevances:
        """Relevances of the data's features."""
        assert self.task.relevance is not None, "checked when params are read"
        return self.task.relevance

    @cached_property
    def mean(self) -> Tensor:
        """(d,) average relevances of d features before noise (Algorithm 1, line 2)."""
        # in single precision, the rounded means of neighbours could be further apart than the noise allows
        on_grid = self.task.streams.noise == "grid"
        mean = self.relevance.mean.flatten().to(torch.float64 if on_grid else torch.float32)
        scaled: Tensor = self.settings.scaled(mean)
        return scaled

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the task, with those of its relevances."""
        about = self.relevance
        sizes = RelevanceSizes(about.examples, about.informed)
        return replace(super().sizes, relevances=sizes)

    @cached_property
    def noisy(self) -> Tensor:
        """(d,) relevances with noise (Algorithm 1, lines 3 to 7)."""
        streams, spacing, margin = self.task.streams, None, 1.0
        if streams.noise == "grid":
            # the sensitivity of a mean is no multiple of any spacing
            distance = self.settings.relevance_distance(self.sizes)
            spacing, margin = 2.0 ** floor(log2(distance * FINENESS / 2)), 1 + FINENESS
        scale = self.task.numbers([margin * self.settings.relevance_scale(self.sizes)])
        scales = scale.expand(self.features)
        return release_laplace(self.mean[None], scales, streams, 0, "relevance", spacing)[0]

    @cached_property
    def ratios(self) -> Tensor:
        """Ratios (d,) of d features: Eq. 16 of the relevances `noisy`."""
        ratios: Tensor = self.settings.ratios(self.noisy)
        return ratios

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """Make one step; the last one also records the relevances if the settings ask for them."""
        next_state, metrics = super().step(state, step)
        if not self.settings.note_relevance or step + 1 < self.steps:
            return next_state, metrics
        relevances = {
            "relevance/" + "/".join(map(str, position)): self.noisy[index]
            for index, position in enumerate(np.ndindex(*self.task.inputs.shape[1:]))
        }
        return next_state, {**metrics, **relevances}

    def guarantee(self) -> Guarantee:
        """Guarantee of the training; the noise on each feature follows from its `ratios`."""
        assert self.sizes.relevances is not None, "measured by `sizes`"
        span = (self.mean.amax() - self.mean.amin()).item() or 1.0
        ratios = self.ratios.cpu().numpy()
        sizes = replace(self.sizes, relevances=replace(self.sizes.relevances, span=span, ratios=ratios))
        return self.settings.guarantee(sizes, self.normalization)
