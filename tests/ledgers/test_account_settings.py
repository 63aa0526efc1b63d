"""What an account is told: its levels and its digest, and what is refused."""

from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline import params
from tests.params.good import GOOD

ACCOUNT = {
    "paper": "nguyen2023", "table": "gdp", "label": "BN-LeNet-5",
    "settings": {"examples": 1000, "batch": 10, "epochs": 5},
    "levels": [{"noise_multiplier": 2.5}, {"noise_multiplier": 1.5}],
}  # fmt: skip


def test_an_account_is_a_line_with_levels_and_a_digest() -> None:
    settings = params.parse({**GOOD, "accounts": {"two": ACCOUNT}})
    account = settings.accounts["two"]
    assert [account.level(configured) for configured in account.resolved] == [
        "noise_multiplier=2.5",
        "noise_multiplier=1.5",
    ]
    assert account.resolved[0].total_steps == 500
    assert account.configured({"noise_multiplier": 1, "epochs": None, "steps": 7}).total_steps == 7
    assert settings.lines.keys() == {"one", "two"}
    more = {**ACCOUNT, "settings": {**ACCOUNT["settings"], "parts": 8}}  # type: ignore[dict-item]
    other = params.parse({**GOOD, "accounts": {"two": more}})
    assert settings.account_digest("two") != other.account_digest("two")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"batch": 2000}, "batch: 2000 is larger than examples; allowed: 1 to 1000"),
        (
            {"sampling": "replacement", "sets": 1, "examples": 1, "batch": 1},
            "examples: 1; allowed with 'sampling: replacement': 2 or more",
        ),
        ({"sets": 2}, "sets: 2; it goes with 'sampling: replacement', and only with it"),
        ({"steps": 7}, "epochs, steps: both are given; needed: one of them, the length of the training"),
        (
            {"order": 8, "claimed_by": "rdp", "sampling": "fixed"},
            "order: goes with 'claimed_by: rdp' and 'sampling: poisson', and only with them",
        ),
    ],
)
def test_an_account_that_means_nothing_is_one_line(changes: dict[str, Any], line: str) -> None:
    wrong = {**ACCOUNT, "settings": {**ACCOUNT["settings"], **changes}}  # type: ignore[dict-item]
    with pytest.raises(UserError) as caught:
        params.parse({**GOOD, "accounts": {"two": wrong}})
    assert line in str(caught.value).splitlines()[0]
    assert str(caught.value).startswith("params.yaml: accounts.two.settings")
    with pytest.raises(UserError, match=r"accounts\.one: 'rows' has an entry of that name too"):
        params.parse({**GOOD, "accounts": {"one": ACCOUNT}})
