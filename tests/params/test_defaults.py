"""Defaults that digests leave out; the papers' rows: constant what a paper holds constant, and searched."""

from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dprepro.accountants.records import AccountSettings
from dprepro.fields import Strict
from dprepro.pipeline import params
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.results import records
from tests.golden.values import defaults, read_defaults
from tests.paper_rows import paper_rows

ROOT = Path(__file__).parents[2]
OWN = params.load(ROOT / "params.yaml")


@pytest.mark.parametrize(
    ("model", "defaults"),
    [
        (params.Raw, {"of": None, "edition": "official", "train": None, "test": None}),
        (params.Public, {"part": "train"}),
        (params.Data, {"seed": 0, "text": None}),
        (
            params.Model,
            {"normalization": "none", "groups": 1, "epsilon": 1e-5, "unnormalized": 0, "trainable": "all",
             "order": "norm_relu", "hidden": (), "network": None, "rank": None},
        ),
        (params.Relevance, {"examples": None}),
        (
            AccountSettings,
            {"sampling": "poisson", "epochs": None, "steps": None, "parts": 1, "sets": None, "delta": 1e-5,
             "claimed_by": "clt", "order": None, "participations": 1},
        ),
    ],
)  # fmt: skip
def test_defaults_keep_their_meaning(model: type[Strict], defaults: dict[str, Any]) -> None:
    """Digests leave defaults out: changing one here would pass old records off as made with the new one."""
    actual = {name: field.default for name, field in model.model_fields.items() if not field.is_required()}
    assert actual == defaults


@pytest.mark.parametrize("method", method_settings())
def test_defaults_of_a_method_are_those_of_its_golden_values(method: str) -> None:
    """A new setting is written there by `python -m tests.golden METHOD`; others keep their defaults."""
    assert defaults(method_settings()[method]) == read_defaults(method)


def test_a_new_setting_at_its_default_is_in_no_record() -> None:
    """Digests of searches and checkpoints have all settings of a record: they stand as they were."""
    resolved = OWN.rows["davody-t5-ln-lenet5-equal-planned"].resolved[0]
    recorded = resolved.model_dump(mode="json")
    new = {"warmup", "milestones", "gamma", "weight_decay", "class_weights", "nominal_examples"}
    assert not recorded.keys() & new
    changed = resolved.model_copy(update={"weight_decay": 0.1, "class_weights": (1.0, 2.0)})
    assert changed.model_dump(mode="json") == {**recorded, "weight_decay": 0.1, "class_weights": [1.0, 2.0]}
    assert DpsgdSettings.recorded(changed.model_dump(mode="json")) == changed


@pytest.mark.parametrize("method", method_settings())
def test_a_record_with_a_retired_setting_stands_at_one_value_alone(method: str) -> None:
    settings_type = method_settings()[method]
    assert not settings_type.retired.keys() & settings_type.model_fields.keys()
    row = next(row for row in OWN.rows.values() if row.method == method)
    recorded = row.resolved[0].model_dump(mode="json")
    assert settings_type.recorded({**recorded, **settings_type.retired}) == row.resolved[0]
    for name in settings_type.retired:
        with pytest.raises(ValidationError, match=name):
            settings_type.recorded({**recorded, name: "other"})


ALL = paper_rows()


def test_waiting_rows_can_be_trained_and_no_row_is_declared_twice() -> None:
    waiting, own = params.load(ROOT / "waiting.yaml"), params.load(ROOT / "params.yaml")
    simulated = {row.simulates for row in own.rows.values()}
    behind = {each.row for each in waiting.relevances.values()}  # trained rows that waiting ones need
    for key, row in waiting.rows.items():
        assert key in behind or records.read_run(key, ROOT) is None
        assert key not in own.rows or (key in simulated | behind and row == own.rows[key])


SEARCHED = [
    key for key, row in ALL.rows.items() if row.search and (ROOT / records.search_path(row.search)).exists()
]


@pytest.mark.parametrize("key", [key for key, row in ALL.rows.items() if row.search])
def test_a_row_that_was_run_was_searched_before(key: str) -> None:
    assert records.read_run(key, ROOT) is None or key in SEARCHED


# Sander et al.: every level of these lies on one curve of constant TAN
CONSTANT = [
    key
    for key, line in ALL.lines.items()
    if line.paper == "sander2022" and line.table in {"f2", "f3", "f4", "mnist", "trade", "t3", "t4"}
]


@pytest.mark.parametrize("key", CONSTANT)
def test_levels_have_one_signal_to_noise_ratio(key: str) -> None:
    """B sqrt(S) / sigma, up to the rounding of batches."""
    line = ALL.lines[key]
    sigmas = [
        getattr(configured, "noise_multiplier" if key in ALL.accounts else "sigma")
        for configured in line.resolved
    ]
    ratios = [
        configured.batch * sqrt(configured.steps) / s
        for configured, s in zip(line.resolved, sigmas, strict=True)
    ]
    assert max(ratios) / min(ratios) < 1.002
    if line.table in {"f4", "mnist"}:  # rows train with round batches, so that each is exact
        assert max(ratios) / min(ratios) < 1 + 1e-9


def test_a_sound_row_has_relevances_of_a_network_that_saw_none_of_its_images() -> None:
    rows = [row for row in ALL.rows.values() if row.method == "adlm" and row.resolved[0].variant == "sound"]
    assert rows
    for row in rows:
        relevance = ALL.relevances[row.data]
        seen = ALL.split(ALL.rows[relevance.row].data)
        assert ALL.split(row.data).raw not in {seen.raw, seen.public.raw}
