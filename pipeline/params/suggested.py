"""Settings to begin with, for a row whose author named a method and little else.

They are where a search may begin, and nobody's findings: rates are near those of this project's own rows,
batches and deltas follow from the number of examples.
"""

from typing import Any

from pydantic import ValidationError

from pipeline.errors import UserError, shown
from pipeline.methods.rooms import method_settings
from pipeline.methods.settings import MethodSettings
from pipeline.params.problems import problem_lines

# One in so many examples is in a batch. A step's noise hardly depends on the batch, and drowns small ones:
# on 710 images at epsilon 3, 12 seeds ended at 82 to 100 % with 64 a batch, and at 65 to 100 % with 16.
SHARE = 8
LEAST, MOST = 16, 1024  # examples in a batch


def settings_for(method: str, examples: int, given: dict[str, Any]) -> dict[str, Any]:
    """Settings of a row of ``method`` on ``examples``: what is ``given``, and beginnings for what it needs.

    Raises:
        UserError: the method has no such setting, or needs one that nobody can foretell.
    """
    declared = method_settings()[method]
    fields = declared.model_fields
    for key, value in given.items():
        if key not in fields:
            raise UserError(f"--{key.replace('_', '-')} {shown(value)}: method {method!r} has no {key}")
    begun = {"batch": batch_for(examples), **declared.beginnings}
    if "delta" in fields:
        begun["delta"] = delta_for(examples)
    suggested = {key: value for key, value in begun.items() if key in fields} | given
    suggested |= _calibrated(declared, examples, suggested, given)
    # what levels differ in is asked for, whatever its default
    needed = [key for key, field in fields.items() if field.is_required() or key == declared.axis]
    if lacking := [key for key in needed if key not in suggested]:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in lacking)
        raise UserError(f"method {method!r} needs {options}")
    return suggested


def _calibrated(
    declared: type[MethodSettings], examples: int, suggested: dict[str, Any], given: dict[str, Any]
) -> dict[str, Any]:
    """The accountant with the tightest proven bound, where the method calibrates its noise by one."""
    if "accountant" not in declared.model_fields or "epsilon" not in given:
        return {}
    from pipeline.privacy.accounting import tightest  # brings SciPy with it

    try:
        settings = declared.model_validate(suggested)
    except ValidationError as problem:
        raise UserError("\n".join(problem_lines(problem, declared))) from None
    if not settings.private:
        return {}
    return {"accountant": tightest(given["epsilon"], suggested["delta"], settings.total_steps(examples))}


def batch_for(examples: int) -> int:
    """The largest power of two that is no more than one example in `SHARE`, within bounds."""
    return min(MOST, max(LEAST, 1 << max(0, (examples // SHARE).bit_length() - 1)), examples)


def delta_for(examples: int) -> float:
    """Largest power of ten that is at most 1 / (10 N) for N ``examples``."""
    return float(f"1e-{len(str(10 * examples - 1))}")
