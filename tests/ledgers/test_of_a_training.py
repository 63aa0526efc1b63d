"""A training's ledger, from what ran: what holds, what voids it, and what it says besides epsilon."""

from functools import cache
from typing import Any

import pytest

from dprepro.accountants.laplace import Laplace, Releases
from dprepro.accountants.records import SampledGaussian
from dprepro.pipeline.ledgers import ledger
from dprepro.pipeline.methods.spending import Statement, statement
from dprepro.pipeline.results.schema import Ledger, TrainingRecord
from tests.made_records import made_up_origin, made_up_training

OWN, SEEDED, FLAW = statement("curves"), statement("seeded"), statement("joint_statistics")
POISSON, FIXED = (
    SampledGaussian(sampling=sampling, noise_multiplier=2.0, examples=200, batch=20)
    for sampling in ("poisson", "fixed")
)
RELEASES = Releases(
    laplace=(
        Laplace(quantity="inputs", claimed=0.5, distance=1.0, scales=(1.0, 2.0, 8.0), span=2.0),
        Laplace(quantity="labels", claimed=0.5, distance=1.0, scales=(4.0,), span=1.0),
    )
)


def trained(spending: SampledGaussian | Releases | None = FIXED, **changes: Any) -> TrainingRecord:
    return made_up_training(spending, 10, **{"not_covered": (OWN,), **changes})


@cache
def sound(spending: SampledGaussian | Releases) -> Ledger:
    """Ledger of a training without a seed or a flaw."""
    return ledger.ledger_of(trained(spending), None, (5, 10))


@pytest.mark.parametrize("spending", [POISSON, FIXED, RELEASES], ids=["poisson", "fixed", "laplace"])
@pytest.mark.parametrize(
    ("seeded", "broken", "reason"), [(True, (), SEEDED), (False, (FLAW,), FLAW), (True, (FLAW,), FLAW)]
)
def test_a_seed_or_a_flaw_leaves_the_claim_and_no_bound(
    spending: SampledGaussian | Releases, seeded: bool, broken: tuple[Statement, ...], reason: Statement
) -> None:
    whole = sound(spending)
    assert None not in (whole.epsilon_upper, whole.accountant, whole.epsilon_lower)
    ran = trained(spending, broken=broken, origin=made_up_origin(reproducible=seeded))
    void = ledger.ledger_of(ran, None, (5, 10))
    assert (void.epsilon_upper, void.accountant, void.epsilon_lower, void.spent) == (None, None, None, ())
    assert (void.reasons, void.claimed, void.protects) == ((reason,), whole.claimed, None)
    assert (void.mu, void.tradeoff) == (None, ())
    assert void.claimed is not None


def test_a_ledger_tells_the_search_and_the_mechanisms_own_uses() -> None:
    choices, search = statement("other_choices"), statement("search", search="s")
    always = tuple(map(statement, ("examples_public", "validation", "timing", "digests")))
    assert ledger.ledger_of(trained(), None).not_covered == (choices, OWN, *always)
    assert ledger.ledger_of(trained(), "s").not_covered == (search, choices, OWN, *always)
    others = ledger.ledger_of(trained(), None, uses=[statement("all_replicas")])
    assert others.not_covered[-1] == statement("all_replicas")


def test_nothing_private_leaves_an_empty_ledger() -> None:
    plain = statement("no_noise")
    empty = ledger.ledger_of(trained(None, delta=None, broken=(plain,)), "s", [5, 10])
    assert (empty.event, empty.claimed, empty.epsilon_upper, empty.reasons) == (None, None, None, (plain,))
    assert empty.spent == ()


def test_releases_have_a_pure_ledger_that_is_spent_before_the_first_step() -> None:
    training = trained(RELEASES, delta=0.0, claimed_by="laplace", protects=statement("local_at_claimed"))
    bought = ledger.ledger_of(training, "s", [1, 10])
    pure = 1 + 1 / 2 + 1 / 8 + 1 / 4
    assert (bought.claimed, bought.epsilon_upper, bought.delta) == (1.0, pure, 0.0)
    assert bought.spent == ((1, pure), (10, pure))
    assert bought.protects == training.protects
    assert (
        ledger.ledger_of(
            training.model_copy(update={"origin": made_up_origin(reproducible=True)}), None
        ).protects
        is None
    )
    as_kept = TrainingRecord.model_validate_json(training.model_dump_json())
    assert ledger.ledger_of(as_kept, "s", [1, 10]) == bought
