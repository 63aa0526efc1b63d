"""Interfaces of training methods: their task, execution and required functions."""

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dprepro.clipping.functional import (
    Tensors,
    channels_last,
    evaluating,
    functional_call,
    wants_channels_last,
)
from dprepro.fields import Isolation
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.spending import Guarantee, NetworkSizes, Sizes, Statement

# options of glibc's mallopt, and the bytes above which a block goes back to the system at once
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, MOST_KEPT = -1, -3, 1 << 30
# State between steps: groups of tensors
State = dict[str, Tensors]


@dataclass(frozen=True)
class Execution:
    """Device and batch sizes of the computation; results depend on them only by rounding."""

    device: torch.device
    physical: int  # examples in one forward pass; limits the memory
    # whether per-example gradients are always by vmap(grad), not by a faster way
    reference: bool = False


CPU = Execution(torch.device("cpu"), physical=256)


def keep_freed() -> None:
    """Let glibc keep freed memory for the next step, instead of returning it to the system.

    Every new page of memory costs a page fault, and the system zeroes the page. With the papers' batch sizes
    this took a third of a training step on two CPU cores. Other C libraries stay unchanged.
    """
    try:
        adjust = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        adjust(option, MOST_KEPT)


@dataclass(frozen=True)
class Relevances:
    """Average relevance of each feature to the output of an earlier trained network."""

    mean: Tensor  # shape of one example; relevances of a single example lie in [0, 1]
    examples: int  # number of examples in the average
    informed: bool  # whether the network has seen private examples


@dataclass(frozen=True)
class Task:
    """Network, data and initial weights of one training."""

    net: nn.Module  # has the frozen tensors, and the shapes of the trained ones
    parameters: Tensors  # initial values of the trained parameters
    inputs: Tensor  # (N, ...) training inputs on the device, as stored
    labels: Tensor  # (N,)
    public: Tensor  # (M, ...) public inputs, as stored
    public_labels: Tensor  # (M,)
    streams: Streams
    execution: Execution
    relevance: Relevances | None = None  # of the data's features; None: the data have none
    group: int | None = None  # as in `SampledGaussian`

    def numbers(self, values: Iterable[float]) -> Tensor:
        """Float32 tensor on the device; the copy to a GPU blocks."""
        return torch.tensor(list(values), dtype=torch.float32, device=self.execution.device)


# Function of stored inputs (B, ...) and the position of the first in its split; returns (B,) predictions
Predict = Callable[[Tensor, int], Tensor]
LAST = "last."  # prefix of the names of the last weights, which are stored beside the tested model


class Method(ABC):
    """Training method: the initial state, and the step from a state to the next one.

    A subclass defines these two; its settings define the spending. All other functions have defaults here.
    """

    test_draws = 1  # number of noise draws at test time; 1 for methods without noise at test time
    isolation: Isolation | None = None  # the reason why examples don't mix in a private step
    noise_drawn_once = False  # whether noise is drawn once per training, so that a resumed run must reuse it
    settings: Any  # a `MethodSettings` of the method's room

    def __init__(self, task: Task, settings: Any, normalization: str):
        """Take the task, the training's settings and the normalisation of the task's network."""
        self.task, self.settings = task, settings
        self.normalization, self.examples = normalization, len(task.labels)
        self.steps: int = settings.total_steps(self.examples)
        self.broken: tuple[Statement, ...] = settings.broken(normalization)

    @abstractmethod
    def init(self) -> State:
        """State before the first step."""

    @abstractmethod
    def step(self, state: State, step: int) -> tuple[State, Mapping[str, Tensor]]:
        """Make one step; return the state, and metrics () of the private batch, which no epsilon covers."""

    @cached_property
    def mechanism(self) -> GaussianMechanism | None:
        """Mechanism that adds noise to a step's sums; None if no step releases sums. An audit may wrap it."""
        return None

    @classmethod
    def network_sizes(cls, net: nn.Module, inputs: Tensor) -> NetworkSizes:
        """Sizes of ``net`` that the settings' spending uses; ``inputs`` (B, ...) are inputs of ``net``."""
        return NetworkSizes(sum(value.requires_grad for value in net.parameters()))

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the task that the settings' spending depends on."""
        network = self.network_sizes(self.task.net, self.task.inputs)
        return Sizes(self.examples, network, group=self.task.group)

    def guarantee(self) -> Guarantee:
        """Guarantee of the training, by its settings."""
        guarantee: Guarantee = self.settings.guarantee(self.sizes, self.normalization)
        return guarantee

    def rate(self, step: int) -> float:
        """Learning rate at a step, as a float32 number."""
        return float32(self.settings.rate_at(step, self.steps))

    def model(self, state: State) -> Tensors:
        """Tensors of the trained model, as they are stored."""
        return {**state["parameters"], **state.get("running", {})}

    def network(self, model: Tensors, draw: int) -> Tensors:
        """Tensors of the tested network for a stored ``model``, with test noise number ``draw``."""
        return model

    def predictor(self, network: Tensors) -> Predict:
        """Predictor of `predicted` classes or numbers; it ignores the position of the inputs in the split."""
        return lambda inputs, position: predicted(self.logits(network, inputs))

    def logits(self, network: Tensors, inputs: Tensor) -> Tensor:
        """Outputs (B, K) of a network, without dropout, for stored ``inputs`` (B, ...)."""
        # copies, because a network may change its weights in place, by the inputs, in the midst of a training
        copies = {name: value.clone() for name, value in network.items()}
        with evaluating(self.task.net):
            return self.outputs(copies, self.test_inputs(inputs))

    def test_inputs(self, stored: Tensor) -> Tensor:
        """Network inputs at test time for ``stored`` images (..., C, H, W) or texts (..., T)."""
        return as_input(stored)

    def outputs(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """Outputs (B, K) of a network, K per example, for its `test_inputs` (B, ...)."""
        outputs: Tensor = functional_call(self.task.net, tensors, (inputs,))
        return outputs

    def variants(self, model: Tensors) -> dict[str, Predict]:
        """Further predictors to test, by name."""
        return {}

    def resumable(self, steps_done: int) -> bool:
        """Return whether resuming with new randomness at this step spends no more than an unbroken run."""
        return True


def gradient(
    loss: Callable[..., tuple[Tensor, Any]], net: nn.Module, tensors: Tensors, inputs: Tensor, *arguments: Any
) -> tuple[Tensors, Any]:
    """Gradient of a loss with respect to a network's tensors, by an ordinary backward pass.

    On a CPU, images have their channels last in memory if the network is faster with this layout.

    Args:
        loss: function of the network's tensors, its inputs and further arguments; returns the loss () and
            auxiliary tensors.
        net: the network.
        tensors: the tensors.
        inputs: inputs (B, ...).
        *arguments: further arguments of ``loss``.

    Returns:
        Gradients by the tensors' names, and the auxiliary tensors.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in tensors.items()}
    if inputs.device.type == "cpu" and wants_channels_last(net):
        inputs = channels_last(inputs)
    with torch.enable_grad():
        value, auxiliary = loss(leaves, inputs, *arguments)
        parts = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    # a backward pass may return gradients in another memory layout than the parameters have
    gradients = {name: part.contiguous() for name, part in zip(leaves, parts, strict=True)}
    return gradients, detached(auxiliary)


def detached(tree: Any) -> Any:
    """Tensors without their graph, in nested dictionaries and tuples of them."""
    if isinstance(tree, Tensor):
        return tree.detach()
    if isinstance(tree, dict):
        return {key: detached(value) for key, value in tree.items()}
    return tuple(detached(value) for value in tree)


def float32(value: float) -> float:
    """Float32 number next to ``value``, with which float64 tensors are multiplied as float32 ones are."""
    return float(np.float32(value))


def predicted(outputs: Tensor) -> Tensor:
    """(...) class with the largest of (..., K) outputs; if K is 1, the output itself, clipped to [0, 1]."""
    return outputs.argmax(-1) if outputs.shape[-1] > 1 else outputs[..., 0].clamp(0, 1)


def shares(outputs: Tensor) -> Tensor:
    """(..., K) probabilities from (..., K) outputs; if K is 1, the output itself, clipped to [0, 1]."""
    return outputs.softmax(-1) if outputs.shape[-1] > 1 else outputs.clamp(0, 1)


def as_input(stored: Tensor) -> Tensor:
    """Network inputs from ``stored`` examples: uint8 images scaled to [0, 1], other examples unchanged."""
    return stored.float().div_(255) if stored.dtype == torch.uint8 else stored
