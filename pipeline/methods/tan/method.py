"""DP-SGD as in Sander et al. 2022: at a given noise level sigma, batch size B and number of steps S.

Each step takes a Poisson sample of expected size B, or an allocated batch. The gradients of an example's K
augmented copies are averaged, and the average is clipped to C (augmentation multiplicity, Eq. 5). The sum
over the sample gets N(0, sigma^2 C^2) and is divided by B. The tested model is a moving average of the
weights.

A smaller B with the same B / sigma and S is a simulation (section 3.4): it predicts the accuracy at a
fraction of the cost, and spends far more privacy.
"""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dprepro.clipping.functional import Tensors
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.augment import Transforms, crop_flip
from dprepro.pipeline.methods.base import LAST, Predict, State, Task, as_input
from dprepro.pipeline.methods.optimizers import Adam, Optimizer, Sgd, decayed
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.samples import BatchSum
from dprepro.pipeline.methods.tan.settings import TanSettings

# Lower edges of the bins of gradient norms in the history (Figure 7)
NORM_EDGES = (0.0, *(2.0**half for half in np.arange(-4, 6.5, 0.5).tolist()))


class Tan(PrivateSteps):
    """DP-SGD with augmented copies and a moving average of the weights."""

    settings: TanSettings

    def __init__(self, task: Task, settings: TanSettings, normalization: str):
        """Take the task, the training's settings and the normalisation of the task's network."""
        super().__init__(task, settings, normalization)
        self.copies = settings.copies
        self.uniform_count = 3 * self.copies if settings.augment == "crop_flip" else 0
        self.views = Transforms(task.public, None)
        self.edges = torch.tensor(NORM_EDGES, device=task.execution.device)
        self.optimizer: Optimizer = Adam()
        if settings.optimizer == "sgd":
            self.optimizer = Sgd(settings.momentum, settings.dampening)
        # augmentation at test time is not for privacy, so it is seeded: equal in every evaluation
        self.test_streams = Streams(task.streams.name, True, task.execution.device)

    def init(self) -> State:
        """Initial parameters, their moving average (equal at first), and the optimizer's state."""
        return {**self.optimizer.start(self.task.parameters), "average": self.task.parameters}

    def step(self, state: State, step: int) -> tuple[State, Mapping[str, Tensor]]:
        """Make one step; the metrics are of its private sample."""
        parameters, rate = state["parameters"], self.rate(step)
        batch = self.clipped_sums(parameters, self.sample(step), self.clip_limits, step)
        sums = self.released(batch.sums, self.clip_limits, step)
        # divided by the expected batch size, because the true size is private
        gradients = {name: value / self.settings.batch for name, value in sums.items()}
        shrunk = decayed(parameters, rate, self.settings.weight_decay)
        next_state = self.optimizer.update({**state, "parameters": shrunk}, gradients, rate, step)
        next_state["average"] = self._average(state["average"], next_state["parameters"], step)
        metrics = batch.metrics()
        return next_state, {**metrics, **self._histogram(batch)} if self.settings.note_norms else metrics

    def model(self, state: State) -> Tensors:
        """Average weights, under the network's own names, and the last weights."""
        last = {f"{LAST}{name}": value for name, value in state["parameters"].items()}
        return {**state["average"], **last}

    def network(self, model: Tensors, draw: int) -> Tensors:
        """Moving average of the weights, which is the tested model."""
        return {name: model[name] for name in self.task.parameters}

    def test_inputs(self, stored: Tensor) -> Tensor:
        """Images without augmentation, scaled by public statistics."""
        return self.views.plain(stored)

    def train_inputs(self, stored: Tensor, uniforms: Tensor | None) -> Tensor:
        """Inputs (L K, ...): K copies of L examples, by P ``uniforms`` (L, K P) per copy."""
        if uniforms is None:
            return self.views.plain(stored)
        copies = stored.repeat_interleave(self.copies, 0)
        return self._augment(copies, uniforms.unflatten(1, (self.copies, -1)).flatten(0, 1))

    def variants(self, model: Tensors) -> dict[str, Predict]:
        """Predictors: 'last' uses the last weights, 'vote' the average on K augmented copies (AugTest)."""
        last = {name: model[f"{LAST}{name}"] for name in self.task.parameters}
        predictors: dict[str, Predict] = {"last": self.predictor(last)}
        if self.uniform_count and self.copies > 1:
            predictors["vote"] = partial(self._vote, self.network(model, 0))
        return predictors

    def _augment(self, stored: Tensor, uniforms: Tensor) -> Tensor:
        """(N, C, H, W) network inputs; P random ``uniforms`` (N, P) augment each image."""
        return self.views.scaled(crop_flip(as_input(stored), uniforms, padding="reflect"))

    def _average(self, average: Tensors, parameters: Tensors, step: int) -> Tensors:
        """Moving average after a step; its decay rises with the steps, so that it forgets the start."""
        steps_done = step + 1
        decay = min(self.settings.ema, (1 + steps_done) / (10 + steps_done))
        return {name: value + decay * (average[name] - value) for name, value in parameters.items()}

    def _vote(self, network: Tensors, inputs: Tensor, position: int) -> Tensor:
        """(B,) most frequent class of K augmented copies of each of B images; in a tie the lowest."""
        shape = (position + len(inputs), self.copies, 3)
        uniforms = self.test_streams.uniform(0, math.prod(shape), "test").reshape(shape)[position:]
        votes = []
        for copy_uniforms in uniforms.unbind(1):
            logits = self.outputs(network, self._augment(inputs, copy_uniforms))
            votes.append(F.one_hot(logits.argmax(-1), logits.shape[-1]))
        return torch.stack(votes).sum(0).argmax(-1)

    def _histogram(self, batch: BatchSum) -> Tensors:
        """Shares () of the gradient norms in each bin, named by the lower edge of the bin."""
        bins = torch.bucketize(batch.gradient_norms, self.edges, right=True) - 1
        counts = (F.one_hot(bins, len(NORM_EDGES)) * batch.mask[:, None]).sum(0)
        shares = counts / batch.mask.sum().clamp_min(1)
        return {f"gradient_norms/{edge:g}": share for edge, share in zip(NORM_EDGES, shares, strict=True)}
