"""Suggested settings for a new row, as a start for a search.

Batch and delta follow from the number of examples. Learning rates are similar to those of this project's
rows, except of dpsgd.
"""

from typing import Any

from pydantic import ValidationError

from dprepro.checking import problem_lines
from dprepro.errors import UserError, shown
from dprepro.pipeline.methods.settings import MethodSettings, method_settings

LEAST, MOST = 16, 1024  # examples in a batch
# Least N epsilon / sqrt(d), for N examples and d weights: the excess loss of private training is of the order
# of its inverse (Bassily et al. 2014). By validation accuracy, LeNet-5 learned nothing of MNIST in 16 of 16
# trainings below 5 (225 to 7,501 examples, epsilon 0.1 to 3); above 5 it did at seven of nine settings.
LEAST_WORTH = 5.0


def settings_for(method: str, examples: int, given: dict[str, Any]) -> dict[str, Any]:
    """Settings of a row of ``method`` on ``examples`` examples: ``given`` settings, the others suggested.

    Raises:
        UserError: the method has no such setting, or needs one that can't be suggested.
    """
    declared = method_settings()[method]
    fields = declared.model_fields
    for key, value in given.items():
        if key not in fields:
            raise UserError(f"--{key.replace('_', '-')} {shown(value)}: method {method!r} has no {key}")
    begun = {"batch": batch_for(examples, declared.suggested_share), **declared.suggested_defaults}
    if "delta" in fields:
        begun["delta"] = delta_for(examples)
    suggested = {key: value for key, value in begun.items() if key in fields} | given
    suggested |= _calibrated(declared, examples, suggested, given)
    # the axis of the levels is needed even if it has a default
    needed = [key for key, field in fields.items() if field.is_required() or key == declared.axis]
    if lacking := [key for key in needed if key not in suggested]:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in lacking)
        raise UserError(f"method {method!r} needs {options}")
    return suggested


def _calibrated(
    declared: type[MethodSettings], examples: int, suggested: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any]:
    """Setting `accountant` with the tightest proven bound; empty if noise isn't calibrated to an epsilon."""
    if "accountant" not in declared.model_fields or "epsilon" not in given:
        return {}
    from dprepro.accountants.calibration import tightest

    try:
        settings = declared.model_validate(suggested)
    except ValidationError as problem:
        raise UserError("\n".join(problem_lines(problem, declared))) from None
    if not settings.private:
        return {}
    return {"accountant": tightest(given["epsilon"], suggested["delta"], settings.total_steps(examples))}


def batch_for(examples: int, share: int) -> int:
    """Largest power of two up to ``examples`` / ``share``, from `LEAST` to `MOST`, at most ``examples``."""
    return min(MOST, max(LEAST, 1 << max(0, (examples // share).bit_length() - 1)), examples)


def too_many(weights: int, examples: int, epsilon: float) -> bool:
    """Return whether a private training of so many ``weights`` may do no better than guessing."""
    return examples * epsilon < LEAST_WORTH * weights**0.5


def delta_for(examples: int) -> float:
    """Largest power of ten that is at most 1 / (10 N) for N ``examples``."""
    return float(f"1e-{len(str(10 * examples - 1))}")
