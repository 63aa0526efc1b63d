"""What a replica's ledger says besides epsilon."""

from typing import Any

import pytest

from pipeline import evaluation, runs
from pipeline.data.prepared import Prepared
from pipeline.privacy.spending import Spending


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
