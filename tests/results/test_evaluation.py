"""What a replica's ledger says besides epsilon."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.data.prepared import Prepared
from pipeline.methods.base import Execution
from pipeline.methods.laplace.settings import IlmSettings
from pipeline.models.model import Model
from pipeline.privacy.laplace import Laplace, Releases
from pipeline.privacy.spending import Spending
from pipeline.results import evaluation
from pipeline.training import loop as training
from pipeline.training import runs


def trained(**changes: Any) -> runs.Trained:
    spending = Spending(sampling="fixed", noise_multiplier=2.0, examples=200, batch=20)
    values = {
        "level": "sigma=1",
        "seed": 0,
        "settings": {},
        "steps": 10,
        "seconds": 1,
        "started": 0,
        "ended": 1,
    }
    mechanism = {
        "spending": spending,
        "delta": 1e-5,
        "claimed_by": "clt",
        "broken": None,
        "uncounted": ["own"],
    }
    return runs.Trained.model_validate(values | mechanism | changes)


@pytest.mark.parametrize(("titles", "told"), [(["MNIST"], True), (["MNIST", "KMNIST"], False)])
def test_a_public_split_of_the_private_set_is_in_the_ledger(
    tiny: Prepared, titles: list[str], told: bool
) -> None:
    raw = {title.lower(): {"edition": "official", "title": title} for title in titles}
    data = Prepared(tiny.name, tiny.splits, {**tiny.manifest, "raw": raw, "public": {"raw": "any"}})
    found = evaluation.ledger(trained(), None, False, data).uncounted
    assert ("the public split: 8 examples of the same data set" in " ".join(found)) == told
    assert found[-1] == "own"


def test_a_seed_or_a_flaw_leaves_no_bound(tiny: Prepared) -> None:
    assert evaluation.ledger(trained(), None, False, tiny).accounted is not None
    assert evaluation.ledger(trained(), None, True, tiny).reason == evaluation.SEEDED
    flawed = evaluation.ledger(trained(broken="coupled"), None, True, tiny)
    assert (flawed.reason, flawed.accounted) == ("coupled", None)
    assert flawed.claimed is not None


def test_nothing_private_leaves_an_empty_ledger(tiny: Prepared) -> None:
    found = evaluation.ledger(trained(spending=None, delta=None, broken="plain SGD"), "s", False, tiny)
    assert (found.event, found.claimed, found.accounted, found.reason) == (None, None, None, "plain SGD")


def released(quantity: str, *scales: float, span: float = 1.0) -> Laplace:
    return Laplace(quantity=quantity, claimed=0.5, distance=1.0, scales=scales, span=span)


RELEASES = Releases(laplace=(released("inputs", 1.0, 2.0, 8.0, span=2.0), released("labels", 4.0)))


def test_releases_have_a_pure_ledger_that_seeding_voids(tiny: Prepared) -> None:
    own = trained(spending=RELEASES, delta=0.0, claimed_by="laplace", protects="every image by itself")
    found = evaluation.ledger(own, "s", False, tiny)
    assert (found.claimed, found.accounted, found.delta) == (1.0, 1 + 1 / 2 + 1 / 8 + 1 / 4, 0.0)
    assert found.protects == "every image by itself"
    assert found.uncounted == (evaluation.SEARCHED.format(search="s"), evaluation.OTHERWISE, "own")
    assert evaluation.ledger(own, None, True, tiny).reason == evaluation.SEEDED
    # as run.json has it
    again = runs.Trained.model_validate_json(own.model_dump_json())
    assert evaluation.ledger(again, "s", False, tiny) == found


def test_releases_are_spent_from_the_first_step_on(tiny: Prepared, cpu: Execution, tmp_path: Path) -> None:
    values = {"batch": 20, "epochs": 0.2, "learning_rate": 1e-3, "epsilon": 8.0, "variant": "sound"}
    own = training.Replica("epsilon=8", 0, IlmSettings.model_validate(values))
    model = Model.model_validate({"name": "adlm_cnn", "normalization": "response"})
    shown: list[training.Progress] = []
    groups = training.train_replicas(
        [own], model, "ilm", False, tiny, cpu, shown.append, tmp_path / "checkpoint", 1e9
    )
    spent = [value for *_, metric, value in groups[0].history if metric == "epsilon_spent"]
    assert spent == pytest.approx([8.0] * len(spent))
    assert [progress.epsilon for progress in shown] == [(spent[0], spent[0])] * len(shown)
    assert shown


def test_noise_is_the_median_in_spans_of_the_exact_values() -> None:
    assert evaluation.noise(RELEASES) == pytest.approx(
        {"noise_inputs": 2**0.5 * 2 / 2, "noise_labels": 2**0.5 * 4}
    )
    assert evaluation.noise(trained().spending) == {}


@pytest.mark.parametrize(
    ("informed", "seen", "settings", "lines"),
    [
        (True, 3, {"relevance_share": 0.25}, ["without privacy on these private images", "3 test examples"]),
        (False, 0, {"relevance_share": 0.25}, ["taken as public"]),
        (True, 3, {}, []),  # a method that doesn't look at relevances
    ],
)
def test_what_the_network_behind_relevances_saw_is_in_the_ledger(
    tiny: Prepared, informed: bool, seen: int, settings: dict[str, float], lines: list[str]
) -> None:
    behind = {"row": "before", "data": "mnist", "informed": informed, "test_examples_seen": seen}
    data = Prepared(tiny.name, tiny.splits, {**tiny.manifest, "relevance": behind})
    own = trained(spending=RELEASES, delta=0.0, settings=settings)
    found = [use for use in evaluation.ledger(own, None, False, data).uncounted if "relevances" in use]
    assert len(found) == len(lines)
    for use, words in zip(found, lines, strict=True):
        assert words in use
