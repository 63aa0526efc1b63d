import math

import pytest

from dprepro.accountants.laplace import Laplace, Releases
from dprepro.pipeline.ledgers.ledger import release_ledger
from dprepro.pipeline.methods.statements import statement
from dprepro.pipeline.reporting.judging.guarantees import VACUOUS, Guarantee, gaussian_error, guarantee
from dprepro.pipeline.reporting.vocabulary import words
from dprepro.pipeline.reporting.wording import bound, claim
from dprepro.pipeline.results.schema import Ledger, Replica
from tests.reporting.made_up import dpsgd
from tests.reporting.made_up.dpsgd import bounds as ledger


def worth(*ledgers: Ledger, reproducible: bool = False) -> Guarantee:
    """The guarantee of a level with these ledgers."""
    replicas = [
        Replica(level="epsilon=1", seed=seed, settings={}, metrics={}, ledger=ledger)
        for seed, ledger in enumerate(ledgers)
    ]
    return guarantee(replicas, reproducible)


@pytest.mark.parametrize(
    ("claimed", "epsilon_upper", "state", "kept"),
    [
        (1.0, 0.92, "holds", True),
        (1.0, 1.0 + 1e-7, "holds", True),  # float32 scales of noise
        (8.0, 8.0001, "holds", True),  # the same, stored with five digits, rounded up
        (8.0, 8.0002, "weaker", False),
        (1.0, 1.005, "weaker", False),
        (8.0, 9.0, "weaker", False),
        (8.0, 13.8, "weaker", False),
        (8.0, 13.9, "vacuous", False),
        # a bound may keep to its claim and protect nobody
        (71234.0, 71234.0, "vacuous", True),
        (100.0, 90.0, "vacuous", True),
        (80.0, 90.0, "vacuous", False),
        # a claim above the largest float
        (None, 4e6, "huge", False),
        (1.0, None, "none_proven", False),
        (None, 2.0, "huge", False),
        (None, None, "huge", False),
    ],
)
def test_what_a_ledger_is_worth(
    claimed: float | None, epsilon_upper: float | None, state: str, kept: bool
) -> None:
    judged = worth(ledger(claimed, epsilon_upper))
    assert (judged.state, judged.within_claim) == (state, kept)
    # seeded noise voids a bound
    seeded = worth(ledger(claimed, epsilon_upper), reproducible=True)
    assert (seeded.state, seeded.within_claim) == ("huge" if state == "huge" else "none_proven", False)
    assert worth(ledger(None, None, claimed_by=None), reproducible=True).state == "none"


@pytest.mark.parametrize(
    ("epsilon_upper", "shown", "state"),
    [
        (1.2, None, "weaker"),
        (1.2, 0.99, "weaker"),
        (1.2, 1.01, "exceeds"),
        # also where the bound is vacuous
        (90.0, 0.99, "vacuous"),
        (90.0, 1.01, "exceeds"),
    ],
)
def test_more_than_is_claimed_is_said_only_where_it_is_shown(
    epsilon_upper: float, shown: float | None, state: str
) -> None:
    named = statement("turns_around")
    judged = worth(ledger(1.0, epsilon_upper, epsilon_lower=shown, epsilon_lower_by=named))
    assert (judged.state, judged.within_claim) == (state, False)
    assert (words(named) in (judged.reason or "")) == (state == "exceeds")


def test_a_vacuous_bound_allows_both_errors_to_be_below_one_in_a_million() -> None:
    # alpha + e^epsilon beta >= 1 of an epsilon-DP mechanism, at alpha = beta
    assert 1 / (1 + math.exp(VACUOUS)) == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("claimed", "epsilons", "state", "kept"),
    [
        (8.0, [4.0, 4.0], "holds", True),
        (1.0, [4.0, 4.0], "exceeds", False),
        # 15 pure; at delta 1e-5 below 3, which is privacy, but not what was claimed
        (1.0, [15 / 784] * 784, "exceeds", False),
        (15.0, [15 / 784] * 784, "holds", True),
        # one coordinate tells all there is to tell
        (15.0, [15.0], "vacuous", True),
        (60.0, [40 / 784] * 784 + [20.0], "vacuous", True),
        # which is more than is claimed, and worse than a bound that says little
        (1.0, [40 / 784] * 784 + [20.0], "exceeds", False),
    ],
)
def test_a_pure_bound_is_vacuous_where_none_at_a_delta_is_smaller(
    claimed: float, epsilons: list[float], state: str, kept: bool
) -> None:
    scales = tuple(1 / epsilon for epsilon in epsilons)
    inputs = Laplace(quantity="inputs", claimed=claimed, distance=1.0, scales=scales, span=1.0)
    judged = worth(release_ledger(Releases(laplace=(inputs,)), 10))
    assert (judged.state, judged.within_claim) == (state, kept)
    assert judged.ledger.epsilon_upper == pytest.approx(sum(epsilons))


def test_the_worst_replica_speaks_for_all() -> None:
    broken = ledger(1.0, None, reasons=(dpsgd.BROKEN,))
    judged = worth(ledger(1.0, 0.9), broken, ledger(1.0, 0.8))
    assert (judged.state, judged.reason) == ("none_proven", dpsgd.REASON)
    assert worth(ledger(1.0, 0.8), ledger(1.0, 0.9)).ledger.epsilon_upper == 0.9
    # what is wrong with the mechanism itself is a better reason than a seed
    assert worth(broken, reproducible=True).reason == dpsgd.REASON


@pytest.mark.parametrize(
    ("epsilon_upper", "words"),
    [
        (6.0142, "ε ≤ 6.02"),
        (0.9047, "ε ≤ 0.905"),
        (2.0, "ε ≤ 2"),
        (0.044481, "ε ≤ 0.0445"),
        (298.4, "ε ≤ 299"),
        (71234.0, "ε ≤ 71,300"),
        (999.2, "ε ≤ 1,000"),
        (999600.0, "ε ≤ 1 million"),
        (4123456.0, "ε ≤ 4.13 million"),
        (999.6e6, "ε ≤ 1e9"),
        (3e9, "ε ≤ 3e9"),
        (3.001e12, "ε ≤ 3.01e12"),
    ],
)
def test_a_bound_is_never_rounded_down(epsilon_upper: float, words: str) -> None:
    assert bound(ledger(7.0, epsilon_upper)) == words


@pytest.mark.parametrize(("claimed", "words"), [(998.4, "999"), (999.4, "1,000"), (1e-5, "1e-5"), (7, "7")])
def test_a_claim_is_rounded_up_like_the_bounds_beside_it(claimed: float, words: str) -> None:
    assert claim(ledger(claimed, None)) == words


@pytest.mark.parametrize(
    ("mu", "alpha", "beta"), [(0.0, 0.3, 0.7), (1.0, 0.5, 0.15866), (1.0, 0.05, 0.74049), (1.0, 0.0, 1.0)]
)
def test_the_gaussian_curve_has_the_values_of_normal_tables(mu: float, alpha: float, beta: float) -> None:
    assert gaussian_error(alpha, mu) == pytest.approx(beta, abs=1e-4)
