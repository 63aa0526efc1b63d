"""Epsilon of everything that was trained on a private data set, and the searches that no row names."""

from pathlib import Path
from typing import Any

import pytest
from dp_accounting.pld import PLDAccountant

from dprepro.accountants.calibration import poisson_gaussian
from dprepro.accountants.records import SampledGaussian
from dprepro.pipeline.ledgers.composition import data_budgets, privacy_budget, row_composition
from dprepro.pipeline.ledgers.rows import entries
from dprepro.pipeline.ledgers.sentences import data_budget, delta_remark
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.params import Settings, parse
from dprepro.pipeline.params.own import OWN
from dprepro.pipeline.params.suggested import delta_for
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import Provenance, Replaced, RowTrainings, TrainingSpent
from tests.made_records import keep_search, made_up_run, made_up_training

EXAMPLES, BATCH, STEPS = 1000, 100, 50
OWN_FILES = {
    "kind": "npz", "path": "mine.npz", "digest": "sha256:" + 64 * "0", "classes": ["a", "b"],
    "shape": [1, 28, 28], "test": 100,
}  # fmt: skip


def settings(rows: dict[str, str | None]) -> Settings:
    """Rows on own and on public data, by the search that each names."""
    split = {"train": EXAMPLES, "validation": 100, "public": {"raw": "mnist", "count": 20}}
    row = {
        "paper": "mine", "table": "t1", "label": "made up", "method": "dpsgd", "seeds": 1,
        "model": {"name": "lenet5", "normalization": "none"}, "reproducible": False, "axis": "epsilon",
        "settings": {"batch": BATCH, "epochs": 5, "learning_rate": 0.1}, "levels": [{"epsilon": 3.0}],
    }  # fmt: skip
    return parse(
        {
            "raw": {"mnist": {}},
            "own": {"mine": OWN_FILES, "again": {**OWN_FILES, "kind": "npz"}},
            "data": {
                **{name: {"raw": name, **split} for name in ("mine", "again")},
                "digits": {**split, "raw": "mnist"},
            },
            "rows": {
                key: {**row, "data": key.split("-")[0], **({"search": search} if search else {})}
                for key, search in rows.items()
            },
            "searches": {
                name: {"row": next(iter(rows)), "seeds": 1, "grid": {"clip": [1.0]}}
                for name in ("known", "lost")
            },
        }
    )


@pytest.fixture(autouse=True)
def _in_the_laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def mechanism(noise: float) -> SampledGaussian:
    return SampledGaussian(sampling="poisson", noise_multiplier=noise, examples=EXAMPLES, batch=BATCH)


def ran(root: Path, row: str, data: str, noise: float, **changes: Any) -> RowTrainings:
    """A committed run of one training."""
    edition = {"mnist": "original"} if data == "digits" else {data: OWN, "mnist": "original"}
    run = made_up_run(row, data, made_up_training(mechanism(noise), STEPS), edition, **changes)
    records.write(run, root)
    return run


def searched(root: Path, name: str, row: str, noise: float) -> None:
    """The record of a search of one candidate."""
    keep_search(root, name, row, {"spent": TrainingSpent(spending=mechanism(noise), steps=STEPS, delta=1e-5)})


def theirs(*noises: float) -> float:
    accountant = PLDAccountant()
    for noise in noises:
        accountant.compose(poisson_gaussian(BATCH / EXAMPLES, noise, STEPS))
    return float(accountant.get_epsilon(1e-5))


def test_a_data_sets_budget_has_every_row_search_and_replaced_training(tmp_path: Path) -> None:
    """Also of a deleted row, and of a second entry for the same files; against dp-accounting."""
    declared = settings({"mine-a": "known", "mine-b": None, "again-c": None, "digits": None})
    replaced = Replaced(trainings=1, spent=TrainingSpent(spending=mechanism(9.0), steps=STEPS, delta=1e-5))
    ran(tmp_path, "mine-a", "mine", 4.0, replaced=(replaced, Replaced(trainings=2, spent=None)))
    ran(tmp_path, "mine-b", "mine", 5.0)
    ran(tmp_path, "again-c", "again", 6.0)
    ran(tmp_path, "deleted", "no-entry", 0.1)  # other files, whose entry is gone
    ran(tmp_path, "digits", "digits", 0.1)  # public
    searched(tmp_path, "known", "mine-a", 7.0)
    searched(tmp_path, "lost", "mine-b", 8.0)
    gone, budget = sorted(data_budgets(declared), key=lambda each: len(each.rows))
    assert (gone.data, gone.rows) == ("no-entry", ("deleted",))
    assert (budget.data, budget.rows) == ("mine", ("again-c", "mine-a", "mine-b"))
    assert (budget.searches, budget.unlinked, budget.left_out) == (("known", "lost"), ("lost",), 2)
    assert (budget.composition.trainings, budget.composition.searched) == (3, 2)
    assert (budget.composition.replaced, budget.composition.left_out) == (1, 2)
    expected = theirs(4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    assert expected <= budget.composition.epsilon < 1.01 * expected
    assert privacy_budget("again", declared) == budget
    assert privacy_budget("digits", declared) is None
    words = data_budget(budget)
    trainings = "6 recorded private trainings (3 rows and 2 searches of params.yaml)"
    assert words.startswith(f"Data set mine: {trainings}, together at most ε =")
    # a row may train on what another takes as public, also one on other data, or validates on
    assert "), for an example that is in no public split and in none of their validation splits; no" in words
    assert words.endswith("; no bound is proven for 2 more trainings. No row names these searches: lost.")


def test_a_renamed_entry_is_the_same_data_set(tmp_path: Path) -> None:
    declared = settings({"mine-a": None})
    same, other = {"train.inputs": "sha256:" + 64 * "a"}, {"train.inputs": "sha256:" + 64 * "b"}
    for row, data, noise, arrays in (
        ("mine-a", "mine", 4.0, same),
        ("before", "former-name", 5.0, same),
        ("of-others", "gone", 6.0, other),
    ):
        run = ran(tmp_path, row, data, noise)
        origin = run.trainings[0].origin.model_copy(update={"data": arrays})
        records.write(made_on(run, origin), tmp_path)
    assert [each.rows for each in data_budgets(declared)] == [("of-others",), ("before", "mine-a")]
    budget = privacy_budget("mine", declared)
    assert budget.composition.epsilon >= theirs(4.0, 5.0)


def made_on(run: RowTrainings, origin: Provenance) -> RowTrainings:
    """A run whose only training has another origin."""
    return run.model_copy(update={"trainings": (run.trainings[0].model_copy(update={"origin": origin}),)})


def test_trainings_count_for_the_data_that_they_read_then(tmp_path: Path) -> None:
    """Not only for those of the row's present entry, which may have the earlier ones as public examples."""
    declared = settings({"mine-a": None})
    other = declared.own["mine"].model_copy(update={"path": "b.npz", "digest": "sha256:" + 64 * "1"})
    split = declared.data["mine"]
    public = split.public.model_copy(update={"raw": "mine"})
    declared = declared.model_copy(
        update={
            "own": {"mine": declared.own["mine"], "other": other},
            "data": {**declared.data, "mine": split.model_copy(update={"raw": "other", "public": public})},
        }
    )
    run = ran(tmp_path, "mine-a", "mine", 4.0)
    before = run.trainings[0].origin.model_copy(update={"declared": "sha256:before"})
    records.write(earlier := made_on(run, before), tmp_path)
    assert [each.data for each in data_budgets(declared)] == ["mine", "other"]
    # then it is trained again
    now = before.model_copy(
        update={"declared": declared.data_digest("mine"), "edition": {"other": OWN, "mine": OWN}}
    )
    records.write(made_on(run, now), tmp_path)
    assert [each.data for each in data_budgets(declared)] == ["other"]
    records.write(made_on(run, now).model_copy(update={"replaced": earlier.trainings}), tmp_path)
    assert [each.data for each in data_budgets(declared)] == ["mine", "other"]


def test_without_any_entry_records_still_count(tmp_path: Path) -> None:
    declared = settings({"digits": None}).model_copy(update={"own": {}})
    ran(tmp_path, "deleted", "no-entry", 4.0)
    (budget,) = data_budgets(declared)
    assert (budget.data, budget.rows) == ("no-entry", ("deleted",))
    assert privacy_budget("digits", declared) is None


def test_an_unlinked_search_is_in_its_rows_ledger(tmp_path: Path) -> None:
    declared = settings({"mine-b": None})
    run = ran(tmp_path, "mine-b", "mine", 4.0)
    assert row_composition(run, None, tmp_path) is None
    searched(tmp_path, "lost", "mine-b", 8.0)
    composition = row_composition(run, None, tmp_path)
    assert (composition.trainings, composition.searched) == (1, 1)
    assert theirs(4.0, 8.0) <= composition.epsilon < 1.01 * theirs(4.0, 8.0)
    (entry,) = entries(run, None, declared, root=tmp_path)
    assert statement("unlinked_search", search="lost") in entry.ledger.not_covered
    (linked,) = entries(run, "lost", declared, root=tmp_path)
    assert not any(use.key == "unlinked_search" for use in linked.ledger.not_covered)


def test_a_replaced_training_is_a_use_that_epsilon_does_not_cover(tmp_path: Path) -> None:
    run = ran(tmp_path, "mine-b", "mine", 4.0)
    again = run.model_copy(update={"replaced": (Replaced(trainings=1, spent=None),)})
    for record, expected in ((run, False), (again, True)):
        (entry,) = entries(record, None, settings({"mine-b": None}), root=tmp_path)
        assert (statement("all_replicas") in entry.ledger.not_covered) == expected


@pytest.mark.parametrize("examples", [1, 9, 900, 1000, 1001, 60_000, 1_281_167])
def test_a_suggested_delta_is_at_most_a_tenth_of_one_in_n(examples: int) -> None:
    delta = delta_for(examples)
    assert 0.01 / 1.0001 < delta * examples <= 0.1 * 1.0001
    assert delta_remark(delta, examples) is None


def test_a_large_delta_has_a_remark() -> None:
    assert str(delta_remark(1e-3, 900)).startswith("δ 0.001 is large for 900 examples. A bound with this δ")
    assert delta_remark(None, 900) is delta_remark(0.0, 900) is None
