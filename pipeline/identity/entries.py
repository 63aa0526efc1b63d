"""`reports/identity.json`: for every DVC stage one digest of the settings and the code behind its results.

The stage `identity` writes it anew whenever params.yaml or any code changes, in about a second. Every other
stage has its own entry as a parameter, so that DVC runs those alone whose entry moved. What data a stage
reads DVC sees for itself.
"""

from pathlib import Path
from typing import Any

from pipeline.files import digest_files, digest_json, write_json
from pipeline.identity import equivalences
from pipeline.identity.code import (
    AVERAGING,
    FETCHING,
    PREPARING,
    PREPARING_OWN,
    STARTING,
    account_code,
    audit_code,
    digest,
    ledger_code,
    measure_code,
    train_code,
)
from pipeline.identity.syntax import PACKAGE
from pipeline.params import Settings

PATH = Path("reports/identity.json")


def write(settings: Settings, root: Path = Path()) -> Path:
    """Write every stage's entry; returns the path."""
    write_json(root / PATH, entries(settings))
    return root / PATH


def entries(settings: Settings) -> dict[str, Any]:
    """Digests by stage, and by its key where a stage has several."""
    joined = {
        name: [settings.row_digest(start.row), start.model_dump(mode="json"), digest(STARTING)]
        for name, start in settings.starts.items()
    }
    relevances = {name: [settings.relevance_digest(name), digest(AVERAGING)] for name in settings.relevances}
    stages: dict[str, dict[str, Any]] = {
        "fetch": {name: _fetched(settings, name) for name in settings.catalogued},
        "own": {name: [own.model_dump(mode="json")] for name, own in settings.own.items()},
        "prepare": {
            name: [
                data.model_dump(mode="json"),
                digest(PREPARING_OWN if settings.has_own(name) else PREPARING),
            ]
            for name, data in settings.data.items()
        },
        "start": joined,
        "relevance": relevances,
        "train": {key: train_entry(settings, key) for key in settings.rows},
        "evaluate": {key: _evaluated(settings, key) for key in settings.rows},
        "ledger": {key: [row.search, ledger_code()] for key, row in settings.rows.items()},
        "audit": {key: _audited(settings, key) for key in settings.rows},
        "account": {key: [settings.account_digest(key), account_code()] for key in settings.accounts},
    }
    digests: dict[str, Any] = {
        stage: {key: digest_json(parts) for key, parts in table.items()} for stage, table in stages.items()
    }
    # what speaks to people counts here, byte by byte
    lines = {key: line.model_dump(mode="json") for key, line in settings.lines.items()}
    words = digest_files(
        PACKAGE,
        [
            path
            for path in PACKAGE.joinpath("reporting").rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        ],
    )
    tracking = digest_files(PACKAGE, PACKAGE.joinpath("tracking").glob("*.py"))
    proofs = equivalences.load().model_dump(mode="json")
    return {
        **digests,
        "report": digest_json([lines, words, proofs]),
        "publish": digest_json([lines, words, tracking]),
    }


def train_entry(settings: Settings, key: str) -> list[str]:
    """What decides a row's training. Code that is proven to make the same counts as the code it equals."""
    row = settings.rows[key]
    code = train_code(row.method, row.model.name).digest
    return [settings.row_digest(key), equivalences.load().canonical("train", key, code)]


def _evaluated(settings: Settings, key: str) -> list[str]:
    row = settings.rows[key]
    code = measure_code(row.method, row.model.name).digest
    return [equivalences.load().canonical("evaluate", key, code)]


def _audited(settings: Settings, key: str) -> list[str]:
    row = settings.rows[key]
    return [settings.row_digest(key), audit_code(row.method, row.model.name)]


def _fetched(settings: Settings, name: str) -> list[Any]:
    """Official files are known by their checksums, from wherever; made-up ones by what makes them."""
    made = [digest(FETCHING)] if settings.source.kind == "synthetic" else []
    return [settings.raw[name].model_dump(mode="json"), *made]
