"""Common step of the methods that add noise to clipped gradients (Abadi et al. 2016, Algorithm 1).

A step samples, clips, sums and adds noise. Methods differ in the use of the noisy sum, and in the clipped
unit, which their clipper defines. A unit is the gradient of an example, of the mean loss of an example's
augmented copies, or of the mean loss of a mini-set of examples.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from dprepro.accountants.records import SampledGaussian
from dprepro.clipping.clippers import ClipperFactory, NoDropout, clipper_factory
from dprepro.clipping.functional import Tensors
from dprepro.clipping.gradients import BookKeeping, ClippedSum, Clipper, Parts
from dprepro.clipping.limits import ClipLimits
from dprepro.errors import Unproven, UserError
from dprepro.fields import Isolation
from dprepro.noise.mechanisms import IN_FLOAT32, GaussianMechanism, roundings
from dprepro.pipeline.methods.base import Method
from dprepro.pipeline.methods.samples import (
    BatchSum,
    Pass,
    Sample,
    independent_sample,
    merged,
    padded,
    parts_of,
)
from dprepro.pipeline.methods.spending import Guarantee

# Number of steps between checks that an example contributes the same in a batch as alone; a check is a pass
CHECKED_EVERY = 100
DIFFERENT = 0.05  # relative difference that rounding can't cause, not even at a ReLU's threshold
# Average number of examples in a part of a sample. Sums in float32 are exact enough up to 180 examples, or
# 156 in samples of 1,024 (`IN_FLOAT32`). Larger parts are rare, and are summed in float64.
PART = 128


class PrivateSteps(Method):
    """Steps on Poisson samples or allocated batches; gradients are clipped, the sum gets Gaussian noise."""

    copies = 1  # augmented copies of an example, whose gradients are averaged before clipping
    uniform_count = 0  # number of uniform numbers for the augmentation of one example

    @cached_property
    def mechanism(self) -> GaussianMechanism | None:
        """Gaussian mechanism with the settings' spending; None if the training is not private.

        Raises:
            UserError: no noise reaches the target epsilon.
        """
        if not self.settings.private:
            return None
        spending = self.settings.spending(self.sizes)
        assert isinstance(spending, SampledGaussian), "of methods with clipped sums"
        return GaussianMechanism(spending, self.settings.distance)

    @property
    def clipper(self) -> Callable[..., ClippedSum]:
        """Function that computes clipped sums: a `Clipper` of single examples."""
        return self.of_examples

    @cached_property
    def of_examples(self) -> Clipper:
        """Clipper of single examples' gradients; made once, because it runs the network to find layers."""
        return self.factory(self.task.net)

    @cached_property
    def factory(self) -> ClipperFactory:
        """Factory of clippers of examples' gradients.

        Raises:
            UserError: the network mixes examples.
        """
        example = self.test_inputs(self.task.public[:1])
        return clipper_factory(self.task.net, example, self.copies, self.task.execution.reference)

    @property
    def isolation(self) -> Isolation | None:  # type: ignore[override]
        """Reason why examples don't mix in a private step; None if they mix, or if nothing is private."""
        return None if self.mechanism is None or self.broken else self.factory.isolation

    @cached_property
    def clip_limits(self) -> ClipLimits:
        """Bounds of the whole gradient as one part, clipped to the setting `clip`."""
        return self.bounds(self.settings.clip)

    @cached_property
    def class_weights(self) -> Tensor | None:
        """(K,) factor of an example's loss for each class; None: all are 1.

        Raises:
            UserError: a class has no factor.
        """
        weights: tuple[float, ...] = getattr(self.settings, "class_weights", ())
        if not weights:
            return None
        if int(self.task.labels.max()) >= len(weights):
            raise UserError(f"settings.class_weights: {len(weights)} numbers; allowed: one for each class")
        return self.task.numbers(weights)

    def bounds(self, limit: float) -> ClipLimits:
        """Bounds of the whole gradient as one part, clipped to ``limit``."""
        return ClipLimits.whole(self.task.numbers([limit])[0], len(self.task.parameters))

    def sample(self, step: int) -> Sample:
        """Poisson sample of expected size B, or allocated batch."""
        streams, settings = self.task.streams, self.settings
        drawn = independent_sample(streams, settings, step, self.examples)
        sample = padded(drawn, streams.device)
        if not self._accounts_rounding:
            return sample
        population = settings.population(self.examples)
        return sample._replace(parts=parts_of(drawn, population, math.ceil(settings.batch / PART)))

    def resumable(self, steps_done: int) -> bool:
        """Return False inside an epoch of allocated batches, because a resumed run allocates anew."""
        if self.settings.drawn != "allocation":
            return True
        batches: int = self.settings.batches_of_epoch(self.examples)
        return steps_done % batches == 0

    def clipped_sums(
        self, tensors: Tensors, sample: Sample, bounds: ClipLimits, step: int, *arguments: Any
    ) -> BatchSum:
        """Sums of clipped gradients of ``tensors`` over a sample, in passes that fit the memory.

        ``arguments`` are further arguments of the clipper.
        """
        clipper, at_once = self.clipper, self.pass_size(sample)
        sums: Tensors = {}
        of_units: list[tuple[Tensor, Tensor, Tensor]] = []  # norms, losses and mask of each pass
        pieces = list(sample.pieces(at_once))
        # bounds on the rounding errors of float32: within the passes, and of the addition of their sums
        errors = max(roundings(part, piece.stop - piece.start) for piece, part in pieces)
        additions = len(pieces) * len(sample.chosen) if len(pieces) > 1 else 0
        in_float64 = self._accounts_rounding and errors + additions > IN_FLOAT32
        passes = [
            Pass(piece, (size,), in_float64 and roundings(part, size) > IN_FLOAT32)
            for piece, part in pieces
            for size in (piece.stop - piece.start,)
        ]
        if isinstance(clipper, BookKeeping):
            passes = merged(passes, clipper.pass_size(at_once))
        for each_pass, (inputs, labels, mask) in zip(
            passes, self._batches(sample, passes, step), strict=True
        ):
            clipping_bounds = bounds.double() if each_pass.in_float64 else bounds
            clipped_sum = clipper
            if len(each_pass.parts) > 1:
                clipped_sum = partial(clipper, parts=Parts(each_pass.parts, in_float64))
            if not of_units and step % CHECKED_EVERY == 0 and self.mechanism is not None and not self.broken:
                self._compare_with_alone(
                    clipper, tensors, (inputs, labels, mask), (clipping_bounds, *arguments), step
                )
            pass_sum = clipped_sum(tensors, inputs, labels, mask, clipping_bounds, *arguments)
            for name, value in pass_sum.sums.items():
                if name in sums:
                    sums[name] += value
                else:
                    sums[name] = value.double() if in_float64 else value
            present = (mask > 0).to(mask)  # the mask of a batch may have class weights
            norms = pass_sum.norms.float()
            if self.class_weights is not None:  # the norms are those before the loss is weighted
                norms = norms * mask[:, None]
            of_units.append((norms, pass_sum.losses, present))
        norms, losses, masks = (torch.cat(values) for values in zip(*of_units, strict=True))
        return BatchSum(sums, norms, losses, masks, bounds.limits)

    def _compare_with_alone(
        self,
        clipper: Callable[..., ClippedSum],
        tensors: Tensors,
        batch: tuple[Tensor, Tensor, Tensor],
        arguments: tuple[Any, ...],
        step: int,
    ) -> None:
        """Check that one example, or mini-set, contributes the same to a pass as it does alone.

        Raises:
            Unproven: the contribution differs by more than rounding. This stop itself depends on private
                data.
        """
        inputs, labels, mask = batch
        place = step // CHECKED_EVERY % len(labels)
        copies = len(inputs) // len(labels)
        own = torch.zeros_like(mask)
        own[place] = mask[place]
        here = slice(place, place + 1)
        with NoDropout():
            part = clipper(tensors, inputs, labels, own, *arguments)
            alone = clipper(
                tensors,
                inputs[place * copies : (place + 1) * copies],
                labels[here],
                mask[here],
                *arguments,
            )
        size, difference = (
            torch.stack([value.norm() for value in values]).norm()
            for values in (
                alone.sums.values(),
                [torch.nan_to_num(part.sums[name] - value) for name, value in alone.sums.items()],
            )
        )
        loss = alone.losses[0]
        if bool(
            difference > DIFFERENT * size
            or (part.losses[place] - loss).abs() > DIFFERENT * loss.abs().clamp_min(1)
        ):
            raise Unproven(
                f"step {step}: an example's part of a clipped sum differs from the one that it has alone by "
                f"{float(difference / size):.2g} of its size: the network mixes examples, or keeps "
                "data of them between calls; nothing is proven for this training, and this stop depends "
                "on its private data"
            )

    @property
    def _accounts_rounding(self) -> bool:
        """Return whether noise must cover the rounding of sums: if it is on a grid and an epsilon holds."""
        return self.mechanism is not None and self.task.streams.noise == "grid" and not self.broken

    def released(self, sums: Tensors, bounds: ClipLimits, step: int) -> Tensors:
        """Clipped sums with their noise; without noise if nothing is private."""
        if self.mechanism is None:
            return sums
        return self.mechanism.release(sums, bounds, self.task.streams, step)

    def train_inputs(self, stored: Tensor, uniforms: Tensor | None) -> Tensor:
        """Network inputs for ``stored`` (L, ...), L examples.

        Methods with augmentation use ``uniforms`` (L, D): D random numbers for each example.
        """
        return self.test_inputs(stored)

    def augmentation(self, chosen: Tensor, step: int) -> Tensor:
        """Random numbers (K, D), or (K, S, D) for mini-sets, that augment the examples `Sample.chosen`.

        K and S are as in `Sample`, and D is `uniform_count`. The numbers are drawn for the whole sample, so
        its augmented copies don't depend on the division into passes.
        """
        size = chosen.numel() * self.uniform_count
        return self.task.streams.uniform(step, size, "augment").reshape(*chosen.shape, self.uniform_count)

    def pass_size(self, sample: Sample) -> int:
        """Number of examples, or mini-sets, in one forward pass."""
        passes = self.copies * sample.chosen[0].numel()
        return max(1, self.task.execution.physical // passes)

    def _batches(
        self, sample: Sample, passes: list[Pass], step: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Inputs (L, ...) of each pass of L units; labels (L,), or (L, S) for mini-sets; mask (L,)."""
        uniforms = self.augmentation(sample.chosen, step) if self.uniform_count else None
        for piece, *_ in passes:
            chosen = sample.chosen[piece]
            # nine times as fast as a two-dimensional index
            stored = self.task.inputs.index_select(0, chosen.flatten()).unflatten(0, chosen.shape)
            inputs = self.train_inputs(stored, None if uniforms is None else uniforms[piece])
            labels, mask = self.task.labels[chosen], sample.mask[piece]
            if self.class_weights is not None:
                mask = mask * self.class_weights[labels]
            yield inputs, labels, mask

    def guarantee(self) -> Guarantee:
        """Guarantee of the settings, with the mechanism's spending."""
        guarantee = super().guarantee()
        if self.mechanism is None:
            return guarantee
        return replace(guarantee, spending=self.mechanism.spending)
