"""Claims judged fairly: as in the paper or not at all, entry by entry, and what less training may confirm."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.reporting import report
from pipeline.reporting.claims.ledgers import ProvenCurve
from pipeline.reporting.gather import gather
from pipeline.reporting.judging.assess import ClaimResult, assess
from pipeline.reporting.judging.guarantees import gaussian_error
from pipeline.reporting.pages import summary as page
from pipeline.reporting.results import RowResult
from pipeline.reporting.wording import convergence_rule
from tests.reporting.lookup import chosen, page_of
from tests.reporting.made_up import clipping, dpsgd, toys

LEAST = {"kind": "difference", "left": "t/one", "right": 50, "at": ["sigma=0"], "above": 0}


def claim(**said: Any) -> dict[str, Any]:
    return {"key": "c", "says": "so", "where": "there", "tests": [LEAST], **said}


def judged(accuracy: float = 90.0, said: dict[str, Any] | None = None, **row: Any) -> ClaimResult:
    """The one claim of the made-up paper on one row of three seeds."""
    declared = toys.settings(row=row)
    record = toys.record("row", declared, sigma_0=(accuracy, accuracy, accuracy))
    (found,) = assess(toys.judged(toys.paper(claims=[said or claim()]), declared, record))
    return found


# -- as in the paper ---------------------------------------------------------------------------------


def test_what_ran_with_a_change_alone_decides_nothing() -> None:
    found = judged(label="One, otherwise")
    assert [(one.variant, one.status) for one in found.assessments] == [
        ("", "not run"),
        ("otherwise", "reproduced"),
    ]
    assert found.status == "only differently"


def test_rows_as_in_the_paper_decide_whatever_a_change_does() -> None:
    declared = toys.settings(row={}, other={"label": "One, otherwise"})
    good = toys.record("other", declared, sigma_0=(90.0,) * 3)
    bad = toys.record("row", declared, sigma_0=(40.0, 40.1, 40.2))
    (found,) = assess(toys.judged(toys.paper(claims=[claim()]), declared, good, bad))
    assert found.status == "not reproduced"


def test_a_claim_of_a_row_that_needs_a_gpu_waits() -> None:
    declared = toys.settings(row={"needs": "gpu"})
    (found,) = assess(toys.judged(toys.paper(claims=[claim()]), declared))
    assert found.status == "waits for a GPU"


# -- entries -----------------------------------------------------------------------------------------


def test_every_entry_counts_once_however_many_variants_it_has() -> None:
    declared = toys.settings(row={}, other={"label": "One, otherwise"}, third={"label": "One, thirdly"})
    found = [toys.record(key, declared, sigma_0=(90.0,) * 3) for key in ("row", "other", "third")]
    results = assess(toys.judged(toys.paper(claims=[claim()]), declared, *found))
    assert [len(one.assessments) for one in results] == [3]
    assert [(share.count, share.word.counted) for share in page.claims_met(results)] == [(1, "reproduced")]


def test_our_own_experiments_count_nowhere() -> None:
    declared = toys.settings(row={})
    record = toys.record("row", declared, sigma_0=(90.0,) * 3)
    paper = toys.paper(claims=[claim()], table={"own": True})
    results = assess(toys.judged(paper, declared, record))
    assert results[0].own
    assert page.claims_met(results) == []


def test_a_claim_without_a_test_says_why() -> None:
    said = {"key": "c", "says": "so", "where": "there", "untested": "nobody can"}
    (found,) = assess(toys.judged(toys.paper(claims=[said]), toys.settings(row={})))
    assert (found.status, found.assessments) == ("not tested", ())


@pytest.mark.parametrize("change", [{"tests": []}, {"untested": "why"}])
def test_a_claim_is_tested_or_says_why_not(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs either 'tests' or 'untested'"):
        toys.paper(claims=[claim(**change)])


# -- what less training may confirm ------------------------------------------------------------------

SHORT: dict[str, Any] = {"budget": "reduced", "label": "One"}


def test_a_bound_passed_with_less_training_is_passed_and_says_so() -> None:
    found = judged(**SHORT)
    assert found.status == "reproduced"
    (outcome,) = found.assessments[-1].outcomes
    assert outcome.text.endswith("to be above 0; more strongly than asked, with reduced budget: 50 epochs")


@pytest.mark.parametrize(
    ("accuracy", "test"),
    [
        (40.0, LEAST),  # it may still get there
        (50.5, {**LEAST, "below": 1}),  # it may still leave
        (40.0, {**LEAST, "above": None, "below": 0}),
    ],
)
def test_nothing_else_is_told_by_less_training(accuracy: float, test: dict[str, Any]) -> None:
    said = claim(tests=[{key: value for key, value in test.items() if value is not None}])
    assert judged(accuracy, said, **SHORT).status == "not judged"


def test_what_less_data_confirms_is_no_confirmation() -> None:
    declared = toys.settings(row=SHORT)
    record = toys.record("row", declared, sigma_0=(90.0,) * 3)
    paper = toys.paper(claims=[claim()], table={"examples": 100_000})
    assert assess(toys.judged(paper, declared, record))[0].status == "not judged"


@pytest.mark.parametrize(("converges", "status"), [(True, "reproduced"), (False, "not judged")])
def test_training_that_converges_early_converges(converges: bool, status: str) -> None:
    test = {"kind": "convergence", "of": "t/one", "at": ["sigma=0"], "converges": converges}
    assert judged(90.0 if converges else 10.0, claim(tests=[test]), **SHORT).status == status


# -- a paper's own words for 'converged' -------------------------------------------------------------


@pytest.mark.parametrize(("accuracy", "converged"), [(22.0, 0), (40.0, 3)])
def test_what_a_paper_calls_converged_decides(accuracy: float, converged: int) -> None:
    declared = toys.settings(row={})
    record = toys.record("row", declared, sigma_0=(accuracy,) * 3)
    paper = toys.paper(converged_above=30)
    table = toys.judged(paper, declared, record).tables[0]
    assert table.rows[0].cells["sigma=0"].converged == converged
    assert "above 30 %, by the paper's words" in convergence_rule(table)
    # evaluation's rule, one and a half times chance, would call both so
    plain = toys.judged(toys.paper(), declared, record).tables[0]
    assert plain.rows[0].cells["sigma=0"].converged == 3


# -- trade-off curves --------------------------------------------------------------------------------


def with_curve(curve: tuple[tuple[float, float], ...], mu: float | None = 1.0) -> RowResult:
    declared = toys.settings(row={})
    record = toys.record("row", declared, sigma_0=(90.0,) * 3)
    (row,) = toys.judged(toys.paper(), declared, record).tables[0].rows
    cell = row.cells["sigma=0"]
    ledger = dpsgd.ledger(dpsgd.PLAIN, 1).model_copy(update={"tradeoff": curve, "mu": mu})
    state: Any = "holds" if curve else "none_proven"
    guarantee = replace(cell.guarantee, state=state, ledger=ledger, reason=None if curve else "why")
    return replace(row, cells={"sigma=0": replace(cell, guarantee=guarantee)})


GAUSSIAN = tuple((alpha / 20, gaussian_error(alpha / 20, 1.0)) for alpha in range(21))


def test_the_gaussian_curve_has_its_limits() -> None:
    assert (gaussian_error(0.0, 1.0), gaussian_error(1.0, 1.0)) == (1.0, 0.0)
    assert gaussian_error(0.5, 1.0) == pytest.approx(0.15866, abs=1e-5)


def test_a_theorem_is_judged_by_the_curve_that_is_proven() -> None:
    test = ProvenCurve(kind="proven_curve", of="t/one", at=["sigma=0", "sigma=1"])
    paper = toys.paper()
    outcomes = list(test.ours({"t/one": chosen(with_curve(GAUSSIAN))}, paper))
    assert [one.verdict for one in outcomes] == ["holds", "not run"]
    assert "a type II error of 0.6" in outcomes[0].text
    assert [one.verdict for one in test.ours({"t/one": chosen(with_curve(()))}, paper)] == [
        "fails",
        "not run",
    ]


def test_between_the_points_of_a_curve_are_straight_lines() -> None:
    test = ProvenCurve(kind="proven_curve", of="t/one", at=["sigma=0"])
    row = with_curve(((0.0, 1.0), (0.2, 0.4), (1.0, 0.0)))
    (outcome,) = test.ours({"t/one": chosen(row)}, toys.paper())
    assert outcome.text.endswith("a type II error of 0.7 at type I 0.1")


@pytest.mark.parametrize(("shift", "verdict"), [(0.0, "holds"), (0.06, "fails"), (-0.06, "fails")])
def test_approximately_is_both_ways(shift: float, verdict: str) -> None:
    test = ProvenCurve(kind="proven_curve", of="t/one", at=["sigma=0"], near_gaussian=0.05)
    curve = tuple((alpha, beta + shift) for alpha, beta in GAUSSIAN)
    (found,) = test.ours({"t/one": chosen(with_curve(curve))}, toys.paper())
    assert found.verdict == verdict
    assert not shift or ("above" if shift > 0 else "below") in found.text


# -- sentences ---------------------------------------------------------------------------------------


def test_the_page_says_what_is_out_of_scope_and_where_values_come_from(tmp_path: Path) -> None:
    written = report.write(clipping.fill(tmp_path), tmp_path)
    assert "the papers' own are typed from their texts" in written.index.read_text(encoding="utf-8")
    text = page_of(written).read_text(encoding="utf-8")
    assert "Accuracies at epoch 20 in Section 4.2, 88.31 and 60 % (2 numbers)." in text
    assert "not tested" in text


def test_a_larger_bound_is_not_said_to_be_spent(tmp_path: Path) -> None:
    declared = dpsgd.settings()
    found = dpsgd.record(dpsgd.PLAIN, declared)
    spent = [
        one.model_copy(
            update={"ledger": one.ledger.model_copy(update={"epsilon_upper": 2 * (one.ledger.claimed or 1)})}
        )
        for one in found.replicas
    ]
    dpsgd.put(found.model_copy(update={"replicas": spent}), tmp_path)
    cell = gather(declared, tmp_path)[0].tables[0].rows[0].cells["epsilon=1"]
    assert cell.guarantee.state == "weaker"
    assert cell.guarantee.reason == "what is proven of the mechanism as run is a larger ε than is claimed"
