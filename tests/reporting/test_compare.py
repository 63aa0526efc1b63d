"""Two rows at equal proven epsilon."""

import json
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.params import parse
from pipeline.reporting.compare import compared
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
    proven = [pair.first.proven for pair in pairs]
    assert proven == sorted(proven, reverse=True)
    # 'no bound' is comparable with none
    assert (pairs[0].first.level, pairs[0].rival) == ("epsilon=inf", None)
    for pair in pairs[1:]:
        assert pair.rival is not None
        assert pair.rival.proven <= 1.01 * pair.first.proven
        assert pair.difference is not None
        assert pair.difference.value == pytest.approx(pair.first.mean.value - pair.rival.mean.value)


def test_what_has_no_bound_is_never_the_cheaper_one(there: Path) -> None:
    private = [
        pair for pair in compared(dpsgd.PLAIN, dpsgd.LITERAL, dpsgd.settings()) if pair.first.proven < 99
    ]
    assert private
    assert all(pair.rival is None and pair.difference is None for pair in private)


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
