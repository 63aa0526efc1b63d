"""Average relevance of features to a trained network (Phan et al. 2017, Eq. 10).

For the entry NAME of ``relevances``, ``data/prepared/NAME/`` is a copy of a prepared data set's folder with
one more file, ``relevance.npz``. It has the float64 array ``mean`` in the shape of one example.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from dprepro.clipping.normalization import initial_statistics
from dprepro.errors import UserError
from dprepro.pipeline.data import prepared
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import as_input
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.params import PARAMS, Settings, pick
from dprepro.pipeline.pretrained import joining as joined
from dprepro.pipeline.pretrained.joining import SourceRow
from dprepro.pipeline.pretrained.loading import initial_net
from dprepro.pipeline.pretrained.lrp import relevances

BATCH = 250  # images per pass
INFORMED = (
    "the network was trained on examples that are private here, so one of them may move each average by as "
    "much as the scale is long, and not by its share in the average alone"
)
UNINFORMED = "the network was trained on other data than the private ones here"


def make_relevance(
    name: str, settings: Settings, root: Path = Path(), device: torch.device | None = None
) -> Path:
    """Write ``data/prepared/NAME``: a prepared data set with the mean relevance of each feature.

    The relevance is to a row's network. The paper's own network was trained on the private examples. The
    manifest notes whether the row's network was. ``device`` is that of the computation; None: the CPU.

    Raises:
        UserError: data are not prepared; the row is not trained, or was trained with other settings or data;
            its network takes images of another shape, has a layer without a rule, or gives relevances that
            aren't finite; or the folder can't be written.
    """
    wanted = pick(settings.relevances, name, "relevance")
    source = prepared.load(wanted.data, root)
    before = joined.trained_row(wanted.row, settings, root)
    net = trained_net(before)
    if (shape := _input_shape(before)) != source.input_shape:
        raise UserError(
            f"{PARAMS}: relevances.{name}.row: {wanted.row!r} is for images of shape {shape}, and those of "
            f"{wanted.data!r} have {source.input_shape}; allowed: rows on such images"
        )
    images = source.splits["train"].inputs[: wanted.examples]
    mean = average(net, images, device or torch.device("cpu"))
    if not np.isfinite(mean).all():
        raise UserError(f"{before.path}: relevances to it are not finite; allowed: a network that learnt")
    seen, start = [before.data], settings.starts.get(before.data.name)
    if start:  # the data of the row that gave the public initial weights
        seen.append(prepared.load(settings.rows[start.row].data, root))
    shared = joined.shared_examples(seen, source)
    informed = shared["train"] + shared["validation"] > 0 or _other_form(seen, wanted.data, settings)
    about = {
        **before.about(settings.relevance_digest(name)),
        "of": "train",
        "examples": len(images),
        "informed": informed,
        "test_examples_seen": shared["test"],
        "note": INFORMED if informed else UNINFORMED,
    }
    return joined.join(name, source, "relevance", {"mean": mean}, about, root)


def average(net: nn.Module, images: np.ndarray, device: torch.device) -> np.ndarray:
    """(C, H, W) float64: relevances to ``net``, averaged over ``images`` (N, C, H, W) as stored."""
    net = net.to(device)
    total = torch.zeros(images.shape[1:], dtype=torch.float64, device=device)
    for start in range(0, len(images), BATCH):
        part = torch.from_numpy(np.array(images[start : start + BATCH])).to(device)
        total += relevances(net, as_input(part)).double().sum(0)
    return (total / len(images)).cpu().numpy()


def trained_net(before: SourceRow) -> nn.Module:
    """Network of a row's first training in evaluation mode, on the CPU.

    Raises:
        UserError: the weights lack batch norm statistics, or have a tensor that the network lacks.
    """
    model, data, weights = Model.model_validate(before.trained.model), before.data, before.weights()
    net = initial_net(before.trained.seed, model, _input_shape(before), data)
    trained = {name for name, value in net.named_parameters() if value.requires_grad}
    if lacking := sorted((trained | initial_statistics(net).keys()) - weights.keys()):
        raise UserError(
            f"{before.path}: {lacking[0]}: not kept with the weights; allowed: rows with normalization "
            "none, response or running_bn"
        )
    if foreign := sorted(weights.keys() - net.state_dict().keys()):
        raise UserError(
            f"{before.path}: {foreign[0]}: no part of the network itself; allowed: rows that leave nothing "
            "but a network"
        )
    net.load_state_dict(weights, strict=False)
    return net.eval()


def _input_shape(before: SourceRow) -> tuple[int, ...]:
    """Input shape of the row's network."""
    settings = method_settings()[before.trained.method].recorded(before.trained.settings)
    return settings.input_shape(before.data.input_shape)


def _other_form(seen: list[Prepared], private: str, settings: Settings) -> bool:
    """Return whether data that the network has seen have the private examples in another form or edition.

    Then a comparison of contents doesn't find them.
    """
    raw = settings.split(private).raw
    splits = [settings.split(data.name) for data in seen]
    others = {each for split in splits for each in (split.raw, split.public.raw)} - {raw}
    return any(settings.raw_set(other) == settings.raw_set(raw) for other in others)
