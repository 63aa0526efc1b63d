"""A made-up project of TAN: rows and simulations of Sander et al., histograms, several epsilons."""

from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

from pipeline.params import Settings, parse
from pipeline.results.schema import AccountantEpsilon, Ledger, Record
from tests.reporting.made_up import dpsgd

WHOLE, SIMULATED = "sander-f5-relu-norm", "sander-f5-relu-norm-b256"
OTHER, OTHER_SIMULATED = "sander-f5-norm-relu", "sander-f5-norm-relu-b256"
NORMS, FIVE = "sander-f7", "sander-t5-5k"
RATES, RATES_WHOLE = "sander-rates-b64", "sander-rates-b4096"
WALL, HALF = "sander-f2-cifar10", "sander-t6"
BIG, SMALL = {"batch": 4096, "sigma": 3.0}, {"batch": 256, "sigma": 0.1875}
# test accuracy in percent, by level
ACCURACY: dict[str, dict[Any, float]] = {
    WHOLE: {1: 72.0, 16: 78.0},
    SIMULATED: {1: 72.5, 16: 78.5},
    OTHER: {1: 66.0, 16: 69.0},
    OTHER_SIMULATED: {1: 66.5, 16: 66.6},
    NORMS: {256: 78.0},
    FIVE: {16: 59.0},
    RATES: {1.0: 90.0, 2.0: 92.0, 4.0: 91.0},
    RATES_WHOLE: {1.0: 90.5, 2.0: 92.2, 4.0: 92.5},
}
# key: table, label, axis, settings, the row it simulates
ROWS: dict[str, tuple[str, str, str, dict[str, Any], str | None]] = {
    WHOLE: ("f5", "CONV-ReLU-GN", "copies", BIG, None),
    SIMULATED: ("f5", "CONV-ReLU-GN, simulated at B 256", "copies", SMALL, WHOLE),
    OTHER: ("f5", "CONV-GN-ReLU", "copies", BIG, None),
    OTHER_SIMULATED: ("f5", "CONV-GN-ReLU, simulated at B 256", "copies", SMALL, OTHER),
    NORMS: ("f7", "K = 16", "batch", {**SMALL, "note_norms": True, "clip": 2.0}, None),
    FIVE: ("t5", "5K", "copies", BIG, None),
    RATES: ("rates", "B 64, simulation", "learning_rate", SMALL, RATES_WHOLE),
    RATES_WHOLE: ("rates", "B 4096, reference", "learning_rate", BIG, None),
}
EDGES = (0.0, 0.0625, 0.0625 * sqrt(2), 0.125)
# by level: what the paper prints, its approximation, and PLD, which is not computed everywhere
EPSILONS: dict[str, dict[Any, tuple[float, float, float | None]]] = {
    WALL: {0.1875: (333.8, 7.48, None), 0.5: (30.8, 7.48, 28.5), 3: (7.10, 7.48, 6.58), 8: (6.85, 7.48, 6.3)},
    HALF: {640583: (17.90, 17.95, 16.8), 1281167: (7.98, 8.21, 7.49)},
}


def settings() -> Settings:
    """The project's settings."""
    common = {"steps": 2500, "learning_rate": 4.0, "augment": "crop_flip"}
    rows = {
        key: dpsgd.row(
            "group",
            paper="sander2022",
            table=table,
            label=label,
            data="cifar10-tan",
            method="tan",
            settings=common | own,
            levels=[{axis: level} for level in ACCURACY[key]],
            axis=axis,
            simulates=whole,
        )
        for key, (table, label, axis, own, whole) in ROWS.items()
    }
    cifar = {"examples": 50000, "batch": 4096, "steps": 2500, "noise_multiplier": 3, "claimed_by": "rdp"}
    accounts = {
        key: {
            "paper": "sander2022",
            "table": table,
            "label": label,
            "axis": axis,
            "settings": own,
            "levels": [{axis: level} for level in EPSILONS[key]],
        }
        for key, table, label, axis, own in (
            (WALL, "f2", "CIFAR-10", "noise_multiplier", cifar),
            (HALF, "t6", "ImageNet", "examples", cifar | {"delta": 8e-8}),
        )
    }
    data = {"raw": "cifar10", "train": 48800, "validation": 1200, "public": {"raw": "cifar100", "count": 128}}
    raw: dict[str, Any] = {"cifar10": {}, "cifar100": {}}
    return parse({"raw": raw, "data": {"cifar10-tan": data}, "rows": rows, "accounts": accounts})


def record(key: str, declared: Settings) -> Record:
    """A row's record, or an account's: a vote gains half a point, the last weights lose three."""

    def computed(own: Any, seed: int) -> tuple[dict[str, float], Ledger]:
        epsilon, tan, pld = EPSILONS[key][getattr(own, level_axis)]
        metrics = {"epsilon": epsilon, "epsilon_classic": 1.1 * epsilon, "epsilon_tan": tan}
        metrics |= {} if pld is None else {"epsilon_pld": pld}
        return metrics, ledger(own.noise_multiplier, pld or epsilon, claimed=epsilon)

    def reached(own: Any, seed: int) -> tuple[dict[str, float], Ledger]:
        share = ACCURACY[key][getattr(own, level_axis)] / 100
        metrics = {
            "test_accuracy": share + 0.001 * seed,
            "validation_accuracy": share - 0.01,
            "test_accuracy_vote": share + 0.005 + 0.001 * seed,
            "test_accuracy_last": share - 0.03 + 0.001 * seed,
            "converged": 1.0,
        }
        return metrics, ledger(own.sigma, 298.0 if own.sigma < 1 else 6.8)

    level_axis = str(declared.lines[key].axis)
    if key in EPSILONS:
        return dpsgd.made(key, declared, computed, examples=50000)
    return dpsgd.made(key, declared, reached, examples=48800)


def ledger(sigma: float, epsilon_upper: float, claimed: float = 400.0) -> Ledger:
    """What a training spends."""
    note = "an approximation, and no bound"
    return dpsgd.ledger(
        claimed,
        noise_multiplier=sigma,
        sampling_rate=0.08,
        sampling="poisson",
        steps=2500,
        epsilon_upper=epsilon_upper,
        accountants=(AccountantEpsilon(accountant="tan (Eq. 4)", epsilon=7.48, note=note),),
        spent=(),
    )


def history(record: Record) -> Iterator[dpsgd.Line]:
    """Ten notes; gradients' norms shrink from the second bin into the first."""
    for replica in record.replicas:
        for note in range(1, 11):
            here = (replica.level, replica.seed, 250 * note, 0.5 * note)
            yield *here, "validation_accuracy", replica.metrics["test_accuracy"]
            if replica.settings["note_norms"]:
                for edge, share in zip(EDGES, (note / 10, 1 - note / 10, 0.0, 0.0), strict=True):
                    yield *here, f"gradient_norms/{edge:g}", share


def fill(root: Path) -> Settings:
    """The whole example, everything run."""
    declared = settings()
    for key in declared.lines:
        made = record(key, declared)
        dpsgd.put(made, root, history(made))
    return declared
