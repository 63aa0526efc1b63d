"""Two rows at equal proven epsilon."""

import os
from pathlib import Path

import pytest
from reporting.made_up import dpsgd

from pipeline.errors import UserError
from pipeline.reporting.compare import compared


@pytest.fixture
def there(root: Path, written: object, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the folder of the example's records."""
    monkeypatch.chdir(root)
    assert os.path.exists("reports/runs")
    return root


def test_a_level_stands_beside_the_best_that_spends_no_more(there: Path) -> None:
    pairs = compared(dpsgd.LAYER, dpsgd.PLAIN, dpsgd.settings())
    assert [pair.one.proven for pair in pairs] == sorted((pair.one.proven for pair in pairs), reverse=True)
    for pair in pairs:
        assert pair.other is not None
        assert pair.other.proven <= 1.01 * pair.one.proven
        assert pair.difference is not None
        assert pair.difference.value == pytest.approx(pair.one.mean.value - pair.other.mean.value)


def test_what_has_no_bound_is_never_the_cheaper_one(there: Path) -> None:
    private = [
        pair for pair in compared(dpsgd.PLAIN, dpsgd.LITERAL, dpsgd.settings()) if pair.one.proven < 99
    ]
    assert private
    assert all(pair.other is None and pair.difference is None for pair in private)


def test_a_row_that_was_not_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="not run; `dprepro train"):
        compared(dpsgd.PLAIN, dpsgd.LAYER, dpsgd.settings())
    with pytest.raises(UserError, match="no row 'nothing'"):
        compared(dpsgd.LAYER, "nothing", dpsgd.settings())
