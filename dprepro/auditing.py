"""From an attacker's scores to an epsilon that is shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, SkipValidation

from dprepro.checking import checked, floats
from pipeline.audits import bounds
from pipeline.errors import UserError
from pipeline.fields import Share

Confidence = Annotated[float, Field(gt=0, lt=1)]

FEWEST = 4  # scores of a kind: half choose the threshold, half are counted


@dataclass(frozen=True)
class AuditedEpsilon:
    """Lower bounds on epsilon: so much is spent at least. None is a safety."""

    epsilon_lower: float  # assumes nothing of the mechanism
    if_gaussian: float  # of a mechanism whose trade-off curve is a Gaussian's; 0 where delta is
    confidence: float


@checked
def audit(
    without: SkipValidation[Sequence[float] | np.ndarray],
    within: SkipValidation[Sequence[float] | np.ndarray],
    *,
    delta: Share,
    confidence: Confidence = 0.95,
) -> AuditedEpsilon:
    """The epsilon at ``delta`` that an attacker's scores show, by Clopper and Pearson's intervals.

    A threshold is chosen on every second score and errors are counted on the others, so that choosing costs
    no confidence.

    Args:
        without: (N,) scores of independent trainings without the record.
        within: (M,) scores of independent trainings with it, which the attacker wants larger.
        delta: of the guarantee that is audited.
        confidence: with which each bound holds.

    Returns:
        A lower bound on epsilon, and the errors that it comes from.

    Raises:
        UserError: there are too few scores, or some that are no numbers, or ``delta`` or ``confidence`` is no
            probability.
    """
    scores = {"without": floats("without", without), "within": floats("within", within)}
    for name, values in scores.items():
        if values.ndim != 1 or len(values) < FEWEST or not np.isfinite(values).all():
            raise UserError(
                f"{name}: of shape {values.shape}; needed: at least {FEWEST} finite numbers in a row"
            )
    alpha = 1 - confidence
    best, _ = bounds.split(scores["without"], scores["within"])
    return AuditedEpsilon(
        epsilon_lower=bounds.by_thresholds(scores["without"], scores["within"], alpha, delta),
        if_gaussian=bounds.by_gaussian(best, alpha, delta) if delta > 0 else 0.0,
        confidence=confidence,
    )
