"""A guarantee that is broken bounds nothing, whatever its mechanism spends."""

from typing import Any

import pytest

from pipeline.ledgers import ledger
from pipeline.privacy.laplace import Laplace, Releases
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.privacy.statements import statement
from pipeline.results.schema import Trained

GAUSSIAN = SampledGaussian(sampling="poisson", noise_multiplier=2.0, examples=1000, batch=100)
LAPLACE = Releases(laplace=(Laplace(quantity="inputs", claimed=1.0, distance=1.0, scales=(2.0,), span=1.0),))


def trained(spending: SampledGaussian | Releases, **changes: Any) -> Trained:
    values: dict[str, Any] = {
        "level": "epsilon=1", "seed": 0, "settings": {}, "steps": 10, "spending": spending, "delta": 1e-5,
        "claimed_by": "rdp", "broken": (), "not_covered": (), "weights": None, "seconds": 0.0, "started": 0.0,
        "ended": 0.0, "origin": 0,
    }  # fmt: skip
    return Trained(**values | changes)


@pytest.mark.parametrize("spending", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_what_is_broken_has_no_bound_and_says_why(spending: SampledGaussian | Releases) -> None:
    reason = statement("joint_statistics")
    whole = ledger.ledger_of(trained(spending), False, None, (5,))
    assert None not in (whole.epsilon_upper, whole.epsilon_lower)
    broken = ledger.ledger_of(trained(spending, broken=(reason,)), False, None, (5,))
    assert (broken.epsilon_upper, broken.accountant, broken.epsilon_lower, broken.spent) == (
        None,
        None,
        None,
        (),
    )
    assert broken.reasons == (reason,)
    assert broken.claimed == whole.claimed
