"""A sample of the committed ledgers, of every kind, computed anew: ledgers have no version of their own."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dprepro.accountants.records import SampledGaussian
from dprepro.pipeline import verification
from dprepro.pipeline.ledgers.compared import check_row
from dprepro.pipeline.ledgers.rows import account_entry
from dprepro.pipeline.params import Settings, load
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import LedgerEntry, RowTrainings
from dprepro.pipeline.results.weights import weights_path
from dprepro.pipeline.transport.dvclock import Lock

ROOT = Path(__file__).parents[2]
OWN = load(ROOT / "params.yaml")


def kind(run: RowTrainings) -> tuple[str, ...]:
    """What the ledger of a row's last training is computed from."""
    last = run.trainings[-1]
    drawn = (
        last.spending.sampling if isinstance(last.spending, SampledGaussian) else type(last.spending).__name__
    )
    return run.method, drawn, str(last.claimed_by), "broken" if last.broken else "holds"


@cache
def rows() -> list[str]:
    """Of every kind the row with the fewest trainings."""
    runs = [run for key in OWN.rows if (run := records.read_run(key, ROOT)) is not None]
    runs.sort(key=lambda run: len(run.trainings), reverse=True)
    return sorted({kind(run): run.row for run in runs}.values())


def same(kept: tuple[LedgerEntry, ...], due: list[LedgerEntry]) -> None:
    known = {(entry.level, seed): entry.ledger for entry in kept for seed in entry.seeds}
    for training in due:
        ledger = known[training.level, training.seeds[0]]
        for name in ("claimed", "epsilon_upper", "epsilon_lower", "noise_multiplier"):
            value = getattr(training.ledger, name)
            wanted = value if value is None else pytest.approx(value, rel=1e-6)
            assert getattr(ledger, name) == wanted, (training.level, name)
        for name in ("steps", "delta", "reasons", "protects"):
            assert getattr(ledger, name) == getattr(training.ledger, name), (training.level, name)


def test_a_rows_ledger_is_what_is_computed_from_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(rows()) > 9
    kept: Any
    run: Any
    for key in rows():
        run, kept = records.read_run(key), records.read_ledgers(key)
        check_row(kept, run, OWN.rows[key].search, OWN, quick=True)


def test_each_link_of_a_committed_number_that_needs_no_weights_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, run, curves, evaluation and ledger of every row. The noise that keeps a target is found anew
    for a sample of them, as the tests beside this one compute ledgers; `dprepro verify` computes all."""
    sample, check_spending = rows(), verification.check_spending

    def check_sample(run: RowTrainings, settings: Settings) -> None:
        if run.method != "dpsgd" or run.row in sample:
            check_spending(run, settings)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(verification, "check_spending", check_sample)
    monkeypatch.setattr(verification, "check_row", lambda *_: None)
    ran = [key for key in OWN.rows if records.run_path(key).exists()]
    assert ran
    lock = Lock()
    for key in ran:
        left = verification._row(key, OWN, lock, quick=False)
        assert "signature" not in str(left)
        here = all(
            weights_path(key, training.level, training.seed).exists()
            for training in records.read_run(key).trainings
        )
        assert ("weights are not here" in str(left)) == (not here)
        # a plan without all of its trainings decides nothing
        planned = len(OWN.rows[key].trainings) if OWN.rows[key].plan else 0
        lacking = len(records.read_run(key).trainings) < planned
        assert ("trainings are missing; it has no status" in str(left)) == lacking


@pytest.mark.parametrize("claimed_by", ["clt", "rdp"])
def test_an_accounts_ledger_is_what_is_computed_from_its_settings(claimed_by: str) -> None:
    key, line = next(
        (key, line) for key, line in OWN.accounts.items() if line.resolved[0].claimed_by == claimed_by
    )
    kept = records.read_ledgers(key, ROOT)
    same(
        kept.entries,
        [account_entry(line.level(configured), configured) for configured in line.resolved[:1]],
    )


def test_opacus_prv_computes_every_recorded_number_again() -> None:
    """The largest of the grids that it needed: `opacus.PRV_MOST_POINTS` leaves room for it."""
    line = OWN.accounts["sander-t3"]
    settings = line.resolved[-1]
    entry = account_entry(line.level(settings), settings)
    kept = next(each for each in records.read_ledgers("sander-t3", ROOT).entries if each.level == entry.level)
    prv, recorded = (
        next(each.epsilon for each in ledger.accountants if each.accountant.startswith("prv"))
        for ledger in (entry.ledger, kept.ledger)
    )
    assert prv == pytest.approx(recorded, rel=1e-6)


@pytest.mark.broad
def test_verify_finds_nothing_wrong_in_the_whole_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ledger, all accountants: five minutes. The tests above compute a sample."""
    monkeypatch.chdir(ROOT)
    assert [f"{each.subject}: {each.wrong}" for each in verification.verify(OWN) if each.wrong] == []
