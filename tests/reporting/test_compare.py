"""Two rows at equal proven epsilon."""

import json
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.params import parse
from pipeline.privacy.accounting import noise_for, pld_epsilon, poisson_gaussian
from pipeline.reporting.compare import Level, _beside, _missing, compared
from pipeline.reporting.judging.intervals import mean
from pipeline.results import records
from tests.keeping import keep
from tests.reporting.made_up import dpsgd


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a folder of the example's records that nobody else changes."""
    dpsgd.fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_level_stands_beside_the_best_that_spends_no_more(there: Path) -> None:
    pairs = compared(dpsgd.LAYER, dpsgd.PLAIN, dpsgd.settings())
    assert [pair.one.proven for pair in pairs] == sorted((pair.one.proven for pair in pairs), reverse=True)
    assert (pairs[0].one.level, pairs[0].others) == ("epsilon=inf", ())  # 'no bound' is comparable with none
    for pair in pairs[1:]:
        ((share, other),) = pair.others
        assert (share, pair.missing) == (1.0, None)
        assert other.proven <= 1.01 * pair.one.proven
        assert pair.difference is not None
        assert pair.difference.value == pytest.approx(pair.one.mean.value - other.mean.value)


def test_what_has_no_bound_is_never_the_cheaper_one(there: Path) -> None:
    private = [
        pair for pair in compared(dpsgd.PLAIN, dpsgd.LITERAL, dpsgd.settings()) if pair.one.proven < 99
    ]
    assert private
    assert all(pair.others == () and pair.difference is None for pair in private)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"neighbouring": "replace one"}, "neighbours add or remove one and replace one"),
        ({"delta": 1e-6}, "delta 1e-05 and 1e-06"),
    ],
)
def test_epsilons_of_other_neighbours_or_deltas_are_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], said: str
) -> None:
    declared = dpsgd.settings()
    for key in (dpsgd.PLAIN, dpsgd.LAYER):
        keep(dpsgd.record(key, declared), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert compared(dpsgd.PLAIN, dpsgd.LAYER, declared)
    ledgers = json.loads((path := records.ledger_path(dpsgd.LAYER)).read_text())
    for entry in ledgers["replicas"]:
        entry["ledger"] |= changes
    run = json.loads((place := records.run_path(dpsgd.LAYER)).read_text())
    for replica in run["replicas"]:
        replica["delta"] = changes.get("delta", replica["delta"])
    path.write_text(json.dumps(ledgers))
    place.write_text(json.dumps(run))
    with pytest.raises(UserError, match=said):
        compared(dpsgd.PLAIN, dpsgd.LAYER, declared)


def test_epsilons_of_other_data_sets_are_refused_in_a_line(there: Path) -> None:
    declared = parse(
        {
            "raw": {"mnist": {}, "kmnist": {}},
            "data": {**dpsgd.DATA["data"], "other": {**dpsgd.DATA["data"]["mnist"], "raw": "kmnist"}},
            "rows": {
                key: {**row.model_dump(), "data": "other" if key == dpsgd.LAYER else "mnist"}
                for key, row in dpsgd.settings().rows.items()
            },
        }
    )
    with pytest.raises(UserError, match="different data sets, mnist and kmnist"):
        compared(dpsgd.PLAIN, dpsgd.LAYER, declared)


def test_a_row_that_was_not_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="not run; `dprepro train"):
        compared(dpsgd.PLAIN, dpsgd.LAYER, dpsgd.settings())
    with pytest.raises(UserError, match="no row 'nothing'"):
        compared(dpsgd.LAYER, "nothing", dpsgd.settings())


def level(name: str, proven: float, *values: float) -> Level:
    ledger = dpsgd.ledger(dpsgd.PLAIN, 1).model_copy(update={"epsilon_upper": proven})
    return Level(name, dict(enumerate(values)), mean(values), ledger)


def test_between_two_levels_accuracy_is_linear_in_the_logarithm_of_epsilon() -> None:
    rivals = [level("epsilon=4", 4.0, 92, 94), level("epsilon=1", 1.0, 80, 84), level("epsilon=9", 9.0, 99)]
    (low_share, low), (high_share, high) = _beside(2.0, rivals)
    assert (low.level, high.level) == ("epsilon=1", "epsilon=4")
    assert (low_share, high_share) == pytest.approx((0.5, 0.5))
    # whatever is measured at this epsilon is taken as it is, to a hundredth
    assert [rival.level for _, rival in _beside(4.03, rivals)] == ["epsilon=4"]
    assert [rival.level for _, rival in _beside(20.0, rivals)] == ["epsilon=9"]
    assert _beside(0.5, rivals) == _beside(float("inf"), rivals) == ()


def test_the_level_that_is_missing_is_named_and_spends_as_much(there: Path) -> None:
    """By RDP, as these rows have it: a level that asks for more, and is proven to spend this."""
    declared = dpsgd.settings()
    sought = dpsgd.ledger(dpsgd.PLAIN, 1).model_copy(update={"epsilon_upper": 2.0})
    found = _missing(dpsgd.LAYER, sought, declared).epsilon
    assert found is not None
    own = declared.rows[dpsgd.LAYER].configured({"epsilon": found})
    rate, steps = own.batch / 55000, own.total_steps(55000)
    noise = noise_for(found, own.delta, rate, steps, own.accountant)
    assert 2.0 / 1.01 < pld_epsilon(poisson_gaussian(rate, noise, steps), own.delta) < 2.0 * 1.01
    assert found > 2.0
