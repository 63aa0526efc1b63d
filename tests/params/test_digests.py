"""Digests that committed records carry: they may not move with the code that reads params.yaml."""

from pathlib import Path

import pytest

from pipeline import params

OWN = params.load(Path(__file__).parents[2] / "params.yaml")
# one of each method, on data of each kind
ROWS = {
    "davody-t2-lenet5-reduced": "28de3208e8660f3bbf5e023d0ef00abbb6777918986adced36c517f784972138",
    "davody-t5-bn-lenet5": "bd11fdb6fa043a1a2132ced6bf8486ccbfe17da4fd39d5b0742efeb4a835c026",
    "davody-t6-tf-tutorial": "8a7f00ef94f12c410706129143ed5b7ffbb745a9318573662fe8271557ec88e8",
    "davody-t6-bn-vgg-reduced": "6acedd24de920cee15fd7255ec1cf868112fc018c98076a97517aa692495f401",
    "nguyen-searched-bc-reduced": "05ba547fec53d78e608b874940ec25ed830683b95412bd9ca38019994148599a",
    "phan-f4a-ilm-9800-reduced": "2a870902bd3ee6a7534c7420b8fb8f3cab3e64324c9c5a1ab994b7c418d3396c",
    "phan-relevance-public-reduced": "f0271df73f8757d1797224568d1f8549be49f206fbf7428bc6d092f6b62eef26",
    "sander-mnist": "6b1fe5dc0c3021ef3b4a5ef94344694de5661410a02b8f3314b6612669add8ad",
}
ACCOUNTS = {
    "nguyen-weak-fgc": "2b98ca0ae437569d555eb488c688bc258db9d73a44630002a55179b152a2a805",
    "sander-f2-cifar10": "4c118a706bc651a78eb3ef07efa89e4c0098b39ceae719106c253695676b9f1f",
}


@pytest.mark.parametrize("key", ROWS)
def test_a_row_keeps_its_digest(key: str) -> None:
    assert OWN.row_digest(key) == f"sha256:{ROWS[key]}"


@pytest.mark.parametrize("key", ACCOUNTS)
def test_an_account_keeps_its_digest(key: str) -> None:
    assert OWN.account_digest(key) == f"sha256:{ACCOUNTS[key]}"
