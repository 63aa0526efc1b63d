"""Accounts: what they are told, ledgers of trainings that are only described, and each kind of sampling."""

from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from dprepro.accountants.records import NeighboringRelation, SampledGaussian
from dprepro.errors import UserError
from dprepro.pipeline.ledgers import rows
from dprepro.pipeline.ledgers.ledger import make_ledger
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.params import Settings, load, parse
from dprepro.pipeline.results import records, schema
from tests.params.good import GOOD

ROOT = Path(__file__).parents[2]

ACCOUNT: dict[str, Any] = {
    "paper": "nguyen2023",
    "table": "gdp",
    "label": "BN-LeNet-5, L = 8",
    "settings": {
        "sampling": "fixed",
        "examples": 54_000,
        "batch": 64,
        "epochs": 50,
        "parts": 8,
        "delta": 1e-5,
    },
    "levels": [{"noise_multiplier": 2.5}, {"noise_multiplier": 0.01875}],
}


def declared(**changes: Any) -> Settings:
    declaration = {**ACCOUNT, "settings": ACCOUNT["settings"] | changes}
    return parse({"raw": {}, "data": {}, "rows": {}, "accounts": {"gdp": declaration}})


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> schema.Record | None:
    folder = tmp_path_factory.mktemp("accounts")
    with chdir(folder):
        rows.account("gdp", declared())
    return records.read("gdp", declared().accounts["gdp"], folder)


def test_parts_share_the_noise(record: schema.Record) -> None:
    ledger = record.trainings[0].ledger
    assert ledger.noise_multiplier == pytest.approx(2.5 / 8**0.5)
    assert ledger.steps == 42_188
    assert (ledger.sampling, ledger.neighbouring) == ("fixed", NeighboringRelation.REPLACE_ONE)
    assert ledger.sampling_rate == pytest.approx(64 / 54_000)


def test_the_papers_limit_is_the_claim_and_a_bound_stands_beside_it(record: schema.Record) -> None:
    training = record.trainings[0]
    ledger = training.ledger
    assert training.metrics == {"mu": ledger.mu}
    assert ledger.mu == pytest.approx(0.52, abs=5e-3)
    assert ledger.claimed_by == "clt"
    assert ledger.claimed == pytest.approx(2.088, abs=1e-3)
    known = {accountant.accountant.split()[0]: accountant for accountant in ledger.accountants}
    assert set(known) == {"rdp", "pld", "unamplified", "clt"}
    assert "not a bound" in str(known["clt"].note)
    assert ledger.epsilon_upper == known["pld"].epsilon < known["rdp"].epsilon < known["unamplified"].epsilon
    assert str(ledger.accountant).startswith("pld")
    assert ledger.tradeoff[0][0] == 0
    assert ledger.tradeoff[-1] == (1.0, 0.0)


def test_next_to_no_noise_has_no_limit_and_still_a_bound(record: schema.Record) -> None:
    training = record.trainings[1]
    assert (training.metrics, training.ledger.mu, training.ledger.claimed) == ({}, None, None)
    assert 5e5 < training.ledger.epsilon_upper < 2e6
    assert str(training.ledger.accountant).startswith("unamplified")


def test_a_limit_beyond_all_records_is_not_computed() -> None:
    of_limit = ledger("poisson", noise=0.05)  # a mu of 1e86, whose epsilon is 1e172
    assert of_limit.claimed is None
    assert "mu is too large" in str(of_limit.accountants[-1].note)
    assert of_limit.epsilon_upper < 1e7


def test_a_poisson_sample_of_single_examples_has_no_vector_to_turn() -> None:
    single = SampledGaussian(sampling="poisson", noise_multiplier=1.0, examples=6400, batch=64, sets=64)
    assert make_ledger(single, 5, 1e-5, "clt").epsilon_lower_by == statement("always_at_full_length")
    assert ledger("poisson").epsilon_lower_by == statement("turns_around")


def ledger(sampling: str, noise: float = 1.0, claimed_by: str = "clt", **changes: Any) -> schema.Ledger:
    values = {"sampling": sampling, "noise_multiplier": noise, "examples": 6400, "batch": 64}
    return make_ledger(SampledGaussian.model_validate(values), 500, 1e-5, claimed_by, **changes)


@pytest.mark.parametrize(
    ("sampling", "names"),
    [
        ("poisson", ["rdp", "pld", "unamplified", "rdp,", "tan", "rdp", "prv", "clt"]),
        ("fixed", ["rdp", "pld", "unamplified", "clt"]),
        ("replacement", ["rdp", "pld", "unamplified", "clt"]),
        ("shuffled", ["rdp", "pld", "unamplified", "clt"]),
    ],
)
def test_every_sampling_has_a_bound_and_every_gap_a_reason(sampling: str, names: list[str]) -> None:
    entry = ledger(sampling)
    assert [accountant.accountant.split()[0] for accountant in entry.accountants] == names
    bounds = [accountant.epsilon for accountant in entry.accountants[:3] if accountant.epsilon is not None]
    assert entry.epsilon_upper == min(bounds)
    assert all(accountant.note for accountant in entry.accountants if accountant.epsilon is None)


def test_an_order_hides_nothing_so_the_limit_is_exact() -> None:
    entry = ledger("shuffled", noise=2.0)
    assert entry.claimed == pytest.approx(entry.epsilon_upper)
    assert entry.mu == pytest.approx(5**0.5 / 2)


def test_sanders_reckoning_stands_beside_the_bounds_and_is_never_accounted() -> None:
    entry = ledger("poisson", noise=0.3, claimed_by="rdp")
    accountants = {
        accountant.accountant.split(" (")[0]: accountant
        for accountant in entry.accountants
        if "opacus" not in accountant.accountant
    }
    names = ("tan", "pld", "rdp", "rdp, classic conversion")
    epsilons = [accountants[name].epsilon or 0.0 for name in names]
    assert epsilons == sorted(epsilons)
    assert 0 < epsilons[0] < epsilons[1]
    assert (entry.epsilon_upper, entry.claimed) == (epsilons[1], epsilons[2])
    assert "not a bound" in str(accountants["tan"].note)


TAN: dict[str, Any] = {
    "sampling": "poisson",
    "examples": 50_000,
    "batch": 4096,
    "epochs": None,
    "steps": 2500,
    "parts": 1,
    "claimed_by": "rdp",
}


def renyi_account(tmp_path: Path, **changes: Any) -> schema.TrainingResult:
    declaration = {
        **ACCOUNT, "settings": {**TAN, **changes}, "levels": [{"noise_multiplier": 3}]
    }  # fmt: skip
    settings = parse({"raw": {}, "data": {}, "rows": {}, "accounts": {"tan": declaration}})
    with chdir(tmp_path):
        rows.account("tan", settings)
    account = records.read("tan", settings.accounts["tan"], tmp_path)
    return account.trainings[0]


def test_an_account_by_renyi_dp_tells_every_epsilon_and_tan(tmp_path: Path) -> None:
    account = renyi_account(tmp_path, order=8)
    assert account.ledger.steps == 2500
    assert account.ledger.claimed_by == "rdp"
    assert account.metrics["epsilon"] == account.ledger.claimed
    expected = {
        "epsilon": 7.10,
        "epsilon_classic": 7.82,
        "epsilon_pld": 6.58,
        "epsilon_tan": 7.48,
        "eta": 0.965,
        "renyi": 8.35,
        "renyi_tan": 7.46,
    }
    assert account.metrics == pytest.approx(expected, abs=0.02)


def test_other_samples_have_no_tan_and_no_order(tmp_path: Path) -> None:
    assert set(renyi_account(tmp_path, sampling="shuffled").metrics) == {"epsilon", "epsilon_classic"}


def test_committed_ledgers_of_accounts_have_todays_settings() -> None:
    """Otherwise `dprepro verify` of a fresh clone would refuse them."""
    settings = load(ROOT / "params.yaml")
    for key, account in settings.accounts.items():
        today = {account.level(resolved): resolved.model_dump(mode="json") for resolved in account.resolved}
        committed = records.read_ledgers(key, ROOT).entries
        assert {entry.level: entry.settings for entry in committed} == today


SMALL = {**ACCOUNT, "settings": {"examples": 1000, "batch": 10, "epochs": 5}}


def test_an_account_is_a_line_with_levels_and_a_digest() -> None:
    declared = parse({**GOOD, "accounts": {"two": SMALL}})
    account = declared.accounts["two"]
    assert [account.level(configured) for configured in account.resolved] == [
        "noise_multiplier=2.5",
        "noise_multiplier=0.01875",
    ]
    assert account.resolved[0].total_steps == 500
    assert account.configured({"noise_multiplier": 1, "epochs": None, "steps": 7}).total_steps == 7
    assert declared.lines.keys() == {"one", "two"}
    more = {**SMALL, "settings": {**SMALL["settings"], "parts": 8}}
    other = parse({**GOOD, "accounts": {"two": more}})
    assert declared.account_digest("two") != other.account_digest("two")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"batch": 2000}, "batch: 2000 is larger than examples; allowed: 1 to 1000"),
        (
            {"sampling": "replacement", "sets": 1, "examples": 1, "batch": 1},
            "examples: 1; allowed with 'sampling: replacement': 2 or more",
        ),
        ({"sets": 2}, "sets: 2; it goes with 'sampling: replacement', and only with it"),
        ({"steps": 7}, "epochs, steps: both are given; needed: one of them, the length of the training"),
        (
            {"order": 8, "claimed_by": "rdp", "sampling": "fixed"},
            "order: goes with 'claimed_by: rdp' and 'sampling: poisson', and only with them",
        ),
    ],
)
def test_an_account_that_means_nothing_is_one_line(changes: dict[str, Any], line: str) -> None:
    wrong = {**SMALL, "settings": {**SMALL["settings"], **changes}}
    with pytest.raises(UserError) as caught:
        parse({**GOOD, "accounts": {"two": wrong}})
    assert line in str(caught.value).splitlines()[0]
    assert str(caught.value).startswith("params.yaml: accounts.two.settings")
    with pytest.raises(UserError, match=r"accounts\.one: 'rows' has an entry of that name too"):
        parse({**GOOD, "accounts": {"one": SMALL}})
