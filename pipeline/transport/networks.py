"""Comparison of a pack's weights with the network that its run names."""

from collections.abc import Collection
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from dprepro.clipping.normalization import initial_statistics
from dprepro.errors import UserError, shown
from dprepro.pipeline.data.raw import entry_of
from dprepro.pipeline.ledgers.declared import input_shape
from dprepro.pipeline.methods.base import LAST
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.params import Model, Settings
from dprepro.pipeline.results.schema import TrainingRecord


def check_network(path: Path, training: TrainingRecord, settings: Settings) -> None:
    """Make sure that a file holds finite tensors of the network of a training.

    The file's digest, and the training's settings with params.yaml, have been compared before.

    Raises:
        UserError: the file isn't in the format safetensors, or has other tensors or impossible values.
    """
    try:
        tensors = safetensors.torch.load_file(path)
    # a malicious file may raise any exception
    except Exception as problem:
        raise UserError(f"no weights: {shown(str(problem))}") from problem
    config = method_settings()[training.method].recorded(training.settings)
    raw = entry_of(settings.split(training.data).raw, settings)
    model = Model.model_validate(training.model)
    shape = input_shape(model, training.data, settings)
    net = build_net(model, config.input_shape(shape), len(raw.classes))
    if difference := _problem(tensors, net, config.kept):
        raise UserError(f"the weights are {difference}")


def _problem(tensors: dict[str, Tensor], net: nn.Module, kept: Collection[str]) -> str | None:
    """Message on a difference between ``tensors`` and the tensors of a trained ``net``; None: there is none.

    ``kept``: names of further tensors that the method stores.
    """
    own = {name: value for name, value in net.named_parameters() if value.requires_grad}
    last = {f"{LAST}{name}": value for name, value in own.items()}
    statistics = initial_statistics(net)
    expected = set(own)
    for group in (last.keys(), statistics.keys(), set(kept)):  # a group is there as a whole or not at all
        expected |= group if group & tensors.keys() else set()
    shapes = {**own, **last, **statistics}
    if {"low", "high", "bias_factor"} <= set(kept):  # of a Laplace mechanism
        units = torch.zeros([weight for weight in own.values() if weight.dim() == 2][-1].shape[1])
        shapes |= {"low": units, "high": units, "bias_factor": torch.zeros(())}
    if missing := expected - tensors.keys():
        return f"another network's: {shown(min(missing))} is missing"
    for name, value in sorted(tensors.items()):
        shape = shapes.get(name, value)  # a laboratory's method may keep tensors of any shape
        if name not in expected:
            return f"another network's: {shown(name)} is not of it"
        if (shape.shape, shape.dtype) != (value.shape, value.dtype):
            return f"another network's: {shown(name)} doesn't fit"
        if value.is_floating_point() and not torch.isfinite(value).all():
            return f"not finite: {shown(name)}"
        if name in statistics and name.endswith(".var") and bool((value < 0).any()):
            return f"impossible: {shown(name)} has a negative variance"
    if "low" in expected and bool((tensors["low"] > tensors["high"]).any()):
        return "impossible: 'low' is above 'high'"
    return None
