"""Bounds of audits against jax_privacy's own, and an audit of a training of jax_privacy's parts."""

import random
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from jax_privacy.auditing import CanaryScoreAuditor, Explicit
from jax_privacy.batch_selection import CyclicPoissonSampling, pad_to_multiple_of
from jax_privacy.noise_addition import gaussian_privatizer

import dprepro
from dprepro.auditing import epsilon_bounds
from dprepro.auditing.epsilon_bounds import ErrorCounts

ALPHA, DELTA, NOISE = 0.05, 1e-5, 2.0


def auditor(right: int, guesses: int, canaries: int) -> CanaryScoreAuditor:
    """Of canaries that are called in, ``right`` of so many ``guesses``; half of all canaries are in."""
    within, without = np.zeros(canaries // 2), np.zeros(canaries // 2)
    within[:right], without[: guesses - right] = 1, 1
    return CanaryScoreAuditor(within, without)


@pytest.mark.parametrize(
    ("right", "guesses", "canaries"), [(95, 100, 1000), (60, 80, 200), (300, 350, 2000), (40, 40, 100)]
)
def test_guesses_in_one_run_show_what_jax_privacy_says(right: int, guesses: int, canaries: int) -> None:
    theirs = auditor(right, guesses, canaries)
    at_one = {"threshold_strategy": Explicit(0.5)}
    ours = epsilon_bounds.one_run(right, guesses, canaries, ALPHA, DELTA)
    assert ours == pytest.approx(theirs.epsilon_one_run(ALPHA, DELTA, **at_one), abs=2e-4)
    curve = epsilon_bounds.epsilon_of_mu(epsilon_bounds.one_run_mu(right, guesses, canaries, ALPHA), DELTA)
    assert curve == pytest.approx(theirs.epsilon_one_run_fdp(ALPHA, DELTA, **at_one), abs=2e-3)


@pytest.mark.parametrize(("alarms", "misses"), [(0, 0), (3, 40), (120, 1), (400, 300), (500, 0)])
def test_errors_show_what_jax_privacy_says(alarms: int, misses: int) -> None:
    trials = 1000
    within, without = np.ones(trials), np.zeros(trials)
    within[:misses], without[:alarms] = 0, 1
    theirs = CanaryScoreAuditor(within, without)
    counted = theirs.epsilon_clopper_pearson(ALPHA, DELTA, one_sided=False, threshold_strategy=Explicit(0.5))
    errors = ErrorCounts(alarms, trials, misses, trials)
    assert epsilon_bounds.by_errors(errors, ALPHA, DELTA) == pytest.approx(counted)
    # its confidence is shared by all thresholds, of which there are three for two scores
    thresholds = len(theirs._thresholds)
    gaussian = epsilon_bounds.by_gaussian(errors, ALPHA / thresholds, DELTA)
    assert gaussian == pytest.approx(theirs.epsilon_from_gdp(ALPHA, DELTA), abs=1e-4)


def trained(examples: np.ndarray, masked: bool) -> Iterator[Any]:
    """DP-SGD of jax_privacy's clipping, sampling and noise; batches are padded with the last example."""
    clipped = jax_privacy.clipped_grad(lambda weights, x: jnp.sum(x @ weights), l2_clip_norm=1.0)
    noise = NOISE * clipped.sensitivity(NeighboringRelation.ADD_OR_REMOVE_ONE)
    privatizer = gaussian_privatizer(stddev=noise, prng_key=jax.random.key(random.getrandbits(32)))
    weights = jnp.zeros(examples.shape[1])
    state, sums_of = privatizer.init(weights), jax.jit(clipped)
    sampling = CyclicPoissonSampling(sampling_prob=0.05, iterations=40)
    for chosen in sampling.batch_iterator(len(examples), random.getrandbits(32)):
        rows = pad_to_multiple_of(chosen, 100)
        padding = (rows < 0) & masked
        sums = sums_of(weights, jnp.asarray(examples[rows]), is_padding_example=jnp.asarray(padding))
        noisy, state = privatizer.update(sums, state)
        yield np.asarray(noisy), examples[rows[~padding]]


@pytest.mark.parametrize("masked", [True, False])
def test_a_training_of_jax_privacys_parts_is_sound_where_its_padding_is_masked(masked: bool) -> None:
    audit = dprepro.audit_training(
        lambda examples: trained(examples, masked), delta=DELTA, noise_multiplier=NOISE, sample_rate=0.05
    )
    hints = {hint.name for hint in audit.looks_like}
    assert audit.verdict == ("nothing found" if masked else "wrong")
    assert ("padding" in hints) == (not masked)
    assert hints == set() or not masked
