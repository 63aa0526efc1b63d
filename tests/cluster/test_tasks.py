"""What there is to do, and in which order."""

import hashlib
import json
from pathlib import Path

import pytest

from dprepro.pipeline import params
from dprepro.pipeline.cluster import tasks
from dprepro.pipeline.files import write_text
from dprepro.pipeline.identity import validity
from dprepro.pipeline.identity.entries import entries
from dprepro.pipeline.results import records
from tests.cluster import project


def test_what_there_is_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project.make(tmp_path, {"row-00": project.row(0, epochs=5)} | project.CHAIN)
    monkeypatch.chdir(tmp_path)
    settings = params.load()
    # the row whose network is in the data comes first, though nobody named it
    assert tasks.rounds(settings, ["adlm"]) == [["relevant"], ["adlm"]]
    assert tasks.rounds(settings, settings.rows) == [["relevant"], ["row-00", "adlm"]]
    (adlm,) = tasks.todo(settings, ["adlm"], ("--device", "cpu"))
    assert adlm.commands == (("train", "adlm", "--device", "cpu"), ("evaluate", "adlm"), ("ledger", "adlm"))
    assert tasks.missing_data(settings, ["relevant"]) == ["prepare@mnist"]
    assert tasks.missing_data(settings, ["adlm"]) == ["prepare@mnist", "relevance@mnist-relevance"]


@pytest.mark.parametrize("changed", ["nothing", "version", "network"])
def test_data_of_another_network_or_version_are_joined_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """Though their settings are the same."""
    project.make(tmp_path, project.CHAIN)
    monkeypatch.chdir(tmp_path)
    settings = params.load()
    monkeypatch.setattr(tasks, "prepared_here", lambda name, settings: name)
    monkeypatch.setattr("dprepro.pipeline.pretrained.loading.check_joined", lambda data, settings: None)
    run = records.run_path("relevant")
    name, stage = "mnist-relevance", "relevance@mnist-relevance"
    read = hashlib.md5(b"before" if changed == "network" else b"of now").hexdigest()
    signed = {
        "deps": [{"path": run.as_posix(), "md5": read}],
        "params": {"reports/identity.json": {f"relevance.{name}": entries(settings)["relevance"][name]}},
    }
    Path("dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": {stage: signed}}))
    if changed == "version":
        monkeypatch.setattr(validity, "AVERAGING", validity.AVERAGING + 1)
    monkeypatch.setattr(tasks, "rows_to_train", lambda settings, gpu: [])
    monkeypatch.setattr(tasks, "lacks_measuring", lambda key: True)
    write_text(run, "of now")
    assert tasks.missing_data(settings, ["adlm"]) == ([stage] if changed != "nothing" else [])


@pytest.mark.parametrize("missing", ["entry", "file", "nothing"])
def test_a_row_that_lacks_an_entry_or_a_file_has_its_ledger_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    project.make(tmp_path, {"row-00": project.row(0, epochs=5)})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tasks, "rows_to_train", lambda settings, gpu: [])
    monkeypatch.setattr(tasks, "lacks_measuring", lambda key: False)
    settings, key, stages = params.load(), "row-00", {}
    for stage, paths in {
        "train": [records.run_path(key)],
        "evaluate": [records.evaluation_path(key)],
        "ledger": [records.ledger_path(key)],
    }.items():
        outs = [{"path": path.as_posix(), "md5": hashlib.md5(b"kept").hexdigest()} for path in paths]
        for path in paths:
            write_text(path, "kept")
        digest = {f"{stage}.{key}": entries(settings)[stage][key]}
        stages[f"{stage}@{key}"] = {"params": {"reports/identity.json": digest}, "outs": outs}
    if missing == "entry":
        del stages["train@row-00"]
    if missing == "file":
        records.ledger_path(key).unlink()
    Path("dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": stages}))
    commands = [task.commands for task in tasks.todo(settings, [key])]
    assert commands == ([] if missing == "nothing" else [(("ledger", key),)])
