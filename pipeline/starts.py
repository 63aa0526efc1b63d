"""Public weights to start from: a row trained on public data, joined with the data another row trains on.

``data/prepared/NAME/`` of an entry of ``starts`` is its prepared data set's folder with one file more,
``start.pt``: one replica's tensors by name, parameters and running statistics.
"""

import io
import pickle
import shutil
from pathlib import Path

import torch
from torch import nn

from pipeline import runs
from pipeline.data import prepared
from pipeline.data.folders import replacing
from pipeline.data.prepared import PREPARED, START
from pipeline.errors import UserError, writing
from pipeline.files import digest, write_bytes, write_json
from pipeline.models.normalization import BatchStatistics
from pipeline.privacy.gradients import Tensors
from pipeline.runs import RUNS
from pipeline.settings import PARAMS, Settings, pick

NOTE = "weights to start from, trained on other data than the private ones here, without regard to privacy"
NORMALIZATIONS = (BatchStatistics, nn.GroupNorm, nn.LayerNorm)


def make_start(name: str, settings: Settings, root: Path = Path()) -> Path:
    """Write ``data/prepared/NAME``: a prepared data set and the weights of a row's first replica.

    Args:
        name: a key of ``starts`` in params.yaml.
        settings: the whole of params.yaml.
        root: the folder that holds params.yaml.

    Raises:
        UserError: the data are not prepared, the row is not trained or not public, or the folder can't be
            written.
    """
    start = pick(settings.starts, name, "start")
    _check_public(name, settings)
    source = prepared.load(start.data, root)
    folder = root / RUNS / start.row
    run = runs.read(folder)
    if run.provenance.config != settings.row_digest(start.row):
        raise UserError(
            f"{folder}: trained with other settings than {PARAMS} has now; run `dprepro train {start.row}`"
        )
    first = {key: value[0].clone() for key, value in runs.weights(folder, torch.device("cpu")).items()}
    content = io.BytesIO()
    torch.save(first, content)
    about = {
        "row": start.row,
        "config": run.provenance.config,
        "model": run.model.model_dump(mode="json"),
        "data": run.data,
        "edition": run.provenance.edition,
        "level": run.replicas[0].level,
        "seed": run.replicas[0].seed,
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


def _check_public(name: str, settings: Settings) -> None:
    """Weights that were trained with the very data that are private here are not public."""
    start = settings.starts[name]
    seen, private = settings.split(settings.rows[start.row].data), settings.data[start.data].raw
    for theirs in (seen.raw, seen.public.raw):
        # two entries of 'raw' may be editions of one set
        if (settings.raw[theirs].of or theirs) == (settings.raw[private].of or private):
            raise UserError(
                f"{PARAMS}: starts.{name}.row: {start.row!r} was trained with {theirs!r}, which is private "
                f"in {start.data!r}; allowed: rows on other data"
            )


def load_start(net: nn.Module, path: Path, which: str) -> None:
    """Put the weights of ``path`` into ``net``, and freeze what is not trained from there on.

    Every tensor goes to its name when the shape is the same; another number of classes leaves the output
    layer with the fresh weights it has. Afterwards ``requires_grad`` is True for the parameters that
    `trainable` names and False for the others.

    Raises:
        UserError: the file is missing or damaged, or holds another network's weights: a tensor that ``net``
            has no place for, none that fits, or too few for the part that stays frozen.
    """
    found, places, learned = _read(path), net.state_dict(), trainable(net, which)
    fitting = {
        name: value for name, value in found.items() if name in places and value.shape == places[name].shape
    }
    learning = {_layer(name) for name in learned}
    frozen = {name for name in places if _layer(name) not in learning}
    misfits = sorted((found.keys() - places.keys()) | (frozen - fitting.keys()))
    if not fitting:
        raise UserError(f"{path}: weights of another network: none fits")
    if misfits:
        raise UserError(
            f"{path}: weights of another network: {misfits[0]}: only in one of the two, or of other shapes"
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
        if reached and isinstance(layer, (nn.Linear, *NORMALIZATIONS)):
            found |= {f"{name}.{key}" for key, _ in layer.named_parameters(recurse=False)}
    return found


def _layer(name: str) -> str:
    """The layer that a tensor belongs to."""
    return name.rpartition(".")[0]


def _read(path: Path) -> Tensors:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as problem:
        raise UserError(
            f"{path}: missing or damaged; run `dprepro start {path.parent.name}` again"
        ) from problem
