"""Record of attack risk, which `pipeline.privacy.attack_risk` computes, without imports of accountants."""

from typing import Annotated

from pydantic import Field

from pipeline.fields import NotNegative, Strict

Share = Annotated[float, Field(ge=0, le=1)]


class Risk(Strict):
    """Attack risk and Gaussian DP of a mechanism; upper bounds."""

    tpr_at_1_percent: Share  # true-positive rate at a false-positive rate of .01
    tpr_at_01_percent: Share  # at .001
    advantage: Share  # true-positive rate minus false-positive rate
    # smallest mu whose Gaussian curve is below f at false-positive rates from `least_rate` on; None: no such
    # mu
    mu: NotNegative | None
    least_rate: Share  # cut-off of mu, without which sampled Gaussians have no natural one
    regret: Share | None  # largest error of Gaussian DP at `mu` in an attack's two error rates
