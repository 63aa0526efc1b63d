"""A made-up project of batch clipping: figures of Nguyen et al., two accounts, two ideas it leaves untried.

Every ledger is made up too; sigma .01875 is no privacy, whatever it was claimed to be.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.params import Settings, parse
from pipeline.privacy.statements import statement
from pipeline.results.schema import Ledger, Record
from tests.reporting.made_up import dpsgd

LITERAL, PUBLIC, SIGMAS = "nguyen-f11-bc-alc", "nguyen-f11-bc-alc-dpub", "nguyen-f12b-bc-alc"
BC, IC = "nguyen-f4-bc", "nguyen-f4-ic"
GROUPS, SAMPLING = "nguyen-untried-groups", "nguyen-untried-sampling"
GDP, MORE = "nguyen-gdp", "nguyen-gdp-more-data"
CLIPS, NOISES = (0.05, 0.1, 0.2, 0.4, 0.8), (0.25, 1.5, 2.5)
# test accuracy in percent, by level
ACCURACY: dict[str, dict[Any, float]] = {
    PUBLIC: dict(zip(CLIPS, (80.0, 83.0, 85.0, 84.0, 78.0), strict=True)),
    SIGMAS: dict(zip(NOISES, (88.0, 67.4, 50.4), strict=True)),
    BC: {64: 67.0},
    IC: {64: 10.0},
    GROUPS: {1: 80.0, 4: 82.0},
    SAMPLING: {"fixed": 80.0, "poisson": 81.0},
}
ACCURACY[LITERAL] = ACCURACY[PUBLIC]
DATA = {"raw": "mnist", "train": 49000, "validation": 5000, "public": {"raw": "mnist", "count": 6000}}
MU = {2.5: 0.5199, 1.5: 1.9883}
# a network's layers, as a history names them
NORMS = {"conv/conv1.weight": 0.5, "norm/norm1.weight": 0.05, "linear/fc.bias": 0.2}
ROWS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    BC: ("f4", "BC", "batch", {"sigma": 0.01875}),
    IC: ("f4", "IC", "batch", {"sigma": 0.01875, "mini_set": 1}),
    LITERAL: ("f11", "BC + ALC", "clip", {"sigma": 0.5, "statistics": "running"}),
    PUBLIC: ("f11", "BC + ALC, statistics of D_pub", "clip", {"sigma": 0.5}),
    SIGMAS: ("f12b", "BC + ALC", "sigma", {}),
    GROUPS: ("untried", "layer groups", "groups", {"sigma": 0.5}),
    SAMPLING: ("untried", "sampling", "sampling", {"sigma": 0.5}),
}


def settings() -> Settings:
    """The project's settings."""
    account: dict[str, Any] = {"sampling": "fixed", "examples": 54000, "batch": 64, "epochs": 50, "parts": 8}
    gdp: dict[str, Any] = {
        "paper": "nguyen2023",
        "table": "gdp",
        "label": "BN-LeNet-5, L = 8",
        "settings": account,
        "levels": [{"noise_multiplier": sigma} for sigma in MU],
    }
    more = {
        **gdp,
        "label": "BN-LeNet-5, L = 8, 15 times the data",
        "settings": account | {"examples": 810000, "delta": 1e-6},
        "levels": [{"noise_multiplier": 1.5}],
    }
    common = {"batch": 64, "epochs": 50, "learning_rate": 0.025, "clipping": "adaptive", "clip": 0.2}
    rows = {
        key: dpsgd.row(
            "batch_bn",
            paper="nguyen2023",
            table=table,
            label=label,
            data="mnist-dpub",
            method="batch_clipping",
            settings=common | own,
            levels=[{axis: level} for level in ACCURACY[key]],
            seeds=2,
            axis=axis,
        )
        for key, (table, label, axis, own) in ROWS.items()
    }
    accounts = {GDP: gdp, MORE: more}
    return parse({"raw": {"mnist": {}}, "data": {"mnist-dpub": DATA}, "rows": rows, "accounts": accounts})


def ledger(sigma: float, **changes: Any) -> Ledger:
    """What BC spends at sigma: nearly nothing is left to protect below .1."""
    values: dict[str, Any] = {
        "noise_multiplier": sigma,
        "sampling_rate": 64 / 55000,
        "sampling": "replacement",
        "steps": 38281,
        "neighbouring": "replace one",
        "claimed": 6 / sigma if sigma > 0.1 else None,
        "claimed_by": "clt",
        "mu": 1.5 / sigma if sigma > 0.1 else None,
        "epsilon_upper": 40 / sigma**2 if sigma < 0.1 else 5 / sigma,
        "tradeoff": ((0.0, 1.0), (0.1, 0.8 - 0.4 / (1 + sigma)), (1.0, 0.0)),
        "spent": (),
    }
    return dpsgd.ledger(**values | changes)


def record(key: str, declared: Settings) -> Record:
    """A row's record, or an account's, with nothing in it that training leaves."""
    changes: dict[str, dict[str, Any]] = {
        LITERAL: {"epsilon_upper": None, "accountant": None, "reasons": (statement("running_averages"),)},
        IC: {"epsilon_upper": 2e6},
    }

    def computed(own: Any, seed: int) -> tuple[dict[str, float], Ledger]:
        mu = MU[own.noise_multiplier]
        metrics = {"mu": 0.5129 if key == MORE else mu}
        return metrics, ledger(own.noise_multiplier, sampling="fixed", mu=mu)

    def reached(own: Any, seed: int) -> tuple[dict[str, float], Ledger]:
        accuracy = ACCURACY[key][getattr(own, ROWS[key][2])]
        metrics = {"test_accuracy": accuracy / 100 + 0.001 * seed, "converged": float(accuracy > 15)}
        return metrics, ledger(own.sigma, **changes.get(key, {}))

    if key in ROWS:
        return dpsgd.made(key, declared, reached, examples=49000)
    return dpsgd.made(key, declared, computed, examples=declared.accounts[key].resolved[0].examples)


def history(record: Record) -> Iterator[dpsgd.Line]:
    """Validation accuracy and every layer's norm over five epochs."""
    for replica in record.replicas:
        for epoch in range(1, 6):
            here = (replica.level, replica.seed, 700 * epoch, epoch)
            yield *here, "validation_accuracy", replica.metrics["test_accuracy"]
            for name, norm in NORMS.items():
                yield *here, f"layer_norm/{name}", norm / epoch


def fill(root: Path) -> Settings:
    """The whole example, everything run."""
    declared = settings()
    for key in declared.lines:
        made = record(key, declared)
        dpsgd.put(made, root, history(made))
    return declared
