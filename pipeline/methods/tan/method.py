"""DP-SGD as Sander et al. 2022 train with it: at a given noise level sigma, batch size B and steps S.

Each step takes a Poisson sample of expected size B. The gradients of an example's K augmented copies are
averaged and then clipped to C (augmentation multiplicity, Eq. 5); the sum over the sample gets N(0, sigma^2
C^2) and is divided by B. What is tested is a moving average of the weights.

A smaller B with the same B / sigma and S is a simulation (section 3.4): it foretells the accuracy at a
fraction of the cost, and spends a multiple of the privacy.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.base import (
    CURVES,
    LAST,
    Guarantee,
    Predict,
    State,
    Task,
    as_input,
    each,
    over_replicas,
)
from pipeline.methods.optimizers import adam, adam_start, sgd, sgd_start
from pipeline.methods.samples import BatchSum, clipped_sums, padded
from pipeline.methods.tan.recipes import RECIPES
from pipeline.methods.tan.settings import TanSettings
from pipeline.methods.transforms import Transforms
from pipeline.models.functional import functional_call
from pipeline.privacy.clippers import way_for
from pipeline.privacy.gradients import Bounds, Clipper, Tensors
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.randomness import Streams
from pipeline.privacy.spending import Spending, relation_of, sensitivity
from pipeline.privacy.statements import statement

NOISELESS = statement("no_noise")
# Lower edges of the bins of gradient norms in the history (Figure 7)
NORM_EDGES = (0.0, *(2.0**half for half in np.arange(-4, 6.5, 0.5).tolist()))


class Tan:
    """DP-SGD with AugMult and a moving average, over R replicas that share all but rates and noise."""

    test_draws = 1
    noise_drawn_once = False

    def __init__(self, task: Task, settings: Sequence[TanSettings], normalization: str):
        """One of ``settings`` a replica, in the task's order."""
        self.task = task
        self.settings = tuple(settings)
        self.first = settings[0]
        self.examples = len(task.labels)
        self.views = Transforms(task.public, None)
        self.recipe = RECIPES.get(self.first.augment)
        self.clips = task.numbers(own.clip for own in settings)
        self.momentum = task.numbers(own.momentum for own in settings)
        self.dampening = task.numbers(own.dampening for own in settings)
        self.edges = torch.tensor(NORM_EDGES, device=task.execution.device)
        # the copies at test protect nobody: they are the same for everyone who evaluates
        self.test_streams = Streams(task.streams.names, True, task.execution.device)

    @cached_property
    def mechanism(self) -> GaussianMechanism | None:
        """The noise, if any. An example adds one clipped vector, however many copies it has."""
        if not self.first.private:
            return None
        spendings = tuple(
            Spending(sampling="poisson", noise_multiplier=own.sigma, examples=self.examples, batch=own.batch)
            for own in self.settings
        )
        return GaussianMechanism(spendings, distance=sensitivity(relation_of("poisson")))

    @cached_property
    def clipper(self) -> Clipper:
        """Clipped sums of gradients averaged over copies; made once, as the fast way runs an example."""
        example = self.views.plain(self.task.public[:1])
        how = self.task.execution
        return way_for(self.task.net, example, self.first.copies, how.reference, how.alone)(self.task.net)

    def init(self) -> State:
        """Initial parameters, which are their own average, and what the optimiser keeps."""
        parameters = self.task.parameters
        kept = adam_start(parameters) if self.first.optimizer == "adam" else sgd_start(parameters)
        return {"parameters": parameters, "average": parameters, **kept}

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """One step of every replica; metrics are of its private sample."""
        samples = self.task.streams.poisson(step, self.examples, self.first.batch / self.examples)
        batch = self.clipped_sums(state["parameters"], samples, step)
        sums = batch.sums
        if self.mechanism is not None:
            sums = self.mechanism.release(sums, self._bounds, self.task.streams, step)
        # by the expected batch size: how many there really were is private
        gradients = {name: value / self.first.batch for name, value in sums.items()}
        rates = self.task.numbers(own.rate_at(step, self.first.steps) for own in self.settings)
        shrunk = 1 - rates * self.task.numbers(own.weight_decay for own in self.settings)
        parameters = {name: value * each(value, shrunk) for name, value in state["parameters"].items()}
        before = {**state, "parameters": parameters}
        if self.first.optimizer == "adam":
            after = adam(before, gradients, rates, step)
        else:
            after = sgd(before, gradients, rates, step, self.momentum, self.dampening)
        after["average"] = self._averaged(state["average"], after["parameters"], step)
        metrics = batch.metrics(self.clips)
        return after, {**metrics, **self._histogram(batch)} if self.first.note_norms else metrics

    def model(self, state: State) -> Tensors:
        """The average, under the network's own names, and the last weights."""
        return {
            **state["average"],
            **{f"{LAST}{name}": value for name, value in state["parameters"].items()},
        }

    def network(self, model: Tensors, draw: int) -> Tensors:
        """The average."""
        return {name: model[name] for name in self.task.parameters}

    def predict(self, network: Tensors, inputs: Tensor) -> Tensor:
        """(R, B) classes of images as they are, without augmentation."""
        logits = over_replicas(self._logits, self.task.execution, shared=1)
        return logits(network, self.views.plain(inputs)).argmax(-1)

    def variants(self, model: Tensors) -> dict[str, Predict]:
        """'last': the weights without average. 'vote': the average, on K augmented copies (AugTest)."""
        last = {name: model[f"{LAST}{name}"] for name in self.task.parameters}
        ways: dict[str, Predict] = {"last": lambda inputs, place: self.predict(last, inputs)}
        if self.recipe is not None and self.first.copies > 1:
            ways["vote"] = partial(self._voted, self.network(model, 0))
        return ways

    def resumable(self, done: int) -> bool:
        """Always: each step draws a fresh sample."""
        return True

    def guarantee(self, replica: int) -> Guarantee:
        """What a replica's steps spend."""
        if self.mechanism is None:
            return Guarantee(None, None, None, broken=(NOISELESS,))
        return Guarantee(
            spending=self.mechanism.spendings[replica],
            delta=self.settings[replica].delta,
            claimed_by="rdp",
            not_covered=(CURVES,),
        )

    def clipped_sums(self, parameters: Tensors, samples: list[np.ndarray], step: int) -> BatchSum:
        """Clipped sums of one step's samples, whatever the physical batch."""
        task = self.task
        at_once = max(1, task.execution.examples_at_once(task.replicas) // self.first.copies)
        batches = self._batches(samples, at_once, step)
        return clipped_sums(self.clipper, parameters, batches, self._bounds, task.execution)

    @cached_property
    def _bounds(self) -> Bounds:
        """(R, ...) the whole gradient as one part."""
        tensors = len(self.task.parameters)
        rows = (len(self.clips), tensors)
        return Bounds(self.clips.new_ones(*rows, 1), self.clips[:, None], self.clips.new_ones(rows))

    def _batches(
        self, samples: list[np.ndarray], at_once: int, step: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(R, L K, ...) inputs, an example's copies in a row, (R, L) labels and masks, L at a time."""
        task, copies = self.task, self.first.copies
        pieces = list(padded(samples, at_once, task.execution.device))
        draws = None
        if self.recipe is not None:
            # by an example's place in its sample, so that pieces of any length see the same copies
            places = pieces[-1].places.stop
            numbers = task.streams.uniform(step, places * copies * self.recipe.draws, "augment")
            draws = numbers.reshape(task.replicas, places, copies, self.recipe.draws)
        for piece in pieces:
            stored = task.inputs[piece.chosen]
            if draws is None:
                inputs = self.views.plain(stored)
            else:
                repeated = stored.repeat_interleave(copies, 1)
                inputs = self._augmented(repeated, draws[:, piece.places].flatten(1, 2))
            yield inputs, task.labels[piece.chosen], piece.mask

    def _augmented(self, stored: Tensor, draws: Tensor) -> Tensor:
        """(R, N, C, H, W) images as the network sees them, each augmented by its ``draws`` (R, N, P)."""
        assert self.recipe is not None
        images = self.recipe.apply(as_input(stored).flatten(0, 1), draws.flatten(0, 1))
        return self.views.scaled(images.unflatten(0, stored.shape[:2]))

    def _averaged(self, average: Tensors, parameters: Tensors, step: int) -> Tensors:
        """The moving average after a step; its decay grows with the steps, so that it forgets the start."""
        done = step + 1
        decay = self.task.numbers(min(own.ema, (1 + done) / (10 + done)) for own in self.settings)
        return {
            name: value + each(value, decay) * (average[name] - value) for name, value in parameters.items()
        }

    def _logits(self, network: Tensors, inputs: Tensor) -> Tensor:
        return functional_call(self.task.net, network, (inputs,))

    def _voted(self, network: Tensors, inputs: Tensor, place: int) -> Tensor:
        """(R, B) classes most often predicted for K augmented copies of each image; of equals the first."""
        assert self.recipe is not None
        shape = (place + len(inputs), self.first.copies, self.recipe.draws)
        numbers = self.test_streams.uniform(0, math.prod(shape), "test")
        draws = numbers.reshape(self.task.replicas, *shape)[:, place:]
        images = inputs.expand(self.task.replicas, *inputs.shape)
        votes = []
        for own in draws.unbind(2):
            logits = over_replicas(self._logits, self.task.execution)(network, self._augmented(images, own))
            votes.append(F.one_hot(logits.argmax(-1), logits.shape[-1]))
        return torch.stack(votes).sum(0).argmax(-1)

    def _histogram(self, batch: BatchSum) -> Tensors:
        """(R,) each: the share of a sample whose gradient norm lies in the bin that begins at an edge."""
        bins = torch.bucketize(batch.norms, self.edges, right=True) - 1
        counts = (F.one_hot(bins, len(NORM_EDGES)) * batch.mask[..., None]).sum(1)
        shares = counts / batch.mask.sum(1, keepdim=True).clamp_min(1)
        return {f"gradient_norms/{edge:g}": share for edge, share in zip(NORM_EDGES, shares.T, strict=True)}
