"""A line of a page about many numbers."""

import pytest

from pipeline.reporting.judging.claim_test import Outcome
from pipeline.reporting.pages.views import direction


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (["holds", "holds"], "points to yes"),
        (["holds", "undecided", "undecided", "not run"], "points to yes, in 1 of 3"),
        (["holds", "fails", "undecided"], "points to no, in 1 of 3"),
        (["fails", "not run"], "points to no"),
        (["undecided", "not run"], "points nowhere"),
    ],
)
def test_undecided_comparisons_are_counted(verdicts: list[str], words: str) -> None:
    assert direction([Outcome(verdict, "") for verdict in verdicts]) == words  # type: ignore[arg-type]
