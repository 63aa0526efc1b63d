"""dprepro as a library. These names stay stable from version to version.

    import dprepro

    spent = dprepro.epsilon(examples=60_000, batch=256, epochs=20, noise_multiplier=1.1, delta=1e-5)
    print(spent.epsilon_upper, spent.epsilon_lower)

* `epsilon`: upper and lower bounds on epsilon of DP-SGD, by several accountants.
* `noise_multiplier`: noise for a target epsilon.
* `compose`: epsilon of several trainings on the same data.
* `noisy_sum`: release of a DP-SGD step of your network, without a floating-point leak.
* `PrivateBackward`: the same in place of `loss.backward()`, in loops of Lightning, Accelerate and the like.
* `clipped_sum`: sum of a network's clipped per-example gradients, fast and exact.
* `PoissonSampler`, `BallsAndBinsSampler`: batches by Poisson sampling, or by random allocation.
* `loader`: torch's `DataLoader` with their batches, empty ones too.
* `audit`: lower bound on epsilon from an attacker's scores.
* `audit_training`: attack on your own training loop, and tests for classic mistakes.
* `audit_model`: lower bounds on epsilon by canaries in a training of your own network.
* `worst_start`: initial weights for `audit_model` with which an attacker recognises canaries best.
* `replay`: one private step on neighbouring batches, and the lines of code that break its privacy proof.

Everything else, in `pipeline` and `stages`, may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dprepro.errors import UserError

if TYPE_CHECKING:
    from dprepro.accounting import Composed, Spent, compose, epsilon, noise_multiplier
    from dprepro.auditing import AuditedEpsilon, audit
    from dprepro.auditing.models import ModelAudit, audit_model, worst_start
    from dprepro.auditing.replay import Pair, Replay, Violation, replay
    from dprepro.auditing.training import Claims, Mistake, TrainingAudit, audit_training
    from dprepro.backward import PrivateBackward
    from dprepro.samplers import BallsAndBinsSampler, PoissonSampler, loader
    from dprepro.sums import ClippedSum, clipped_sum, noisy_sum

__all__ = [
    "AuditedEpsilon",
    "BallsAndBinsSampler",
    "Claims",
    "ClippedSum",
    "Composed",
    "Mistake",
    "ModelAudit",
    "Pair",
    "PoissonSampler",
    "PrivateBackward",
    "Replay",
    "Spent",
    "TrainingAudit",
    "UserError",
    "Violation",
    "audit",
    "audit_model",
    "audit_training",
    "clipped_sum",
    "compose",
    "epsilon",
    "loader",
    "noise_multiplier",
    "noisy_sum",
    "replay",
    "worst_start",
]

# Modules of the stable names, imported at the first access, because torch and scipy take seconds
_MODULES = {
    "accounting": ("Composed", "Spent", "compose", "epsilon", "noise_multiplier"),
    "auditing": ("AuditedEpsilon", "audit"),
    "sums": ("ClippedSum", "clipped_sum", "noisy_sum"),
    "backward": ("PrivateBackward",),
    "auditing.models": ("ModelAudit", "audit_model", "worst_start"),
    "auditing.replay": ("Pair", "Replay", "Violation", "replay"),
    "samplers": ("BallsAndBinsSampler", "PoissonSampler", "loader"),
    "auditing.training": ("Claims", "Mistake", "TrainingAudit", "audit_training"),
}


def __getattr__(name: str) -> Any:
    """Object with a stable name, from its module."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Stable names, for `dir` and completion."""
    return __all__
