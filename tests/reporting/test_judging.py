"""Claims judged fairly: as in the paper or not at all, entry by entry, and what less training may confirm."""

from dataclasses import replace
from typing import Any

import pytest

from dprepro.errors import UserError
from dprepro.pipeline.reporting.claims.ledgers import ProvenCurve
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.judging.assess import ClaimResult
from dprepro.pipeline.reporting.judging.claim_test import Outcome, at_least
from dprepro.pipeline.reporting.judging.guarantees import Guarantee, gaussian_error
from dprepro.pipeline.reporting.prose.counts import claim_counts, tally
from tests.reporting import lookup
from tests.reporting.lookup import chosen
from tests.reporting.made_up import dpsgd, toys
from tests.reporting.made_up.toys import claim

LEAST = {"kind": "difference", "left": "t/one", "right": 50, "at": ["sigma=0"], "above": 0}
OTHERWISE = {"variant": "otherwise"}
REDUCED = {"budget": "reduced"}


Rows = dict[str, tuple[float, dict[str, Any]]]  # accuracy of three seeds, and the row's declaration


def paper_of(said: dict[str, Any] | None = None, rows: Rows | None = None, **paper: Any) -> PaperResult:
    """The made-up paper with one claim, on rows."""
    rows = {"row": (90.0, {})} if rows is None else rows
    reached = {key: (accuracy,) * 3 for key, (accuracy, _) in rows.items()}
    changes = {key: declared for key, (_, declared) in rows.items()}
    return toys.ran(reached, changes, toys.paper(claims=[said or claim(LEAST)], **paper))


def judged(said: dict[str, Any] | None = None, rows: Rows | None = None, **paper: Any) -> ClaimResult:
    """The one claim of `paper_of`."""
    (result,) = paper_of(said, rows, **paper).claims
    return result


# -- as in the paper ---------------------------------------------------------------------------------


def test_rows_as_in_the_paper_decide_whatever_a_change_does() -> None:
    changed = judged(rows={"row": (90.0, OTHERWISE)})
    variants = [(assessment.variant, assessment.status) for assessment in changed.assessments]
    assert variants == [("", "not run"), ("otherwise", "reproduced")]
    assert changed.status == "only differently"
    assert judged(rows={"other": (90.0, OTHERWISE), "row": (40.0, {})}).status == "not reproduced"


def test_a_claim_of_a_row_that_needs_a_gpu_waits() -> None:
    paper = toys.paper(claims=[claim(LEAST)])
    (result,) = toys.ran({"row": None}, {"row": {"needs": "gpu"}}, paper).claims
    assert result.status == "waits for a GPU"


def test_every_entry_counts_once_however_many_variants_it_has_and_our_own_nowhere() -> None:
    variants = {"row": {}, "other": OTHERWISE, "third": {"variant": "thirdly"}}
    result = paper_of(rows={key: (90.0, changes) for key, changes in variants.items()})
    assert len(result.claims[0].assessments) == 3
    assert claim_counts([result]) == [("claims", 1, ""), ("reproduced", 1, "")]
    assert claim_counts([paper_of(table={"own": True})]) == []


def test_a_claim_without_a_test_says_why() -> None:
    result = judged({"key": "c", "says": "so", "where": "there", "untested": "nobody can"})
    assert (result.status, result.assessments) == ("not tested", ())
    unit_test = {"holds": True, "by": "FILE::NAME"}
    for said in (claim(), claim(LEAST, untested="why"), claim(untested="why", unit_test=unit_test)):
        with pytest.raises(ValueError, match="needs one of 'tests', 'unit_test' and 'untested'"):
            toys.paper(claims=[said])


@pytest.mark.parametrize(("holds", "status"), [(True, "reproduced"), (False, "not reproduced")])
def test_a_unit_test_decides_a_claim_without_records(holds: bool, status: str) -> None:
    result = judged(claim(unit_test={"holds": holds, "by": "FILE::NAME"}))
    assert (result.status, result.assessments) == (status, ())


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (["holds", "holds"], "2 of 2 comparisons hold"),
        (["holds", "undecided", "undecided", "not run"], "1 of 3 comparisons hold, 2 undecided"),
        (["holds", "fails", "undecided"], "1 of 3 comparisons hold, 1 fails, 1 undecided"),
        (["fails", "not run"], "0 of 1 comparisons hold, 1 fails"),
        (["undecided", "not run"], "0 of 1 comparisons hold, 1 undecided"),
    ],
)
def test_undecided_comparisons_are_counted(verdicts: list[str], words: str) -> None:
    assert tally([Outcome(verdict, "") for verdict in verdicts]) == words  # type: ignore[arg-type]


# -- what less training may confirm ------------------------------------------------------------------


def test_a_bound_passed_with_less_training_is_passed_and_says_so() -> None:
    result = judged(rows={"row": (90.0, REDUCED)})
    assert result.status == "reproduced"
    (outcome,) = result.assessments[-1].outcomes
    holds = "holds in spite of less training (reduced budget: 50 epochs)"
    assert outcome.text.endswith(f"required: above 50; {holds}")
    # what less data confirms is no confirmation
    assert judged(rows={"row": (90.0, REDUCED)}, table={"examples": 100_000}).status == "not judged"


@pytest.mark.parametrize(
    ("accuracy", "bounds"),
    [
        (40.0, {"above": 0}),  # it may still get there
        (50.5, {"above": 0, "below": 1}),  # it may still leave
        (40.0, {"above": None, "below": 0}),
    ],
)
def test_nothing_else_is_told_by_less_training(accuracy: float, bounds: dict[str, Any]) -> None:
    assert judged(claim(LEAST | bounds), {"row": (accuracy, REDUCED)}).status == "not judged"


@pytest.mark.parametrize(("converges", "status"), [(True, "reproduced"), (False, "not judged")])
def test_training_that_converges_early_converges(converges: bool, status: str) -> None:
    test = {"kind": "convergence", "of": "t/one", "at": ["sigma=0"], "converges": converges}
    assert judged(claim(test), {"row": (90.0 if converges else 10.0, REDUCED)}).status == status


@pytest.mark.parametrize(("accuracy", "converged"), [(22.0, 0), (40.0, 3)])
def test_what_a_paper_calls_converged_decides(accuracy: float, converged: int) -> None:
    # evaluation's rule, one and a half times chance, would call both so
    for paper, expected in ((toys.paper(converged_above=30), converged), (toys.paper(), 3)):
        table = toys.ran({"row": (accuracy,) * 3}, paper=paper).tables[0]
        assert table.rows[0].cells["sigma=0"].converged == expected
        said = "above 30 %, our threshold" in lookup.section(table)
        assert said == bool(paper.converged_above and not converged)


def test_any_other_caveat_of_a_cell_excludes_what_less_training_confirms() -> None:
    cell = toys.ran({"row": (90.0,) * 3}).tables[0].rows[0].cells["sigma=0"]
    shorter, synthetic = (
        replace(cell, caveat=why, only_shorter=only)
        for why, only in (("4 epochs", True), ("synthetic data", False))
    )
    assert at_least("holds", "", [shorter, shorter]).caveat is None
    for cells in ([shorter, synthetic], [synthetic, shorter]):
        assert at_least("holds", "", cells).caveat == "synthetic data"


def test_a_change_with_less_training_is_not_judged() -> None:
    # longer training of the earlier level shrinks it
    growth = claim(LEAST | {"right": -1, "since": "sigma=0"})
    assert judged(growth, rows={"row": (90.0, REDUCED)}).status == "not judged"


def test_an_unknown_release_is_named() -> None:
    test = {"kind": "guarantee", "of": "t/one", "release": "pixels", "at": ["sigma=0"]}
    with pytest.raises(UserError, match="release: pixels; allowed: none"):
        judged(claim(test))


# -- trade-off curves --------------------------------------------------------------------------------

GAUSSIAN = tuple((alpha / 20, gaussian_error(alpha / 20, 1.0)) for alpha in range(21))


def by_curve(curve: tuple[tuple[float, float], ...]) -> list[Outcome]:
    """A theorem on two levels, judged by the curve that is proven at one of them."""
    (row,) = toys.ran({"row": (90.0,) * 3}).tables[0].rows
    cell = row.cells["sigma=0"]
    ledger = dpsgd.ledger(tradeoff=curve, mu=1.0)
    state: Any = "holds" if curve else "none_proven"
    guarantee = replace(cell.guarantee, state=state, ledger=ledger, reason=None if curve else "why")
    row = replace(row, cells={"sigma=0": replace(cell, guarantee=guarantee)})
    test = ProvenCurve(kind="proven_curve", of="t/one", at=["sigma=0", "sigma=1"], near_gaussian=0.05)
    return list(test.ours({"t/one": chosen(row)}, toys.paper()))


def test_a_theorem_without_a_proven_curve_fails() -> None:
    there, missing = by_curve(())
    assert (there.verdict, missing.verdict) == ("fails", "not run")
    assert "no curve is proven (why)" in there.text


@pytest.mark.parametrize(
    ("shift", "verdict", "side"), [(0.0, "holds", ""), (0.06, "fails", "above"), (-0.06, "fails", "below")]
)
def test_approximately_is_both_ways(shift: float, verdict: str, side: str) -> None:
    shifted = tuple((alpha, min(1.0, max(0.0, beta + shift))) for alpha, beta in GAUSSIAN)
    outcome = by_curve(shifted)[0]
    assert outcome.verdict == verdict
    assert side in outcome.text


@pytest.mark.parametrize(("isolation", "tried"), [(None, True), ("tried", True), ("by_construction", False)])
def test_a_bound_says_whether_it_rests_on_trials(isolation: Any, tried: bool) -> None:
    bound = Guarantee("holds", None, dpsgd.ledger(isolation=isolation))
    assert bound.rests_on_trials == tried
    assert not Guarantee("none_proven", None, dpsgd.ledger(epsilon_upper=None)).rests_on_trials
