"""The table of forgeries: the command that notices each, or its number in SECURITY.md."""

import re
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest


class Forgery(NamedTuple):
    """A forgery, the command that notices it, and the test that forges; neither: nothing notices it."""

    forged: str
    command: str | None = None
    test: str | None = None


RECORD = "faults.test_table.test_what_ran_or_is_accounted_for_otherwise_is_told"
IN_PACK = "faults.test_packs.test_what_can_not_be_is_refused"
TENSORS = "faults.test_packs.test_weights_of_no_such_network_are_refused"
SEARCH = "faults.test_table.test_a_forged_search_is_noticed"
FORGERIES = {
    1: Forgery("another setting in a run", "verify", RECORD),
    2: Forgery("another spending in a run, or none", "verify", RECORD),
    3: Forgery("an unknown use of private data in a run", "verify", RECORD),
    4: Forgery("another protected unit in a run", "verify", RECORD),
    5: Forgery("other training data in a run", "verify", RECORD),
    6: Forgery("training curves of another run", "verify", RECORD),
    7: Forgery("a validation accuracy above the training curve's end", "verify", RECORD),
    8: Forgery(
        "a higher test accuracy",
        "verify --measure",
        "faults.test_table.test_a_changed_accuracy_is_seen_where_the_weights_are",
    ),
    9: Forgery(
        "an evaluation of other weights",
        "report, publish, verify",
        "faults.test_table.test_weights_that_nobody_measured_are_told",
    ),
    10: Forgery("a smaller epsilon in a ledger", "verify", RECORD),
    11: Forgery("a ledger's composition without the search", "verify", RECORD),
    12: Forgery(
        "a planned replica removed",
        "verify",
        "faults.test_table.test_a_planned_replica_that_was_removed_is_missed",
    ),
    13: Forgery(
        "a signed record removed",
        "verify",
        "faults.test_table.test_what_git_should_carry_and_is_gone_is_told",
    ),
    14: Forgery(
        "a commit that this repository lacks",
        "verify, report",
        "faults.test_table.test_code_that_this_repository_has_not_is_told",
    ),
    15: Forgery("a pack's spending, steps or accuracies that its settings exclude", "adopt", IN_PACK),
    16: Forgery("statements emptied or made up in a pack", "adopt", IN_PACK),
    17: Forgery("a pickle in place of weights", "adopt", TENSORS),
    18: Forgery("weights that are not finite", "adopt", TENSORS),
    19: Forgery("tensors of another network", "adopt", TENSORS),
    20: Forgery("one network as two seeds", "adopt", "faults.test_packs.test_one_network_is_not_two_seeds"),
    21: Forgery("a manifest without rows", "adopt", "faults.test_packs.test_what_is_not_a_pack_is_refused"),
    22: Forgery(
        "files outside the row's own", "adopt", "faults.test_packs.test_only_a_rows_own_files_are_taken"
    ),
    23: Forgery("a search's winner made a loser", "every command", SEARCH),
    24: Forgery("a search's losers removed", "verify", SEARCH),
    25: Forgery("a candidate's spending lowered or removed", "verify", SEARCH),
    26: Forgery("a winner's accuracy raised in a signed search", "verify", SEARCH),
    27: Forgery(
        "a plan's margin widened after its training",
        "verify",
        "faults.test_table.test_a_plan_that_was_changed_after_a_training_is_noticed",
    ),
    28: Forgery(
        "a metric, setting or tag in MLflow",
        "publish, verify",
        "tracking.test_publishing.test_a_number_or_a_setting_that_somebody_changed_in_the_store_is_told_and_mended",
    ),
    29: Forgery("weights, curves and evaluations of two replicas exchanged"),
    30: Forgery("a network of another method with the same layers"),
    31: Forgery("a loser's accuracy in a search that is signed again"),
    32: Forgery("earlier points of curves, notes or files of runs in MLflow"),
}


def test_there_are_32() -> None:
    assert list(FORGERIES) == list(range(1, 33))


@pytest.mark.parametrize("number", FORGERIES)
def test_a_forgery_is_forged_by_a_test_or_named_as_not_noticed(number: int) -> None:
    forgery = FORGERIES[number]
    assert (forgery.command is None) == (forgery.test is None)
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    not_noticed = text.split("## Unnoticed changes")[1].split("\n## ")[0]
    named = {int(digits) for digits in re.findall(r"\[F(\d+)\]", not_noticed)}
    assert (number in named) == (forgery.test is None)
    if forgery.test is not None:
        module, function = forgery.test.rsplit(".", 1)
        assert callable(getattr(import_module(f"tests.{module}"), function))
