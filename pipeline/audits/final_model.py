"""Attack on a row's final models, by mislabelled canaries in its data: `reports/audits/models/ROW.json`.

A fair coin decides for each of m examples whether it gets a wrong label. If not, the training leaves it out;
under the replace-one relation, it keeps its own label instead. The row's method trains on all other examples
too. The attacker sees only the final model, and its scores are the log-odds of the wrong labels. An attacker
who sees every step proves far larger bounds (`pipeline.audits.mechanism`). The record's `could_show` is the
bound that a perfect attacker reaches with the same number of canaries.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dprepro.accountants.bounds import describe, smallest_bound
from dprepro.accountants.records import NeighboringRelation, SampledGaussian, up
from dprepro.auditing.canaries import (
    FEWEST,
    attainable_bounds,
    canary_bounds,
    fair_coins,
    make_canaries,
    margins,
)
from dprepro.auditing.epsilon_bounds import largest
from dprepro.errors import UserError
from dprepro.pipeline.audits import releases
from dprepro.pipeline.audits.pair import Without
from dprepro.pipeline.audits.rows import ALPHA, noises, recorded_bounds
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.identity import provenance, validity
from dprepro.pipeline.methods.base import Execution, Method
from dprepro.pipeline.methods.laplace.perturbed import Perturbed
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import FINAL_MODEL, Attack, Audit
from dprepro.pipeline.training.loop import SeedRun, make_task

CANARIES = 1000
SEED = 0
SAID_EVERY = 30.0  # seconds between lines of progress
Say = Callable[[str], None]


def audit_model(
    key: str,
    settings: Settings,
    data: Prepared,
    execution: Execution,
    say: Say,
    root: Path = Path(),
    levels: Collection[str] = (),
) -> Path:
    """Train private levels of a row once, with canaries, and write lower bounds by an attack on the models.

    The record is written after each level.

    Args:
        key: the row's key.
        settings: params.yaml.
        data: the row's prepared data.
        execution: device and batch sizes of the computation.
        say: prints lines: before each training its attainable bound and duration, then its progress.
        root: folder of params.yaml.
        levels: levels to attack; the record keeps attacks on other levels if their trainings would be equal
            now. (): all.

    Returns:
        Path of the record.

    Raises:
        UserError: a level is unknown, the data have too few examples, or a training diverges.
    """
    row = settings.row(key)
    private = {row.level(config): config for config in row.resolved if config.private}
    if unknown := sorted(set(levels) - private.keys()):
        raise UserError(
            f"--level {', '.join(unknown)}: no private level of {key}; allowed: {', '.join(private)}"
        )
    made_by = validity.auditing_versions(row.method, row.model.name)
    previous = records.read_audit(key, root, final_models=True)
    kept = previous.attacks if previous and previous.made_by == made_by else ()
    trainings = {
        level: records.training_digest(row.model, config, data.digests, made_by, row.reproducible)
        for level, config in private.items()
    }
    attacks = {attack.level: attack for attack in kept if attack.training == trainings.get(attack.level)}
    run = records.read_run(key, root)
    seconds = run.seconds if run else {}

    def write() -> Path:
        record = Audit(
            row=key,
            made_by=made_by,
            versions=provenance.versions(),
            attacks=tuple(attacks[level] for level in private if level in attacks),
            why_none=None if private else statement("nothing_to_attack"),
        )
        return records.write(record, root, final_models=True)

    for level in levels or private:
        attack = _attack(key, row, private[level], data, execution, say, seconds.get(level))
        attacks[level] = attack.model_copy(update={"training": trainings[level]})
        write()
    return write()


def _attack(
    key: str,
    row: Row,
    config: MethodSettings,
    data: Prepared,
    execution: Execution,
    say: Say,
    seconds: float | None,
) -> Attack:
    """Attack on one level. ``seconds``: duration of a recorded training of this level; None: unknown."""
    name, train = f"{key}/{row.level(config)}", data.splits["train"]
    if data.target is not None:
        raise UserError(f"{key}: its data have a numeric target; allowed with --model: rows of classes")
    count = min(CANARIES, len(train) // 2)
    if count < FEWEST:
        raise UserError(f"data/prepared/{data.name}: {len(train)} examples; needed: {2 * FEWEST}")
    labels = np.array(train.labels)
    canaries = make_canaries("mislabelled", train.inputs, labels, count, data.classes, SEED)
    (inside,) = fair_coins(1, count, SEED)
    begun = time.process_time()
    noise = noises(row)[-1]
    run = SeedRun(f"{name}/final model", SEED, config)
    task = make_task(run, row.model, True, data, execution, noise)
    changed = labels.copy()
    changed[canaries.positions[inside]] = canaries.labels[inside]
    streams = Without(run.name, True, execution.device, noise)
    task = replace(task, labels=torch.from_numpy(changed).to(task.labels), streams=streams)
    method = config.build_method(task, row.model.normalization)
    streams.absent = canaries.positions[~inside] if _left_out(method) else canaries.positions[:0]
    event, delta, epsilon_upper = proven_spending(method)
    alpha = ALPHA / (2 if delta > 0 else 1)
    could_show = attainable_bounds(epsilon_upper, delta, count, False, alpha)
    of = "no bound" if epsilon_upper is None else f"{up(epsilon_upper):g}"
    takes = "" if seconds is None else f"; one training took {seconds:.0f} s"
    most = largest(could_show)
    say(
        f"{name}: {count:,} of {len(labels):,} examples are canaries: of epsilon {of} a perfect attacker "
        f"shows {most:.2f}{takes}"
    )
    logits = _trained_logits(name, method, task.inputs[torch.from_numpy(canaries.positions)], say)
    scores = margins(logits, canaries.labels)
    if not np.isfinite(scores).all():
        raise UserError(f"{name}: training with canaries diverged; nothing is written")
    found = canary_bounds(scores[~inside], scores[inside], False, alpha, delta)
    return Attack(
        level=row.level(config),
        attack=FINAL_MODEL,
        sees="the final model",
        event=event,
        noise=noise,
        delta=delta,
        epsilon_upper=None if epsilon_upper is None else up(epsilon_upper),
        whole=True,
        confidence=1 - ALPHA,
        trials=(int((~inside).sum()), int(inside.sum())),
        bounds=recorded_bounds(found),
        could_show=recorded_bounds(could_show),
        seconds=round(time.process_time() - begun, 1),
    )


def _left_out(method: Method) -> bool:
    """Return True if neighbours add or remove an example, False if they replace one."""
    spending = method.guarantee().spending
    relation = spending.neighbouring if isinstance(spending, SampledGaussian) else None
    return relation is NeighboringRelation.ADD_OR_REMOVE_ONE


def proven_spending(method: Method) -> tuple[str, float, float | None]:
    """Mechanism in words, delta and proven epsilon (None: nothing is proven) of a method's training."""
    guarantee = method.guarantee()
    spending, delta = guarantee.spending, guarantee.delta or 0.0
    if isinstance(spending, SampledGaussian):
        event = describe(spending.event(method.steps))
        epsilon_upper: float | None = smallest_bound(spending, method.steps, delta)
    else:
        assert isinstance(method, Perturbed), "private methods have Gaussian or Laplace noise"
        event, epsilon_upper = str(spending), releases.release_epsilon(method)
    return event, delta, None if guarantee.broken else epsilon_upper


def _trained_logits(name: str, method: Method, inputs: Tensor, say: Say) -> np.ndarray:
    """Train, and return the final network's (m, K) logits of K classes for ``inputs``, m stored examples."""
    state, begun, last_said = method.init(), time.monotonic(), time.monotonic()
    with torch.no_grad():
        for step in range(method.steps):
            state, _ = method.step(state, step)
            if time.monotonic() - last_said > SAID_EVERY:
                last_said = time.monotonic()
                left = (last_said - begun) / (step + 1) * (method.steps - step - 1)
                say(f"{name}: step {step + 1}/{method.steps}, {left / 60:.1f} minutes left")
        network = method.network(method.model(state), 0)
        parts = inputs.split(method.task.execution.physical)
        return torch.cat([method.logits(network, part) for part in parts]).double().cpu().numpy()
