"""The data that rows were trained on, as MLflow's data sets."""

import json

from mlflow.entities import Dataset

from pipeline.data import catalog
from pipeline.files import digest_json
from pipeline.params import Data, Settings
from pipeline.results.records import Provenance, Record

LENGTH = 16  # of a digest as it is shown; MLflow takes up to 36 letters. Whole ones are in digests.json


def tested_on(record: Record, settings: Settings) -> str | None:
    """The raw data set whose test part a row is measured on, such as 'mnist'; None: on none."""
    split = _split(record, settings)
    return settings.raw_set(split.raw) if split and split.raw in settings.raw else None


def title(record: Record, settings: Settings) -> str:
    """That data set's name for people, such as 'MNIST'."""
    raw = tested_on(record, settings)
    entry = catalog.CATALOG.get(raw) if raw else None
    return entry.title if entry else raw or record.data


def trained_on(record: Record, made: Provenance, settings: Settings) -> Dataset | None:
    """The prepared data set: its arrays' digest, and where its raw files are published."""
    if not made.data:
        return None
    split = _split(record, settings)
    source = _source(split, made, settings) if split else None
    return Dataset(
        name=record.data,
        digest=digest_json(made.data).removeprefix("sha256:")[:LENGTH],
        source_type="http" if source else "local",
        source=json.dumps({"url": source} if source else {"uri": f"data/prepared/{record.data}"}),
        profile=json.dumps({"training examples": made.examples, "edition": made.edition}),
    )


def _split(record: Record, settings: Settings) -> Data | None:
    """How the record's data set is split; None where params.yaml has no such one any more."""
    known = record.data in settings.derived or record.data in settings.data
    return settings.split(record.data) if known else None


def _source(split: Data, made: Provenance, settings: Settings) -> str | None:
    """Where the edition that was used is published; None: it was made up, or is somebody's own."""
    entry = catalog.CATALOG.get(settings.raw_set(split.raw)) if split.raw in settings.raw else None
    edition = entry.editions.get(made.edition.get(split.raw, "")) if entry else None
    if edition is None:
        return None
    found = [*edition.bases, *(one for archive in edition.archives for one in archive.addresses)]
    return found[0] if found else None
