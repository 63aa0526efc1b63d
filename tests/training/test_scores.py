"""Scores of probabilities against their definitions."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from dprepro.pipeline.results.schema import is_guess
from dprepro.pipeline.training.scores import BINS, CONFUSED, errors, scores

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
