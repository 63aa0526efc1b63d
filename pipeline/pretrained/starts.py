"""Public weights to start from: a row trained on public data, joined with the data another row trains on.

``data/prepared/NAME/`` of an entry of ``starts`` is its prepared data set's folder with one file more,
``start.npz``: one replica's tensors by name, parameters and running statistics.
"""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from pipeline.data import prepared
from pipeline.data.prepared import PREPARED, Prepared
from pipeline.errors import UserError
from pipeline.models.normalization import BatchStatistics
from pipeline.params import PARAMS, Settings, pick
from pipeline.pretrained import joining as joined
from pipeline.privacy.gradients import Tensors

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
    before = joined.behind(start.row, settings, root)
    shared = joined.seen([before.data], source)
    if private := shared["train"] + shared["validation"]:
        raise UserError(
            f"{PARAMS}: starts.{name}.row: {start.row!r} was trained with {private} of the examples that are "
            f"private in {start.data!r}; allowed: rows on other data"
        )
    about = {
        **before.about(settings.row_digest(start.row)),
        "test_examples_seen": shared["test"],
        "note": NOTE,
    }
    weights = {key: value.numpy() for key, value in before.weights().items()}
    return joined.join(name, source, "start", weights, about, root)


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
            f"run `dprepro {settings.stage_of(data.name)} {data.name}`"
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
    return Found(path, joined.read_arrays(path))


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
