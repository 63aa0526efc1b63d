"""A made-up project of batch clipping: figures of Nguyen et al., two accounts, two ideas it leaves untried.

Every ledger is made up too; sigma .01875 is no privacy, whatever it was claimed to be.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.params import Row, Settings, parse
from pipeline.privacy.statements import Statement, statement
from pipeline.results.schema import Ledger, Record
from tests.keeping import keep
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
    }
    gdp["levels"] = [{"noise_multiplier": sigma} for sigma in MU]
    more = {
        **gdp,
        "label": "BN-LeNet-5, L = 8, 15 times the data",
        "settings": account | {"examples": 810000, "delta": 1e-6},
        "levels": [{"noise_multiplier": 1.5}],
    }
    rows = {key: _row(key) for key in ROWS}
    return parse(
        {
            "raw": {"mnist": {}},
            "data": {"mnist-dpub": DATA},
            "rows": rows,
            "accounts": {GDP: gdp, MORE: more},
        }
    )


def _row(key: str) -> dict[str, Any]:
    table, label, axis, own = ROWS[key]
    common = {"batch": 64, "epochs": 50, "learning_rate": 0.025, "clipping": "adaptive", "clip": 0.2}
    return {
        "paper": "nguyen2023",
        "table": table,
        "label": label,
        "data": "mnist-dpub",
        "model": {"name": "lenet5", "normalization": "batch_bn"},
        "method": "batch_clipping",
        "seeds": 2,
        "reproducible": False,
        "axis": axis,
        "settings": common | own,
        "levels": [{axis: level} for level in ACCURACY[key]],
    }


def ledger(sigma: float, broken: Statement | None = None, **changes: Any) -> Ledger:
    """What BC spends at sigma: nearly nothing is left to protect below .1."""
    bound = 40 / sigma**2 if sigma < 0.1 else 5 / sigma
    values: dict[str, Any] = {
        "event": "38281 x SampledWithReplacement(...)",
        "noise_multiplier": sigma,
        "sampling_rate": 64 / 55000,
        "sampling": "replacement",
        "steps": 38281,
        "delta": 1e-5,
        "neighbouring": "replace one",
        "claimed": 6 / sigma if sigma > 0.1 else None,
        "claimed_by": "clt",
        "mu": 1.5 / sigma if sigma > 0.1 else None,
        "epsilon_upper": None if broken else bound,
        "accountant": None if broken else "pld (dp-accounting 0.6.0)",
        "reasons": (broken,) if broken else (),
        "tradeoff": ((0.0, 1.0), (0.1, 0.8 - 0.4 / (1 + sigma)), (1.0, 0.0)),
    }
    return Ledger(**values | changes)


def record(key: str, declared: Settings) -> Record:
    """A row's record."""
    row = declared.rows[key]
    assert isinstance(row, Row)
    replicas = []
    for own, accuracy in zip(row.resolved, ACCURACY[key].values(), strict=True):
        broken = statement("running_averages") if key == LITERAL else None
        for seed in range(row.seeds):
            replicas.append(
                dpsgd.replica(
                    row.level(own),
                    seed,
                    own.model_dump(mode="json"),
                    {"test_accuracy": accuracy / 100 + 0.001 * seed, "converged": float(accuracy > 15)},
                    ledger(own.sigma, broken, **({"epsilon_upper": 2e6} if key == IC else {})),
                )
            )
    return dpsgd.variant(key, declared, replicas, {"examples": 49000})


def account(key: str, declared: Settings) -> Record:
    """An account's record, with nothing in it that training leaves."""
    entry = declared.accounts[key]
    replicas = [
        dpsgd.replica(
            entry.level(own),
            0,
            own.model_dump(mode="json"),
            {"mu": 0.5129 if key == MORE else MU[own.noise_multiplier]},
            ledger(own.noise_multiplier, sampling="fixed", mu=MU[own.noise_multiplier]),
        )
        for own in entry.resolved
    ]
    return dpsgd.variant(key, declared, replicas, {"examples": entry.resolved[0].examples})


def history(found: Record) -> Iterator[tuple[Any, ...]]:
    """Validation accuracy and every layer's norm over five epochs."""
    for replica in found.replicas:
        for epoch in range(1, 6):
            here = (replica.level, replica.seed, 700 * epoch, epoch)
            yield *here, "validation_accuracy", replica.metrics["test_accuracy"]
            for name, norm in NORMS.items():
                yield *here, f"layer_norm/{name}", norm / epoch


def fill(root: Path) -> Settings:
    """The whole example, everything run."""
    declared = settings()
    for key in declared.rows:
        made = record(key, declared)
        dpsgd.put(made, root, history(made))
    for key in declared.accounts:
        keep(account(key, declared), root)
    return declared
