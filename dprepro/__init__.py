"""dprepro as a library: what is promised to stay from version to version.

    import dprepro

    spent = dprepro.epsilon(examples=60_000, batch=256, epochs=20, noise_multiplier=1.1, delta=1e-5)
    print(spent.epsilon_upper, spent.epsilon_lower)

* `epsilon`: what DP-SGD spends, by several accountants, and what it spends at least.
* `noise_multiplier`: the noise that an epsilon takes.
* `clipped_sum`: the sum of a network's clipped per-example gradients, fast and exact.
* `BallsAndBinsSampler`: batches of a torch `DataLoader` by random allocation.
* `audit`: the epsilon that an attacker's scores show.
* `audit_training`: what an attack on anybody's training shows, and which mistakes it looks like.
* `audit_model`: lower bounds on epsilon by canaries in a training of your own network.
* `worst_start`: weights to begin such a training with, from which canaries show most.
* `replay`: one step run again on neighbouring batches, and the lines that break its proof of privacy.

Everything else, in `pipeline` and `stages`, may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError

if TYPE_CHECKING:
    from dprepro.accounting import Spent, epsilon, noise_multiplier
    from dprepro.auditing import AuditedEpsilon, audit
    from dprepro.gradients import ClippedSum, clipped_sum
    from dprepro.models import ModelAudit, audit_model, worst_start
    from dprepro.replaying import Pair, Replay, Violation, replay
    from dprepro.samplers import BallsAndBinsSampler
    from dprepro.training import Claims, Mistake, TrainingAudit, audit_training

__all__ = [
    "AuditedEpsilon",
    "BallsAndBinsSampler",
    "Claims",
    "ClippedSum",
    "Mistake",
    "ModelAudit",
    "Pair",
    "Replay",
    "Spent",
    "TrainingAudit",
    "UserError",
    "Violation",
    "audit",
    "audit_model",
    "audit_training",
    "clipped_sum",
    "epsilon",
    "noise_multiplier",
    "replay",
    "worst_start",
]

# Modules of all other names, which are imported when they are first asked for: torch and scipy take seconds
_MODULES = {
    "accounting": ("Spent", "epsilon", "noise_multiplier"),
    "auditing": ("AuditedEpsilon", "audit"),
    "gradients": ("ClippedSum", "clipped_sum"),
    "models": ("ModelAudit", "audit_model", "worst_start"),
    "replaying": ("Pair", "Replay", "Violation", "replay"),
    "samplers": ("BallsAndBinsSampler",),
    "training": ("Claims", "Mistake", "TrainingAudit", "audit_training"),
}


def __getattr__(name: str) -> Any:
    """A promised name, from the module that has it."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The promised names, for `dir` and completion."""
    return __all__
