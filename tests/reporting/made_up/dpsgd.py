"""A made-up project folder: params.yaml and records as `evaluate` would write them, with every case in it.

Table 5 of Davody et al., seven levels and three seeds each: the plain row, layer norm, batch norm in two
variants (public statistics; to the letter, where no bound holds), and a row nobody has run.
"""

import random
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from dprepro.accountants.records import AccountantEpsilon, SampledGaussian
from dprepro.pipeline.identity.validity import MEASURING, training_versions
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.params import PAPERS, Settings, parse
from dprepro.pipeline.reporting.wording import words
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import (
    Attack,
    EpsilonBound,
    EvaluationRecord,
    Ledger,
    LedgerEntry,
    Ledgers,
    Record,
    RowEvaluations,
    RowTrainings,
    TrainingRecord,
    TrainingResult,
)
from tests.made_records import made_up_origin

PLAIN, LAYER = "davody-t5-lenet5", "davody-t5-ln-lenet5"
PUBLIC, LITERAL = "davody-t5-bn-lenet5", "davody-t5-bn-lenet5-literal-planned"
MISSING = "davody-t5-gn-lenet5"
BROKEN = statement("joint_statistics")
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
    PLAIN: ("DPSGD (LeNet-5)", "lenet5", "", "none"),
    LAYER: ("DPSGD (LN-LeNet-5)", "ln-lenet5", "", "layer"),
    PUBLIC: ("DPSGD (BN-LeNet-5), public statistics", "bn-lenet5", "public statistics", "public_bn"),
    LITERAL: (
        "DPSGD (BN-LeNet-5), Algorithm 1 to the letter",
        "bn-lenet5",
        "Algorithm 1 to the letter",
        "batch_bn",
    ),
    MISSING: ("DPSGD (GN-LeNet-5)", None, "", "group"),
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
# of a private level's ledger
SPENDING = SampledGaussian(sampling="poisson", noise_multiplier=1.1, batch=1024, examples=55000)


def settings(**changes: dict[str, Any]) -> Settings:
    """The project's settings; ``changes`` override parts of rows."""
    common = {
        "table": "t5",
        "method": "dpsgd",
        "settings": {"batch": 1024, "epochs": 8, "learning_rate": 0.5},
        "levels": [{"epsilon": level} for level in LEVELS],
    }
    rows = {
        key: row(normalization, label=label, line=line, variant=variant, **common) | changes.get(key, {})
        for key, (label, line, variant, normalization) in LABELS.items()
    }
    return parse({**DATA, "rows": rows})


def row(normalization: str, **said: Any) -> dict[str, Any]:
    """A row of params.yaml: three seeds of LeNet-5 on MNIST for Davody et al., but for what is ``said``."""
    model = {"name": "lenet5", "normalization": normalization}
    common = {"paper": "davody2020", "data": "mnist", "model": model, "seeds": 3, "reproducible": False}
    return common | said


def record(key: str, declared: Settings, edition: str = "official", shift: float = 0.0) -> Record:
    """A row's record; ``shift`` is added to every accuracy, in points."""
    noise, row = random.Random(key), declared.rows[key]
    accuracies = dict(zip(map(float, LEVELS), ACCURACY[key], strict=True))
    reason = BROKEN if key == LITERAL else statement("seeded")
    unbounded = {"epsilon_upper": None, "accountant": None, "reasons": (reason,), "spent": ()}
    holds = key != LITERAL and not row.reproducible
    trainings = []
    for place, configured in enumerate(row.resolved):
        percent = accuracies[configured.epsilon]
        spent = ledger(configured.epsilon, **{} if holds or configured.epsilon == inf else unbounded)
        for seed in range(row.seeds):
            reached = min(1.0, (percent + shift + noise.uniform(-0.1, 0.1)) / 100)
            training = TrainingResult(
                level=row.level(configured),
                seed=seed,
                settings=configured.model_dump(mode="json"),
                metrics={"test_accuracy": reached, "validation_accuracy": percent / 100},
                ledger=spent,
                seconds=100.0,
                started=STARTED + place,
                ended=STARTED + place + 100,
            )
            trainings.append(training)
    origin = made_up_origin(
        config=declared.row_digest(key),
        data={"train.inputs": "sha256:" + "2" * 64},
        examples=55000,
        versions={"python": "3.11.7", "torch": "2.11.0"},
        reproducible=row.reproducible,
        edition={"mnist": edition, "kmnist": edition},
    )
    said = ("paper", "table", "label", "data", "method", "budget", "search")
    return Record(
        row=key,
        **{name: getattr(row, name) for name in said},
        model=row.model.model_dump(mode="json"),
        trainings=tuple(trainings),
        history="sha256:" + "0" * 64,
        origins=(origin,),
    )


def ledger(epsilon: float = 1.0, **changes: Any) -> Ledger:
    """What a training at a claimed epsilon spends, less by PLD; at infinity nothing is private."""
    names = ("event", "noise_multiplier", "sampling_rate", "delta", "claimed", "claimed_by")
    values: dict[str, Any] = dict.fromkeys((*names, "epsilon_upper", "accountant")) | {"steps": 400}
    if epsilon == inf:
        return Ledger(**values | {"reasons": (statement("no_noise"),)} | changes)
    values |= {
        "event": "400 x PoissonSampled(0.0186182, Gaussian(1.1))",
        "noise_multiplier": 1.1,
        "sampling_rate": 1024 / 55000,
        "delta": 1e-5,
        "claimed": epsilon,
        "claimed_by": "rdp",
        "epsilon_upper": 0.92 * epsilon,
        "accountant": "pld (dp-accounting 0.6.0)",
        "spent": tuple((54 * epoch, epsilon * (epoch / 4) ** 0.5) for epoch in (1, 2, 3, 4)),
        "accountants": (
            AccountantEpsilon(accountant="prv (opacus 1.5.4)", epsilon=None, note="PRV failed: no luck"),
        ),
        "not_covered": (statement("other_choices"),),
    }
    return Ledger(**values | changes)


def bounds(claimed: float | None, epsilon_upper: float | None, **changes: Any) -> Ledger:
    """Ledger with these two epsilons."""
    return ledger(claimed=claimed, epsilon_upper=epsilon_upper, **changes)


def attack(epsilon: float, epsilon_upper: float | None, gaussian: bool = False, **changes: Any) -> Attack:
    """Attack on fewer steps than the row's, with a bound of ``epsilon``."""
    values: dict[str, Any] = {
        "level": "epsilon=1", "attack": "pair", "sees": "every step", "event": "noise", "delta": 1e-5,
        "epsilon_upper": epsilon_upper, "whole": False, "confidence": 0.95, "trials": (9, 9), "seconds": 1,
        "bounds": (EpsilonBound(by="errors", epsilon=epsilon, assumes_gaussian=gaussian),),
    }  # fmt: skip
    return Attack(**values | changes)


def put(record: Record, root: Path) -> None:
    """Write a row's run with curves, its evaluation and its ledgers, as by the versions here.

    There are no weights, and the papers are those of this laboratory.
    """
    root.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (root / PAPERS).symlink_to(Path(__file__).parents[3] / PAPERS)
    made, made_by = record.provenance, training_versions(record.method, record.model["name"])
    about = record.model_dump(include={"row", "model", "method", "data"})
    entries, trained, measured = [], [], []
    for training in record.trainings:
        key, spent = training.model_dump(include={"level", "seed"}), training.ledger
        entries.append(LedgerEntry(level=training.level, seeds=(training.seed,), ledger=spent))
        accuracy = training.metrics["test_accuracy"]
        curve = tuple((54 * epoch, epoch, accuracy * (1 - 0.5**epoch)) for epoch in range(1, 5))
        run = TrainingRecord(
            **training.model_dump(include={"level", "seed", "settings", "noise", "seconds"}),
            **about,
            origin=record.origins[training.origin].model_copy(update={"made_by": made_by}),
            curves={"validation_accuracy": curve},
            steps=spent.steps,
            spending=None if spent.noise_multiplier is None else SPENDING,
            delta=spent.delta,
            claimed_by=spent.claimed_by,
            broken=spent.reasons,
            not_covered=spent.not_covered,
            protects=spent.protects,
            weights=None,
            started=training.started or 0.0,
            ended=training.ended or 0.0,
        )
        trained.append(run)
        measured.append(
            EvaluationRecord(
                **key, metrics=training.metrics, row=record.row, weights=None, measured_by=MEASURING
            )
        )
    ledgers = Ledgers(row=record.row, config=made.config, versions=made.versions, entries=tuple(entries))
    for kept in (
        ledgers,
        RowTrainings(row=record.row, trainings=tuple(trained)),
        RowEvaluations(row=record.row, trainings=tuple(measured)),
    ):
        records.write(kept, root)


def fill(root: Path) -> Settings:
    """The whole example; all rows run but `MISSING`."""
    return put_all(settings(), root)


def put_all(declared: Settings, root: Path) -> Settings:
    """Every row but `MISSING`, as declared."""
    for key in ACCURACY:
        put(record(key, declared), root)
    return declared
