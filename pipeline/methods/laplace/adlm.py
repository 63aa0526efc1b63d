"""The adaptive Laplace mechanism (Phan et al. 2017, Algorithm 1): relevant features have less noise."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import floor, log2

import numpy as np
import torch
from torch import Tensor

from pipeline.methods.base import Guarantee, Relevances, State, Task
from pipeline.methods.laplace.perturbed import Perturbed
from pipeline.methods.laplace.sensitivities import relevance_sensitivity
from pipeline.methods.laplace.settings import AdlmSettings
from pipeline.privacy.gradients import Tensors
from pipeline.privacy.laplace import Laplace
from pipeline.privacy.mechanisms import FINENESS, release_laplace
from pipeline.privacy.statements import statement

# What is left of a relevance at least: without any, a feature would get infinite noise. The authors' code's
LEAST_RELEVANCE = 1e-5
POWER = 4  # to which that code raises relevances
INFORMED = statement("exact_relevances")


class Adlm(Perturbed):
    """Algorithm 1: features share epsilon_2 by their noisy relevances."""

    def __init__(self, task: Task, settings: Sequence[AdlmSettings], normalization: str):
        """One of ``settings`` a replica, in the task's order; the task has relevances."""
        super().__init__(task, settings, normalization)
        self.adaptive = tuple(settings)
        assert task.relevance is not None, "checked when params are read"
        self.relevance: Relevances = task.relevance
        if not self.relevance.public:
            self.trust = "curated"  # somebody averages relevances who sees every image

    @cached_property
    def mean(self) -> Tensor:
        """(d,) relevances before noise (line 2); 'code' scales the means to [0, 1] and raises them."""
        # rounded to single precision, neighbours' means could lie further apart than the noise is for
        on_grid = self.task.streams.noise == "grid"
        mean = self.relevance.mean.flatten().to(torch.float64 if on_grid else torch.float32)
        if self.variant != "code":
            return mean
        return ((mean - mean.amin()) / (mean.amax() - mean.amin()).clamp_min(LEAST_RELEVANCE)) ** POWER

    @cached_property
    def noisy(self) -> Tensor:
        """(R, d) relevances with their noise (lines 3 to 7)."""
        streams, spacing, margin = self.task.streams, None, 1.0
        if streams.noise == "grid":
            # how far a mean may move is no multiple of any spacing
            spacing, margin = 2.0 ** floor(log2(self._distance * FINENESS / 2)), 1 + FINENESS
        scales = self.task.numbers(margin * self._scale(settings) for settings in self.adaptive)
        scales = scales[:, None].expand(-1, self.features)
        return release_laplace(self.mean[None], scales, streams, 0, "relevance", spacing)[:, 0]

    @cached_property
    def ratios(self) -> Tensor:
        """(R, d) beta_j = d |R_j| / sum |R_j| (Eq. 16)."""
        size = self.noisy if self.variant == "code" else self.noisy.abs()
        size = size.clamp_min(LEAST_RELEVANCE)
        ratios = self.features * size / size.sum(1, keepdim=True)
        return ratios.clamp_min(LEAST_RELEVANCE) if self.variant == "code" else ratios

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """As every perturbed training; the last step also notes the relevances, where that is wanted."""
        next_state, metrics = super().step(state, step)
        if not self.adaptive[0].note_relevance or step + 1 < self.steps:
            return next_state, metrics
        relevances = {
            "relevance/" + "/".join(map(str, position)): self.noisy[:, index]
            for index, position in enumerate(np.ndindex(*self.task.inputs.shape[1:]))
        }
        return next_state, {**metrics, **relevances}

    def guarantee(self, replica: int) -> Guarantee:
        """As every perturbed training's, and nothing where relevances carry private images without noise."""
        guarantee = super().guarantee(replica)
        if guarantee.spending is None or not (self.relevance.public and self.relevance.informed):
            return guarantee
        return replace(guarantee, broken=(*guarantee.broken, INFORMED), protects=None)

    def relevance_releases(self, replica: int) -> list[Laplace]:
        """The mean relevances; none where they are of public images, which have no noise."""
        if self.relevance.public:
            return []
        settings = self.adaptive[replica]
        return [
            Laplace(
                quantity="relevances",
                claimed=settings.relevance_share * settings.epsilon,
                # scaled to [0, 1] after averaging, as in 'code', a mean may jump
                distance=None if self.variant == "code" else self._distance,
                scales=(self._scale(settings),),
                repeats=self.features,
                span=(self.mean.amax() - self.mean.amin()).item() or 1.0,
            )
        ]

    @property
    def _distance(self) -> float:
        """Most that one example moves a mean of numbers in [0, 1].

        A network that has seen the example may change with it, and so every example's relevances.
        """
        return 1.0 if self.relevance.informed else 1 / self.relevance.examples

    def _scale(self, settings: AdlmSettings) -> float:
        """b of the noise on a relevance: Delta_R / epsilon_1 (line 6), or of 'sound' for all it may move."""
        if self.relevance.public or not settings.private:
            return 0.0
        if settings.variant == "sound":
            sensitivity = self.features * self._distance
        else:
            sensitivity = relevance_sensitivity(self.features, self.relevance.examples)
        return sensitivity / (settings.relevance_share * settings.epsilon)
