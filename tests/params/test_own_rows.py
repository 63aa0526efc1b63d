"""The project's own params.yaml: what was searched is used, and what a paper keeps constant is constant."""

from math import isclose, sqrt
from pathlib import Path

import pytest

from dprepro.pipeline import params
from dprepro.pipeline.results import records
from tests.paper_rows import paper_rows

ROOT = Path(__file__).parents[2]
OWN = paper_rows()


def test_waiting_rows_can_be_trained_and_no_row_is_declared_twice() -> None:
    waiting, own = params.load(ROOT / "waiting.yaml"), params.load(ROOT / "params.yaml")
    simulated = {row.simulates for row in own.rows.values()}
    behind = {each.row for each in waiting.relevances.values()}  # trained rows that waiting ones need
    for key, row in waiting.rows.items():
        assert key in behind or records.read_run(key, ROOT) is None
        assert key not in own.rows or (key in simulated | behind and row == own.rows[key])


SEARCHED = [
    key for key, row in OWN.rows.items() if row.search and (ROOT / records.search_path(row.search)).exists()
]


@pytest.mark.parametrize("key", [key for key, row in OWN.rows.items() if row.search])
def test_a_row_that_was_run_was_searched_before(key: str) -> None:
    assert records.read_run(key, ROOT) is None or key in SEARCHED


# Sander et al.: every level of these lies on one curve of constant TAN
CONSTANT = [
    key
    for key, line in OWN.lines.items()
    if line.paper == "sander2022" and line.table in {"f2", "f3", "f4", "mnist", "trade", "t3", "t4"}
]


@pytest.mark.parametrize("key", CONSTANT)
def test_levels_have_one_signal_to_noise_ratio(key: str) -> None:
    """B sqrt(S) / sigma, up to the rounding of batches."""
    line = OWN.lines[key]
    sigmas = [
        getattr(configured, "noise_multiplier" if key in OWN.accounts else "sigma")
        for configured in line.resolved
    ]
    ratios = [
        configured.batch * sqrt(configured.steps) / s
        for configured, s in zip(line.resolved, sigmas, strict=True)
    ]
    assert max(ratios) / min(ratios) < 1.002
    if line.table in {"f4", "mnist"}:  # rows train with round batches, so that each is exact
        assert max(ratios) / min(ratios) < 1 + 1e-9


def test_parts_of_cifar10_have_deltas_of_half_an_example() -> None:
    """Table 5, trained and accounted."""
    rows = [row for row in OWN.rows.values() if (row.paper, row.table) == ("sander2022", "t5")]
    trained = [(OWN.split(row.data).train, configured.delta) for row in rows for configured in row.resolved]
    epsilon_upper = [
        (configured.examples, configured.delta) for configured in OWN.accounts["sander-t5-epsilon"].resolved
    ]
    assert {size for size, _ in trained} < {size for size, _ in epsilon_upper}
    assert all(isclose(size * delta, 0.5, rel_tol=1e-4) for size, delta in (*trained, *epsilon_upper))


# Phan et al.: rows at two budgets
TWINS = [key for key, row in OWN.rows.items() if row.paper == "phan2017" and f"{key}-reduced" in OWN.rows]


@pytest.mark.parametrize("key", TWINS)
def test_a_reduced_row_is_a_shorter_training_of_the_same(key: str) -> None:
    """It may also take other steps, fewer seeds and fewer levels; noise on data is that of the full row."""
    full, reduced = OWN.rows[key], OWN.rows[f"{key}-reduced"]
    # the paper gives no number of epochs for pSGD alone; where a search prefers few, the twin has no fewer
    searched = full.method == "dpsgd"
    assert (full.budget, reduced.budget) == ("own" if searched else "full", "reduced")
    assert (full.table, full.label, full.method, full.model) == (
        reduced.table, reduced.label, reduced.method, reduced.model,
    )  # fmt: skip
    assert full.data == reduced.data or f"{full.data}-reduced" == reduced.data
    cheaper = {"batch", "noise_batch", "epochs", "learning_rate"}
    settings_of = {full.level(configured): configured for configured in full.resolved}
    for configured in reduced.resolved:
        twin = settings_of[reduced.level(configured)]
        assert configured.model_dump(exclude=cheaper) == twin.model_dump(exclude=cheaper)
        assert configured.epochs < twin.epochs or (searched and configured.epochs == twin.epochs)
        if full.method in {"adlm", "ilm"} and configured.variant != "sound":
            assert configured.scale_batch == twin.scale_batch == 1800


def test_a_sound_row_has_relevances_of_a_network_that_saw_none_of_its_images() -> None:
    rows = [row for row in OWN.rows.values() if row.method == "adlm" and row.resolved[0].variant == "sound"]
    assert rows
    for row in rows:
        relevance = OWN.relevances[row.data]
        seen = OWN.split(OWN.rows[relevance.row].data)
        assert OWN.split(row.data).raw not in {seen.raw, seen.public.raw}


# One of each method, on data of each kind, and accounts
DIGESTS = {
    "davody-t2-lenet5-reduced": "28de3208e8660f3bbf5e023d0ef00abbb6777918986adced36c517f784972138",
    "davody-t5-bn-lenet5": "bd11fdb6fa043a1a2132ced6bf8486ccbfe17da4fd39d5b0742efeb4a835c026",
    "davody-t6-tf-tutorial": "8a7f00ef94f12c410706129143ed5b7ffbb745a9318573662fe8271557ec88e8",
    "davody-t6-bn-vgg-reduced": "6acedd24de920cee15fd7255ec1cf868112fc018c98076a97517aa692495f401",
    "nguyen-searched-bc-reduced": "05ba547fec53d78e608b874940ec25ed830683b95412bd9ca38019994148599a",
    "phan-f4a-ilm-9800-reduced": "2a870902bd3ee6a7534c7420b8fb8f3cab3e64324c9c5a1ab994b7c418d3396c",
    "phan-relevance-public-reduced": "f0271df73f8757d1797224568d1f8549be49f206fbf7428bc6d092f6b62eef26",
    "sander-mnist": "6b1fe5dc0c3021ef3b4a5ef94344694de5661410a02b8f3314b6612669add8ad",
    "nguyen-weak-fgc": "2b98ca0ae437569d555eb488c688bc258db9d73a44630002a55179b152a2a805",
    "sander-f2-cifar10": "4c118a706bc651a78eb3ef07efa89e4c0098b39ceae719106c253695676b9f1f",
}


@pytest.mark.parametrize("key", DIGESTS)
def test_a_line_keeps_its_digest(key: str) -> None:
    digest = OWN.account_digest(key) if key in OWN.accounts else OWN.row_digest(key)
    assert digest == f"sha256:{DIGESTS[key]}"
