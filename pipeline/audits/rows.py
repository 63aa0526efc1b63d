"""Attacks on a row's code that need params.yaml, but no weights or data: `reports/audits/ROW.json`."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dp_accounting import GaussianDpEvent

from dprepro.accountants.bounds import describe, smallest_bound
from dprepro.accountants.records import down, up
from dprepro.auditing import floating_point
from dprepro.auditing.epsilon_bounds import (
    ASSUMING_NOTHING,
    BoundFunction,
    bound_of,
    by_coordinates,
    by_errors,
    epsilon_of_mu,
    joint_bounds,
)
from dprepro.fields import Noise
from dprepro.pipeline.audits import made_up, mechanism, pair, releases
from dprepro.pipeline.audits.mechanism import MechanismScores
from dprepro.pipeline.identity import provenance, validity
from dprepro.pipeline.ledgers.declared import network_sizes
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.methods.spending import Sizes, statement
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import FLOATING_POINT, Attack, Audit, EpsilonBound

ALPHA = 0.05  # significance of all bounds of an attack together
SEES = {
    "canaries": "every step",
    "crowd": "every step",
    "pair": "the first and the last model",
    "opposites": "what was released",
    "shared": "what was released",
    FLOATING_POINT: "one release",
}
# bounds of canaries in one run, and of independent trials
ONE_RUN, TRIALS = ("one_run", "one_run_curve", "gaussian"), ("errors", "gaussian")
Fields = dict[str, Any]


def audit_row(key: str, settings: Settings, root: Path = Path()) -> Path:
    """Attack the code of every private level of a row, and return the path of the record."""
    row = settings.row(key)
    private = [config for config in row.resolved if config.private]
    attacks = tuple(attack for config in private for attack in attacks_on(key, row, config, settings))
    record = Audit(
        row=key,
        made_by=validity.auditing_versions(row.method, row.model.name),
        versions=provenance.versions(),
        attacks=attacks,
        why_none=None if attacks else statement("nothing_to_attack"),
    )
    return records.write(record, root)


def attacks_on(key: str, row: Row, config: MethodSettings, settings: Settings) -> Iterator[Attack]:
    """All attacks on one level."""
    on_level = _on_steps if config.attack in ("canaries", "crowd") else _on_releases
    begun = time.process_time()
    for attack in on_level(row, config, settings, f"{key}/{row.level(config)}"):
        seconds = round(time.process_time() - begun, 1)
        yield Attack(level=row.level(config), seconds=seconds, **attack)
        begun = time.process_time()


def _on_steps(row: Row, config: MethodSettings, settings: Settings, name: str) -> Iterator[Fields]:
    """Attacks on a method that releases sums with Gaussian noise."""
    examples, noise, group = settings.split(row.data).train, noises(row)[-1], settings.group(row.data)
    steps = config.total_steps(examples)
    if config.attack == "canaries":  # all of them in one run
        names: tuple[str, ...] = ONE_RUN
        scores = mechanism.audit_singles(config, examples, steps, name, noise, group)
    else:
        names = TRIALS
        scores = mechanism.audit_crowd(config, examples, steps, _parts(row, config, settings), name, noise)
    delta = scores.delta
    covers_all_steps = scores.steps == steps and scores.spending.examples == examples
    functions = {name: bound_of(scores.without, scores.within, name, delta) for name in names}
    functions |= {name: bound_of(*sides, "gaussian", delta) for name, sides in scores.others.items()}
    yield _by_scores(config.attack, scores, noise, delta, functions, covers_all_steps)

    paired = pair.audit_pair(row, config, settings, name, noise)
    functions = {name: bound_of(paired.scores.without, paired.scores.within, name, delta) for name in TRIALS}
    functions["computed"] = lambda alpha: epsilon_of_mu(paired.mu(alpha), delta)
    yield _by_scores("pair", paired.scores, noise, delta, functions)

    noised, clip = mechanism.mechanism_of(config, examples, name, group), config.model_dump()["clip"]
    multiplier, count = noised.spending.noise_multiplier, floating_point.COORDINATES
    event, epsilon_upper = describe(GaussianDpEvent(multiplier)), epsilon_of_mu(1 / multiplier, delta)
    for kind in noises(row):
        errors = floating_point.attack_floating_point(noised, clip, name, kind)
        functions = {"coordinates": partial(by_coordinates, errors, count, delta=delta)}
        trials = (errors.without, errors.within)
        yield _attack(FLOATING_POINT, event, kind, delta, epsilon_upper, trials, functions)


def _on_releases(row: Row, config: MethodSettings, settings: Settings, name: str) -> Iterator[Fields]:
    """Attacks on a method that releases its data once with Laplace noise."""
    shared = config.attack == "shared"
    attack = releases.shared if shared else releases.opposites
    noise = noises(row)[-1]
    scores = attack(row, config, settings, name, noise)
    functions = {"errors": bound_of(scores.without, scores.within, "errors", 0.0)}
    if scores.labels is not None:
        functions["labels"] = bound_of(*scores.labels, "errors", 0.0)
    event, epsilon_upper = str(scores.method.guarantee().spending), releases.release_epsilon(scores.method)
    trials = len(scores.without), len(scores.within)
    # relevances are not attacked: they can only add epsilon
    yield _attack(config.attack, event, noise, 0.0, epsilon_upper, trials, functions, covers_all_steps=True)
    for kind in () if shared else noises(row):
        errors = releases.floating_point(row, config, settings, name, kind)
        functions = {"errors": partial(by_errors, errors, delta=0.0)}
        trials = (errors.without, errors.within)
        yield _attack(FLOATING_POINT, event, kind, 0.0, epsilon_upper, trials, functions)


def noises(row: Row) -> tuple[Noise, ...]:
    """Kinds of noise that a row's trainings may have; the present version of the code uses the last kind."""
    return ("float32",) if row.reproducible else ("float32", "grid")


def _by_scores(
    attack: str,
    scores: MechanismScores,
    noise: Noise,
    delta: float,
    functions: dict[str, BoundFunction],
    covers_all_steps: bool = False,
) -> Fields:
    epsilon_upper = smallest_bound(scores.spending, scores.steps, delta)
    event, trials = describe(scores.spending.event(scores.steps)), (len(scores.without), len(scores.within))
    return _attack(attack, event, noise, delta, epsilon_upper, trials, functions, covers_all_steps)


def _attack(
    attack: str,
    event: str,
    noise: Noise,
    delta: float,
    epsilon_upper: float | None,
    trials: tuple[int, int],
    functions: dict[str, BoundFunction],
    covers_all_steps: bool = False,
) -> Fields:
    """Fields of an `Attack` record, except `level` and `seconds`."""
    return {
        "attack": attack,
        "sees": SEES[attack],
        "event": event,
        "noise": noise,
        "delta": delta,
        "epsilon_upper": None if epsilon_upper is None else up(epsilon_upper),
        "whole": covers_all_steps,
        "confidence": 1 - ALPHA,
        "trials": trials,
        "bounds": recorded_bounds(joint_bounds(functions, ALPHA)),
    }


def recorded_bounds(found: dict[str, float]) -> tuple[EpsilonBound, ...]:
    """Lower bounds by name, as an audit's record has them."""
    return tuple(
        EpsilonBound(by=name, epsilon=down(epsilon), assumes_gaussian=name not in ASSUMING_NOTHING)
        for name, epsilon in found.items()
    )


def _parts(row: Row, config: MethodSettings, settings: Settings) -> int:
    """Number L of parts of the gradient that the row clips separately."""
    data = made_up.examples(row, settings, 1, None)
    sizes = network_sizes(config, row.model, config.input_shape(data.input_shape), made_up.CLASSES)
    return config.parts(Sizes(len(data.splits["train"]), sizes))
