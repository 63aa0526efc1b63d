"""RO-Crate of rows: records, printed and measured values with their commands, and metadata of data sets.

`ro-crate-metadata.json` is RO-Crate 1.1, and `croissant/NAME.json` is Croissant 1.0. Both are plain JSON-LD.
Equal records give equal bytes, because all dates are those of the training runs.
"""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dprepro.errors import UserError
from dprepro.pipeline.data import catalog
from dprepro.pipeline.data.catalog import Edition, Entry, File
from dprepro.pipeline.files import digest_file, replacing_folder, write_json, writing
from dprepro.pipeline.identity import provenance
from dprepro.pipeline.params import PARAMS, Settings
from dprepro.pipeline.params.documents import read_yaml
from dprepro.pipeline.reporting import papers
from dprepro.pipeline.reporting.printed import Table
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Record, Run
from dprepro.pipeline.transport import archive

PROFILE, CROISSANT = "https://w3id.org/ro/crate/1.1", "http://mlcommons.org/croissant/1.0"
METADATA, CLAIMS = "ro-crate-metadata.json", "claims.json"
CITATION = Path("CITATION.cff")
# files of the laboratory in every crate, if they exist
COMMON = (PARAMS, *map(Path, ("requirements.lock", "pyproject.toml", "LICENSE")), CITATION)
TYPES = {
    ".json": "application/json",
    ".csv": "text/csv",
    ".yaml": "application/yaml",
    ".gz": "application/gzip",
}
_PLAIN = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes "
    "isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
# Croissant's standard context, in full, so that readers need no network
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _PLAIN.split()},
}


def write_crate(rows: list[str], folder: Path, settings: Settings) -> None:
    """Write an RO-Crate of measured rows to a new folder.

    Raises:
        UserError: a row has no complete record, or the folder exists.
    """
    if folder.exists():
        raise UserError(f"{folder}: is there already; allowed: a new folder")
    rows = list(dict.fromkeys(rows))
    found = {key: _record(key, settings) for key in rows}
    with replacing_folder(folder) as building:
        files = [path for path in COMMON if path.exists()]
        files += [path for key in rows for path in _files(key)]
        for path in files:
            with writing(folder):
                (building / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, building / path)
        claims = [claim for key in rows for claim in _claims(key, *found[key], settings)]
        write_json(building / CLAIMS, claims)
        raws = {raw for _, run in found.values() for origin in run.origins for raw in origin.edition}
        sets = {settings.raw_set(raw) for raw in raws if raw not in settings.own}
        public = [catalog.get(name) for name in sorted(sets)]
        for entry in public:
            (building / "croissant").mkdir(exist_ok=True)
            write_json(building / _croissant_path(entry), croissant(entry, _date(found)))
        written = [path.relative_to(building) for path in sorted(building.rglob("*")) if path.is_file()]
        write_json(building / METADATA, _metadata(building, written, found, public, claims))


def croissant(entry: Entry, published: str) -> dict[str, Any]:
    """Croissant metadata of a catalogue's data set: addresses, checksums, and the date ``published``."""
    official = entry.edition(catalog.OFFICIAL)
    distribution = []
    for file in official.files:
        algorithm, _, checksum = file.checksum.partition(":")
        distribution.append(
            {
                "@type": "cr:FileObject",
                "@id": file.name,
                "name": file.name,
                "contentUrl": _address(official, file),
                "contentSize": f"{file.size} B",
                "encodingFormat": TYPES.get(Path(file.name).suffix, "application/octet-stream"),
                algorithm: checksum,
            }
        )
    what = "texts" if entry.shape is None else f"examples of shape {'x'.join(map(str, entry.shape))}"
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CROISSANT,
        "name": entry.key,
        "description": f"{entry.title}: {what} in {len(entry.classes)} classes.",
        "url": _home(entry),
        "license": entry.licence,
        "creator": {"@type": "sc:Organization", "name": f"The authors of {entry.title}"},
        "datePublished": published,
        "version": "1.0.0",
        "citeAs": entry.title,
        "distribution": distribution,
    }


def _record(key: str, settings: Settings) -> tuple[Record, Run]:
    record, run = records.read(key, settings.row(key)), records.read_run(key)
    if record is None or run is None:
        raise UserError(
            f"{key}: not trained, measured and accounted for; run `dvc repro evaluate@{key} ledger@{key}`"
        )
    return record, run


def _files(key: str) -> Iterator[Path]:
    """Paths of a row's existing record files."""
    yield from archive.required_files(key)
    yield from filter(Path.exists, (records.ledger_path(key), records.audit_path(key)))


def _claims(key: str, record: Record, run: Run, settings: Settings) -> Iterator[dict[str, Any]]:
    """Printed value, its margin, measured values and privacy of each level; the row's command and time."""
    row = settings.rows[key]
    paper = papers.load(row.paper)
    table = paper.tables.get(row.table)
    seconds = sum(map(run.seconds_of, run.replicas))
    for level in dict.fromkeys(replica.level for replica in record.replicas):
        here = [replica for replica in record.replicas if replica.level == level]
        metric = table.metric if table else "test_accuracy"
        measured = [replica.metrics[metric] for replica in here if metric in replica.metrics]
        bounds = [replica.ledger.epsilon_upper for replica in here]
        proven = None if None in bounds else max(bound for bound in bounds if bound is not None)
        yield {
            "row": key,
            "level": level,
            "paper": paper.title if paper.published else None,
            "table": table.name if table else None,
            **_printed(table, row.line or key, level),
            "metric": metric,
            "measured": measured,
            "seeds": [replica.seed for replica in here],
            "epsilon_at_most": proven,
            "delta": here[0].ledger.delta,
            "command": f"dprepro repro {key}",
            "verify": f"dprepro verify {key}",
            "expected_seconds_of_one_core": round(seconds),
            "device": record.origins[here[0].origin].device,
        }


def _printed(table: Table | None, line: str, level: str) -> dict[str, Any]:
    """Printed value of a line at a level, and its margin as `tolerance`, in the unit of the metric."""
    lines = {each.key: each for each in table.lines} if table else {}
    printed = lines[line].values.get(level) if line in lines else None
    if table is None or printed is None or printed.value is None:
        return {"printed": None, "tolerance": None}
    scale = table.scale_of(table.metric)
    tolerance = table.margin_at(printed)
    return {"printed": round(printed.value / scale, 6), "tolerance": round(tolerance / scale, 6)}


def _metadata(
    building: Path,
    written: list[Path],
    found: dict[str, tuple[Record, Run]],
    public: list[Entry],
    claims: list[dict[str, Any]],
) -> dict[str, Any]:
    """JSON-LD graph of the crate: the root with its files, the software, and one action for each row."""
    commit, _ = provenance.revision()
    named = read_yaml(CITATION) if CITATION.exists() else {}
    try:
        license_name = named.get("license", "NOASSERTION")  # one SPDX identifier, or several
        license_name = license_name if isinstance(license_name, str) else " OR ".join(license_name)
        authors = [_author(each) for each in named.get("authors", [])]
    except (AttributeError, TypeError) as problem:
        raise UserError(f"{CITATION}: not in the Citation File Format: {problem}") from problem
    license_id = f"https://spdx.org/licenses/{license_name.replace(' ', '%20')}"
    locked = "requirements.lock" if Path("requirements.lock") in written else "pyproject.toml"
    people = [
        _entity(f"#author-{number}", kind, name)
        for number, (kind, name) in enumerate(authors or [("Organization", "the authors of this laboratory")])
    ]
    # public data sets, which the crate describes and doesn't contain
    data = [
        _entity(
            _home(entry),
            "Dataset",
            entry.key,
            description=entry.title,
            license=entry.licence,
            subjectOf={"@id": _croissant_path(entry).as_posix()},
        )
        for entry in public
    ]
    files = [
        _entity(
            path.as_posix(),
            "File",
            path.name,
            contentSize=str((building / path).stat().st_size),
            encodingFormat=TYPES.get(path.suffix, "text/plain"),
            sha256=digest_file(building / path).removeprefix("sha256:"),
        )
        for path in written
    ]
    actions = [_action(key, run, public) for key, (_, run) in found.items()]
    root = _entity(
        "./",
        "Dataset",
        f"dprepro: {', '.join(found)}",
        description="Training runs with differential privacy: settings, records, privacy ledgers and "
        f"commands that rebuild them. {CLAIMS} compares each level with the printed value.",
        datePublished=_date(found),
        license={"@id": license_id},
        author=_references(people),
        citation=sorted({claim["paper"] for claim in claims if claim["paper"]}),
        hasPart=_references([*files, *data]),
        mentions=_references(actions),
    )
    about = {"about": {"@id": "./"}, "conformsTo": {"@id": PROFILE}}
    version = {"version": commit or "no commit", "softwareRequirements": locked}
    graph = [
        {"@id": METADATA, "@type": "CreativeWork", **about},
        root,
        _entity(license_id, "CreativeWork", license_name),
        _entity("#dprepro", "SoftwareApplication", "dprepro", **version),
        *(*people, *files, *data, *actions),
    ]
    return {"@context": f"{PROFILE}/context", "@graph": graph}


def _author(author: dict[str, Any]) -> tuple[str, str]:
    """Type and name of an author in `CITATION`: an organisation has a name, a person has parts of a name."""
    if name := author.get("name"):
        return "Organization", str(name)
    parts = [author.get(part) for part in ("given-names", "name-particle", "family-names", "name-suffix")]
    return "Person", " ".join(str(part) for part in parts if part) or str(author.get("alias", "not stated"))


def _entity(key: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"@id": key, "@type": kind, "name": name, **fields}


def _references(entities: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"@id": each["@id"]} for each in entities]


def _action(key: str, run: Run, public: list[Entry]) -> dict[str, Any]:
    """Action with a row's training runs: command, inputs, times and results."""
    origin = run.origins[-1]
    return _entity(
        f"#train-{key}",
        "CreateAction",
        f"Training of {key}",
        description=f"`{origin.command}` at commit {origin.revision} on {origin.device}",
        instrument={"@id": "#dprepro"},
        object=[{"@id": _home(entry)} for entry in public if entry.key in origin.edition],
        result=[{"@id": path.as_posix()} for path in _files(key)],
        startTime=_time(min(replica.started for replica in run.replicas)),
        endTime=_time(max(replica.ended for replica in run.replicas)),
    )


def _address(edition: Edition, file: File) -> str:
    """Address of a file, or of the archive that contains it."""
    return f"{edition.bases[0]}{file.name}" if edition.bases else edition.archives[0].addresses[0]


def _home(entry: Entry) -> str:
    """Address of a data set's first file, as the identifier of the data set."""
    official = entry.edition(catalog.OFFICIAL)
    return _address(official, official.files[0])


def _croissant_path(entry: Entry) -> Path:
    return Path("croissant") / f"{entry.key}.json"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _date(found: dict[str, tuple[Record, Run]]) -> str:
    """Day on which the last training run ended."""
    return _time(max(replica.ended for _, run in found.values() for replica in run.replicas))[:10]
