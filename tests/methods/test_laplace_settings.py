"""What the Laplace mechanisms are told: shares of epsilon, variants, and what is refused."""

import copy
from typing import Any

import pytest

from pipeline import params
from pipeline.errors import UserError
from pipeline.methods.laplace.settings import AdlmSettings
from tests.params.good import GOOD, PERTURBED, with_relevance
from tests.refusal import refusal_of


def with_identical(**changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is trained with the same noise on every feature."""
    raw = copy.deepcopy(GOOD)
    settings_ = {**PERTURBED, **changes}
    levels = [{"epsilon": changes.get("epsilon", 1)}]
    raw["rows"]["one"] |= {"method": "ilm", "settings": settings_, "levels": levels}
    return raw


SOUND = {"variant": "sound", "sensitivity": None}


@pytest.mark.parametrize(
    "changes",
    [{}, {"sensitivity": "neurons"}, {"variant": "code", "sensitivity": 9800}, SOUND, {"noise_batch": 1800}],
)
def test_a_variant_has_the_sensitivity_that_its_noise_needs(changes: dict[str, Any]) -> None:
    configured = params.parse(with_identical(**changes)).rows["one"].resolved[0]
    assert configured.private
    assert configured.scale_batch == changes.get("noise_batch", 100)
    assert not configured.model_copy(update={"epsilon": float("inf")}).private


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"sensitivity": None},
            "sensitivity: None; it goes with variants 'paper' and 'code', and only them",
        ),
        (
            {"variant": "sound"},
            "sensitivity: maps; it goes with variants 'paper' and 'code', and only them",
        ),
        (
            {**SOUND, "noise_batch": 1800},
            "noise_batch: 1800; allowed with 'variant: sound', which has no |L|: null",
        ),
        ({"batch": 2000}, "batch: 2000 is larger than the training split of 'mnist'; allowed: 1 to 1000"),
    ],
)
def test_laplace_noise_that_means_nothing_is_refused(changes: dict[str, Any], line: str) -> None:
    refused = refusal_of(lambda: params.parse(with_identical(**changes)))
    assert refused == f"params.yaml: rows.one.settings.{line}"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"sensitivity": "map"}, "sensitivity: 'map' is not allowed: 'maps', 'neurons' or a number above 0"),
        ({"sensitivity": -1}, "sensitivity: -1 is not allowed: 'maps', 'neurons' or a number above 0"),
        ({"variant": "local"}, "'local' is not allowed: Input should be 'paper', 'code' or 'sound'"),
        ({"loss_share": 1}, "1 is not allowed: Input should be less than 1"),
        ({"clip": 1}, "clip: unknown key"),
    ],
)
def test_a_laplace_setting_that_is_not_allowed_is_told(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as caught:
        params.parse(with_identical(**changes))
    lines = str(caught.value).splitlines()
    assert all(told.startswith("params.yaml: rows.one.settings.") for told in lines)
    assert any(line in told for told in lines)


def test_shares_of_epsilon_are_one_together() -> None:
    configured = (
        params.parse(with_relevance(relevance_share=0.1, loss_share=0.3)).rows["adaptive"].resolved[0]
    )
    assert configured.input_share + configured.loss_share + configured.relevance_share == pytest.approx(1)
    assert configured.input_share == pytest.approx(0.6)
    assert params.parse(with_identical(loss_share=0.3)).rows["one"].resolved[0].input_share == 0.7


@pytest.mark.parametrize(("loss", "relevance"), [(0.75, 0.25), (0.7, 0.3), (0.9, 0.1), (0.5, 0.6)])
def test_the_inputs_need_a_share_of_epsilon(loss: float, relevance: float) -> None:
    """Whatever way 1 - .7 - .3 is rounded."""
    assert refusal_of(lambda: params.parse(with_relevance(loss_share=loss, relevance_share=relevance))) == (
        f"params.yaml: rows.adaptive.settings.relevance_share: {relevance} leaves the inputs nothing; "
        f"allowed: below {1 - loss:g}"
    )


@pytest.mark.parametrize("epsilon", [1, float("inf")])
@pytest.mark.parametrize(
    ("of", "good", "bad", "line"),
    [
        ("train", 0.2, 0, "0.0; allowed with the private relevances of 'relevant': above 0"),
        ("public", 0, 0.2, "0.2; allowed with the public relevances of 'relevant': 0"),
    ],
)
def test_private_relevances_need_a_share_of_epsilon_and_public_ones_none(
    of: str, good: float, bad: float, line: str, epsilon: float
) -> None:
    relevance = {"of": of, "row": "other"}
    params.parse(with_relevance(relevance, relevance_share=good, epsilon=epsilon))
    raw = with_relevance(relevance, relevance_share=bad, epsilon=epsilon)
    refused = refusal_of(lambda: params.parse(raw))
    assert refused == f"params.yaml: rows.adaptive.settings.relevance_share: {line}"


def test_laplace_replicas_share_a_step_where_only_numbers_differ() -> None:
    configured = AdlmSettings.model_validate({**PERTURBED, "epsilon": 1})
    alike = {
        "epsilon": 2.0, "learning_rate": 1.0, "schedule": "cosine", "sensitivity": 9800.0,
        "noise_batch": 1800, "loss_share": 0.25, "relevance_share": 0.1,
    }  # fmt: skip
    apart = {
        "batch": 50, "epochs": 2.0, "variant": "code", "limit": 10.0, "optimizer": "sgd",
        "note_relevance": True,
    }  # fmt: skip
    assert alike.keys() | apart.keys() == AdlmSettings.model_fields.keys()
    for name, value in alike.items():
        assert configured.model_copy(update={name: value}).batching_key == configured.batching_key, name
    for name, value in {**apart, "epsilon": float("inf")}.items():
        assert configured.model_copy(update={name: value}).batching_key != configured.batching_key, name
