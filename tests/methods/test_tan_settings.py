"""What TAN is told: its length, its simulations, and what is refused."""

import copy
from typing import Any

import pytest

from pipeline import params
from pipeline.errors import UserError
from pipeline.methods.tan.settings import TanSettings
from tests.params.good import GOOD
from tests.refusal import refusal_of

TAN = {"batch": 400, "steps": 25, "sigma": 3, "learning_rate": 4, "copies": 4, "augment": "crop_flip"}
SMALL = {"batch": 100, "sigma": 0.75}


def with_tan(simulation: dict[str, Any] = SMALL, **changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is a reference run and `small` its simulation."""
    raw = copy.deepcopy(GOOD)
    raw["rows"]["one"] |= {"method": "tan", "settings": {**TAN, **changes}, "levels": [{}]}
    small = {"simulates": "one", "settings": {**TAN, **changes, **simulation}}
    raw["rows"]["small"] = raw["rows"]["one"] | small
    return raw


def tan(**changes: Any) -> TanSettings:
    return TanSettings.model_validate(TAN | changes)


def test_tan_is_as_long_as_it_says_and_noted_ten_times() -> None:
    assert tan().total_steps(1000) == tan().total_steps(7) == 25
    for steps, notes in ((25, 10), (10, 10), (1000, 10), (3, 3)):
        noted = [done for done in range(1, steps + 1) if tan(steps=steps).logs_after(done, 1000)]
        assert len(noted) == notes
        assert noted[-1] == steps
    assert tan().private
    assert not tan(sigma=0).private


def test_tan_shares_a_step_where_only_numbers_differ() -> None:
    alike = {
        "sigma": 0.5, "learning_rate": 1.0, "schedule": "cosine", "clip": 2.0, "delta": 1e-6, "momentum": 0.9,
        "dampening": 0.5, "weight_decay": 0.1, "ema": 0.0,
    }  # fmt: skip
    apart = {
        "batch": 100, "steps": 30, "copies": 2, "augment": "none", "optimizer": "adam", "note_norms": True,
        "sampling": "allocation", "participations": 2,
    }  # fmt: skip
    assert alike.keys() | apart.keys() == TanSettings.model_fields.keys()
    for name, value in alike.items():
        assert tan(**{name: value}).batching_key == tan().batching_key, name
    for name, value in {**apart, "sigma": 0.0}.items():
        assert tan(**{name: value}).batching_key != tan().batching_key, name


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"augment": "none"},
            "copies: 4 of an example that is not augmented; allowed with 'augment: none': 1",
        ),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "momentum: 0.9; allowed with 'optimizer: adam', which has its own: 0",
        ),
        ({"dampening": 0.5}, "dampening: 0.5 without momentum only shrinks the rate; allowed: 0"),
        ({"delta": 0.001}, "delta: 0.001 means nothing; allowed: below 1/1000"),
        ({"batch": 2000}, "batch: 2000 is larger than the training split of 'mnist'; allowed: 1 to 1000"),
        ({"epochs": 3}, "epochs: unknown key"),
    ],
)
def test_tan_that_means_nothing_is_refused(changes: dict[str, Any], line: str) -> None:
    raw = with_tan(**changes)
    del raw["rows"]["small"]
    assert refusal_of(lambda: params.parse(raw)) == f"params.yaml: rows.one.settings.{line}"


def test_a_simulation_has_batch_and_noise_smaller_by_one_factor() -> None:
    raw = with_tan()
    params.parse(raw)
    assert tan(**SMALL).simulates(tan())
    assert not tan().simulates(tan(**SMALL))
    # any level of the reference will do, and what isn't the mechanism's may differ
    raw["rows"]["one"]["levels"] = [{"batch": 800}, {"batch": 400}]
    raw["rows"]["small"] |= {"seeds": 5, "budget": "reduced", "label": "small"}
    params.parse(raw)


@pytest.mark.parametrize(
    "simulation",
    [
        {"batch": 100, "sigma": 0.751},
        {"batch": 100, "sigma": 3},
        {"batch": 400, "sigma": 3},
        {"batch": 800, "sigma": 6},
        {**SMALL, "steps": 24},
        {**SMALL, "learning_rate": 2},
        {**SMALL, "copies": 2},
        {**SMALL, "clip": 2},
        {**SMALL, "ema": 0.9},
    ],
)
def test_what_is_no_simulation_is_refused(simulation: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        params.parse(with_tan(simulation))
    level = f"batch={simulation['batch']}"
    assert str(caught.value) == (
        f"params.yaml: rows.small.simulates: no level of 'one' becomes {level!r} when batch and sigma shrink "
        "by one factor"
    )


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("model", {"name": "lenet_300_100"}, "'one' has another model or other data"),
        ("data", "other", "'one' has another model or other data"),
        ("simulates", "two", "no such entry 'two'; allowed: one, small"),
    ],
)
def test_a_simulation_is_of_a_row_with_its_model_and_data(key: str, value: Any, line: str) -> None:
    raw = with_tan()
    raw["data"]["other"] = raw["data"]["mnist"]
    raw["rows"]["small"][key] = value
    assert refusal_of(lambda: params.parse(raw)) == f"params.yaml: rows.small.simulates: {line}"
