"""A row -> what attacks on its code show: `reports/audits/ROW.json`. Needs neither weights nor data."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import GaussianDpEvent

from pipeline.audits import bounds, floating_point, made_up, mechanism, pair, releases
from pipeline.audits.mechanism import Scores
from pipeline.identity import provenance, versions
from pipeline.ledgers.ledger import bounds_of
from pipeline.ledgers.precision import down, up
from pipeline.methods.registry import network_sizes
from pipeline.methods.settings import MethodSettings
from pipeline.methods.spending import Sizes
from pipeline.params import Row, Settings
from pipeline.privacy.accounting import describe
from pipeline.privacy.parameters import Noise
from pipeline.privacy.statements import statement
from pipeline.results import records
from pipeline.results.schema import FLOATING_POINT, Attack, Audit, Bound

ALPHA = 0.05  # of all bounds of an attack together
# bounds that assume nothing of the mechanism
ASSUMING_NOTHING = {"errors", "one_run", "labels", "coordinates"}
SEES = {
    "canaries": "every step",
    "crowd": "every step",
    "pair": "the first and the last model",
    "opposites": "what was released",
    "shared": "what was released",
    FLOATING_POINT: "one release",
}
# an epsilon that is shown, at a significance
Way = Callable[[float], float]
Fields = dict[str, Any]


def audit_row(key: str, settings: Settings, root: Path = Path()) -> Path:
    """Attack the code of a row, level by level; returns the path of what was found."""
    row = settings.row(key)
    private = [config for config in row.resolved if config.private]
    attacks = tuple(attack for config in private for attack in attacks_on(key, row, config, settings))
    record = Audit(
        row=key,
        made_by=versions.auditing(row.method, row.model.name),
        versions=provenance.versions(),
        attacks=attacks,
        why_none=None if attacks else statement("nothing_to_attack"),
    )
    return records.write(record, root)


def attacks_on(key: str, row: Row, config: MethodSettings, settings: Settings) -> Iterator[Attack]:
    """Every attack that there is on one level."""
    on_level = _on_steps if config.attack in ("canaries", "crowd") else _on_releases
    begun = time.process_time()
    for attack in on_level(row, config, settings, f"{key}/{row.level(config)}"):
        seconds = round(time.process_time() - begun, 1)
        yield Attack(level=row.level(config), seconds=seconds, **attack)
        begun = time.process_time()


def _on_steps(row: Row, config: MethodSettings, settings: Settings, name: str) -> Iterator[Fields]:
    """Attacks on a method that releases sums with Gaussian noise."""
    examples, noise = settings.split(row.data).train, noises(row)[-1]
    steps = config.total_steps(examples)
    if config.attack == "canaries":
        scores = mechanism.audit_singles(config, examples, steps, name, noise)
    else:
        scores = mechanism.audit_crowd(config, examples, steps, _parts(row, config, settings), name, noise)
    delta = scores.delta
    whole = scores.steps == steps and scores.spending.examples == examples
    ways = _ways(scores.without, scores.within, scores.one_run, delta)
    ways |= {name: _by_gaussian(*paired, delta) for name, paired in scores.others.items()}
    yield _by_scores(config.attack, scores, noise, delta, ways, whole)

    paired = pair.audit_pair(row, config, settings, name, noise)
    ways = _ways(paired.scores.without, paired.scores.within, False, delta)
    ways["computed"] = lambda alpha: bounds.of_mu(paired.mu(alpha), delta)
    yield _by_scores("pair", paired.scores, noise, delta, ways)

    noised, clip = floating_point.mechanism_of(config, examples, name), config.model_dump()["clip"]
    multiplier, count = noised.spendings[0].noise_multiplier, floating_point.COORDINATES
    event, epsilon_upper = describe(GaussianDpEvent(multiplier)), bounds.of_mu(1 / multiplier, delta)
    for kind in noises(row):
        errors = floating_point.audit(noised, clip, name, kind)
        ways = {"coordinates": partial(bounds.by_coordinates, errors, count, delta=delta)}
        trials = (errors.without, errors.within)
        yield _attack(FLOATING_POINT, event, kind, delta, epsilon_upper, trials, ways)


def _on_releases(row: Row, config: MethodSettings, settings: Settings, name: str) -> Iterator[Fields]:
    """Attacks on a method that releases its data once with Laplace noise."""
    shared = config.attack == "shared"
    way = releases.shared if shared else releases.opposites
    noise = noises(row)[-1]
    told = way(row, config, settings, name, noise)
    ways = _ways(told.without, told.within, False, 0.0)
    if told.labels is not None:
        ways["labels"] = _ways(*told.labels, False, 0.0)["errors"]
    event, epsilon_upper = str(told.method.guarantee(0).spending), releases.spent(told.method)
    trials = len(told.without), len(told.within)
    # relevances, which are not attacked, can only add
    yield _attack(config.attack, event, noise, 0.0, epsilon_upper, trials, ways, whole=True)
    for kind in () if shared else noises(row):
        errors = releases.floating_point(row, config, settings, name, kind)
        ways = {"errors": partial(bounds.by_errors, errors, delta=0.0)}
        trials = (errors.without, errors.within)
        yield _attack(FLOATING_POINT, event, kind, 0.0, epsilon_upper, trials, ways)


def noises(row: Row) -> tuple[Noise, ...]:
    """Of a row's replicas, those that an older version trained among them; the last is what it has now."""
    return ("float32",) if row.reproducible else ("float32", "grid")


def _by_scores(
    attack: str, scores: Scores, noise: Noise, delta: float, ways: dict[str, Way], whole: bool = False
) -> Fields:
    known, _ = bounds_of(scores.spending, scores.steps, delta)
    epsilon_upper = min(bound.epsilon for bound in known.values() if bound.epsilon is not None)
    event, trials = describe(scores.spending.event(scores.steps)), (len(scores.without), len(scores.within))
    return _attack(attack, event, noise, delta, epsilon_upper, trials, ways, whole)


def _attack(
    attack: str,
    event: str,
    noise: Noise,
    delta: float,
    epsilon_upper: float | None,
    trials: tuple[int, int],
    ways: dict[str, Way],
    whole: bool = False,
) -> Fields:
    """Of an attack all but its level and the seconds it took."""
    return {
        "attack": attack,
        "sees": SEES[attack],
        "event": event,
        "noise": noise,
        "delta": delta,
        "epsilon_upper": None if epsilon_upper is None else up(epsilon_upper),
        "whole": whole,
        "confidence": 1 - ALPHA,
        "trials": trials,
        "bounds": _shown(ways),
    }


def _shown(ways: dict[str, Way]) -> tuple[Bound, ...]:
    """What each of an attack's ways to tell shows, at a significance that they share."""
    return tuple(
        Bound(by=name, epsilon=down(way(ALPHA / len(ways))), assumes_gaussian=name not in ASSUMING_NOTHING)
        for name, way in ways.items()
    )


def _ways(without: np.ndarray, within: np.ndarray, one_run: bool, delta: float) -> dict[str, Way]:
    """Those that hold for scores."""
    if one_run:
        ways: dict[str, Way] = {
            "one_run": lambda alpha: bounds.by_one_run(without, within, alpha, delta),
            "one_run_curve": lambda alpha: bounds.by_one_run_curve(without, within, alpha, delta),
        }
    else:
        ways = {"errors": lambda alpha: bounds.by_thresholds(without, within, alpha, delta)}
    return ways | ({"gaussian": _by_gaussian(without, within, delta)} if delta > 0 else {})


def _by_gaussian(without: np.ndarray, within: np.ndarray, delta: float) -> Way:
    return lambda alpha: bounds.by_gaussian(bounds.split(without, within)[0], alpha, delta)


def _parts(row: Row, config: MethodSettings, settings: Settings) -> int:
    """L of the row's own network."""
    data = made_up.examples(row, settings, 1, None)
    sizes = network_sizes(row.method, row.model, config.input_shape(data.input_shape), made_up.CLASSES)
    return config.parts(Sizes(len(data.splits["train"]), sizes))
