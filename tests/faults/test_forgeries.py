"""The table of forgeries: the command that notices each, or its number in SECURITY.md."""

import re
from importlib import import_module
from pathlib import Path

# a forgery, and the command that notices it; None: nothing notices it
FORGERIES = {
    1: ("another setting in a run", "verify"),
    2: ("another spending in a run, or none", "verify"),
    3: ("an unknown use of private data in a run", "verify"),
    4: ("another protected unit in a run", "verify"),
    5: ("other training data in a run", "verify"),
    6: ("training curves, in a record that dvc.lock has", "verify"),
    7: ("a validation accuracy above the training curve's end", "verify"),
    8: ("a higher test accuracy", "verify --measure"),
    9: ("an evaluation of other weights", "report, publish, verify"),
    10: ("a smaller epsilon in a ledger", "verify"),
    11: ("a ledger's composition without the search", "verify"),
    12: ("a planned replica removed", "verify"),
    13: ("a signed record removed", "verify"),
    14: ("a commit that this repository lacks", "verify, report"),
    15: ("a pack's spending, steps or accuracies that its settings exclude", "adopt"),
    16: ("statements emptied or made up in a pack", "adopt"),
    17: ("a pickle in place of weights", "adopt"),
    18: ("weights that are not finite", "adopt"),
    19: ("tensors of another network", "adopt"),
    20: ("one network as two seeds", "adopt"),
    21: ("a manifest without rows", "adopt"),
    22: ("files outside the row's own", "adopt"),
    23: ("a search's winner made a loser", "verify"),
    24: ("a search's losers removed", "verify"),
    25: ("a candidate's spending lowered or removed", "verify"),
    26: ("a winner's accuracy raised in a signed search", "verify"),
    27: ("a plan's margin widened after its training", "verify"),
    28: ("anything in MLflow's store, which is built anew", None),
    29: ("weights, curves and evaluations of two replicas exchanged", None),
    30: ("a network of another method with the same layers", None),
    31: ("a loser's accuracy in a search that is signed again", None),
    32: ("another kind of noise or isolation in a record that is signed again", None),
    33: ("an edited ledger", "verify, export; not report, publish"),
    34: ("a part of a ledger removed, an invented accountant, a seed that never ran", "verify"),
    35: ("one seed's files as another's, under other metadata", "verify, adopt"),
    36: ("a metric removed", "verify --measure"),
    37: ("a raised accuracy without its entry in dvc.lock", "verify says that nothing signs it"),
    38: ("a pack's search with other spending, where there is no record of it", "adopt"),
    39: ("another statement in an exported folder", "export"),
    40: ("a number out of its range", "every command"),
}
# the test of each forgery that is noticed
TESTS = {
    "faults.test_table": {
        "test_what_ran_or_is_accounted_for_otherwise_is_told": {*range(1, 6), 7, 10, 11, 34},
        "test_one_network_is_not_two_seeds": {35},
        "test_a_raised_accuracy_that_nothing_signs_is_told": {37},
        "test_a_changed_curve_is_told_by_the_lock": {6},
        "test_a_changed_accuracy_is_seen_where_the_weights_are": {8, 36},
        "test_weights_that_nobody_measured_are_told": {9},
        "test_what_git_should_carry_and_is_gone_is_told": {13},
        "test_code_that_this_repository_has_not_is_told": {14},
        "test_a_forged_search_is_noticed": {23, 24, 25, 26},
        "test_a_plan_that_was_changed_after_a_training_is_noticed": {27},
    },
    "reporting.test_results_table": {"test_a_planned_row_without_all_of_its_seeds_has_no_status": {12}},
    "faults.test_packs": {
        "test_what_can_not_be_is_refused": {15, 16},
        "test_weights_of_no_such_network_are_refused": {17, 18, 19},
        "test_one_network_is_not_two_seeds": {20},
        "test_what_is_not_a_pack_is_refused": {21},
        "test_a_forged_search_is_refused_where_there_is_none": {38},
        "test_only_a_rows_own_files_are_taken": {22},
    },
    "export.test_export": {
        "test_an_edited_ledger_is_not_exported": {33},
        "test_an_export_again_does_not_pass_over_another_statement": {39},
    },
    "results.test_ranges": {"test_a_number_out_of_its_range_is_refused": {40}},
}


def test_a_forgery_is_forged_by_a_test_or_named_as_not_noticed() -> None:
    assert list(FORGERIES) == list(range(1, 41))
    forged = [number for tests in TESTS.values() for numbers in tests.values() for number in numbers]
    assert sorted(forged) == [number for number, (_, command) in FORGERIES.items() if command]
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    not_noticed = text.split("## What is not noticed")[1].split("\n## ")[0]
    assert len(text.splitlines()) <= 60
    named = {int(digits) for digits in re.findall(r"\[F(\d+)\]", not_noticed)}
    assert named & FORGERIES.keys() == FORGERIES.keys() - set(forged)
    for module, tests in TESTS.items():
        for function in tests:
            assert callable(getattr(import_module(f"tests.{module}"), function))
