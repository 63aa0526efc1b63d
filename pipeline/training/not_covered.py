"""Uses of private data in the preparation of data and networks, which no mechanism's epsilon covers."""

from collections.abc import Iterator

from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.methods.spending import RELEVANCES, Statement, statement
from dprepro.pipeline.models.model import PublicWeights
from dprepro.pipeline.params import OWN, Settings


def data_uses(
    data: Prepared, settings: MethodSettings, weights: PublicWeights | None = None
) -> Iterator[Statement]:
    """Uncovered uses of private data by a training with these settings on these data.

    ``weights``: public weights of the row's model.
    """
    manifest = data.manifest
    if data.has_vocabulary:
        yield statement("vocabulary")
    elif "text" in manifest:
        yield statement("public_vectors", vectors=manifest["text"]["vectors"])
    if weights is not None:
        yield statement("public_network", network=weights.words)
    if "features" in manifest and (network := manifest["features"].get("network")):
        yield statement("public_network", network=network)
    elif "features" in manifest and manifest["features"]["range"] is None:
        yield statement("feature_range")
    if (count := len(data.splits["public"])) and "public" in manifest:
        source = manifest["public"]["raw"]
        if len({raw["title"] for raw in manifest["raw"].values()}) == 1:
            yield statement("own_public", count=count)
        elif manifest["raw"][source]["edition"] == OWN:
            yield statement("other_public", count=count, data=source)
    if data.start is not None:
        start = manifest["start"]
        yield statement("public_start", row=start["row"], data=start["data"])
    # what the network behind the relevances was trained on counts only if the method uses relevances
    if "relevance" in manifest and settings.uses_relevances:
        relevance = manifest["relevance"]
        kind = "informed_relevance" if relevance["informed"] else "public_relevance"
        yield statement(kind, row=relevance["row"], data=relevance["data"])
        if relevance["test_examples_seen"]:
            yield statement("test_relevance", test_examples_seen=relevance["test_examples_seen"])


def declared_uses(
    data: str, method: MethodSettings, settings: Settings, weights: PublicWeights | None
) -> set[str]:
    """Keys of the `data_uses` that follow from params.yaml alone, without the prepared data.

    For relevances, both keys of `RELEVANCES` are included, because params.yaml doesn't decide which applies.
    """
    split = settings.split(data)
    text, source = split.text, settings.own.get(split.raw)
    uses = set()
    if split.public.count:
        if split.raw == split.public.raw:
            uses.add("own_public")
        elif split.public.raw in settings.own:
            uses.add("other_public")
    if text is not None:
        uses.add("vocabulary" if text.vectors is None else "public_vectors")
    if data in settings.starts:
        uses.add("public_start")
    if weights is not None or (source is not None and source.public_network is not None):
        uses.add("public_network")
    if settings.lacks_range(data):
        uses.add("feature_range")
    if data in settings.relevances and method.uses_relevances:
        uses |= RELEVANCES
    return uses
