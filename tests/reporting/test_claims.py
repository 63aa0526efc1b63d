from pathlib import Path
from typing import Any

import pytest

from dprepro.pipeline.params import Settings
from dprepro.pipeline.reporting.gather import gather
from dprepro.pipeline.reporting.judging.assess import Assessment, ClaimResult
from dprepro.pipeline.reporting.report import Report
from tests.keeping import keep
from tests.reporting import lookup
from tests.reporting.made_up import dpsgd, noisy

PUBLIC, LITERAL = "public statistics", "Algorithm 1 to the letter"
ALL = dict.fromkeys(dpsgd.ACCURACY)


def assessed(root: Path, declared: Settings) -> dict[str, ClaimResult]:
    return lookup.claims(gather(declared, root)[0])


def by_variant(result: ClaimResult) -> dict[str, Assessment]:
    return {assessment.variant: assessment for assessment in result.assessments}


def statuses(result: ClaimResult) -> dict[str, str]:
    return {assessment.variant: assessment.status for assessment in result.assessments}


@pytest.fixture
def claims(written: Report) -> dict[str, ClaimResult]:
    return lookup.claims(written.papers[0])


def test_a_claim_is_reproduced_for_each_variant_that_it_holds_everywhere_for(
    claims: dict[str, ClaimResult],
) -> None:
    # nobody declared a row for batch norm as it stands
    helps = claims["normalization-helps"]
    assert statuses(helps) == {"": "not run", PUBLIC: "reproduced", LITERAL: "reproduced"}
    # two normalisations at six levels, each with what was compared and how sure it is
    texts = [outcome.text for outcome in by_variant(helps)[PUBLIC].outcomes]
    assert len(texts) == 12
    assert texts[0].startswith("DPSGD (LN-LeNet-5) − DPSGD (LeNet-5) at ε = 7: +0.9")
    assert texts[0].endswith("(n = 3), required: above 0")
    # a guarantee stands and falls with the ledger
    lossless = claims["no-additional-loss"]
    assert statuses(lossless) == {"": "not run", PUBLIC: "reproduced", LITERAL: "not reproduced"}
    assert dpsgd.REASON in by_variant(lossless)[LITERAL].outcomes[0].text
    # a gain must lie in its bounds with its whole interval: 8.0, and at least 8 is asked
    gains = statuses(claims["large-gains"])
    assert (gains[PUBLIC], gains[LITERAL]) == ("reproduced", "undecided")


def test_a_claim_needs_both_sides(tmp_path: Path) -> None:
    declared = dpsgd.settings()
    dpsgd.put(dpsgd.record(dpsgd.PUBLIC, declared), tmp_path)
    claims = assessed(tmp_path, declared)
    compared = by_variant(claims["batch-over-layer"])[PUBLIC]
    assert (compared.status, compared.tally) == ("not run", "6 not run")
    assert statuses(claims["no-additional-loss"])[PUBLIC] == "reproduced"  # has one side only


@pytest.mark.parametrize(
    ("edition", "change", "caveat"),
    [("synthetic", {}, "synthetic data"), ("official", {"budget": "reduced"}, "reduced budget: 8 epochs")],
)
def test_what_is_no_reproduction_supports_no_claim(
    tmp_path: Path, edition: str, change: dict[str, Any], caveat: str
) -> None:
    declared = dpsgd.put_all(dpsgd.settings(**dict.fromkeys(ALL, change)), tmp_path, edition)
    for name, result in assessed(tmp_path, declared).items():
        if name == "no-additional-loss" and change:
            # about the guarantee, and not about accuracy: it holds or fails on a reduced budget too
            assert statuses(result) == {"": "not run", PUBLIC: "reproduced", LITERAL: "not reproduced"}
            continue
        for assessment in result.assessments:
            # a claim on one line alone needs no variant
            alone = name == "drops-at-small-epsilon" and assessment.reduced == bool(change)
            complete = bool(assessment.variant) or alone
            assert assessment.status == ("not judged" if complete else "not run")
            caveats = {outcome.caveat for outcome in assessment.outcomes if outcome.verdict != "not run"}
            assert caveats <= {caveat}
            assert not complete or assessment.tally.endswith(f" not judged ({caveat})")


def test_our_own_seeding_is_not_held_against_the_paper(tmp_path: Path) -> None:
    declared = dpsgd.settings(**{dpsgd.PUBLIC: {"reproducible": True}})
    dpsgd.put(dpsgd.record(dpsgd.PUBLIC, declared), tmp_path)
    assert statuses(assessed(tmp_path, declared)["no-additional-loss"])[PUBLIC] == "not judged"


# -- rows on two budgets -----------------------------------------------------------------------------


def on(result: ClaimResult, budget: str) -> Assessment:
    (assessment,) = (each for each in result.assessments if each.reduced == (budget == "reduced"))
    return assessment


def test_convergence_is_tested_over_all_seeds(tmp_path: Path) -> None:
    declared = noisy.fill(tmp_path)
    keep(noisy.record(noisy.PLAIN, declared, sigma_2=(True, False, True)), tmp_path)
    result = assessed(tmp_path, declared)["baselines-threshold"]
    outcomes = {outcome.text.partition(":")[0]: outcome for outcome in on(result, "full").outcomes}
    expected = {
        "LeNet-5 at σ = 0": "holds",
        "LeNet-5 at σ = 1": "holds",
        "LeNet-5 at σ = 2": "undecided",
        "LeNet-300-100 at σ = 1": "not run",
    }
    assert {title: outcomes[title].verdict for title in expected} == expected
    said = "0 of 3 seeds converged, accuracy 9.85 ± 0.12 (n = 3), required: no convergence"
    assert said in outcomes["LeNet-5 at σ = 1"].text
    # the paper's words and numbers are put to the same test
    assert (len(result.printed), result.contradicted) == (10, ())
    # converging where the paper does not fails the claim
    keep(noisy.record(noisy.PLAIN, declared, sigma_1=(True, True, True)), tmp_path)
    converging = assessed(tmp_path, declared)["baselines-threshold"]
    assert on(converging, "full").status == "not reproduced"


def test_no_convergence_after_a_narrow_search_does_not_count(tmp_path: Path) -> None:
    declared = noisy.fill(tmp_path)
    noisy.search(tmp_path, (0.01, 0.1))
    tested = on(assessed(tmp_path, declared)["tolerant-to-noise"], "full").outcomes
    failed = [outcome for outcome in tested if outcome.text.startswith("LeNet-5 at")]
    assert len(failed) == 2
    assert all("too narrow a search" in (outcome.caveat or "") for outcome in failed)
    assert not any(outcome.caveat for outcome in tested if outcome.text.startswith("BN-LeNet-5"))


def test_full_and_reduced_rows_are_never_compared_with_each_other(tmp_path: Path) -> None:
    declared = noisy.fill(tmp_path)
    claims = assessed(tmp_path, declared)
    for result in claims.values():
        if not result.claim.tests:
            continue
        full, reduced = result.assessments
        assert (full.reduced, reduced.reduced) == (False, True)
        assert {outcome.caveat for outcome in full.outcomes} == {None}
        for outcome in reduced.outcomes:
            stronger = "in spite of less training" in outcome.text
            assert outcome.verdict == "not run" or outcome.caveat == (None if stronger else noisy.SHORT)
        assert reduced.status in ("not run", "not judged")
    # three points are lost on the reduced budget; within it nothing changes. Levels of one row are compared
    # seed by seed: seeds spread by 0.05, their differences not at all
    for budget, sigma in (("reduced", 2), ("full", 1)):
        lines = [outcome.text for outcome in on(claims["no-change"], budget).outcomes]
        said = f"BN-LeNet-5, σ = {sigma} − σ = 0: +0.00 ± 0.00 (n = 3), required: above -0.5 and below 0.5"
        assert said in lines
    # a slow-down on a reduced budget does not count
    first = on(claims["seven-times-slower"], "reduced").outcomes[0]
    assert (first.verdict, first.caveat) == ("holds", noisy.SHORT)


def test_a_full_row_that_was_not_run_is_not_stood_in_for_by_a_reduced_one(tmp_path: Path) -> None:
    declared = noisy.settings()
    noisy.search(tmp_path)
    keep(noisy.record(noisy.BATCH + noisy.REDUCED, declared), tmp_path)
    result = assessed(tmp_path, declared)["no-change"]
    assert {outcome.verdict for outcome in on(result, "full").outcomes} == {"not run"}
    assert result.status == "not run"
