"""RO-Crate of committed rows and Croissant metadata, held to the fields that validators let pass."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dprepro.pipeline import params
from dprepro.pipeline.data import catalog
from dprepro.pipeline.files import digest_file
from dprepro.pipeline.results import records
from dprepro.pipeline.transport.crate import CLAIMS, METADATA, croissant, write_crate
from dprepro.stages.app import app
from tests.refusal import refusal_of
from tests.there import there

ROWS = ["davody-t5-ln-lenet5", "sander-mnist"]


@pytest.fixture(scope="module")
def crate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crate") / "crate"
    write_crate(ROWS, folder, params.load())
    return folder


@pytest.fixture(scope="module")
def graph(crate: Path) -> dict[str, dict[str, Any]]:
    content = json.loads((crate / METADATA).read_text())
    assert content["@context"] == "https://w3id.org/ro/crate/1.1/context"
    entities = {entity["@id"]: entity for entity in content["@graph"]}
    assert len(entities) == len(content["@graph"])
    return entities


def test_the_root_has_what_the_specification_asks_for(graph: dict[str, dict[str, Any]]) -> None:
    assert graph[METADATA]["about"] == {"@id": "./"}
    assert graph[METADATA]["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    root = graph["./"]
    assert all(
        root[name] for name in ("name", "description", "datePublished", "license", "author", "citation")
    )


def test_every_file_is_listed_with_its_digest(crate: Path, graph: dict[str, dict[str, Any]]) -> None:
    files = {path.relative_to(crate).as_posix() for path in crate.rglob("*") if path.is_file()} - {METADATA}
    listed = {name for name, entity in graph.items() if entity["@type"] == "File"}
    assert files == listed
    assert files <= {part["@id"] for part in graph["./"]["hasPart"]}
    for name in files:
        assert f"sha256:{graph[name]['sha256']}" == digest_file(crate / name)
        assert graph[name]["contentSize"] == str((crate / name).stat().st_size)
    for row in ROWS:
        assert f"reports/runs/{row}.json" in files
        assert digest_file(crate / f"reports/runs/{row}.json") == digest_file(records.run_path(row))


def test_references_lead_to_entities(graph: dict[str, dict[str, Any]]) -> None:
    def references(value: Any) -> list[str]:
        if isinstance(value, dict) and set(value) == {"@id"}:
            return [value["@id"]]
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [name for each in inner for name in references(each)]

    profile = "https://w3id.org/ro/crate/1.1"
    for entity in graph.values():
        assert {name for name in references(entity) if name != profile} <= graph.keys()
    for row in ROWS:
        action = graph[f"#train-{row}"]
        assert action["startTime"] < action["endTime"]
        assert action["instrument"] == {"@id": "#dprepro"}


def test_claims_have_the_printed_and_the_measured_values(crate: Path) -> None:
    claims = json.loads((crate / CLAIMS).read_text())
    (claim,) = (each for each in claims if (each["row"], each["level"]) == (ROWS[0], "epsilon=3"))
    replicas = [
        each for each in there(records.read_evaluation(ROWS[0])).replicas if each.level == "epsilon=3"
    ]
    assert claim["measured"] == [each.metrics["test_accuracy"] for each in replicas]
    assert (claim["table"], claim["command"]) == ("Table 5", f"dprepro repro {ROWS[0]}")
    assert claim["printed"] == 0.9705
    assert 0 < claim["tolerance"] <= 0.01
    assert 0 < claim["epsilon_at_most"] <= 3
    assert claim["expected_seconds_of_one_core"] > 0


@pytest.mark.parametrize("key", [key for key, entry in catalog.catalog().items() if entry.editions])
def test_a_data_set_has_the_fields_of_croissant(key: str) -> None:
    """Of these mlcroissant reports neither a missing name nor a missing url, creator or description."""
    entry = catalog.get(key)
    about = croissant(entry, "2026-01-01")
    wanted = ("name", "description", "url", "license", "creator", "datePublished", "version", "citeAs")
    assert all(about[name] for name in wanted)
    assert about["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    files = {file.name: file for file in entry.edition(catalog.OFFICIAL).files}
    assert {each["name"] for each in about["distribution"]} == files.keys()
    for each in about["distribution"]:
        algorithm, _, checksum = files[each["name"]].checksum.partition(":")
        assert each[algorithm] == checksum
        assert each["contentUrl"].startswith("http")


def test_the_same_records_give_the_same_bytes(crate: Path, tmp_path: Path) -> None:
    write_crate(ROWS, tmp_path / "again", params.load())
    for path in crate.rglob("*"):
        if path.is_file():
            assert (tmp_path / "again" / path.relative_to(crate)).read_bytes() == path.read_bytes()


def test_what_cannot_be_packed_is_a_line(
    crate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = params.load()
    assert "is there already; allowed: a new folder" in refusal_of(lambda: write_crate(ROWS, crate, settings))
    lacking = next(row for row in settings.rows if records.read_run(row) is None)
    line = refusal_of(lambda: write_crate([lacking], tmp_path / "new", settings))
    assert line.startswith(f"{lacking}: not trained, measured and accounted for")
    assert not (tmp_path / "new").exists()

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr("shutil.copyfile", full)
    line = refusal_of(lambda: write_crate(ROWS, tmp_path / "new", settings))
    assert line == f"{tmp_path}/new/params.yaml: can't be written: No space left on device"


def test_a_crate_has_no_other_file(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["pack", ROWS[1], "--crate", f"{tmp_path}/new", "-o", f"{tmp_path}/pack"])
    assert "--output: not with --crate" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_an_author_is_a_person_or_an_organisation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    citation = tmp_path / "CITATION.cff"
    monkeypatch.setattr("dprepro.pipeline.transport.crate.CITATION", citation)
    for number, (text, found) in enumerate(
        {
            "authors: [{family-names: M, given-names: A}]\nlicense: MIT": ("Person", "A M", "MIT"),
            "authors: [{name: a group}]": ("Organization", "a group", "NOASSERTION"),
        }.items()
    ):
        citation.write_text(text)
        write_crate(ROWS[1:], tmp_path / str(number), params.load())
        graph = json.loads((tmp_path / str(number) / METADATA).read_text())["@graph"]
        (author,) = [each for each in graph if each["@id"] == "#author-0"]
        assert (author["@type"], author["name"]) == found[:2]
        assert any(each["@id"] == f"https://spdx.org/licenses/{found[2]}" for each in graph)
    for text in ("authors: [", "- a", "authors: [a]", "license: 1"):
        citation.write_text(text)
        assert "CITATION.cff: not " in refusal_of(
            lambda: write_crate(ROWS[1:], tmp_path / "new", params.load())
        )
