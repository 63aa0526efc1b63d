"""The data that rows were trained on, as MLflow's data sets."""

import json

from pipeline.data.catalog import catalog
from pipeline.files import digest_json
from pipeline.params import Settings
from pipeline.results.schema import Provenance, Record

LENGTH = 16  # of a digest as it is shown; MLflow takes up to 36 letters. Whole ones are in digests.json


def tested_on(record: Record, settings: Settings) -> str | None:
    """The raw data set whose test part a row is measured on, such as 'mnist'; None: on none."""
    if record.data not in settings.derived and record.data not in settings.data:
        return None  # params.yaml has no such one any more
    raw = settings.split(record.data).raw
    return settings.raw_set(raw) if raw in settings.raw else None


def title(record: Record, settings: Settings) -> str:
    """That data set's name for people, such as 'MNIST'."""
    raw = tested_on(record, settings)
    return catalog()[raw].title if raw in catalog() else raw or record.data


def trained_on(record: Record, made: Provenance, settings: Settings) -> dict[str, str] | None:
    """The fields of MLflow's `Dataset`: the arrays' digest, and where the raw files are published."""
    if not made.data:
        return None
    raw = tested_on(record, settings)
    addresses: list[str] = []
    if raw in catalog():  # else it is somebody's own
        name = made.edition.get(settings.split(record.data).raw, "")
        if edition := catalog()[raw].editions.get(name):  # else the images were made up
            addresses += [
                *edition.bases,
                *(address for archive in edition.archives for address in archive.addresses),
            ]
    return {
        "name": record.data,
        "digest": digest_json(made.data).removeprefix("sha256:")[:LENGTH],
        "source_type": "http" if addresses else "local",
        "source": json.dumps({"url": addresses[0]} if addresses else {"uri": f"data/prepared/{record.data}"}),
        "profile": json.dumps({"training examples": made.examples, "edition": made.edition}),
    }
