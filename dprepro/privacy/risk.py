"""Record of the attack risk that `dprepro.privacy.attack_risk` computes; its import loads no accountant."""

from typing import Annotated

from pydantic import Field

from dprepro.fields import NotNegative, Strict

Share = Annotated[float, Field(ge=0, le=1)]


class Risk(Strict):
    """Attack risk and Gaussian DP of a mechanism; upper bounds."""

    tpr_at_1_percent: Share  # true-positive rate at a false-positive rate of .01
    tpr_at_01_percent: Share  # at .001
    advantage: Share  # true-positive rate minus false-positive rate
    # smallest mu whose Gaussian trade-off curve is below the mechanism's, if both error rates are at least
    # `least_rate`; None: there is no such mu
    mu: NotNegative | None
    least_rate: Share  # cut-off for mu; sampled Gaussians have no natural mu without a cut-off
    regret: Share | None  # largest error of Gaussian DP at `mu` in an attack's two error rates
