"""Interfaces of training methods: their task, execution and required functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from dprepro.clipping.functional import evaluating, functional_call
from dprepro.clipping.gradients import Tensors, channels_last, wants_channels_last
from dprepro.fields import Isolation
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.spending import Guarantee, NetworkSizes, Sizes
from dprepro.pipeline.methods.statements import Statement

# State between steps: groups of tensors with a leading replica dimension R
State = dict[str, Tensors]


@dataclass(frozen=True)
class Execution:
    """Device and batch sizes of the computation; results depend on them only by rounding."""

    device: torch.device
    # replicas in one vmap: all of them on a GPU, one at a time on a CPU, whose batched convolutions are slow
    replicas_at_once: int | None
    # examples in one forward pass, of all its replicas together; limits the memory
    physical: int
    # whether per-example gradients are always by vmap(grad), not by a faster way
    reference: bool = False

    @property
    def single_replica(self) -> bool:
        """Return whether replicas are computed one by one on a CPU, by ordinary backward passes."""
        return self.replicas_at_once == 1 and self.device.type == "cpu"

    def examples_at_once(self, replicas: int) -> int:
        """Number of examples of one replica in one forward pass."""
        return max(1, self.physical // min(replicas, self.replicas_at_once or replicas))

    def holding(self, examples: int) -> "Execution":
        """Copy with so few replicas at once that a forward pass has room for ``examples`` of each replica."""
        limit = max(1, self.physical // examples)
        return replace(self, replicas_at_once=min(self.replicas_at_once or limit, limit))


@dataclass(frozen=True)
class Relevances:
    """Average relevance of each feature to the output of an earlier trained network."""

    mean: Tensor  # shape of one example; relevances of a single example lie in [0, 1]
    examples: int  # number of examples in the average
    public: bool  # whether those examples are public
    informed: bool  # whether the network has seen private examples


@dataclass(frozen=True)
class Task:
    """Network, data and initial weights of R replicas that train together."""

    net: nn.Module  # has the frozen tensors, and the shapes of the trained ones
    parameters: Tensors  # (R, ...) initial values of the trained parameters
    inputs: Tensor  # (N, ...) training inputs on the device, as stored
    labels: Tensor  # (N,)
    public: Tensor  # (M, ...) public inputs, as stored
    public_labels: Tensor  # (M,)
    streams: Streams
    execution: Execution
    relevance: Relevances | None = None  # of the data's features; None: the data have none

    @property
    def replicas(self) -> int:
        """Number of replicas, R."""
        return len(self.streams.names)

    def numbers(self, values: Iterable[float]) -> Tensor:
        """(R,) tensor on the device, one number per replica; the copy to a GPU blocks."""
        return torch.tensor(list(values), dtype=torch.float32, device=self.execution.device)


# Function of stored inputs (B, ...) and the position of the first in its split; returns (R, B) predictions
Predict = Callable[[Tensor, int], Tensor]
LAST = "last."  # prefix of the names of the last weights, which are stored beside the tested model


class Method(ABC):
    """Training method that trains R replicas with equal `MethodSettings.batching_key` together.

    A subclass defines the initial state and the step; its settings define the spending. All other functions
    have defaults here.
    """

    test_draws = 1  # number of noise draws at test time; 1 for methods without noise at test time
    isolation: Isolation | None = None  # the reason why examples don't mix in a private step
    noise_drawn_once = False  # whether noise is drawn once per training, so that a resumed run must reuse it
    settings: tuple[Any, ...]  # of each replica
    first: Any  # settings of the first replica, for settings that all replicas share

    def __init__(self, task: Task, settings: Sequence[Any], normalization: str):
        """``settings`` has one entry per replica, in the task's order."""
        self.task, self.settings, self.first = task, tuple(settings), settings[0]
        self.normalization, self.examples = normalization, len(task.labels)
        self.steps: int = self.first.total_steps(self.examples)
        self.broken: tuple[Statement, ...] = self.first.broken(normalization)

    @abstractmethod
    def init(self) -> State:
        """State before the first step."""

    @abstractmethod
    def step(self, state: State, step: int) -> tuple[State, Mapping[str, Tensor]]:
        """Make one step; return the state, and (R,) metrics of R private batches, which no epsilon covers."""

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
        return Sizes(self.examples, self.network_sizes(self.task.net, self.task.inputs))

    def guarantee(self, replica: int) -> Guarantee:
        """Guarantee of one replica's training, by its settings."""
        guarantee: Guarantee = self.settings[replica].guarantee(self.sizes, self.normalization)
        return guarantee

    def rates(self, step: int) -> Tensor:
        """(R,) learning rates of the replicas at a step."""
        return self.task.numbers(setting.rate_at(step, self.steps) for setting in self.settings)

    def model(self, state: State) -> Tensors:
        """Tensors (R, ...) of the R replicas' trained models, as they are stored."""
        return {**state["parameters"], **state.get("running", {})}

    def network(self, model: Tensors, draw: int) -> Tensors:
        """Tensors (R, ...) of R tested networks for a stored ``model``, with test noise number ``draw``."""
        return model

    def predictor(self, network: Tensors) -> Predict:
        """Predictor of `predicted` classes or numbers; it ignores the position of the inputs in the split."""
        return lambda inputs, position: predicted(self.logits(network, inputs))

    def logits(self, network: Tensors, inputs: Tensor) -> Tensor:
        """Outputs (R, B, K) of R networks, without dropout, for stored ``inputs`` (B, ...)."""
        # copies, because a network may change its weights in place, by the inputs, in the midst of a training
        copies = map_tensors(Tensor.clone, network)
        with evaluating(self.task.net):
            outputs: Tensor = over_replicas(self.outputs, self.task.execution, shared=1)(
                copies, self.test_inputs(inputs)
            )
        return outputs

    def test_inputs(self, stored: Tensor) -> Tensor:
        """Network inputs at test time for ``stored`` images (..., C, H, W) or texts (..., T)."""
        return as_input(stored)

    def outputs(self, tensors: Tensors, inputs: Tensor) -> Tensor:
        """Outputs (B, K) of one replica's network, K per example, for its `test_inputs` (B, ...)."""
        outputs: Tensor = functional_call(self.task.net, tensors, (inputs,))
        return outputs

    def variants(self, model: Tensors) -> dict[str, Predict]:
        """Further predictors to test, by name."""
        return {}

    def resumable(self, steps_done: int) -> bool:
        """Return whether resuming with new randomness at this step spends no more than an unbroken run."""
        return True


def over_replicas(function: Callable[..., Any], execution: Execution, shared: int = 0) -> Callable[..., Any]:
    """Apply a function of one replica's tensors to tensors (R, ...) of all replicas.

    Args:
        function: function of one replica's tensors; the first argument is a tensor or a dictionary of them.
        execution: whether replicas are computed together or one by one.
        shared: number of arguments, counted from the last, that are the same for every replica.

    Returns:
        A function of tensors (R, ...), with results (R, ...).
    """

    def batched(*arguments: Any) -> Any:
        in_dims = (*(0,) * (len(arguments) - shared), *(None,) * shared)
        mapped = vmap(
            function, in_dims=in_dims, chunk_size=execution.replicas_at_once, randomness="different"
        )
        return mapped(*arguments)

    def sequential(*arguments: Any) -> Any:
        # without vmap, which splits normalisation layers into many small operations
        stacked, common = arguments[: len(arguments) - shared], arguments[len(arguments) - shared :]
        first = stacked[0]
        replicas = len(first if isinstance(first, Tensor) else next(iter(first.values())))
        parts = [
            function(*map_tensors(lambda value, index=replica: value[index], stacked), *common)
            for replica in range(replicas)
        ]
        if len(parts) == 1:
            return map_tensors(lambda value: value[None], parts[0])  # a view
        return map_tensors(lambda *values: torch.stack(values), *parts)

    return sequential if execution.replicas_at_once == 1 else batched


def gradient(
    loss: Callable[..., tuple[Tensor, Any]], net: nn.Module, execution: Execution
) -> Callable[..., Any]:
    """`torch.func.grad` of one replica's loss with respect to its first argument.

    If replicas are computed one by one on a CPU, an ordinary backward pass computes the same gradient at less
    cost. This pass gets images with channels last in memory if the network is faster with this layout.

    Args:
        loss: function of the network's tensors, its inputs and further arguments; returns the loss () and
            auxiliary tensors.
        net: the network.
        execution: device, and number of replicas that are computed together.

    Returns:
        A function with the same arguments that returns gradients and the auxiliary tensors.
    """

    prefers_channels_last = wants_channels_last(net)

    def backward(tensors: Tensors, inputs: Tensor, *arguments: Any) -> tuple[Tensors, Any]:
        leaves = {name: value.detach().requires_grad_() for name, value in tensors.items()}
        with torch.enable_grad():
            value, auxiliary = loss(
                leaves, channels_last(inputs) if prefers_channels_last else inputs, *arguments
            )
            parts = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        # a backward pass may return gradients in another memory layout than the parameters have
        gradients = {name: part.contiguous() for name, part in zip(leaves, parts, strict=True)}
        return gradients, map_tensors(Tensor.detach, auxiliary)

    return backward if execution.single_replica else grad(loss, has_aux=True)


def predicted(outputs: Tensor) -> Tensor:
    """(...) class with the largest of (..., K) outputs; if K is 1, the output itself, clipped to [0, 1]."""
    return outputs.argmax(-1) if outputs.shape[-1] > 1 else outputs[..., 0].clamp(0, 1)


def shares(outputs: Tensor) -> Tensor:
    """(..., K) probabilities from (..., K) outputs; if K is 1, the output itself, clipped to [0, 1]."""
    return outputs.softmax(-1) if outputs.shape[-1] > 1 else outputs.clamp(0, 1)


def map_tensors(function: Callable[..., Tensor], tree: Any, *other_trees: Any) -> Any:
    """Apply a function to the tensors at the same place of several trees.

    torch's own `tree_map` handles many more types, but would take a tenth of the time of a small network's
    step.

    Args:
        function: function of one tensor of each tree.
        tree: nested dictionaries, tuples and named tuples of tensors.
        *other_trees: trees of the same structure.

    Returns:
        A tree of the same structure with the results.
    """
    if isinstance(tree, Tensor):
        return function(tree, *other_trees)
    if isinstance(tree, dict):
        return {
            key: map_tensors(function, value, *(other[key] for other in other_trees))
            for key, value in tree.items()
        }
    parts = [map_tensors(function, *values) for values in zip(tree, *other_trees, strict=True)]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def per_replica(tensor: Tensor, values: Tensor) -> Tensor:
    """View (R, 1, ...) of ``values`` (R,), so that they can multiply ``tensor`` (R, ...)."""
    return values.reshape(-1, *(1,) * (tensor.dim() - 1))


def as_input(stored: Tensor) -> Tensor:
    """Network inputs from ``stored`` examples: uint8 images scaled to [0, 1], other examples unchanged."""
    return stored.float().div_(255) if stored.dtype == torch.uint8 else stored
