"""Features: floats that somebody made of each example, from a file to a ledger and an attack."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dprepro.errors import UserError
from dprepro.pipeline.audits.rows import audit_row
from dprepro.pipeline.data.fetch import fetch
from dprepro.pipeline.identity.entries import entries
from dprepro.pipeline.ledgers.compared import check_row
from dprepro.pipeline.ledgers.rows import row_ledgers
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.params import OwnFeatures
from dprepro.pipeline.results import records
from dprepro.pipeline.training import evaluation, rows
from dprepro.pipeline.training.not_covered import data_uses, declared_uses
from tests.data.own_files import ROW, declare, made, settings_of, write_features
from tests.refusal import refusal_of
from tests.training.running import quiet


def declared(root: Path, public: int = 0, **said: Any) -> dict[str, Any]:
    """The file, and a row that trains on it."""
    return declare(root, "npz", "mine.npz", public, **said) | {"rows": {"row": ROW}}


def test_from_a_file_to_a_ledger_and_an_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Execution
) -> None:
    monkeypatch.chdir(tmp_path)
    write_features(tmp_path, (12,))
    settings = settings_of(declared(tmp_path))
    assert isinstance(settings.own["mine"], OwnFeatures)
    data = made(tmp_path, settings)
    assert data.input_shape == (12,)
    assert list(data_uses(data, settings.rows["row"].resolved[0])) == [statement("feature_range")]
    assert all(split.inputs.dtype == np.float32 for split in data.splits.values())
    with np.load("mine.npz") as written:
        known = {
            each.astype(np.float32).tobytes(): label
            for each, label in zip(written["inputs"], written["labels"], strict=True)
        }
    for split in data.splits.values():
        assert [known[each.tobytes()] for each in split.inputs] == split.labels.tolist()
    rows.train("row", settings, data, cpu, quiet, 1e9)
    evaluation.evaluate("row", settings, data, cpu)
    row_ledgers("row", settings)
    measured = records.read_evaluation("row")
    assert measured.trainings[0].metrics["test_accuracy"] > 0.4  # a third is chance
    audit_row("row", settings)
    audit = records.read_audit("row")
    shown = {attack.attack: (attack.largest, attack.epsilon_upper) for attack in audit.attacks}
    # the record that the pair differs by moves what is released by all that it may, and by no more
    assert 0.9 < shown["pair"][0] / shown["pair"][1] <= 1


def test_params_yaml_alone_implies_what_the_data_imply(tmp_path: Path) -> None:
    """A pack is compared with one of them, depending on whether the data are here."""
    write_features(tmp_path, (12,))
    for public in (0, 3):
        settings = settings_of(declared(tmp_path, public))
        method = settings.rows["row"].resolved[0]
        implied = {use.key for use in data_uses(made(tmp_path, settings), method)}
        assert implied == {"feature_range", *(["own_public"] if public else [])}
        assert declared_uses("mine", method, settings, None) == implied


def test_a_range_that_is_withdrawn_after_the_training_is_in_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Execution
) -> None:
    """The arrays and the weights are the same."""
    monkeypatch.chdir(tmp_path)
    write_features(tmp_path, (12,))
    content = declared(tmp_path, range=[-9.0, 9.0])
    settings = settings_of(content)
    rows.train("row", settings, made(tmp_path, settings), cpu, quiet, 1e9)
    del content["own"]["mine"]["range"]
    withdrawn = settings_of(content)
    run: Any = records.read_run("row")
    for known, uses in ((settings, 0), (withdrawn, 1)):
        row_ledgers("row", known)
        ledgers: Any = records.read_ledgers("row")
        assert ledgers.entries[0].ledger.not_covered.count(statement("feature_range")) == uses
        check_row(ledgers, run, None, known)
    with pytest.raises(UserError, match="not_covered"):
        check_row(ledgers, run, None, settings)
    assert entries(settings)["ledger"] != entries(withdrawn)["ledger"]
    assert "feature_range" in declared_uses("mine", withdrawn.rows["row"].resolved[0], withdrawn, None)


def test_a_range_told_beforehand_is_checked_and_leaves_nothing_uncounted(tmp_path: Path) -> None:
    write_features(tmp_path, (5, 8, 8))
    narrow = settings_of(declared(tmp_path, range=[-1.5, 1.5]))
    line = refusal_of(lambda: fetch("mine", narrow, tmp_path))
    assert "beyond own.mine.range in params.yaml, -1.5 to 1.5; `clip: true` moves them" in line
    clipped = settings_of(declared(tmp_path, range=[-1.5, 1.5], clip=True))
    data = made(tmp_path, clipped)
    assert data.input_shape == (5, 8, 8)
    both = np.concatenate([split.inputs.ravel() for split in data.splits.values()])
    assert (both.min(), both.max()) == (-1.5, 1.5)
    assert data.manifest["features"] == {"range": [-1.5, 1.5], "clip": True}
    assert list(data_uses(data, clipped.rows["row"].resolved[0])) == []


def test_features_and_images_are_not_taken_for_each_other(tmp_path: Path) -> None:
    write_features(tmp_path, (1, 8, 8))
    declaration = declared(tmp_path, public=8)
    declaration["own"]["mine"]["kind"] = "npz"
    line = refusal_of(lambda: fetch("mine", settings_of(declaration), tmp_path))
    assert "has float32; own.mine.kind in params.yaml says 'npz'" in line
    augmented = {"batch": 32, "steps": 9, "learning_rate": 1, "augment": "crop_flip"}
    tan = {"model": {"name": "convnet"}, "method": "tan", "levels": [{"sigma": 2}], "settings": augmented}
    declaration["rows"] = {"row": ROW | tan}
    declaration["own"]["mine"] |= {"kind": "features", "shape": [3, 4]}
    with pytest.raises(UserError, match=r"own\.mine\.shape"):  # a line for each way to be one
        settings_of(declaration)
    declaration["own"]["mine"]["shape"] = [1, 8, 8]
    assert "settings.augment: is for images, and 'mine' has features" in refusal_of(
        lambda: settings_of(declaration)
    )
