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
from pipeline.params.schema import Account, Data, Plan, Raw, Relevance, Row, Start


def row_digest(
    row: Row, data: Data, editions: Mapping[str, Raw | OwnFiles], start: str | None, relevance: str | None
) -> str:
    """Digest of a row and of what it is trained on: ``data``, made of the raw data sets ``editions``.

    ``start`` is the digest of what it starts from, ``relevance`` that of relevances that come with its data.
    """
    parts: dict[str, Any] = {
        "data": _essence(data),
        "edition": {name: _edition(raw) for name, raw in editions.items()},
        "model": _essence(row.model),
        "method": row.method,
        "levels": [_essence(level) for level in row.resolved],
        "seeds": row.seeds,
        "reproducible": row.reproducible,
    }
    own_seeds = {str(at): level["seeds"] for at, level in enumerate(row.levels) if "seeds" in level}
    more = (
        ("axis", row.axis),
        ("start", start),
        ("relevance", relevance),
        ("own_seeds", own_seeds or None),
        ("plan", row.plan),  # it decides which seeds
    )
    for name, value in more:
        if value is not None:
            parts[name] = value
    return digest_json(parts)


def plan_digest(plan: Plan, row: str) -> str:
    """Digest of a plan for a row whose digest is ``row``: it moves with whatever of the two is changed."""
    return digest_json({"plan": plan.model_dump(mode="json"), "row": row})


def start_digest(start: Start, network: str) -> str:
    """Digest of weights to start from, those of a row whose digest is ``network``."""
    return digest_json([network, "features"]) if start.features else network


def relevance_digest(relevance: Relevance, network: str) -> str:
    """Digest of relevances to the network of a row whose digest is ``network``."""
    return digest_json({"row": network, "of": relevance.of, "examples": relevance.examples})


def account_digest(account: Account) -> str:
    """Digest of what decides an account's ledger: its levels, resolved, and its axis."""
    return digest_json({"levels": [_essence(level) for level in account.resolved], "axis": account.axis})


def _edition(raw: Raw | OwnFiles) -> dict[str, Any]:
    """Own files are known by their digest, wherever they lie."""
    essence = _essence(raw)
    essence.pop("path", None)
    return essence


def _essence(part: Strict) -> dict[str, Any]:
    return part.model_dump(mode="json", exclude_defaults=True)
