"""A made-up project with noisy weights: Davody et al.'s Table 2, where training fails, and Figure 1's curves.

Every row stands twice, on the full budget and on a reduced one, a quarter as long, that reaches less.
"""

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from dprepro.pipeline.methods.statements import statement
from dprepro.pipeline.params import Settings, parse
from dprepro.pipeline.reporting.vocabulary import words
from dprepro.pipeline.results.schema import Ledger, Record
from tests.keeping import keep, keep_search
from tests.reporting.made_up import dpsgd

PLAIN, BATCH, CURVES = "davody-t2-lenet5", "davody-t2-bn-lenet5", "davody-f1-bn-lenet5"
REDUCED = "-reduced"
SHORT = "10 epochs instead of our full row's 40"  # how the report calls it
REASON = words(statement("noisy_weights"))
# epochs it takes to come as far as it ever does, by sigma; `reach` makes a straight line of it
EPOCHS = {0: 4, 0.01: 4, 0.1: 4, 1: 5, 2: 8, 10: 25}
BEST = 0.99
# test accuracy in percent; below 15 no seed has converged
ACCURACY = {
    PLAIN: {0: 99.2, 0.01: 98.9, 0.1: 98.4, 1: 9.8, 2: 9.8},
    BATCH: {0: 99.2, 0.01: 99.2, 0.1: 99.2, 1: 99.2, 2: 99.2},
    CURVES: dict.fromkeys(EPOCHS, 99.0),
}
LABELS = {PLAIN: ("t2", "LeNet-5", "none"), BATCH: ("t2", "BN-LeNet-5", "running_bn")}
LABELS[CURVES] = ("f1", "BN-LeNet-5", "running_bn")
RATES = (0.001, 0.01, 0.1)


def settings(**changes: dict[str, Any]) -> Settings:
    """The project's settings; ``changes`` override parts of rows."""
    rows = {
        key + ending: dpsgd.row(
            normalization,
            table=table,
            label=label,
            line=label.lower().replace("lenet-5", "lenet5"),
            method="noisy_weights",
            settings={"batch": 128, "epochs": epochs, "learning_rate": 0.01},
            levels=[{"sigma": sigma} for sigma in ACCURACY[key]],
            reproducible=True,
            search=PLAIN,
            budget=budget,
        )
        | changes.get(key + ending, {})
        for ending, epochs, budget in (("", 40, "full"), (REDUCED, 10, "reduced"))
        for key, (table, label, normalization) in LABELS.items()
    }
    searches = {PLAIN: {"row": PLAIN, "grid": {"learning_rate": list(RATES)}}}
    return parse({**dpsgd.DATA, "rows": rows, "searches": searches})


def record(key: str, declared: Settings, examples: int = 55000, **converged: tuple[bool, ...]) -> Record:
    """A row's record; ``converged`` says which seeds have at a level (``sigma_1``), if not by accuracy."""
    lost = 3.0 if declared.rows[key].budget == "reduced" else 0.0
    spent = dpsgd.ledger(inf, reasons=(statement("noisy_weights"),))

    def reached(configured: Any, seed: int) -> tuple[dict[str, float], Ledger]:
        accuracy = (ACCURACY[key.removesuffix(REDUCED)][configured.sigma] - lost + 0.05 * seed) / 100
        told = converged.get(f"sigma_{configured.sigma:g}")
        metrics = {
            "test_accuracy": accuracy,
            "validation_accuracy": accuracy,
            "test_accuracy_draws_std": 0.0012,
            "converged": float(told[seed] if told else accuracy > 0.15),
        }
        return metrics, spent

    return dpsgd.made(
        key, declared, reached, examples=examples, edition={"mnist": "official", "kmnist": "official"}
    )


def search(root: Path, rates: tuple[float, ...] = RATES) -> None:
    """The search's results, with every rate tried at every level."""
    candidates = [
        {"level": f"sigma={sigma:g}", "settings": {"learning_rate": rate} if rate else {}}
        for sigma in EPOCHS
        for rate in rates or (None,)
    ]
    keep_search(root, PLAIN, PLAIN, *candidates)


def straight(sigma: float, seed: int, epoch: int) -> float:
    """Validation accuracy on a straight line to `BEST`; later seeds take an epoch longer at sigma 10."""
    needed = EPOCHS[sigma] * (1 + 0.04 * seed * (sigma == 10))
    return BEST * min(1.0, epoch / needed)


def history(key: str, root: Path, curve: Callable[[float, int, int], float] = straight) -> None:
    """Training curves over 40 epochs for every level and seed."""
    dpsgd.write_history(
        key,
        root,
        (
            (f"sigma={sigma:g}", seed, 430 * epoch, epoch, "validation_accuracy", curve(sigma, seed, epoch))
            for sigma in ACCURACY[key.removesuffix(REDUCED)]
            for seed in range(3)
            for epoch in range(1, 41)
        ),
    )


def fill(root: Path) -> Settings:
    """Everything: every row run on both budgets, the search, the curves."""
    declared = settings()
    search(root)
    for key in declared.rows:
        keep(record(key, declared), root)
        history(key, root)
    return declared
