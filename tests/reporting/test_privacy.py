"""Privacy of a level, by every combination of what is claimed, accounted, computed and shown by attacks."""

import pytest

from dprepro.accountants.laplace import Laplace, Releases
from dprepro.pipeline.ledgers.ledger import release_ledger
from dprepro.pipeline.ledgers.sentences import bound, claim
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.reporting.privacy import Privacy, floats_tell, not_covered, privacy, specific
from dprepro.pipeline.reporting.wording import words
from dprepro.pipeline.results.schema import FLOATING_POINT, Attack, Composition, Ledger, TrainingResult
from tests.reporting.made_up import dpsgd
from tests.reporting.made_up.dpsgd import attack
from tests.reporting.made_up.dpsgd import bounds as ledger


def judged(*ledgers: Ledger, attacks: tuple[Attack, ...] = (), seeded: bool = False) -> Privacy:
    """Privacy of a level with these ledgers."""
    trainings = [
        TrainingResult(level="epsilon=1", seed=seed, settings={}, metrics={}, ledger=each, attacks=attacks)
        for seed, each in enumerate(ledgers)
    ]
    return privacy(trainings, seeded)


def test_an_upper_bound_proves_a_claim_unless_the_noise_is_seeded() -> None:
    assert judged(ledger(1.0, 0.92)).status == "proven"
    assert judged(ledger(None, 2.0)).status == "not proven"  # a claim above the largest float
    seeded = judged(ledger(1.0, 0.92), seeded=True)
    assert seeded.status == "not proven"
    assert seeded.reason
    assert judged(ledger(None, None, claimed_by=None), seeded=True).status == "no claim"


@pytest.mark.parametrize(
    ("spent", "attacks", "status"),
    [
        (ledger(7.0, 7.0000001), (), "proven"),  # by rounding alone
        (ledger(8.0, 8.0001), (), "proven"),  # the same, stored with five digits, rounded up
        (ledger(8.0, 8.0002), (), "not proven"),
        (ledger(0.25, None, epsilon_lower=2.0), (), "exceeded"),
        (ledger(1.0, 1.2, epsilon_lower=0.99), (), "not proven"),
        (ledger(1.0, 1.2, epsilon_lower=1.01), (), "exceeded"),
        (ledger(1.0, 0.9), (attack(0.5, 0.9, whole=True),), "proven"),
        (ledger(1.0, 1.2), (attack(1.1, 1.2, whole=True),), "exceeded"),
        # only an assumption on scores shows so much, or fewer steps than the row's
        (ledger(1.0, 1.2), (attack(1.1, 1.2, whole=True, gaussian=True),), "not proven"),
        (ledger(1.0, 0.9), (attack(3.0, 3.2),), "proven"),
        # the accounting of the attacked mechanism itself is contradicted
        (ledger(1.0, 0.9), (attack(3.3, 3.2),), "exceeded"),
        (ledger(1.0, 0.9), (attack(3.2001, 3.2),), "proven"),  # clipped sums of float32
        (ledger(1.0, 0.9), (attack(60.0, 3.2, attack=FLOATING_POINT),), "proven"),  # told apart
        (ledger(8.0, None), (attack(1.0, None),), "not proven"),
    ],
)
def test_a_lower_bound_above_a_claim_exceeds_it(
    spent: Ledger, attacks: tuple[Attack, ...], status: str
) -> None:
    found = judged(spent, attacks=attacks)
    assert found.status == status
    assert bool(found.reason) is (status != "proven")


def test_the_reason_names_the_pair_of_data_sets_of_a_computed_bound() -> None:
    named = statement("turns_around")
    found = judged(ledger(1.0, 1.2, epsilon_lower=1.01, epsilon_lower_by=named))
    assert words(named) in (found.reason or "")


@pytest.mark.parametrize(("claimed", "status"), [(8.0, "proven"), (1.0, "exceeded")])
def test_releases_of_laplace_noise_have_exact_epsilons(claimed: float, status: str) -> None:
    inputs = Laplace(quantity="inputs", claimed=claimed, distance=1.0, scales=(0.25, 0.25), span=1.0)
    found = judged(release_ledger(Releases(laplace=(inputs,)), 10))
    assert (found.status, found.ledger.epsilon_upper) == (status, pytest.approx(8.0))


def test_the_worst_training_speaks_for_all() -> None:
    broken = ledger(1.0, None, reasons=(dpsgd.BROKEN,))
    found = judged(ledger(1.0, 0.9), broken, ledger(1.0, 0.8))
    assert (found.status, found.reason) == ("not proven", dpsgd.REASON)
    assert judged(ledger(1.0, 0.8), ledger(1.0, 0.9)).ledger.epsilon_upper == 0.9
    # what is wrong with the mechanism itself is a better reason than a seed
    assert judged(broken, seeded=True).reason == dpsgd.REASON


def test_uses_that_all_rows_share_are_left_out_and_further_trainings_have_their_bound() -> None:
    spent = dpsgd.ledger(not_covered=(statement("curves"), statement("all_replicas")))
    together = Composition(epsilon=7.201, delta=1e-5, by="pld", trainings=3, searched=2, left_out=0)
    uses = not_covered(spent, (), together)
    assert [use.key for use in uses] == ["curves", "all_replicas", "floating_point"]
    (use,) = specific(uses)
    assert use.words.endswith("together is ε ≤ 7.21")
    (unbounded,) = specific(not_covered(spent, (), together.model_copy(update={"left_out": 1})))
    assert "No bound is proven" in unbounded.words


def test_an_attack_on_rounding_counts_for_its_own_noise() -> None:
    found = attack(60.0, 3.2, attack=FLOATING_POINT, noise="float32")
    assert floats_tell([found], "float32")
    assert not floats_tell([found], "grid")
    uses = not_covered(dpsgd.ledger(), [found], None)
    assert "floating_point_shown" in {use.key for use in specific(uses)}


@pytest.mark.parametrize(
    ("epsilon_upper", "words"),
    [(6.0142, "ε ≤ 6.02"), (2.0, "ε ≤ 2"), (0.044481, "ε ≤ 0.0445"), (71234.0, "ε ≤ 71,300"),
     (999.2, "ε ≤ 1,000"), (4123456.0, "ε ≤ 4.13 million"), (3.001e12, "ε ≤ 3.01e12")],
)  # fmt: skip
def test_a_bound_is_never_rounded_down(epsilon_upper: float, words: str) -> None:
    assert bound(ledger(7.0, epsilon_upper)) == words


@pytest.mark.parametrize(("claimed", "words"), [(998.4, "999"), (999.4, "1,000"), (1e-5, "1e-5"), (7, "7")])
def test_a_claim_is_rounded_up_like_the_bounds_beside_it(claimed: float, words: str) -> None:
    assert claim(ledger(claimed, None)) == words
