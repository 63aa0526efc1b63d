"""No number is lost: what the records said at commit d3ebca1 still stands, however it is kept.

`published_numbers.json` holds [level, seed, test accuracy, claimed, accounted] of every replica of every row
and account there. Accuracies are the same to the digit; epsilons, upper bounds, are what they were, rounded
up to the five digits that a ledger keeps now. A number that is corrected is changed here too, in the commit
that corrects it; replicas that were trained since may stand beside these.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.ledgers.precision import SAME
from pipeline.params import Settings, load
from pipeline.results import records
from tests.there import there

ROOT = Path(__file__).parents[2]
PUBLISHED: dict[str, list[Any]] = json.loads(Path(__file__).with_name("published_numbers.json").read_text())


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load(ROOT / "params.yaml")


@pytest.mark.parametrize("key", PUBLISHED)
def test_a_published_number_stands(key: str, settings: Settings) -> None:
    record = there(records.read(key, settings.lines[key], ROOT))
    replicas = {(replica.level, replica.seed): replica for replica in record.replicas}
    for level, seed, accuracy, claimed, epsilon_upper in PUBLISHED[key]:
        replica = replicas[level, seed]
        assert replica.metrics.get("test_accuracy") == accuracy
        for now, then in ((replica.ledger.claimed, claimed), (replica.ledger.epsilon_upper, epsilon_upper)):
            assert (now is None) == (then is None)
            assert now is None or then <= now <= then * (1 + SAME)
