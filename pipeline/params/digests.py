"""Digests of what decides numbers, so that these can say what they were made with.

Labels and comments don't count; the data's own bytes have digests of their own. Settings at their default
don't count either, so that a setting which is new here doesn't disown the rows that were trained before it. A
default must therefore never change its meaning (tested).
"""

from collections.abc import Mapping
from typing import Any

from pipeline.fields import Strict
from pipeline.files import digest_json
from pipeline.params.own import OwnFiles
from pipeline.params.schema import Data, Raw, Row


def row_digest(
    row: Row, data: Data, editions: Mapping[str, Raw | OwnFiles], start: str | None, relevance: str | None
) -> str:
    """Digest of a row and of what it is trained on: ``data``, made of the raw data sets ``editions``.

    ``start`` is the digest of what it starts from, ``relevance`` that of relevances that come with its data.
    """
    parts: dict[str, Any] = {
        "data": essence(data),
        "edition": {name: _edition(raw) for name, raw in editions.items()},
        "model": essence(row.model),
        "method": row.method,
        "levels": [essence(level) for level in row.resolved],
        "seeds": row.seeds,
        "reproducible": row.reproducible,
    }
    seeds_of_levels = {str(at): level["seeds"] for at, level in enumerate(row.levels) if "seeds" in level}
    more = (
        ("axis", row.axis),
        ("start", start),
        ("relevance", relevance),
        ("own_seeds", seeds_of_levels or None),
        ("plan", row.plan),  # it decides which seeds
    )
    for name, value in more:
        if value is not None:
            parts[name] = value
    return digest_json(parts)


def _edition(raw: Raw | OwnFiles) -> dict[str, Any]:
    """Own files are known by their digest, wherever they lie."""
    parts = essence(raw)
    parts.pop("path", None)
    return parts


def essence(part: Strict) -> dict[str, Any]:
    """What of an entry of params.yaml is not at its default."""
    return part.model_dump(mode="json", exclude_defaults=True)
