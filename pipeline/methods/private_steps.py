"""The step that all private methods share: sample, clip, sum, add noise (Abadi et al. 2016, Algorithm 1).

Methods differ in what is clipped, which their clipper says: an example's gradient, the mean over an example's
augmented copies, or the mean over a mini-set of examples; and in what they do with the noisy sum.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pipeline.errors import Unproven, UserError
from pipeline.methods.base import Method, over_replicas
from pipeline.methods.samples import BatchSum, Sample, independent_samples, padded, parts_of
from pipeline.methods.spending import Guarantee
from pipeline.privacy.clippers import ClipperFactory, NoDropout, clipper_factory
from pipeline.privacy.gradients import Bounds, ClippedSum, Clipper, Tensors
from pipeline.privacy.mechanisms import IN_FLOAT32, GaussianMechanism, roundings
from pipeline.privacy.parameters import Isolation
from pipeline.privacy.sampled_gaussian import SampledGaussian, batches_of_epoch
from pipeline.privacy.statements import Statement, statement

# Steps from one comparison of an example with itself alone to the next: each costs a pass
CHECKED_EVERY = 100
DIFFERENT = 0.05  # relative difference above what rounding makes, also where it decides a ReLU
# Examples of a part of a sample on average. float32 adds up to 180, and up to 156 in samples of 1,024. Larger
# parts are rare, and are added in float64.
PART = 128


class PrivateSteps(Method):
    """Poisson samples or allocated batches of examples, each clipped by itself; noise of ``sigma``."""

    copies = 1  # augmented copies of an example, whose gradients are averaged before clipping
    draws = 0  # uniform numbers that augmenting one example of a sample takes

    @cached_property
    def mechanism(self) -> GaussianMechanism | None:
        """Gaussian noise by the settings' spending; None where nothing is private.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        if not self.first.private:
            return None
        spendings = [settings.spending(self.sizes) for settings in self.settings]
        return GaussianMechanism(
            tuple(spending for spending in spendings if isinstance(spending, SampledGaussian)),
            self.first.distance,
        )

    @property
    def clipper(self) -> Callable[..., ClippedSum]:
        """How clipped sums are computed: a `Clipper` of examples, each by itself."""
        return self.of_examples

    @cached_property
    def of_examples(self) -> Clipper:
        """Clipped sums of examples' gradients; made once, as an example is run to know the layers."""
        return self.factory(self.task.net)

    @cached_property
    def factory(self) -> ClipperFactory:
        """The way by which clipped sums of examples' gradients are computed.

        Raises:
            UserError: the network mixes examples.
        """
        example, execution = self.test_inputs(self.task.public[:1]), self.task.execution
        return clipper_factory(
            self.task.net, example, self.copies, execution.reference, execution.single_replica
        )

    @property
    def isolation(self) -> Isolation | None:  # type: ignore[override]
        """The reason why examples don't meet in a private step; None where they do, or nothing is private."""
        return None if self.mechanism is None or self.broken else self.factory.isolation

    @property
    def unproven(self) -> tuple[Statement, ...]:  # type: ignore[override]
        """That only trials vouch for the network, where it changes variables outside of itself."""
        return (statement("tried"),) if self.isolation == "tried" else ()

    @cached_property
    def clips(self) -> Tensor:
        """(R,) C, the L2 bounds of gradients."""
        return self.task.numbers(setting.clip for setting in self.settings)

    @cached_property
    def class_weights(self) -> Tensor | None:
        """(K,) factor of the loss of each class's examples; None: all are 1.

        Raises:
            UserError: a class has none.
        """
        weights: tuple[float, ...] = getattr(self.first, "class_weights", ())
        if not weights:
            return None
        if int(self.task.labels.max()) >= len(weights):
            raise UserError(f"settings.class_weights: {len(weights)} numbers; allowed: one for each class")
        return self.task.numbers(weights)

    def bounds(self, limits: Tensor) -> Bounds:
        """(R, ...) the whole gradient as one part, clipped to ``limits`` (R,)."""
        rows = (len(limits), len(self.task.parameters))
        return Bounds(limits.new_ones(*rows, 1), limits[:, None], limits.new_ones(rows))

    def sample(self, step: int) -> Sample:
        """A Poisson sample of every replica, of expected size B, or its allocated batch."""
        streams, batch = self.task.streams, self.first.batch
        samples = independent_samples(streams, self.first, step, self.examples)
        sample = padded(samples, streams.device)
        if self._accounts_rounding and len(samples) == 1:
            # with more replicas the others' sizes say how far a part is padded
            population = self.first.population(self.examples)
            return sample._replace(parts=parts_of(samples[0], population, math.ceil(batch / PART)))
        return sample

    def resumable(self, steps_done: int) -> bool:
        """Not inside an epoch of allocated batches: a resumed run allocates anew, and some join it twice."""
        if self.first.drawn != "allocation":
            return True
        population = self.first.population(self.examples)
        return steps_done % batches_of_epoch(population, self.first.batch, self.first.joined) == 0

    def clipped_sums(
        self, tensors: Tensors, sample: Sample, bounds: Bounds, step: int, *arguments: Any
    ) -> BatchSum:
        """Clipped sums over a sample with respect to ``tensors`` (R, ...), whatever the physical batch.

        ``arguments`` (R, ...) are what the clipper takes besides.
        """
        clipped_sum = over_replicas(self.clipper, self.task.execution)
        sums: Tensors = {}
        norms: list[Tensor] = []
        losses, masks = [], []
        pieces = list(sample.pieces(self.pass_size(sample)))
        # what float32 may be wrong by, before and after the passes' sums are added up
        errors = max(roundings(part, piece.stop - piece.start) for piece, part in pieces)
        additions = len(pieces) * sample.chosen.shape[1] if len(pieces) > 1 else 0
        in_float64 = self._accounts_rounding and errors + additions > IN_FLOAT32
        for piece, (inputs, labels, mask) in zip(pieces, self._batches(sample, pieces, step), strict=True):
            too_large = in_float64 and roundings(piece[1], labels.shape[1]) > IN_FLOAT32
            clipping_bounds = bounds.double() if too_large else bounds
            if not norms and step % CHECKED_EVERY == 0 and self.mechanism is not None and not self.broken:
                self._compare_with_alone(
                    clipped_sum, tensors, (inputs, labels, mask), (clipping_bounds, *arguments), step
                )
            pass_sum = clipped_sum(tensors, inputs, labels, mask, clipping_bounds, *arguments)
            for name, value in pass_sum.sums.items():
                if name in sums:
                    sums[name] += value
                else:
                    sums[name] = value.double() if in_float64 else value
            norms.append(pass_sum.norms.float())
            losses.append(pass_sum.losses)
            # a mini-set is there if any of it is
            masks.append((mask.reshape(*mask.shape[:2], -1).amax(2) > 0).to(mask))
        return BatchSum(sums, torch.cat(norms, 1), torch.cat(losses, 1), torch.cat(masks, 1), bounds.limits)

    def _compare_with_alone(
        self,
        clipped_sum: Callable[..., ClippedSum],
        tensors: Tensors,
        batch: tuple[Tensor, Tensor, Tensor],
        arguments: tuple[Any, ...],
        step: int,
    ) -> None:
        """Compare the summand of one example, or mini-set, in a pass with its result alone.

        Raises:
            Unproven: they differ by more than rounding. That training stops is a release of its own.
        """
        inputs, labels, mask = batch
        place = step // CHECKED_EVERY % labels.shape[1]
        copies = inputs.shape[1] // labels.shape[1]
        own = torch.zeros_like(mask)
        own[:, place] = mask[:, place]
        here = slice(place, place + 1)
        with NoDropout():
            part = clipped_sum(tensors, inputs, labels, own, *arguments)
            alone = clipped_sum(
                tensors,
                inputs[:, place * copies : (place + 1) * copies],
                labels[:, here],
                mask[:, here],
                *arguments,
            )
        size, difference = (
            torch.stack([value.flatten(1).norm(dim=1) for value in values]).norm(dim=0)
            for values in (
                alone.sums.values(),
                [torch.nan_to_num(part.sums[name] - value) for name, value in alone.sums.items()],
            )
        )
        loss = alone.losses[:, 0]
        if bool(
            (difference > DIFFERENT * size).any()
            or ((part.losses[:, place] - loss).abs() > DIFFERENT * loss.abs().clamp_min(1)).any()
        ):
            raise Unproven(
                f"step {step}: an example's part of a clipped sum differs from the one that it has alone by "
                f"{float((difference / size).max()):.2g} of its size: the network mixes examples, or keeps "
                "data of them between calls; nothing is proven for this training, and this stop depends "
                "on its private data",
                len(self.settings),
            )

    @property
    def _accounts_rounding(self) -> bool:
        """Whether the noise covers how far rounding moves sums: on a grid, where anything is accounted."""
        return self.mechanism is not None and self.task.streams.noise == "grid" and not self.broken

    def released(self, sums: Tensors, bounds: Bounds, step: int) -> Tensors:
        """Clipped sums with their noise; as they are where nothing is private."""
        if self.mechanism is None:
            return sums
        return self.mechanism.release(sums, bounds, self.task.streams, step)

    def train_inputs(self, stored: Tensor, draws: Tensor | None) -> Tensor:
        """What a network takes in of ``stored`` examples (R, L, ...); ``draws`` (R, L, D) augment them."""
        return self.test_inputs(stored)

    def augmentation(self, chosen: Tensor, step: int) -> Tensor:
        """(R, L, D) or (R, L, S, D) numbers that augment `Sample.chosen`: by an example's place in it.

        So pieces of any length see the same copies.
        """
        size = chosen[0].numel() * self.draws
        return self.task.streams.uniform(step, size, "augment").reshape(*chosen.shape, self.draws)

    def pass_size(self, sample: Sample) -> int:
        """Examples, or mini-sets, of a replica's sample in one forward pass."""
        passes = self.copies * sample.chosen[0, 0].numel()
        return max(1, self.task.execution.examples_at_once(self.task.replicas) // passes)

    def _batches(
        self, sample: Sample, pieces: list[tuple[slice, int]], step: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Pieces of a sample: inputs (R, L, ...), labels and mask (R, L), or (R, L, S) of mini-sets."""
        draws = self.augmentation(sample.chosen, step) if self.draws else None
        for piece, _ in pieces:
            chosen = sample.chosen[:, piece]
            inputs = self.train_inputs(self.task.inputs[chosen], None if draws is None else draws[:, piece])
            labels, mask = self.task.labels[chosen], sample.mask[:, piece]
            if self.class_weights is not None:
                mask = mask * self.class_weights[labels]
            yield inputs, labels, mask

    def guarantee(self, replica: int) -> Guarantee:
        """The settings' guarantee, with the spending of the mechanism that adds the noise."""
        guarantee = super().guarantee(replica)
        if self.mechanism is None:
            return guarantee
        return replace(guarantee, spending=self.mechanism.spendings[replica])
