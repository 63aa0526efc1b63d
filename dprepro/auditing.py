"""Lower bounds on epsilon from an attacker's scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, SkipValidation

from dprepro.checking import checked, floats
from dprepro.errors import UserError
from dprepro.fields import Share
from dprepro.pipeline.audits import bounds

Confidence = Annotated[float, Field(gt=0, lt=1)]

FEWEST = 4  # scores on each side: half of them choose the threshold, and half are counted


@dataclass(frozen=True)
class AuditedEpsilon:
    """Lower bounds on epsilon at a confidence. They prove no privacy."""

    epsilon_lower: float  # without assumptions on the mechanism
    if_gaussian: float  # for mechanisms with the trade-off curve of a Gaussian; 0 if delta is 0
    confidence: float


@checked
def audit(
    without: SkipValidation[Sequence[float] | np.ndarray],
    within: SkipValidation[Sequence[float] | np.ndarray],
    *,
    delta: Share,
    confidence: Confidence = 0.95,
) -> AuditedEpsilon:
    """Lower bound on epsilon at ``delta`` from an attacker's scores, by Clopper and Pearson's intervals.

    The threshold is chosen on every second score and errors are counted on the others, so the choice costs no
    confidence.

    Args:
        without: (N,) scores of independent trainings without the record.
        within: (M,) scores of independent trainings with the record; larger for a good attacker.
        delta: delta of the audited guarantee.
        confidence: confidence of each bound.

    Returns:
        A lower bound without assumptions on the mechanism, and one for Gaussian mechanisms.

    Raises:
        UserError: there are too few scores, a score isn't a finite number, or ``delta`` or ``confidence``
            isn't a probability.
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
