"""Public weights to start from: a row trained on public data, joined with the data another row trains on.

``data/prepared/NAME/`` of an entry of ``starts`` is its prepared data set's folder with one file more,
``start.npz``: one replica's tensors by name, parameters and running statistics. It is NumPy's archive because
torch's own files differ from version to version, and the same weights shall have the same digest everywhere.
"""

import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import nn

from pipeline import runs
from pipeline.data import prepared
from pipeline.data.folders import replacing
from pipeline.data.prepared import PREPARED, START, Prepared
from pipeline.data.splits import content_keys
from pipeline.errors import UserError, writing
from pipeline.files import digest, write_bytes, write_json
from pipeline.methods.base import LAST
from pipeline.models.normalization import BatchStatistics
from pipeline.privacy.gradients import Tensors
from pipeline.runs import RUNS
from pipeline.settings import PARAMS, Settings, pick

NOTE = "weights to start from, trained on other data than the private ones here, without regard to privacy"
NORM_LAYERS = (BatchStatistics, nn.GroupNorm, nn.LayerNorm)


def make_start(name: str, settings: Settings, root: Path = Path()) -> Path:
    """Write ``data/prepared/NAME``: a prepared data set and the weights of a row's first replica.

    Args:
        name: a key of ``starts`` in params.yaml.
        settings: the whole of params.yaml.
        root: the folder that holds params.yaml.

    Raises:
        UserError: data are not prepared; the row is not trained, or with other settings or data than those
            here, or with a private example of this data; or the folder can't be written.
    """
    start = pick(settings.starts, name, "start")
    source = prepared.load(start.data, root)
    folder = root / RUNS / start.row
    run = runs.read(folder)
    if run.provenance.config != settings.row_digest(start.row):
        raise UserError(
            f"{folder}: trained with other settings than {PARAMS} has now; run `dprepro train {start.row}`"
        )
    before = prepared.load(settings.rows[start.row].data, root)
    if run.provenance.data != before.digests:
        raise UserError(
            f"{folder}: trained on other data than {PREPARED / before.name}; run `dprepro train {start.row}`"
        )
    shared = _seen(before, source)
    if private := shared["train"] + shared["validation"]:
        raise UserError(
            f"{PARAMS}: starts.{name}.row: {start.row!r} was trained with {private} of the examples that are "
            f"private in {start.data!r}; allowed: rows on other data"
        )
    weights = runs.weights(folder, torch.device("cpu"))
    first: dict[str, Any] = {
        key: value[0].numpy() for key, value in weights.items() if not key.startswith(LAST)
    }
    content = io.BytesIO()
    np.savez(content, **first)  # uncompressed and without a time: the same bytes on every machine
    about = {
        "row": start.row,
        "config": run.provenance.config,
        "model": run.model.model_dump(mode="json"),
        "data": run.data,
        "edition": run.provenance.edition,
        "level": run.replicas[0].level,
        "seed": run.replicas[0].seed,
        "test_examples_seen": shared["test"],
        "note": NOTE,
    }
    manifest = {
        **source.manifest,
        "name": name,
        "start": about,
        "digests": {**source.digests, "start": digest(content.getvalue())},
    }
    target = root / PREPARED / name
    with replacing(target) as building:
        with writing(building):
            for path in sorted((root / PREPARED / start.data).iterdir()):
                # bytes alone: files in DVC's keeping may be read-only
                shutil.copyfile(path, building / path.name)
        write_bytes(building / START, content.getvalue())
        write_json(building / "manifest.json", manifest)
    return target


def _seen(before: Prepared, data: Prepared) -> dict[str, int]:
    """How many examples of each split of ``data`` have a content that training on ``before`` reads.

    Two sets may share images though they are not editions of one: CIFAR-10's test part has one that
    CIFAR-100's training part has too.
    """
    seen = {key for split in ("train", "public") for key in content_keys(before.splits[split].inputs)}
    return {
        split: sum(key in seen for key in content_keys(data.splits[split].inputs))
        for split in ("train", "validation", "test")
    }


def check_start(data: Prepared, settings: Settings) -> None:
    """Make sure that prepared data have the weights to start from that params.yaml means, or none.

    Raises:
        UserError: they are those of another pretraining; the line says which command makes the right ones.
    """
    start = settings.starts.get(data.name)
    wanted = settings.row_digest(start.row) if start else None
    if data.manifest.get("start", {}).get("config") != wanted:
        raise UserError(
            f"{PREPARED / data.name}: weights of another pretraining than {PARAMS} has now; "
            f"run `dprepro {settings.maker(data.name)} {data.name}`"
        )


@dataclass(frozen=True)
class Found:
    """Weights to start from, and the file they come from."""

    path: Path
    tensors: Tensors


def read_start(path: Path) -> Found:
    """Read a ``start.npz``, onto the CPU.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return Found(path, {name: torch.from_numpy(arrays[name]) for name in arrays.files})
    # np.load hands out what isn't NumPy's as it is, which torch refuses with a TypeError
    except (OSError, EOFError, ValueError, TypeError, BadZipFile) as problem:
        raise UserError(
            f"{path}: missing or damaged; run `dprepro start {path.parent.name}` again"
        ) from problem


def load_start(net: nn.Module, found: Found, which: str) -> None:
    """Put the weights ``found`` into ``net``, and freeze what is not trained from there on.

    Every tensor goes to its name when the shape is the same; another number of classes leaves the output
    layer with the fresh weights it has. Afterwards ``requires_grad`` is True for the parameters that
    `trainable` names and False for the others.

    Raises:
        UserError: they are another network's: a tensor that ``net`` has no place for, none that fits, or too
            few for the part that stays frozen.
    """
    tensors, places, learned = found.tensors, net.state_dict(), trainable(net, which)
    fitting = {
        name: value for name, value in tensors.items() if name in places and value.shape == places[name].shape
    }
    learning = {_layer(name) for name in learned}
    frozen = {name for name in places if _layer(name) not in learning}
    misfits = sorted((tensors.keys() - places.keys()) | (frozen - fitting.keys()))
    if not fitting:
        raise UserError(f"{found.path}: weights of another network: none fits")
    if misfits:
        raise UserError(
            f"{found.path}: weights of another network: {misfits[0]}: only in one of the two, or of other "
            "shapes"
        )
    net.load_state_dict(fitting, strict=False)
    for name, value in net.named_parameters():
        value.requires_grad_(name in learned)


def trainable(net: nn.Module, which: str) -> set[str]:
    """Names of the parameters that are trained.

    'all': every one. 'linear': those of the linear layers, and of the normalisation layers that come after
    the first linear one in the order of the network's modules.
    """
    if which == "all":
        return {name for name, _ in net.named_parameters()}
    found: set[str] = set()
    reached = False
    for name, layer in net.named_modules():
        reached = reached or isinstance(layer, nn.Linear)
        if reached and isinstance(layer, (nn.Linear, *NORM_LAYERS)):
            found |= {f"{name}.{key}" for key, _ in layer.named_parameters(recurse=False)}
    return found


def _layer(name: str) -> str:
    """The layer that a tensor belongs to."""
    return name.rpartition(".")[0]
