"""What batch clipping is told: what means nothing is refused."""

import copy
from typing import Any

import pytest

from pipeline import params
from pipeline.errors import UserError
from tests.params.good import GOOD
from tests.refusal import refusal_of


def with_batch_clipping(**changes: Any) -> dict[str, Any]:
    """GOOD, where `one` is trained by batch clipping with public examples of its own."""
    raw = copy.deepcopy(GOOD)
    raw["data"]["mnist"]["public"]["raw"] = "mnist"
    raw["rows"]["one"] |= {
        "method": "batch_clipping",
        "settings": {"batch": 100, "epochs": 1, "learning_rate": 0.5, "clipping": "adaptive"} | changes,
        "levels": [{"sigma": 0.5}],
    }
    return raw


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"mini_set": 30}, "mini_set: 30 does not divide the batch; allowed: divisors of 100"),
        (
            {"clipping": "none"},
            "sigma: 0.5 without clipping protects nothing; allowed: 0 with 'clipping: none'",
        ),
        ({"delta": 0.01}, "delta: 0.01 means nothing; allowed: below 1/1000"),
        ({"batch": 2000}, "batch: 2000 is larger than the training split of 'mnist'; allowed: 1 to 1000"),
    ],
)
def test_batch_clipping_that_means_nothing_is_refused(changes: dict[str, Any], line: str) -> None:
    assert params.parse(with_batch_clipping()).rows["one"].resolved[0].private
    refused = refusal_of(lambda: params.parse(with_batch_clipping(**changes)))
    assert refused == f"params.yaml: rows.one.settings.{line}"


def test_batch_clipping_needs_public_examples_with_the_same_labels() -> None:
    raw = with_batch_clipping()
    raw["raw"]["mnist-again"] = {"of": "mnist"}
    raw["data"]["mnist"]["public"]["raw"] = "mnist-again"
    params.parse(raw)
    raw["data"]["mnist"]["public"]["raw"] = "kmnist"
    with pytest.raises(UserError, match=r"rows\.one\.data: 'mnist' has a public split of 'kmnist'"):
        params.parse(raw)


def test_augmentation_is_for_images() -> None:
    raw = with_batch_clipping(augment="crop_flip")
    params.parse(raw)
    raw["data"]["mnist"]["text"] = {"tokens": 8, "vocabulary": 20}
    assert refusal_of(lambda: params.parse(raw)) == (
        "params.yaml: rows.one.settings.augment: is for images, and 'mnist' has texts; allowed: none"
    )
