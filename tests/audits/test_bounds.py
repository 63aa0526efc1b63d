"""Bounds against published tables and mechanisms of known epsilon; `test_jax_privacy` has a library's."""

from math import log

import numpy as np
import pytest
from scipy.optimize import brentq

import dprepro
from dprepro.accountants.gaussian import gaussian_epsilon
from dprepro.auditing import epsilon_bounds
from dprepro.auditing.epsilon_bounds import one_run
from dprepro.pipeline.audits import mechanism
from dprepro.pipeline.methods.settings import method_settings

DELTA, ALPHA = 1e-5, 0.05


def scores(mu: float, canaries: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Of N(0, 1) and N(mu, 1), half of the canaries each."""
    generator = np.random.default_rng(seed)
    return generator.normal(0, 1, canaries // 2), generator.normal(mu, 1, canaries // 2)


def mu_of(epsilon: float) -> float:
    return float(brentq(lambda mu: gaussian_epsilon(mu, DELTA) - epsilon, 1e-6, 10))


# what a perfect attacker shows who guesses on all canaries or a fixed share of them, simulated elsewhere, 5
# repeats: one run, its curve, Gaussian
@pytest.mark.parametrize(
    ("epsilon", "canaries", "once", "curve", "gaussian"),
    [(1, 5000, 0.23, 0.30, 0.50), (3, 1000, 0.83, 1.10, 2.03), (8, 5000, 1.99, 3.88, 7.03)],
)
def test_what_a_perfect_attacker_shows(
    epsilon: float, canaries: int, once: float, curve: float, gaussian: float
) -> None:
    shown = []
    mu = mu_of(epsilon)
    for seed in range(3):
        without, within = scores(mu, canaries, seed)
        shown.append(
            [
                epsilon_bounds.by_one_run(without, within, ALPHA, DELTA),
                epsilon_bounds.by_one_run_curve(without, within, ALPHA, DELTA),
                epsilon_bounds.by_gaussian(epsilon_bounds.split(without, within)[0], ALPHA, DELTA),
            ]
        )
    # here half of the trials find the threshold, and the surest guesses are tests of their own
    assert (np.mean(shown, 0) > 0.65 * np.array([once, curve, gaussian])).all()
    assert (np.array(shown) < epsilon).all()


def test_shares_of_the_canaries_share_the_confidence() -> None:
    without, within = scores(mu_of(8), 1000)
    ranked = sorted([(score, False) for score in without] + [(score, True) for score in within])
    shown = []
    for share in epsilon_bounds.SHARES:
        side = int(share * 500)
        correct = sum(not there for _, there in ranked[:side]) + sum(there for _, there in ranked[-side:])
        shown.append(one_run(correct, 2 * side, 1000, ALPHA / 6, DELTA))
    assert epsilon_bounds.by_one_run(without, within, ALPHA, DELTA) == max(shown) > 0


def test_thresholds_share_the_confidence() -> None:
    """Of 50 scores a side that are counted, all right: two thresholds, of each two rates."""
    upper = 1 - (ALPHA / 2 / 2) ** (1 / 50)
    shown = log((1 - DELTA - upper) / upper)
    without, within = np.zeros(100), np.ones(100)
    assert epsilon_bounds.by_thresholds(without, within, ALPHA, DELTA) == pytest.approx(shown)
    assert dprepro.audit(without, within, delta=DELTA).epsilon_lower == pytest.approx(shown)


def test_the_bounds_of_an_attack_share_the_confidence() -> None:
    given: list[float] = []

    def way(alpha: float) -> float:
        given.append(alpha)
        return 1.0

    assert len(epsilon_bounds.joint_bounds({"errors": way, "gaussian": way, "computed": way}, ALPHA)) == 3
    assert sum(given) == pytest.approx(ALPHA)


def test_pure_noise_shows_nothing() -> None:
    for seed in range(10):
        without, within = scores(0.0, 1000, seed)
        for errors in epsilon_bounds.split(without, within):
            assert epsilon_bounds.by_errors(errors, ALPHA, DELTA) <= 0.05
            assert epsilon_bounds.by_gaussian(errors, ALPHA, DELTA) <= 0.2
        assert epsilon_bounds.by_one_run(without, within, 0.01, DELTA) <= 0.1
    still = np.zeros(500)
    assert epsilon_bounds.by_one_run(still, still, ALPHA, DELTA) <= 0.1
    assert epsilon_bounds.by_errors(epsilon_bounds.split(still, still)[0], ALPHA, DELTA) == 0


def test_trainings_that_diverge_show_nothing() -> None:
    """NaN was neither a false alarm nor a miss."""
    nothing = np.full(200, np.nan)
    for errors in epsilon_bounds.split(nothing, nothing):
        assert (
            epsilon_bounds.by_errors(errors, ALPHA, DELTA)
            == epsilon_bounds.by_gaussian(errors, ALPHA, DELTA)
            == 0
        )
    assert epsilon_bounds.by_one_run(nothing, nothing, ALPHA, DELTA) <= 0.1


def test_no_bound_on_a_gaussian_mechanism_is_above_its_epsilon_too_often() -> None:
    mu, above = 1.0, np.zeros(4)
    true = gaussian_epsilon(mu, DELTA)
    for seed in range(40):
        without, within = scores(mu, 400, seed)
        errors = epsilon_bounds.split(without, within)[0]
        above += [
            epsilon_bounds.by_errors(errors, ALPHA, DELTA) > true,
            epsilon_bounds.by_gaussian(errors, ALPHA, DELTA) > true,
            epsilon_bounds.by_one_run(without, within, ALPHA, DELTA) > true,
            epsilon_bounds.by_one_run_curve(without, within, ALPHA, DELTA) > true,
        ]
    assert (above <= 5).all()


SETTINGS = {"batch": 64, "epochs": 16, "learning_rate": 0.1, "clipping": "full", "sigma": 2.0}


@pytest.mark.parametrize(
    ("sampling", "mini_set", "attack"),
    [("poisson", 1, "canaries"), ("fixed", 8, "crowd"), ("fixed", None, "crowd"), ("fixed", 1, "crowd")],
)
def test_a_vector_of_an_examples_own_is_there_or_not(
    sampling: str, mini_set: int | None, attack: str
) -> None:
    config = method_settings()["batch_clipping"].model_validate(
        {**SETTINGS, "sampling": sampling, "mini_set": mini_set}
    )
    assert config.attack == attack


def test_right_code_is_not_called_broken() -> None:
    """Turning the example around, which moves a sum by 2 C, showed 5.5 here, where 4.38 is accounted."""
    config = method_settings()["batch_clipping"].model_validate(
        {**SETTINGS, "sampling": "poisson", "mini_set": 1}
    )
    scores = mechanism.audit_singles(config, 64, 16, "right", "grid")
    assert epsilon_bounds.by_one_run_curve(scores.without, scores.within, 0.01, scores.delta) < 4.38
