"""`reports/identity.json`: for every DVC stage, a digest of the settings and code versions of its results.

The stage `identity` runs after an edit and writes the file in about a second. Every other stage has its own
entry of the file as a parameter, so DVC runs only stages with a changed entry. DVC itself compares the data
that a stage reads. Ledgers have no version, because `dprepro verify` computes them anew.
"""

from pathlib import Path
from typing import Any

from dprepro.pipeline.files import digest_file, digest_files, digest_json, write_json
from dprepro.pipeline.identity import validity
from dprepro.pipeline.params import PAPERS, Settings
from dprepro.pipeline.results import records

PATH = Path("reports/identity.json")
PACKAGE = Path(__file__).parents[1]


def write(settings: Settings) -> Path:
    """Write the entries of all stages and return the path."""
    write_json(PATH, entries(settings))
    return PATH


def entries(settings: Settings) -> dict[str, Any]:
    """Digests by stage; a stage that runs once for each key, such as each row, has a digest for each key."""
    rows = settings.rows
    searches = {path.stem: digest_file(path) for path in sorted(records.SEARCHES.glob("*.json"))}
    trained_by = {key: validity.training_versions(row.method, row.model.name) for key, row in rows.items()}
    # writers of raw files have versions
    made_up = {
        "official": [],
        "digits": [validity.DIGITS, validity.SYNTHETIC],
        "synthetic": [validity.SYNTHETIC],
    }[settings.source.kind]
    own = {name: settings.own_of(name) for name in settings.data}
    unlinked = {
        key: [searches[name] for name in names if name != rows[key].search]
        for key, names in records.searches_of().items()
        if key in rows
    }
    stages: dict[str, dict[str, Any]] = {
        "fetch": {
            name: [settings.raw[name].model_dump(mode="json"), *made_up] for name in settings.catalogued
        },
        # `of` names the same examples in another form; it changes no number
        "own": {
            name: [declaration.model_dump(mode="json") | {"of": None}]
            for name, declaration in settings.own.items()
        },
        "prepare": {
            name: [
                data.model_dump(mode="json"),
                validity.PREPARING_OWN if own[name] else validity.PREPARING,
                *([validity.FEATURES] if any(settings.own[raw].public_network for raw in own[name]) else []),
                *([validity.IMAGES] if any(settings.own[raw].kind == "images" for raw in own[name]) else []),
                # equal raw files may have another test part or range now
                *map(settings.own_digest, own[name]),
            ]
            for name, data in settings.data.items()
        },
        "start": {
            name: [settings.row_digest(start.row), start.model_dump(mode="json"), validity.STARTING]
            for name, start in settings.starts.items()
        },
        "relevance": {
            name: [settings.relevance_digest(name), validity.AVERAGING] for name in settings.relevances
        },
        "train": {key: [settings.row_digest(key), trained_by[key]] for key in rows},
        "evaluate": {key: [validity.MEASURING] for key in rows},
        "ledger": {
            # a row's ledger also counts searches over this row that the row doesn't name
            # and a feature range that params.yaml no longer declares
            key: [
                *(row.search, searches.get(row.search or ""), *unlinked.get(key, ())),
                *(["feature_range"] if settings.lacks_range(row.data) else []),
            ]
            for key, row in rows.items()
        },
        "audit": {
            key: [settings.row_digest(key), validity.auditing_versions(row.method, row.model.name)]
            for key, row in rows.items()
        },
        "account": {key: [settings.account_digest(key)] for key in settings.accounts},
    }
    # pages depend on every byte of their texts and code
    lines = {key: line.model_dump(mode="json") for key, line in settings.lines.items()}
    words = [
        _bytes_of("reporting"),
        digest_files(Path(), PAPERS.glob("*.yaml")),
    ]
    plans = {key: plan.model_dump(mode="json") for key, plan in settings.plans.items()}
    digests: dict[str, Any] = {
        stage: {key: digest_json(parts) for key, parts in table.items()} for stage, table in stages.items()
    }
    return {
        **digests,
        # all searches: comparisons also count those that no row of their line names
        "report": digest_json([lines, plans, searches, words, [trained_by, validity.MEASURING]]),
        "publish": digest_json([lines, words, _bytes_of("tracking")]),
    }


def _bytes_of(room: str) -> str:
    """Digest of the files in the folder ``room``, without bytecode: a killed import leaves it incomplete."""
    files = PACKAGE.joinpath(room).rglob("*")
    return digest_files(
        PACKAGE, [path for path in files if path.is_file() and "__pycache__" not in path.parts]
    )
