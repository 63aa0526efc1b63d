"""Uses of private data that come with the data themselves, and that no mechanism's epsilon counts."""

from collections.abc import Iterator

from pipeline.data.prepared import Prepared
from pipeline.methods.settings import MethodSettings
from pipeline.privacy.statements import Statement, statement


def data_uses(data: Prepared, settings: MethodSettings) -> Iterator[Statement]:
    """What a training with these settings on these data looks at without counting it."""
    manifest = data.manifest
    if data.has_vocabulary:
        yield statement("vocabulary")
    elif "text" in manifest:
        yield statement("public_vectors", vectors=manifest["text"]["vectors"])
    if "features" in manifest and manifest["features"]["range"] is None:
        yield statement("feature_range")
    if (
        len(data.splits["public"])
        and "public" in manifest
        and len({raw["title"] for raw in manifest["raw"].values()}) == 1
    ):
        yield statement("own_public", count=len(data.splits["public"]))
    if data.start is not None:
        start = manifest["start"]
        yield statement("public_start", row=start["row"], data=start["data"])
    # the network behind the relevances has seen something, where a method looks at them
    if "relevance" in manifest and settings.uses_relevances:
        relevance = manifest["relevance"]
        kind = "informed_relevance" if relevance["informed"] else "public_relevance"
        yield statement(kind, row=relevance["row"], data=relevance["data"])
        if relevance["test_examples_seen"]:
            yield statement("test_relevance", test_examples_seen=relevance["test_examples_seen"])
