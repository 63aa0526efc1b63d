"""A small params file in which nothing is wrong, and ways to change it."""

import copy
from typing import Any

from ruamel.yaml import YAML

GOOD = YAML(typ="safe", pure=True).load("""
raw: {mnist: {}, kmnist: {}}
data:
  mnist: {raw: mnist, train: 1000, validation: 100, public: {raw: kmnist, count: 8}}
rows:
  one:
    paper: davody2020
    table: t5
    label: DPSGD (LeNet-5)
    data: mnist
    model: {name: lenet5}
    method: dpsgd
    seeds: 2
    reproducible: false
    settings: {batch: 100, epochs: 1, learning_rate: 0.5}
    levels: [{epsilon: 1}, {epsilon: .inf}]
searches:
  grid: {row: one, grid: {learning_rate: [0.1, 1]}}
""")


def changed(path: str, value: Any, good: dict[str, Any] = GOOD) -> dict[str, Any]:
    """What is good with one value replaced, or removed where ``value`` is ...."""
    raw = copy.deepcopy(good)
    at = raw
    *parents, last = path.split("/")
    for key in parents:
        at = at.setdefault(key, {})
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return raw


PERTURBED = {"batch": 100, "epochs": 1, "learning_rate": 0.003, "variant": "paper", "sensitivity": "maps"}


def with_relevance(**changes: Any) -> dict[str, Any]:
    """GOOD, where `adaptive` is trained with the relevances of `one`, or of `other`, which saw other data."""
    raw = copy.deepcopy(GOOD)
    raw["data"]["other"] = {**raw["data"]["mnist"], "raw": "kmnist"}
    raw["rows"]["other"] = {**copy.deepcopy(raw["rows"]["one"]), "data": "other"}
    raw["relevances"] = {"relevant": {"data": "mnist", "row": "one"}}
    raw["rows"]["adaptive"] = copy.deepcopy(raw["rows"]["one"]) | {
        "data": "relevant",
        "method": "adlm",
        "settings": {**PERTURBED, **changes},
        "levels": [{"epsilon": changes.get("epsilon", 1)}],
    }
    return raw
