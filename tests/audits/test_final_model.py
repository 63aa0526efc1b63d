"""Canaries in a row's own data, attacked by its final models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dprepro.clipping.functional import Tensors
from dprepro.pipeline.audits.final_model import audit_model
from dprepro.pipeline.audits.pair import Without
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings
from dprepro.pipeline.params import Settings, load
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import FINAL_MODEL, Attack
from tests import laboratory
from tests.data.own_files import ROW, declare, made, settings_of, write_features

EXAMPLES = 400


def declared(root: Path, **settings: object) -> Settings:
    """Clusters that are far apart, and a row that trains on them."""
    write_features(root, (30,), EXAMPLES)
    row = {
        **ROW,
        "settings": {**ROW["settings"], "batch": 64, "epochs": 2, **settings},
        "reproducible": False,
    }
    return settings_of(declare(root, "npz", "mine.npz") | {"rows": {"row": row}})


def audited(root: Path, cpu: Execution, settings: Settings) -> tuple[Attack, list[str]]:
    said: list[str] = []
    audit_model("row", settings, made(root, settings), cpu, said.append, root)
    (attack,) = records.read_audit("row", root, final_models=True).attacks
    return attack, said


def test_a_right_row_shows_at_most_the_proven_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Execution
) -> None:
    monkeypatch.chdir(tmp_path)
    attack, said = audited(tmp_path, cpu, declared(tmp_path))
    assert (attack.attack, attack.sees, attack.whole) == (FINAL_MODEL, "the final model", True)
    assert 5 < attack.epsilon_upper <= 8  # which the tightest accountant proves of the claimed 8
    assert {bound.by for bound in attack.bounds} == {bound.by for bound in attack.could_show}
    assert attack.largest <= attack.epsilon_upper
    assert max(bound.epsilon for bound in attack.could_show) < 8
    assert f"examples are canaries: of epsilon {attack.epsilon_upper:g} a perfect attacker" in said[0]
    # and stand beside those on code
    assert records.read_audit("row", tmp_path) is None
    assert records.read_attacks("row", tmp_path) == (attack,)


class Exact:
    """A mechanism that doesn't add its noise."""

    def __init__(self, mechanism: Any) -> None:
        self.mechanism = mechanism

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mechanism, name)

    def release(self, sums: Tensors, *_: Any) -> Tensors:
        return {name: value.float() for name, value in sums.items()}


def test_a_row_that_adds_no_noise_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Execution
) -> None:
    """The mechanism doesn't add its noise, and training goes on until all is learnt by heart."""
    monkeypatch.chdir(tmp_path)
    build = DpsgdSettings.build_method

    def without_noise(*arguments: Any) -> Any:
        method: Any = build(*arguments)
        method.mechanism = Exact(method.mechanism)
        return method

    monkeypatch.setattr(DpsgdSettings, "build_method", without_noise)
    attack, _ = audited(tmp_path, cpu, declared(tmp_path, epochs=100, learning_rate=4.0, delta=1e-5))
    assert attack.largest > 2


def test_an_attack_on_another_training_does_not_count(tmp_path: Path) -> None:
    """With a new clipping bound an old attack isn't of the row's training, but its results stay published."""

    def of_level(epsilon: int) -> tuple[int, list[str]]:
        record = records.read("row", load().rows["row"])
        training = next(each for each in record.trainings if each.level == f"epsilon={epsilon}")
        return len(training.attacks), [use.key for use in training.ledger.not_covered]

    with laboratory.laboratory(tmp_path):
        laboratory.new_data(300)
        laboratory.new_row("row --data mine --model logistic --method dpsgd --epsilon 4 --epochs 1")
        laboratory.declare(lambda all_: all_["rows"]["row"].update(levels=[{"epsilon": 4}, {"epsilon": 8}]))
        laboratory.run("prepare mine")
        laboratory.train("row")
        laboratory.run("audit row --model")
        assert of_level(4)[0] == of_level(8)[0] == 1
        laboratory.declare(lambda all_: all_["rows"]["row"]["settings"].update(clip=0.5))
        assert of_level(4)[0] == 1  # its record is of the old training
        laboratory.train("row")
        count, uses = of_level(4)
        assert count == 0
        assert "model_audit" in uses
        laboratory.run("audit row --model --level epsilon=8")
        assert of_level(8)[0] == 1
        (attack,) = records.read_audit("row", final_models=True).attacks
        assert attack.level == "epsilon=8"
        laboratory.run("audit row --model --level epsilon=4")
        assert of_level(4)[0] == of_level(8)[0] == 1


def test_an_attack_on_code_counts_beside_the_ledger_of_its_mechanism(tmp_path: Path) -> None:
    key, row = "davody-t5-bn-lenet5", load().rows["davody-t5-bn-lenet5"]
    paths = [records.run_path, records.ledger_path, records.evaluation_path, records.audit_path]
    for path in [make(key) for make in paths]:
        copied = tmp_path / path
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_bytes(path.read_bytes())

    def whole() -> set[int]:
        return {
            sum(attack.whole for attack in training.attacks)
            for training in records.read(key, row, tmp_path).trainings
        }

    assert whole() == {0, 1}  # without noise there is none
    audits = records.audit_path(key, tmp_path)
    audits.write_text(audits.read_text().replace('"430 x', '"431 x'))
    assert whole() == {0}


def test_absent_examples_are_in_no_sample(cpu: Execution) -> None:
    streams = Without("a", True, torch.device("cpu"))
    whole = Without("a", True, torch.device("cpu"))
    streams.absent, whole.absent = np.array([3, 5]), np.array([], int)
    for step in range(20):
        for draw in (lambda of: of.poisson(step, 12, 0.5), lambda of: of.allocated(step, 12, 4, 2)):  # noqa: B023
            assert draw(streams).tolist() == [place for place in draw(whole) if place not in (3, 5)]
