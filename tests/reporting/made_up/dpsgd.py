"""A made-up project folder: params.yaml and records as `evaluate` would write them, with every case in it.

Table 5 of Davody et al., seven levels and three seeds each: the plain row, layer norm, batch norm in two
variants (public statistics; to the letter, where no bound holds), and a row nobody has run.
"""

import csv
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline.files import digest_file
from pipeline.params import Row, Settings, parse
from pipeline.privacy.statements import statement
from pipeline.reporting.statements import words
from pipeline.results import records
from pipeline.results.schema import AccountantEpsilon, Ledger, Provenance, Record, Replica
from tests.keeping import keep

PLAIN, LAYER = "davody-t5-lenet5", "davody-t5-ln-lenet5"
PUBLIC, LITERAL = "davody-t5-bn-lenet5", "davody-t5-bn-lenet5-literal"
MISSING = "davody-t5-gn-lenet5"
BROKEN = statement("joint_statistics")
BUDGET = "own budget: 8 epochs"  # of which the paper says nothing
EXAMPLES = "trained on 55,000 of 60,000 examples"  # the mark that they all have
REASON = words(BROKEN)
STARTED = 1_700_000_000.0
LEVELS: tuple[float | str, ...] = ("inf", 7, 3, 1, 0.5, 0.1, 0.05)
# mean test accuracy in percent at each level
ACCURACY = {
    PLAIN: (99.0, 97.0, 96.1, 94.0, 91.0, 83.0, 78.0),
    LAYER: (99.1, 97.9, 97.4, 96.7, 95.0, 87.5, 82.0),
    PUBLIC: (99.1, 98.6, 98.2, 97.6, 96.8, 90.6, 88.1),
    LITERAL: (99.0, 98.3, 98.0, 97.1, 96.0, 89.0, 86.0),
}
LABELS = {
    PLAIN: ("DPSGD (LeNet-5)", "none"),
    LAYER: ("DPSGD (LN-LeNet-5)", "layer"),
    PUBLIC: ("DPSGD (BN-LeNet-5), public statistics", "public_bn"),
    LITERAL: ("DPSGD (BN-LeNet-5), Algorithm 1 to the letter", "batch_bn"),
    MISSING: ("DPSGD (GN-LeNet-5)", "group"),
}


# what the rows are trained on
DATA: dict[str, Any] = {
    "raw": {"mnist": {}, "kmnist": {}},
    "data": {
        "mnist": {
            "raw": "mnist",
            "train": 55000,
            "validation": 5000,
            "public": {"raw": "kmnist", "count": 128},
        }
    },
}


def settings(**changes: dict[str, Any]) -> Settings:
    """The project's settings; ``changes`` override parts of rows."""
    rows = {key: _row(key) | changes.get(key, {}) for key in LABELS}
    return parse(
        {
            **DATA,
            "rows": rows,
        }
    )


def _row(key: str) -> dict[str, Any]:
    label, normalization = LABELS[key]
    return {
        "paper": "davody2020",
        "table": "t5",
        "label": label,
        "data": "mnist",
        "model": {"name": "lenet5", "normalization": normalization},
        "method": "dpsgd",
        "seeds": 3,
        "reproducible": False,
        "settings": {"batch": 1024, "epochs": 8, "learning_rate": 0.5},
        "levels": [{"epsilon": level} for level in LEVELS],
    }


def record(key: str, declared: Settings, edition: str = "official", shift: float = 0.0) -> Record:
    """A row's record, without its history; ``shift`` is added to every accuracy, in points."""
    row = declared.rows[key]
    noise = random.Random(key)
    replicas = [
        Replica(
            level=f"epsilon={level}",
            seed=seed,
            settings=row.resolved[index].model_dump(mode="json"),
            metrics={
                "test_accuracy": min(1.0, (ACCURACY[key][index] + shift + noise.uniform(-0.1, 0.1)) / 100),
                "validation_accuracy": ACCURACY[key][index] / 100,
            },
            ledger=ledger(key, level),
            seconds=100.0,
            started=STARTED + index,
            ended=STARTED + index + 100,
        )
        for index, level in enumerate(LEVELS)
        for seed in range(row.seeds)
    ]
    return Record(
        row=key,
        paper=row.paper,
        table=row.table,
        label=row.label,
        data=row.data,
        model=row.model.model_dump(mode="json"),
        method=row.method,
        budget=row.budget,
        search=row.search,
        replicas=tuple(replicas),
        history="sha256:" + "0" * 64,
        origins=(
            Provenance(
                config=declared.row_digest(key),
                made_by={"method": 0, "model": 0},
                revision="0123456789abcdef0123456789abcdef01234567",
                dirty=False,
                data={"train.inputs": "sha256:" + "2" * 64},
                examples=55000,
                edition={"mnist": edition, "kmnist": edition},
                versions={"python": "3.11.7", "torch": "2.11.0"},
                device="cpu (x86_64, 2 threads)",
                reproducible=row.reproducible,
                command=f"dprepro train {key}",
            ),
        ),
    )


def ledger(key: str, level: float | str) -> Ledger:
    """What the row spends: nothing claimed at infinity, no bound for Algorithm 1 to the letter."""
    if level == "inf":
        return Ledger(
            event=None, noise_multiplier=None, sampling_rate=None, steps=400, delta=None,
            claimed=None, claimed_by=None, epsilon_upper=None, accountant=None,
            reasons=(statement("no_noise"),),
        )  # fmt: skip
    literal = key == LITERAL
    return Ledger(
        event="400 x PoissonSampled(0.0186182, Gaussian(1.1))",
        noise_multiplier=1.1,
        sampling_rate=1024 / 55000,
        steps=400,
        delta=1e-5,
        claimed=float(level),
        claimed_by="rdp",
        epsilon_upper=None if literal else 0.92 * float(level),
        accountant=None if literal else "pld (dp-accounting 0.6.0)",
        spent=()
        if literal
        else tuple((54 * epoch, float(level) * (epoch / 4) ** 0.5) for epoch in (1, 2, 3, 4)),
        reasons=(BROKEN,) if literal else (),
        accountants=(
            AccountantEpsilon(accountant="prv (opacus 1.5.4)", epsilon=None, note="PRV failed: no luck"),
        ),
        not_covered=(statement("other_choices"),),
    )


def write_history(row: str, root: Path, lines: Iterable[tuple[Any, ...]]) -> str:
    """A row's history with these lines of `HISTORY_COLUMNS`, where `evaluate` would write it; its digest."""
    path = records.history_path(row, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(records.HISTORY_COLUMNS)
        writer.writerows(lines)
    digest = digest_file(path)
    if (run := records.read_run(row, root)) is not None:
        records.write(run.model_copy(update={"history": digest}), root)
    return digest


def put(found: Record, root: Path, curves: Iterable[tuple[Any, ...]] | None = None) -> Record:
    """Write a record and its history where `evaluate` would; returns the record as written.

    The history is the example's if there are no ``curves``, which are lines of `HISTORY_COLUMNS`.
    """
    digest = write_history(found.row, root, _curves(found) if curves is None else curves)
    found = found.model_copy(update={"history": digest})
    keep(found, root)
    return found


def _curves(found: Record) -> Iterator[tuple[Any, ...]]:
    for replica in found.replicas:
        for epoch in range(1, 5):
            here = (replica.level, replica.seed, 54 * epoch, epoch)
            yield *here, "validation_accuracy", replica.metrics["test_accuracy"] * (1 - 0.5**epoch)


def fill(root: Path) -> Settings:
    """The whole example; all rows run but `MISSING`."""
    declared = settings()
    for key in ACCURACY:
        put(record(key, declared), root)
    return declared


def replica(level: str, seed: int, own: dict[str, Any], metrics: dict[str, float], spent: Ledger) -> Replica:
    """A replica that took ten seconds."""
    return Replica(
        level=level, seed=seed, settings=own, metrics=metrics, ledger=spent,
        seconds=10.0, started=STARTED, ended=STARTED + 10,
    )  # fmt: skip


def variant(key: str, declared: Settings, replicas: list[Replica], made: dict[str, Any]) -> Record:
    """A record of another row or account, ``made`` by other things than the example's."""
    line, template = declared.lines[key], record(PLAIN, settings())
    update: dict[str, Any] = {
        "row": key,
        "paper": line.paper,
        "table": line.table,
        "label": line.label,
        "replicas": replicas,
    }
    if isinstance(line, Row):
        made = {"config": declared.row_digest(key)} | made
        update |= {"data": line.data, "model": line.model.model_dump(mode="json"), "method": line.method}
        update |= {"budget": line.budget, "search": line.search}
    else:
        made = {"config": declared.account_digest(key), "data": {}, "edition": {}} | made
        update |= {"data": "none", "model": {}, "method": "accounting", "budget": "full", "history": None}
    return template.model_copy(update=update | {"origins": (template.provenance.model_copy(update=made),)})


def changed(found: Record, root: Path, **update: Any) -> None:
    """Keep a record all of whose replicas are as told."""
    replicas = [replica.model_copy(update=update) for replica in found.replicas]
    keep(found.model_copy(update={"replicas": replicas}), root)
