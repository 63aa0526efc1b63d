"""The end-to-end audit of rows as declared: it comes to what is accounted, or beyond where that is told."""

from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from dprepro.accountants.calibration import noise_for
from dprepro.pipeline import params
from dprepro.pipeline.audits import pair
from dprepro.pipeline.audits.rows import attacks_on, audit_row
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings
from dprepro.pipeline.results import records

ALPHA = 0.05
SETTINGS = params.load(Path(__file__).parents[2] / "params.yaml")


@cache
def attack_on(key: str, place: int = -1) -> pair.PairAttack:
    row = SETTINGS.rows[key]
    with patch.object(pair, "RUNS", 24):
        return pair.audit_pair(row, row.resolved[place], SETTINGS, key)


@pytest.mark.parametrize("key", ["davody-t5-ln-lenet5", "davody-t5-bn-lenet5"])
def test_a_record_moves_the_sums_by_its_clip_and_no_more(key: str) -> None:
    attack = attack_on(key)
    noise = attack.scores.spending.noise_multiplier
    assert 0.95 / noise < attack.mu(ALPHA) <= (1 + 1e-3) / noise


def test_a_loose_target_is_no_reason_to_attack_nothing() -> None:
    """The row's noise for it is that of a long training; of one step there would be none."""
    config = SETTINGS.rows["davody-t5-ln-lenet5"].resolved[1].changed({"epsilon": 64.0})
    assert config.private
    short = pair.short_settings(config)
    assert isinstance(short, DpsgdSettings)
    assert short.private
    assert noise_for(short.epsilon, short.delta, 1.0, 1, short.accountant) > 0.2


def test_where_batch_statistics_couple_examples_it_moves_them_further() -> None:
    attack = attack_on("davody-t5-bn-lenet5-literal")
    assert attack.mu(ALPHA) > 1.1 / attack.scores.spending.noise_multiplier


def test_running_averages_leave_without_noise_and_are_seen() -> None:
    attack = attack_on("nguyen-f12b-bc-alc-reduced")
    assert attack.scores.without.max() < attack.scores.within.min()
    # which the released sums don't show
    assert attack.mu(ALPHA) <= (1 + 1e-3) / attack.scores.spending.noise_multiplier


def test_an_audit_is_kept_with_what_was_attacked(tmp_path: Path) -> None:
    with patch.object(pair, "RUNS", 24):
        (attack, *_) = attacks_on("phan", SETTINGS.rows[KEY], SETTINGS.rows[KEY].resolved[0], SETTINGS)
    assert (attack.attack, attack.sees, attack.delta, attack.whole) == (
        "opposites",
        "what was released",
        0,
        True,
    )
    assert attack.epsilon_upper == pytest.approx(0.25, rel=1e-6)
    assert attack.largest <= attack.epsilon_upper
    audit_row("davody-t2-lenet5", SETTINGS, tmp_path)
    kept = records.read_audit("davody-t2-lenet5", tmp_path)
    assert kept.attacks == ()
    assert kept.why_none is not None


KEY = "phan-f4a-ilm-sound-reduced"
