"""Trained networks as functions of their inputs, built with or without their training data."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dprepro.clipping.functional import Tensors
from dprepro.errors import UserError, shown
from dprepro.fields import Count, Strict
from dprepro.noise.streams import Streams
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.files import INPUT_NUMBERS, WEIGHTS_BYTES
from dprepro.pipeline.identity.frozen import require_usable
from dprepro.pipeline.methods.base import CPU, Method, Relevances, Task, shares
from dprepro.pipeline.methods.settings import MethodSettings, method_settings
from dprepro.pipeline.models import pretrained
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.params import Row
from dprepro.pipeline.params.schema import KnownMethod
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import TrainingRecord
from dprepro.pipeline.results.weights import read_weights, require, weights_path
from dprepro.pipeline.training.loop import SeedRun, make_task

# Names of the public statistics that scale images before the network (`pipeline.methods.augment`)
MEAN, DEVIATION = "inputs.mean", "inputs.deviation"
PROBES = 3  # made-up inputs for a comparison of logits
TOLERANCE = 1e-3  # allowed difference of logits on two machines, relative to the largest logit


class Architecture(Strict):
    """Everything that decides a network's logits, besides its tensors."""

    model: Model
    method: KnownMethod
    settings: dict[str, Any]  # of the method
    # number of training examples, which settings may refer to; the declared one if there is one
    examples: Count
    shape: tuple[Count, ...]  # of an input, as in `Prepared.input_shape`
    classes: tuple[str, ...]
    floats: bool = False  # whether inputs are features, (D,) or (C, H, W), not bytes of images

    @property
    def stored(self) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of a stored input: an image's bytes, features, or a text's tokens."""
        if self.floats or len(self.shape) == 3:
            return self.shape, torch.float32 if self.floats else torch.uint8
        return self.shape[:1], torch.int32


@dataclass(frozen=True)
class Network:
    """Network of one training for predictions, on the CPU."""

    net: nn.Module
    method: Method
    tensors: Tensors  # (1, ...) each

    def logits(self, inputs: Tensor) -> Tensor:
        """(B, K) logits of stored ``inputs`` (B, ...)."""
        return self.method.logits(self.tensors, inputs)

    def probabilities(self, inputs: np.ndarray) -> np.ndarray:
        """(N, K) probabilities of stored ``inputs`` (N, ...), or (N, 1) predicted numbers in [0, 1]."""
        with torch.no_grad():
            # a copy, because torch needs a writable array
            every = torch.from_numpy(np.array(inputs)).split(CPU.physical)
            parts = [shares(self.logits(part)) for part in every]
        return torch.cat(parts).numpy()


def training_of(key: str, row: Row, data: Prepared, level: str | None, seed: int | None) -> TrainingRecord:
    """Training record of a row's level and seed; by default of the level's first seed.

    Raises:
        UserError: there is no record of this level and seed; the record's settings or data differ from those
            here; or the row has several levels and none is named.
    """
    run = records.require_run(key)
    levels = list(dict.fromkeys(training.level for training in run.trainings))
    if level is None and len(levels) > 1:
        raise UserError(f"{key}: has several levels; --level takes one of {', '.join(levels)}")
    level = level or levels[0]
    if level not in levels:
        raise UserError(f"{key}: --level {shown(level)}: not trained; allowed: {', '.join(levels)}")
    seeds = {training.seed: training for training in run.trainings if training.level == level}
    if seed is not None and seed not in seeds:
        raise UserError(f"{key}: --seed {seed}: not trained; allowed: {', '.join(map(str, sorted(seeds)))}")
    trained = seeds[min(seeds) if seed is None else seed]
    require_usable([trained], row, data)
    return trained


def trained_network(key: str, trained: TrainingRecord, row: Row, data: Prepared) -> Network:
    """Network of a row's training.

    Raises:
        UserError: the weights are missing or damaged.
    """
    if run := records.read_run(key):
        require(run, [trained])
    weights = read_weights(weights_path(key, trained.level, trained.seed), trained.weights, CPU.device)
    settings = method_settings()[row.method].recorded(trained.settings)
    task = make_task(SeedRun(trained.level, trained.seed, settings), row.model, row.reproducible, data, CPU)
    method = settings.build_method(task, row.model.normalization)
    with torch.no_grad():
        return Network(task.net.eval(), method, method.network(weights, 0))


def architecture_of(trained: TrainingRecord, row: Row, data: Prepared) -> Architecture:
    """Architecture of a row's training.

    Raises:
        UserError: the inputs are features that another network computes.
    """
    if data.start is not None and len(data.input_shape) == 1:
        raise UserError(
            f"data/prepared/{data.name}: holds features that another network makes; allowed: rows on images, "
            "texts, tables or features of your own"
        )
    settings = method_settings()[row.method].recorded(trained.settings)
    return Architecture(
        model=row.model,
        method=row.method,
        settings=trained.settings,
        examples=settings.population(len(data.splits["train"])),
        shape=data.input_shape,
        classes=tuple(data.manifest["classes"]),
        floats=data.splits["train"].inputs.dtype == np.float32,
    )


def tensors_of(network: Network) -> Tensors:
    """All tensors that `rebuilt` needs, by name, including untrained tensors."""
    net = network.net
    kept = net.state_dict().keys()
    whole = {name: value for name, value in (*net.named_parameters(), *net.named_buffers()) if name in kept}
    whole |= network.tensors
    views = getattr(network.method, "views", None)
    if views is not None and views.scale is not None:
        whole[MEAN], whole[DEVIATION] = views.scale
    return {name: value.detach() for name, value in whole.items()}


def rebuilt(architecture: Architecture, tensors: Tensors) -> Network:
    """Network, built without its training data: the method gets blank data, which don't change predictions.

    Raises:
        UserError: the method has no such settings.
        ValueError: a tensor of the network is missing, or has another shape.
    """
    settings = _settings_of(architecture)
    net = _untrained(architecture, settings)
    for name, value in net.named_parameters():
        if name not in tensors or tensors[name].shape != value.shape:
            raise ValueError(f"{name} doesn't fit the model, its inputs and its classes")
    shape, kind = architecture.stored
    blank = torch.zeros(1, *shape, dtype=kind)
    labels = torch.zeros(1, dtype=torch.int64)
    task = Task(
        net=net.eval(),
        parameters={name: value.detach() for name, value in net.named_parameters()},
        inputs=blank.expand(architecture.examples, *shape),
        labels=labels.expand(architecture.examples),
        public=blank,
        public_labels=labels,
        streams=Streams("rebuilt", True, CPU.device),
        execution=CPU,
        relevance=Relevances(torch.ones(shape), 1, informed=False),
    )
    method: Any = settings.build_method(task, architecture.model.normalization)
    given = dict(tensors)
    if MEAN in given:
        method.views.scale = given.pop(MEAN), given.pop(DEVIATION)
    return Network(net, method, given)


def _settings_of(architecture: Architecture) -> MethodSettings:
    try:
        return method_settings()[architecture.method].recorded(architecture.settings)
    except ValidationError as problem:
        why = problem.errors()[0]["msg"]
        raise UserError(f"settings: not those of {architecture.method}: {why}") from problem


def _untrained(architecture: Architecture, settings: MethodSettings, tested: bool = True) -> nn.Module:
    shape, classes = settings.input_shape(architecture.shape), len(architecture.classes)
    if architecture.model.network is not None:  # without the file of public weights
        return pretrained.untrained_net(architecture.model, classes)
    return build_net(architecture.model, shape, classes, tested)


def fits(architecture: Architecture, weights: int) -> bool:
    """Return whether a network can have its tensors in a file of ``weights`` bytes, and inputs of usual size.

    No memory is allocated. A forged architecture could take any amount of memory.

    Raises:
        UserError: the method has no such settings.
    """
    settings = _settings_of(architecture)
    shapes = [architecture.stored[0]]
    if len(architecture.shape) == 3:
        shapes.append(settings.input_shape(architecture.shape))
    if any(prod(shape) > INPUT_NUMBERS for shape in shapes):
        return False
    with torch.device("meta"), JoinedOnMeta():
        net = _untrained(architecture, settings, tested=False)
    parameters, constants = (
        sum(value.numel() * value.element_size() for value in values)
        for values in (net.parameters(), net.buffers())
    )
    return parameters <= weights and constants <= WEIGHTS_BYTES


class JoinedOnMeta(TorchFunctionMode):
    """Moves tensors that `build` reads from files to 'meta', if an operation has another tensor there."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), options: Any = None) -> Any:
        """Call ``function``, on 'meta' if any of its tensors is there."""
        given = args, options or {}
        if any(isinstance(value, Tensor) and value.is_meta for value in tree_leaves(given)):
            given = tree_map_only(Tensor, lambda value: value.to("meta"), given)
        return function(*given[0], **given[1])


def probe(architecture: Architecture, network: Network) -> list[list[float]]:
    """(PROBES, K) logits of made-up inputs, which are the same on every machine."""
    shape, kind = architecture.stored
    bytes_or_features = architecture.floats or len(shape) == 3
    size, most = (PROBES, *shape), 256 if bytes_or_features else architecture.shape[1]
    # raw PCG64 output, as in `pipeline.data.splits`: NumPy guarantees this stream
    numbers = np.random.PCG64(0).random_raw(int(np.prod(size))) % most
    inputs = torch.from_numpy(numbers.reshape(size).astype(np.int32)).to(kind)
    with torch.no_grad():
        logits: list[list[float]] = network.logits(inputs / 256 if architecture.floats else inputs).tolist()
    return logits


def same(expected: list[list[float]], other: list[list[float]]) -> bool:
    """Return whether two probes are equal up to rounding."""
    first, second = np.array(expected), np.array(other)
    return first.shape == second.shape and np.allclose(
        first, second, rtol=0, atol=TOLERANCE * float(np.abs(first).max())
    )
