"""Weights of a pack, compared with the network that its run names."""

from pathlib import Path

import safetensors.torch
import torch

from pipeline.data.raw import entry_of
from pipeline.errors import UserError, shown
from pipeline.ledgers.declared import inputs_of
from pipeline.methods.base import LAST
from pipeline.methods.registry import build_net
from pipeline.methods.rooms import method_settings
from pipeline.params import Model, Settings
from pipeline.results.schema import Run, Trained

FURTHER = 64  # tensors besides those of the network, such as statistics of the released data


def check_network(path: Path, replica: Trained, run: Run, settings: Settings) -> None:
    """Make sure that a file holds finite tensors of the network that a replica trained.

    Args:
        path: the file, whose digest was compared before.
        replica: its entry in ``run``, whose settings were compared with params.yaml before.
        run: that of the pack.
        settings: params.yaml.

    Raises:
        UserError: the file is no safetensors, holds other tensors, or values that are not finite.
    """
    try:
        tensors = safetensors.torch.load_file(path)
    # a file that another program made may raise anything
    except Exception as problem:
        raise UserError(f"no weights: {shown(str(problem))}") from problem
    config = method_settings()[run.method].recorded(replica.settings)
    raw = entry_of(settings.split(run.data).raw, settings)
    model = Model.model_validate(run.model)
    _, shape, _ = inputs_of(model, run.data, settings)
    net = build_net(model, config.input_shape(shape), len(raw.classes))
    own = dict(net.named_parameters())
    for name, expected in own.items():
        given = tensors.get(name)
        if given is None or given.shape != expected.shape or given.dtype != expected.dtype:
            raise UserError(f"the weights are another network's: {shown(name)} doesn't fit")
    further = [name for name in tensors.keys() - own.keys() if name.removeprefix(LAST) not in own]
    if len(further) > FURTHER + len(dict(net.named_buffers())):
        raise UserError(f"the weights are another network's: {shown(min(further))} is not of it")
    for name, value in sorted(tensors.items()):
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise UserError(f"the weights are not finite: {shown(name)}")
