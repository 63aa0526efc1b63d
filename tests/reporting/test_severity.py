"""The grades of what no epsilon covers."""

import pytest

from dprepro.pipeline.methods.statements import Statement, statement
from dprepro.pipeline.reporting.judging import severity
from dprepro.pipeline.reporting.judging.severity import at_worst, not_covered, sentence
from dprepro.pipeline.reporting.vocabulary import SEVERITIES
from dprepro.pipeline.results.schema import FLOATING_POINT, Attack, Composition, Ledger
from tests.reporting.made_up import dpsgd
from tests.test_statements import calls, keys

ALL = "all seeds and levels trained on the same examples"
VOCABULARY, REPLICAS = statement("vocabulary"), statement("all_replicas")


def ledger(*uses: Statement) -> Ledger:
    return dpsgd.ledger(not_covered=uses)


def composition(left_out: int = 0) -> Composition:
    return Composition(epsilon=7.201, delta=1e-5, by="pld", trainings=3, searched=2, left_out=left_out)


def floats(shown: float) -> Attack:
    return dpsgd.attack(shown, 1.0, attack=FLOATING_POINT)


def test_every_use_that_anything_says_has_one_grade() -> None:
    graded = {*severity.SEVERITY, *severity.TRAININGS}
    files = ("training/not_covered.py", "ledgers/ledger.py", "ledgers/rows.py", "methods/spending.py")
    of_data, of_ledgers, of_rows, of_methods = (
        {key for call in calls(file) for key in keys(call.args[0])} for file in files
    )
    # of a ledger also why nothing holds, and the pairs that show what is spent
    others = {
        "no_noise",
        "seeded",
        "tried",
        "opposites",
        "turns_around",
        "turns_one_batch_of_an_epoch",
        "always_at_full_length",
    }
    of_attacks = {"floating_point", "floating_point_grid", "floating_point_shown", "model_audit"}
    assert (of_data | of_ledgers | of_rows | of_methods | of_attacks) - others == graded
    assert not graded & others
    assert set(severity.SEVERITY.values()) == set(SEVERITIES)


@pytest.mark.parametrize(
    ("whole", "attacks", "worst"),
    [
        (composition(), [], f"weakens ε: {ALL}"),
        (composition(left_out=1), [], f"voids ε for an observer: {ALL}"),
        (None, [], f"voids ε for an observer: {ALL}"),
        (composition(), [floats(0.9)], f"weakens ε: {ALL}"),
        (composition(), [floats(9.0)], "voids ε for an observer: float32 noise, successfully attacked"),
    ],
)
def test_other_trainings_weigh_what_they_spend_and_floats_what_was_shown(
    whole: Composition | None, attacks: list[Attack], worst: str
) -> None:
    uses = not_covered(ledger(statement("timing"), REPLICAS), attacks, whole)
    assert at_worst(uses) == worst
    assert at_worst(uses[-1:]).startswith("in theory only: ")


def test_the_worst_comes_first_with_how_much_it_takes() -> None:
    uses = not_covered(ledger(statement("timing"), REPLICAS, VOCABULARY), [], composition())
    assert [use.key for use in uses] == ["vocabulary", "all_replicas", "timing", "floating_point"]
    assert "ε ≤ 7.21" in uses[1].words  # rounded up
    assert sentence(uses).startswith("The worst use that no ε covers voids ε for an observer: the voc")


def test_what_was_never_trained_has_nothing_to_grade() -> None:
    assert not_covered(ledger(), [], None) == []
    assert at_worst([]) == "–"


def test_common_uses_of_public_data_give_no_row_a_mark() -> None:
    common = [
        statement(key) for key in ("curves", "digests", "validation", "examples_public", "other_choices")
    ]
    assert severity.specific(not_covered(ledger(*common), [], None)) == []
    special = severity.specific(not_covered(ledger(*common, VOCABULARY), [floats(9.0)], None))
    assert [use.key for use in special] == ["vocabulary", "floating_point_shown"]
    # on data of the laboratory's own the same uses break the claim
    own = not_covered(ledger(*common, statement("own_description")), [], None)
    assert severity.specific(own) == own
    names = "exact training curves, digests of the data, class names and shapes of the private data"
    assert at_worst(own) == f"voids ε for an observer: {names}"
