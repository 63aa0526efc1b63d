"""What is measured again and what is kept; scores by their definitions; uses that no epsilon counts."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dprepro.accountants.laplace import Laplace, Releases
from dprepro.accountants.records import SampledGaussian
from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.identity.validity import MEASURING
from dprepro.pipeline.methods.base import Execution
from dprepro.pipeline.methods.laplace.settings import AdlmSettings, IlmSettings
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.params import Settings, parse
from dprepro.pipeline.reporting.wording import words
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import EvaluationRecord, TrainingRecord, is_guess
from dprepro.pipeline.results.weights import weights_path
from dprepro.pipeline.training import evaluation, loop, side_by_side
from dprepro.pipeline.training import rows as training
from dprepro.pipeline.training.not_covered import data_uses
from dprepro.pipeline.training.scores import BINS, CONFUSED, errors, scores
from tests.conftest import dpsgd
from tests.refusal import refusal_of
from tests.training.running import quiet

# -- measuring ---------------------------------------------------------------------------------------


def declared(seeds: int = 2) -> Settings:
    row = {
        **{"paper": "davody2020", "table": "t5", "label": "LeNet-5", "data": "tiny"},
        **{"model": {"name": "lenet5"}, "method": "dpsgd", "seeds": seeds, "reproducible": True},
        "settings": {"batch": 20, "epochs": 0.2, "learning_rate": 0.5, "delta": 1e-3},
        "levels": [{"epsilon": 3}],
    }
    data = {"raw": "mnist", "train": 200, "validation": 40, "public": {"raw": "kmnist", "count": 8}}
    return parse({"raw": {"mnist": {}, "kmnist": {}}, "data": {"tiny": data}, "rows": {"row": row}})


@pytest.fixture
def measured(tiny: Prepared, cpu: Execution, tmp_path: Path) -> Path:
    """A folder with a row trained and measured."""
    training.train("row", declared(), tiny, cpu, quiet, 1e9, tmp_path)
    evaluation.evaluate("row", declared(), tiny, cpu, tmp_path)
    return tmp_path


def measure(root: Path, data: Prepared, how: Execution, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Evaluate the row; the seeds that were measured for it."""
    seeds: list[int] = []
    real = evaluation.measure

    def noted(trained: TrainingRecord, *arguments: Any, **options: Any) -> EvaluationRecord:
        seeds.append(trained.seed)
        return real(trained, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "measure", noted)
        evaluation.evaluate("row", declared(), data, how, root)
    return seeds


def test_what_was_measured_is_not_measured_again(
    measured: Path, tiny: Prepared, cpu: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = records.evaluation_path("row", measured)
    before = path.read_bytes()
    assert measure(measured, tiny, cpu, monkeypatch) == []
    assert path.read_bytes() == before


def test_what_nobody_measured_and_what_other_weights_or_versions_made_is_measured(
    measured: Path, tiny: Prepared, cpu: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = records.read_evaluation("row", measured)
    assert {training.measured_by for training in evaluation.trainings} == {MEASURING}
    first, second = evaluation.trainings
    for changed in (
        (first,),
        (first, second.model_copy(update={"weights": "sha256:other"})),
        (first, second.model_copy(update={"measured_by": MEASURING - 1})),
    ):
        records.write(evaluation.model_copy(update={"trainings": changed}), measured)
        assert measure(measured, tiny, cpu, monkeypatch) == [1]
        assert records.read_evaluation("row", measured) == evaluation


@pytest.mark.parametrize("known", [True, False])
def test_weights_that_are_not_here_can_not_be_measured(
    measured: Path, tiny: Prepared, cpu: Execution, known: bool
) -> None:
    """Also where their accuracies are recorded: nothing measured them here."""
    path = records.evaluation_path("row", measured)
    before = path.read_bytes()
    if not known:
        path.unlink()
    weights_path("row", "epsilon=3", 1, measured).unlink()
    line = refusal_of(lambda: evaluation.evaluate("row", declared(), tiny, cpu, measured))
    assert "runs/row: weights of 1 of 2 trainings are not here (epsilon=3 seed 1); `dvc repro eval" in line
    assert "evaluate@row` trains and measures them again, about 0:0" in line
    assert " by its record; `dvc pull" in line
    assert path.exists() == known
    assert not known or path.read_bytes() == before


def test_weights_are_not_measured_on_other_data_or_as_another_networks(
    measured: Path, tiny: Prepared, cpu: Execution
) -> None:
    """Normalisation without parameters fits the weights of a network that has none."""
    other = replace(tiny, manifest={**tiny.manifest, "digests": {"train.inputs": "sha256:other"}})
    kept, path = declared().rows["row"], records.evaluation_path("row", measured)
    model = kept.model.model_copy(update={"normalization": "response"})
    response = declared().model_copy(update={"rows": {"row": kept.model_copy(update={"model": model})}})
    before = path.read_bytes()
    for settings, data, said in (
        (declared(), other, "row.jsonl: trained with other data than are here"),
        (response, tiny, "row.jsonl: trained with other settings than are here"),
    ):
        evaluation.evaluate("row", settings, data, cpu, measured)  # nothing is to be measured
        path.unlink()
        with pytest.raises(UserError, match=said):
            evaluation.evaluate("row", settings, data, cpu, measured)
        assert not path.exists()
        path.write_bytes(before)


# -- what no epsilon counts ------------------------------------------------------------------------------


def raw(*titles: str) -> dict[str, Any]:
    return {title.lower(): {"edition": "official", "title": title} for title in titles}


def of_public(source: str) -> dict[str, Any]:
    return {"public": {"raw": source}}


def behind(informed: bool, seen: int) -> dict[str, Any]:
    """What a manifest says of the network behind relevances, which saw ``seen`` test examples."""
    told = {"row": "before", "data": "mnist", "informed": informed, "test_examples_seen": seen}
    return {"relevance": told}


@pytest.mark.parametrize(
    ("manifest", "looks", "lines"),
    [
        ({}, False, []),
        ({"text": {"vocabulary": 9}}, False, ["the vocabulary"]),
        (
            {**of_public("mnist"), "raw": raw("MNIST")},
            False,
            ["the public split: 8 examples of the same data set"],
        ),
        ({**of_public("kmnist"), "raw": raw("MNIST", "KMNIST")}, False, []),
        (behind(True, 3), True, ["without privacy on these private images", "3 test examples"]),
        (behind(False, 0), True, ["We take it as public"]),
        (behind(True, 3), False, []),  # a method that doesn't look at relevances
    ],
)
def test_what_comes_with_the_data_and_no_epsilon_counts_is_told(
    tiny: Prepared, manifest: dict[str, Any], looks: bool, lines: list[str]
) -> None:
    data = Prepared(tiny.name, tiny.splits, {**tiny.manifest, **manifest})
    values = {"batch": 20, "epochs": 1, "learning_rate": 1e-3, "epsilon": 8.0, "variant": "sound"}
    configured: MethodSettings = AdlmSettings.model_validate(values) if looks else dpsgd()
    told = [words(use) for use in data_uses(data, configured)]
    assert len(told) == len(lines)
    for use, expected in zip(told, lines, strict=True):
        assert expected in use


def test_releases_are_spent_from_the_first_step_on(tiny: Prepared, cpu: Execution, tmp_path: Path) -> None:
    values = {"batch": 20, "epochs": 0.2, "learning_rate": 1e-3, "epsilon": 8.0, "variant": "sound"}
    run = loop.SeedRun("epsilon=8", 0, IlmSettings.model_validate(values))
    model = Model.model_validate({"name": "adlm_cnn", "normalization": "response"})
    shown: list[loop.Progress] = []
    context = loop.Context(model, False, tiny, cpu, shown.append, tmp_path / "checkpoint", 1e9)
    list(side_by_side.train_runs([run], context))
    assert shown
    for progress in shown:
        assert progress.guarantee.epsilon_after(progress.step) == pytest.approx(8.0)


def test_noise_is_the_median_in_spans_of_the_exact_values() -> None:
    inputs = Laplace(quantity="inputs", claimed=0.5, distance=1.0, scales=(1.0, 2.0, 8.0), span=2.0)
    labels = Laplace(quantity="labels", claimed=0.5, distance=1.0, scales=(4.0,), span=1.0)
    measured = evaluation.noise(Releases(laplace=(inputs, labels)))
    assert measured == pytest.approx({"noise_inputs": 2**0.5 * 2 / 2, "noise_labels": 2**0.5 * 4})
    gaussian = SampledGaussian(sampling="fixed", noise_multiplier=2.0, examples=200, batch=20)
    assert evaluation.noise(gaussian) == evaluation.noise(None) == {}


GENERATOR = np.random.default_rng(0)


def made_up(examples: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels; the last class has no example, and is predicted now and then."""
    shares = GENERATOR.dirichlet(np.ones(classes), examples)
    return shares, GENERATOR.integers(0, classes - 1, examples)


def test_scores_by_hand() -> None:
    """Four examples of three classes, of which the last has none and is predicted once."""
    shares = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7]])
    found = scores(shares, np.array([0, 1, 1, 0]))
    assert found.confusion == ((1, 0, 1), (1, 1, 0), (0, 0, 0))
    assert found.recall == (0.5, 0.5, None)
    assert found.auc == pytest.approx((2 / 4 + 4 / 4) / 2)
    assert found.f1 == pytest.approx((2 / 4 + 2 / 3 + 0) / 3)
    assert found.log_loss == pytest.approx(-math.log(0.6 * 0.7 * 0.4 * 0.1) / 4)
    assert BINS == 15  # .6 is alone in its bin, as .5 is, and the two .7 share one
    assert found.calibration_error == pytest.approx((0.4 + 0.5 + 0.4) / 4)
    assert "AUC 0.750, macro F1 0.389" in found.words


@pytest.mark.filterwarnings("error")
def test_probabilities_of_networks_sum_to_one_but_for_rounding() -> None:
    shares, labels = made_up(200, 7)
    rounded = scores(shares.astype(np.float32), labels)
    assert rounded.log_loss == pytest.approx(scores(shares, labels).log_loss, rel=1e-5)


def test_what_is_not_defined_is_none() -> None:
    shares, labels = made_up(5, 3)
    one_class = scores(shares, 0 * labels)
    assert one_class.auc is None
    assert one_class.recall[1:] == (None, None)
    shares[2] = math.nan
    broken = scores(shares, labels)
    assert (broken.auc, broken.log_loss, broken.calibration_error) == (None, None, None)
    assert broken.confusion is not None
    assert scores(*made_up(300, CONFUSED + 1)).confusion is None


@pytest.mark.parametrize(
    ("right", "examples", "most_frequent", "guess"),
    [(0, 50, 5, True), (7, 50, 5, True), (9, 50, 5, True), (10, 50, 5, False), (96, 100, 95, True)],
)
def test_an_accuracy_that_guessing_has_too_is_called_so(
    right: int, examples: int, most_frequent: int, guess: bool
) -> None:
    exact = binom.sf(right - 1, examples, most_frequent / examples)
    assert is_guess(right, examples, most_frequent) is guess is bool(exact > 0.05)


def test_scores_say_that_guessing_has_them_too() -> None:
    labels = np.arange(200) % 4 % 3  # half of them are of class 0
    constant, exact = np.eye(3)[0 * labels], np.eye(3)[labels]
    line = "no better than guessing: 50.0 % are of the most frequent class"
    assert scores(constant, labels).guess == line
    assert scores(exact, labels).guess == scores(constant, 0 * labels).guess == ""
    many = np.arange(3 * (CONFUSED + 1)) % (CONFUSED + 1)
    assert scores(np.eye(CONFUSED + 1)[0 * many], many).guess == "no better than guessing"
    assert scores(np.eye(CONFUSED + 1)[many], many).guess == ""
    numbers = np.array([1.0, 2.0, 6.0])
    assert errors(np.full(3, 3.0), numbers).guess == "no better than guessing the mean"
    assert errors(numbers + 0.1, numbers).guess == ""


def test_errors_are_those_of_their_definitions() -> None:
    found = errors(np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 4.0]))
    assert (found.mae, found.rmse) == (1.0, pytest.approx(math.sqrt(5 / 3)))
    assert found.r2 == pytest.approx(1 - 5 / 6)
    assert errors(np.array([1.0, 2.0]), np.array([1.0, 1.0])).r2 is None
