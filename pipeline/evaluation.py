"""A finished run -> its record: test accuracy by each method's test protocol, and the privacy ledger."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from pipeline import records, runs
from pipeline.data.prepared import Prepared
from pipeline.errors import UserError, writing
from pipeline.files import digest_file, write_bytes
from pipeline.methods.base import Execution, Method
from pipeline.methods.registry import build_method
from pipeline.privacy.accounting import describe, opacus_prv, opacus_rdp, pld_epsilon, rdp_epsilon
from pipeline.privacy.gradients import Tensors
from pipeline.privacy.mechanisms import poisson_gaussian
from pipeline.records import Ledger, Opinion, Record
from pipeline.runs import RUNS, Run, Trained
from pipeline.settings import METHOD_SETTINGS, Settings
from pipeline.training import Replica, accuracy, grouped, make_task

SEARCHED = (
    "hyper-parameter search ({search}): its runs, on the same training data and judged on validation data"
)
# A replica has converged when its last validation accuracy is above so many times chance.
CONVERGED = 1.5
OTHERWISE = "any other choice of model and hyper-parameters, where it looked at these data"
VOCABULARY = "the vocabulary: its words and their order are counted on the private training texts"
PUBLIC_START = "the weights it starts from, of {row!r} on {data!r}: trained without privacy, taken as public"
SEEDED = "the noise and the samples were seeded by a public constant, so they protect nobody"


def evaluate(key: str, settings: Settings, data: Prepared, execution: Execution, root: Path = Path()) -> Path:
    """Write the record and history of a trained row; returns the record's path.

    Raises:
        UserError: the row has not been trained, or with other settings or data than those here.
    """
    folder = root / RUNS / key
    run = runs.read(folder)
    row = settings.row(key)
    if run.provenance.config != settings.row_digest(key):
        raise UserError(
            f"{folder}: trained with other settings than params.yaml has now; run `dprepro train {key}`"
        )
    if run.provenance.data != data.digests:
        raise UserError(
            f"{folder}: trained on other data than data/prepared/{row.data}; run `dprepro train {key}`"
        )
    weights = runs.weights(folder, execution.device)
    results = [
        records.Replica(
            level=trained.level,
            seed=trained.seed,
            settings=trained.settings,
            metrics=metrics,
            ledger=ledger(trained, row.search, row.reproducible, data),
            seconds=round(trained.seconds, 3),
            started=trained.started,
            ended=trained.ended,
        )
        for trained, metrics in zip(run.replicas, _metrics(run, weights, data, execution), strict=True)
    ]
    history = records.history_path(key, root)
    with writing(history):
        write_bytes(history, (folder / "history.csv").read_bytes())
    record = Record(
        row=key,
        paper=row.paper,
        table=row.table,
        label=row.label,
        data=row.data,
        model=run.model.model_dump(mode="json"),
        method=run.method,
        budget=row.budget,
        search=row.search,
        replicas=results,
        history=digest_file(history),
        provenance=run.provenance,
    )
    return records.write(record, root)


def _metrics(run: Run, weights: Tensors, data: Prepared, execution: Execution) -> list[dict[str, float]]:
    """Metrics of every replica, in the order of ``run.json``."""
    members = [
        Replica(one.level, one.seed, METHOD_SETTINGS[run.method].model_validate(one.settings))
        for one in run.replicas
    ]
    found: list[dict[str, float]] = []
    for group in grouped(members):  # in whose order training wrote them
        own = slice(len(found), len(found) + len(group))
        task = make_task(group, run.model, run.provenance.reproducible, data, execution)
        method = build_method(
            run.method, task, [member.settings for member in group], run.model.normalization
        )
        columns = _accuracies(method, {name: value[own] for name, value in weights.items()}, data, execution)
        found += [
            {name: values[index].item() for name, values in columns.items()} for index in range(len(group))
        ]
    return found


def _accuracies(method: Method, model: Tensors, data: Prepared, execution: Execution) -> Tensors:
    """(R,) each: accuracies, as means over the draws of the noise at test where the method has any."""
    draws: dict[str, list[Tensor]] = {"validation": [], "test": []}
    for draw in range(method.draws):
        with torch.no_grad():
            network = method.network(model, draw)
        for split, values in draws.items():
            values.append(accuracy(method, network, data.splits[split], execution))
    found = {split: torch.stack(values) for split, values in draws.items()}
    columns = {f"{split}_accuracy": values.mean(0) for split, values in found.items()}
    columns["converged"] = (columns["validation_accuracy"] > CONVERGED / data.classes).double()
    if method.draws > 1:
        columns["test_accuracy_draws_std"] = found["test"].std(0)
    return columns


def ledger(trained: Trained, search: str | None, reproducible: bool, data: Prepared) -> Ledger:
    """What privacy a replica really buys, from the numbers of the mechanism that ran."""
    if trained.noise_multiplier is None or trained.rate is None or trained.delta is None:
        return Ledger(
            event=None, noise_multiplier=None, sampling_rate=None, steps=trained.steps, delta=None,
            claimed=None, claimed_by=None, accounted=None, accountant=None,
            reason=trained.broken,
        )  # fmt: skip
    rate, noise, steps, delta = trained.rate, trained.noise_multiplier, trained.steps, trained.delta
    event = poisson_gaussian(rate, noise, steps)
    rdp, pld = rdp_epsilon(event, delta), pld_epsilon(event, delta)
    library = f"dp-accounting {version('dp-accounting')}"
    reason = trained.broken or (SEEDED if reproducible else None)
    # both are upper bounds; PLD is the tighter one unless its numbers run out, as at a very small delta
    accounted, accountant = min((pld, "pld"), (rdp, "rdp"))
    return Ledger(
        event=describe(event),
        noise_multiplier=noise,
        sampling_rate=rate,
        steps=steps,
        delta=delta,
        claimed={"rdp": rdp, "pld": pld}[trained.claimed_by or "rdp"],
        claimed_by=trained.claimed_by,
        accounted=None if reason else accounted,
        accountant=None if reason else f"{accountant} ({library})",
        reason=reason,
        opinions=(
            Opinion(accountant=f"rdp ({library})", epsilon=rdp),
            Opinion(accountant=f"pld ({library})", epsilon=pld),
            Opinion(
                accountant=f"rdp (opacus {version('opacus')})", epsilon=opacus_rdp(rate, noise, steps, delta)
            ),
            _prv(rate, noise, steps, delta),
        ),
        uncounted=tuple(_uncounted(search, data)) + tuple(trained.uncounted),
    )


def _uncounted(search: str | None, data: Prepared) -> Iterator[str]:
    """Uses of private data outside the mechanism, other than the method's own."""
    if search:
        yield SEARCHED.format(search=search)
    yield OTHERWISE
    if "text" in data.manifest:
        yield VOCABULARY
    if data.start is not None:
        yield PUBLIC_START.format(**data.manifest["start"])


def _prv(rate: float, noise: float, steps: int, delta: float) -> Opinion:
    name = f"prv (opacus {version('opacus')})"
    try:
        epsilon, error = opacus_prv(rate, noise, steps, delta)
    except ValueError as problem:
        return Opinion(accountant=name, epsilon=None, note=str(problem))
    return Opinion(accountant=name, epsilon=epsilon, note=f"upper end; error bound {error}")
