"""The ways to take a step: as anybody writes plain SGD, as this project trains, as Opacus does."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.cases import EXAMPLES, Case
from pipeline.memory import keep_freed
from pipeline.methods.base import Execution
from pipeline.models.normalization import BatchStatistics
from pipeline.privacy.gradients import BookKeeping

Step = Callable[[], None]
PLAIN, BEST, OURS = "plain SGD", "plain SGD, channels last", "ours"
# Ours by other ways of taking per-example gradients than the one that is chosen for each layer
PRODUCTS, EXAMPLES_ALONE = "ours, convolutions as products", "ours, convolutions by example"
TAPS, REFERENCE = "ours, under vmap", "ours, reference"
FLOATS = "ours, float32 noise"  # as seeded runs have it, and had all before noise was on a grid
HOOKS, GHOST, FUNCTORCH = "Opacus, hooks", "Opacus, ghost clipping", "Opacus, functorch"
WAYS = (PLAIN, BEST, OURS, FLOATS, PRODUCTS, EXAMPLES_ALONE, TAPS, REFERENCE, HOOKS, GHOST, FUNCTORCH)


@dataclass(frozen=True)
class Contender:
    """One way to train one case."""

    case: Case
    way: str
    batch: int
    replicas: int = 1
    device: str = "cpu"

    @property
    def possible(self) -> bool:
        """Whether there is such a way at all."""
        if self.replicas > 1:
            return self.way == OURS
        if self.way in (PLAIN, BEST, OURS):
            return True
        if self.case.method == "noisy_weights":
            return False
        return self.way == FLOATS or not self.case.clips_whole_batch

    def shares(self, threads: int) -> list[int]:
        """The replicas that each process takes: as in training a CPU has one a thread, a GPU one for all."""
        processes = 1 if self.device != "cpu" else min(self.replicas, threads)
        return [len(range(first, self.replicas, processes)) for first in range(processes)]


class StepTime(NamedTuple):
    """Seconds that a step took."""

    wall: float
    processor: float  # of all threads: on a busy machine, which takes turns, what can still be compared


class Ready(NamedTuple):
    """A step, and a step's share of what is done but once an epoch."""

    step: Step
    share: StepTime = StepTime(0.0, 0.0)


def ready(contender: Contender) -> Ready:
    """The contender's step, on its device."""
    if contender.way in (PLAIN, BEST):
        return Ready(_plain(contender, channels_last=contender.way == BEST))
    if contender.way in (HOOKS, GHOST, FUNCTORCH):
        return Ready(_opacus(contender))
    return _ours(contender)


def _plain(contender: Contender, channels_last: bool) -> Step:
    """A step of SGD on a batch that is there already, with torch's own layers."""
    case, device = contender.case, torch.device(contender.device)
    net = with_torch_batch_norm(case.net).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    inputs, labels = (part.to(device) for part in case.examples(contender.batch * case.copies))
    if channels_last:
        keep_freed()
        net = net.to(memory_format=torch.channels_last)
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()

    return step


def with_torch_batch_norm(net: nn.Module) -> nn.Module:
    """The network with `torch.nn`'s batch norm in place of the project's, which keeps no averages."""
    for module in list(net.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, BatchStatistics):
                # of vectors and images alike, which torch's own two classes tell apart
                setattr(module, name, AnyBatchNorm(len(layer.mean), eps=layer.epsilon))
    return net


class AnyBatchNorm(nn.BatchNorm1d):
    """Batch norm of inputs of any shape (B, C, ...)."""

    def _check_input_dim(self, inputs: torch.Tensor) -> None:
        pass


def _ours(contender: Contender) -> Ready:
    """A whole step of the method: sample, look up, clip, noise, descend."""
    case, way, device = contender.case, contender.way, torch.device(contender.device)
    keep_freed()
    at_once = None if way in (TAPS, REFERENCE) or device.type != "cpu" else 1
    physical = 256 if device.type == "cpu" else 4096
    method = case.trainer(
        contender.batch, contender.replicas, Execution(device, at_once, physical, way == REFERENCE)
    )
    if way in (PRODUCTS, EXAMPLES_ALONE):
        wide = torch.inf if way == PRODUCTS else 0.0
        example = case.examples(1)[0]
        vars(method)["of_examples"] = BookKeeping(
            case.net, example, case.copies, single_replica=True, convolution_threshold=wide
        )
    if way == FLOATS:
        method.task.streams.noise = "float32"
    state, number = method.init(), 0

    def step() -> None:
        nonlocal state, number
        with torch.no_grad():
            state, _ = method.step(state, number)
        number += 1

    if case.method != "batch_clipping":
        return Ready(step)
    step()  # has the bounds of the first epoch

    def bounds() -> None:
        rates = torch.full((contender.replicas,), 0.01, device=device)
        with torch.no_grad():
            method.new_bounds(state, rates, 0)  # type: ignore[attr-defined]

    timings = [timed(bounds, device) for _ in range(3)]
    wall, processor = (statistics.median(column) for column in zip(*timings, strict=True))
    return Ready(step, StepTime(wall * contender.batch / EXAMPLES, processor * contender.batch / EXAMPLES))


def _opacus(contender: Contender) -> Step:
    """A step of Opacus's own optimiser."""
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    case, device = contender.case, torch.device(contender.device)
    net = case.net.to(device)
    inputs, labels = (part.to(device) for part in case.examples(contender.batch * case.copies))
    if case.copies > 1:
        raise ValueError("Opacus has no augmentation multiplicity")
    if not inputs.is_floating_point():
        inputs = inputs.long()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    options = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": contender.batch}
    if contender.way == GHOST:
        ghost = GradSampleModuleFastGradientClipping(net, max_grad_norm=1.0, use_ghost_clipping=True)
        clipping = DPOptimizerFastGradientClipping(sgd, **options)
        loss = DPLossFastGradientClipping(ghost, clipping, torch.nn.CrossEntropyLoss())

        def step() -> None:
            clipping.zero_grad()
            loss(ghost(inputs), labels).backward()
            clipping.step()

        return step
    wrapped = GradSampleModule(net, force_functorch=contender.way == FUNCTORCH)
    optimizer = DPOptimizer(sgd, **options)

    def step_of_hooks() -> None:
        optimizer.zero_grad()
        F.cross_entropy(wrapped(inputs), labels).backward()
        optimizer.step()

    return step_of_hooks


def timed(step: Step, device: torch.device) -> StepTime:
    """One step, to its end."""
    _finished(device)
    started_at, processor_before = time.perf_counter(), time.process_time()
    step()
    _finished(device)
    return StepTime(time.perf_counter() - started_at, time.process_time() - processor_before)


def _finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
