"""Private gradients for anyone's training loop."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, distributed, nn

from dprepro.checking import checked
from dprepro.clipping.gradients import Loss
from dprepro.errors import UserError
from dprepro.fields import Count, Positive
from dprepro.samplers import PoissonSampler
from dprepro.sums import REPEATED, noisy_sum


class PrivateBackward:
    """DP-SGD's gradient in place of ``loss.backward()``, for the optimizer and the loop of any framework.

    A call on a sample's examples sets each trained parameter's ``grad`` to `noisy_sum`, divided by the
    expected size of a sample. Any optimizer of torch may follow. From then on, autograd raises an error if it
    reaches a trained parameter of the network, because it would add a gradient without noise. A copy of the
    network has no such guard.

    Batches are compared with the sampler's samples by their sizes alone: other examples of the same number
    aren't noticed. If samples at the end of a pass have no step, the next pass raises an error, and after the
    last pass nothing does.

    If the sampler has several ``ranks``, `torch.distributed` must have as many processes. Each calls with its
    part of the sample, and all get the same gradients.

    Attributes:
        noise_multiplier: of the next call. A schedule that was fixed in advance may change it.
        steps: number of calls by noise multiplier. Keep it with a checkpoint.
    """

    @checked
    def __init__(
        self,
        network: nn.Module,
        sampler: PoissonSampler,
        clip: Annotated[Positive, Field(ge=1e-12, le=1e12)],
        noise_multiplier: Annotated[Positive, Field(ge=1e-6, le=1e6)],
        *,
        loss: Loss | None = None,
        at_once: Count | None = None,
    ) -> None:
        """Set the gradients up.

        Args:
            network: as in `clipped_sum`, before a framework wraps it; its parameters stay the same objects.
            sampler: sampler of the batches, one for each process.
            clip: clipping bound C of each example's gradient, as in `noisy_sum`.
            noise_multiplier: standard deviation of the noise divided by ``clip``, as in `noisy_sum`.
            loss: as in `clipped_sum`.
            at_once: as in `noisy_sum`.

        Raises:
            UserError: a number is not allowed, or the sampler's ranks aren't the processes.
        """
        self.network, self.sampler, self.clip, self.loss, self.at_once = network, sampler, clip, loss, at_once
        self.noise_multiplier = noise_multiplier
        self.steps = Counter[float]()
        self._rate = sampler.batch / sampler.examples  # of all steps
        place = (0, 1)
        if distributed.is_available() and distributed.is_initialized():
            place = distributed.get_rank(), distributed.get_world_size()
        if place != (sampler.rank, sampler.ranks):
            ours, theirs = f"rank {sampler.rank} of {sampler.ranks}", f"rank {place[0]} of {place[1]}"
            raise UserError(f"sampler: {ours}, the process: {theirs}; needed: the same")
        self._guard()

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """(Noise multiplier, sampling rate, steps) of the calls for `compose`, as of Opacus's accountants."""
        return [(noise, self._rate, steps) for noise, steps in self.steps.items()]

    def __call__(self, inputs: Tensor | Mapping[str, Tensor], labels: Tensor | None = None) -> None:
        """Set the gradients for a sample, an empty one too.

        Args:
            inputs: (B, ...) inputs, or several by keyword, as in `clipped_sum`.
            labels: (B, ...) labels, or None, as in `clipped_sum`.

        Raises:
            UserError: as in `noisy_sum`, or the batch isn't the sampler's next sample: it has another size.
                Or the sampler has another sampling rate than at the start.
        """
        if (rate := self.sampler.batch / self.sampler.examples) != self._rate:
            raise UserError(
                f"sampler: sampling rate {rate:g}, at the start {self._rate:g}; needed: one rate, or another "
                "PrivateBackward, and `compose` of both histories"
            )
        self._guard()
        if not REPEATED.get():  # `replay` chooses its batches
            first = next(iter(inputs.values()), ()) if isinstance(inputs, Mapping) else inputs
            self.sampler.check(len(first))
        group = distributed.group.WORLD if self.sampler.ranks > 1 else None
        options: dict[str, Any] = {"loss": self.loss, "at_once": self.at_once, "group": group}
        noisy = noisy_sum(self.network, inputs, labels, self.clip, self.noise_multiplier, **options)
        self.steps[float(self.noise_multiplier)] += 1  # a number, because a tensor may change after the step
        for name, value in noisy.items():
            self.network.get_parameter(name).grad = value / self.sampler.batch

    def _guard(self) -> None:
        """Let autograd raise an error at the trained parameters, also at those that were frozen before."""
        for parameter in self.network.parameters():
            hooks = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
            if parameter.requires_grad and _refuse not in hooks.values():
                parameter.register_post_accumulate_grad_hook(_refuse)


def _refuse(parameter: Tensor) -> None:
    """Raise an error as autograd adds a gradient without noise to a parameter."""
    parameter.grad = None
    raise UserError("backward(): its gradients have no noise; needed: PrivateBackward in its place, alone")
