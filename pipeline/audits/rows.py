"""A row -> what attacks on its code show: `reports/audits/ROW.json`. Needs neither weights nor data."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from dp_accounting import GaussianDpEvent

from pipeline.audits import bounds, floating_point, made_up, mechanism, pair, releases
from pipeline.audits.mechanism import Scores
from pipeline.data.own import sets
from pipeline.identity.code import audit_code
from pipeline.identity.provenance import versions
from pipeline.ledgers.ledger import bounds_of
from pipeline.ledgers.precision import down, up
from pipeline.methods.batch_clipping import layer_bounds
from pipeline.methods.laplace.perturbed import Perturbed
from pipeline.methods.registry import build_net
from pipeline.methods.settings import MethodSettings
from pipeline.params import Row, Settings
from pipeline.privacy.accounting import describe
from pipeline.privacy.statements import statement
from pipeline.results import records
from pipeline.results.records import FLOATING_POINT, Attack, Audit, Bound

ALPHA = 0.05  # of all bounds of an attack together
# bounds that assume nothing of the mechanism
ASSUMING_NOTHING = {"errors", "one_run", "labels", "coordinates"}
# an epsilon that is shown, at a significance
Way = Callable[[float], float]
DELTA = 1e-5


def audit_row(key: str, settings: Settings, root: Path = Path()) -> Path:
    """Attack the code of a row, level by level; returns the path of what was found."""
    row = settings.row(key)
    sets.entered(settings)
    private = [own for own in row.resolved if own.private]
    attacks = tuple(attack for own in private for attack in attacks_on(key, row, own, settings))
    found = Audit(
        row=key,
        code=audit_code(row.method, row.model.name),
        versions=versions(),
        attacks=attacks,
        why_none=None if attacks else statement("nothing_to_attack"),
    )
    return records.write(found, root)


def attacks_on(key: str, row: Row, own: MethodSettings, settings: Settings) -> Iterator[Attack]:
    """Every attack that there is on one level."""
    level = row.level(own)
    name = f"{key}/{level}"
    if hasattr(own, "variant"):
        yield from _on_releases(row, own, settings, level, name)
        return
    begun = time.process_time()
    examples = settings.split(row.data).train
    steps = own.total_steps(examples)
    single = getattr(own, "clipping", None) is None
    if single:
        scores = mechanism.audit_singles(own, examples, steps, name)
    else:
        scores = mechanism.audit_crowd(own, examples, steps, _parts(row, own, settings), name)
    whole = scores.steps == steps and scores.spending.examples == examples
    ways = _ways(scores.without, scores.within, scores.one_run, _delta(own))
    ways |= {name: _by_gaussian(*found, _delta(own)) for name, found in scores.others.items()}
    yield _attack(level, "canaries" if single else "crowd", "every step", scores, own, whole, ways, begun)
    begun = time.process_time()
    found = pair.audit_pair(row, own, settings, name)
    scores = found.scores
    ways = _ways(scores.without, scores.within, False, _delta(own))
    ways["computed"] = lambda alpha: bounds.of_mu(found.mu(alpha), _delta(own))
    yield _attack(level, "pair", "the first and the last model", scores, own, False, ways, begun)
    yield _on_arithmetic(own, examples, level, name)


def _attack(
    level: str,
    attack: str,
    sees: str,
    scores: Scores,
    own: MethodSettings,
    whole: bool,
    ways: dict[str, Way],
    begun: float,
) -> Attack:
    known, _ = bounds_of(scores.spending, scores.steps, _delta(own))
    return Attack(
        level=level,
        attack=attack,
        sees=sees,
        event=describe(scores.spending.event(scores.steps)),
        delta=_delta(own),
        accounted=up(min(one.epsilon for one in known.values() if one.epsilon is not None)),
        whole=whole,
        confidence=1 - ALPHA,
        trials=(len(scores.without), len(scores.within)),
        bounds=_shown(ways),
        seconds=round(time.process_time() - begun, 1),
    )


def _on_arithmetic(own: MethodSettings, examples: int, level: str, name: str) -> Attack:
    begun = time.process_time()
    mechanism = floating_point.mechanism_of(own, examples, name)
    clip: float = own.clip  # type: ignore[attr-defined]
    errors = floating_point.audit(mechanism, clip, name)
    noise, count = mechanism.spendings[0].noise_multiplier, floating_point.COORDINATES
    return Attack(
        level=level,
        attack=FLOATING_POINT,
        sees="one release",
        event=describe(GaussianDpEvent(noise)),
        delta=_delta(own),
        accounted=up(bounds.of_mu(1 / noise, _delta(own))),
        whole=False,
        confidence=1 - ALPHA,
        trials=(errors.without, errors.within),
        bounds=_shown(
            {"coordinates": lambda alpha: bounds.by_coordinates(errors, count, alpha, _delta(own))}
        ),
        seconds=round(time.process_time() - begun, 1),
    )


def _on_releases(
    row: Row, own: MethodSettings, settings: Settings, level: str, name: str
) -> Iterator[Attack]:
    begun = time.process_time()
    shared = getattr(own, "variant", "") == "code"
    way = releases.shared if shared else releases.opposites
    found = way(row, own, settings, name)
    ways = _ways(found.without, found.within, False, 0.0)
    if found.labels is not None:
        ways["labels"] = _ways(*found.labels, False, 0.0)["errors"]
    trials = len(found.without), len(found.within)
    yield _of_release("shared" if shared else "opposites", found.method, level, ways, trials, begun)
    if not shared:
        begun = time.process_time()
        errors, method = releases.floating_point(row, own, settings, name)
        ways = {"errors": lambda alpha: bounds.by_errors(errors, alpha, 0.0)}
        yield _of_release(FLOATING_POINT, method, level, ways, (errors.without, errors.within), begun)


def _of_release(
    attack: str, method: Perturbed, level: str, ways: dict[str, Way], trials: tuple[int, int], begun: float
) -> Attack:
    accounted = releases.spent(method)
    return Attack(
        level=level,
        attack=attack,
        sees="what was released",
        event=str(method.guarantee(0).spending),
        delta=0.0,
        accounted=None if accounted is None else up(accounted),
        whole=attack != FLOATING_POINT,  # relevances, which are not attacked, can only add
        confidence=1 - ALPHA,
        trials=trials,
        bounds=_shown(ways),
        seconds=round(time.process_time() - begun, 1),
    )


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


def _delta(own: MethodSettings) -> float:
    return float(getattr(own, "delta", DELTA))


def _parts(row: Row, own: MethodSettings, settings: Settings) -> int:
    """L of the row's own network."""
    data = made_up.examples(row, settings, 1, None)
    net = build_net(row.model, own.input_shape(data.input_shape), made_up.CLASSES)
    names = [name for name, value in net.named_parameters() if value.requires_grad]
    layers = layer_bounds.layers_of(net, names, getattr(own, "layers", "tensor"))
    return layer_bounds.parts_of(own, len(layers.names))  # type: ignore[arg-type]
