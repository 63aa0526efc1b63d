"""Planted bugs are seen, and right code raises no alarm."""

from unittest.mock import patch

import numpy as np
import pytest

from dprepro.pipeline.audits import mechanism, releases
from dprepro.pipeline.audits.mechanism import audit_singles
from tests.audits import planted


@pytest.mark.parametrize("name", planted.BUGS)
def test_a_planted_bug_is_seen_and_right_code_is_not(name: str) -> None:
    bug = planted.BUGS[name]
    with bug.there():
        shown, epsilon_upper = bug.audit()
    assert shown > epsilon_upper


@pytest.mark.parametrize("name", planted.FAULTS)
def test_a_planted_fault_fails_its_test(name: str) -> None:
    """Which passes without it, as the suite shows."""
    fault = planted.FAULTS[name]
    with fault.there(), pytest.raises(AssertionError):
        fault.test()


AUDITS = {
    "canaries": planted.singles(),
    "canaries of allocated batches": planted.singles(of=planted.ALLOCATION),
    "crowd": planted.crowd,
    "labels": planted.labels,
}


@pytest.mark.parametrize("name", AUDITS)
def test_right_code_shows_something_and_no_more_than_is_accounted(name: str) -> None:
    shown, epsilon_upper = AUDITS[name]()
    assert 0.2 * epsilon_upper < shown <= epsilon_upper


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.broad)])
def test_no_false_alarm_in_repetitions(count: int) -> None:
    alarms = 0
    for repetition in range(count):
        with patch.object(mechanism, "CANARIES", 400):
            scores = audit_singles(planted.TAN, 1000, 20, f"sound/{repetition}")
        every = {"": (scores.without, scores.within), **scores.others}
        alarms += any(
            shown > epsilon_upper
            for shown, epsilon_upper in (planted.told(scores, score) for score in every.values())
        )
    assert alarms <= 1 + count // 20


def test_scores_of_right_code_are_log_likelihood_ratios() -> None:
    """Of such, E[exp(score)] without the record is 1, and the odds of a score are e^score."""
    scores = audit_singles(planted.TAN, 4000, 5, "ratios")
    assert np.exp(scores.without).mean() == pytest.approx(1, abs=0.15)
    assert np.exp(-scores.within).mean() == pytest.approx(1, abs=0.15)


def test_a_shared_noise_hides_nothing_in_a_batch() -> None:
    row = planted.SETTINGS.rows["phan-f4a-ilm-code-reduced"]
    attack = releases.shared(row, row.resolved[0], planted.SETTINGS, "shared", pairs=50)
    assert attack.without.max() < attack.within.min()
