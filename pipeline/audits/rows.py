"""A row -> what attacks on its code show: `reports/audits/ROW.json`. Needs neither weights nor data."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.audits import bounds, made_up, mechanism, pair, releases
from pipeline.audits.mechanism import Scores
from pipeline.data.own import sets
from pipeline.identity import provenance, versions
from pipeline.ledgers.ledger import bounds_of
from pipeline.ledgers.precision import down, up
from pipeline.methods.batch_clipping import layer_bounds
from pipeline.methods.registry import build_net
from pipeline.methods.settings import MethodSettings
from pipeline.params import Row, Settings
from pipeline.privacy.accounting import describe
from pipeline.privacy.gaussian import gaussian_epsilon
from pipeline.privacy.statements import statement
from pipeline.results import records
from pipeline.results.records import Attack, Audit, Bound

ALPHA = 0.05  # of all bounds of an attack together, but for those that assume a Gaussian mechanism
DELTA = 1e-5


def audit_row(key: str, settings: Settings, root: Path = Path()) -> Path:
    """Attack the code of a row, level by level; returns the path of what was found."""
    row = settings.row(key)
    sets.entered(settings)
    private = [own for own in row.resolved if own.private]
    attacks = tuple(attack for own in private for attack in attacks_on(key, row, own, settings))
    found = Audit(
        row=key,
        made_by=versions.auditing(row.method, row.model.name),
        versions=provenance.versions(),
        attacks=attacks,
        why_none=None if attacks else statement("nothing_to_attack"),
    )
    return records.write(found, root)


def attacks_on(key: str, row: Row, own: MethodSettings, settings: Settings) -> Iterator[Attack]:
    """Every attack that there is on one level."""
    level = row.level(own)
    name = f"{key}/{level}"
    if hasattr(own, "variant"):
        yield _on_releases(row, own, settings, level, name)
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
    shown = list(_by_scores(scores.without, scores.within, scores.one_run, _delta(own)))
    shown += [_by_gaussian(name, *found, _delta(own)) for name, found in scores.others.items()]
    yield _attack(level, "canaries" if single else "crowd", "every step", scores, own, whole, shown, begun)
    begun = time.process_time()
    found = pair.audit_pair(row, own, settings, name)
    scores = found.scores
    shown = list(_by_scores(scores.without, scores.within, False, _delta(own)))
    if found.mu > 0:
        shown.append(Bound(by="computed", epsilon=down(gaussian_epsilon(found.mu, _delta(own)))))
    yield _attack(level, "pair", "the first and the last model", scores, own, False, shown, begun)


def _attack(
    level: str,
    attack: str,
    sees: str,
    scores: Scores,
    own: MethodSettings,
    whole: bool,
    shown: list[Bound],
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
        bounds=tuple(shown),
        seconds=round(time.process_time() - begun, 1),
    )


def _on_releases(row: Row, own: MethodSettings, settings: Settings, level: str, name: str) -> Attack:
    begun = time.process_time()
    shared = getattr(own, "variant", "") == "code"
    way = releases.shared if shared else releases.opposites
    found = way(row, own, settings, name)
    without, within, method = found.without, found.within, found.method
    accounted = releases.spent(method)
    shown = list(_by_scores(without, within, False, 0.0))
    if found.labels is not None:
        shown.append(Bound(by="labels", epsilon=next(_by_scores(*found.labels, False, 0.0)).epsilon))
    return Attack(
        level=level,
        attack="shared" if shared else "opposites",
        sees="what was released",
        event=str(method.guarantee(0).spending),
        delta=0.0,
        accounted=None if accounted is None else up(accounted),
        whole=True,  # relevances, which are not attacked, can only add
        confidence=1 - ALPHA,
        trials=(len(without), len(within)),
        bounds=tuple(shown),
        seconds=round(time.process_time() - begun, 1),
    )


def _by_scores(without: np.ndarray, within: np.ndarray, one_run: bool, delta: float) -> Iterator[Bound]:
    """What scores show: by each way that holds for them."""
    thresholds = bounds.split(without, within)
    if one_run:
        yield Bound(by="one_run", epsilon=down(bounds.by_one_run(without, within, ALPHA, delta)))
        curve = bounds.by_one_run_curve(without, within, ALPHA, delta)
        yield Bound(by="one_run_curve", epsilon=down(curve), assumes_gaussian=True)
    else:
        shown = max(bounds.by_errors(one, ALPHA / len(thresholds), delta) for one in thresholds)
        yield Bound(by="errors", epsilon=down(shown))
    if delta > 0:
        yield _by_gaussian("gaussian", without, within, delta)


def _by_gaussian(name: str, without: np.ndarray, within: np.ndarray, delta: float) -> Bound:
    shown = bounds.by_gaussian(bounds.split(without, within)[0], ALPHA, delta)
    return Bound(by=name, epsilon=down(shown), assumes_gaussian=True)


def _delta(own: MethodSettings) -> float:
    return float(getattr(own, "delta", DELTA))


def _parts(row: Row, own: MethodSettings, settings: Settings) -> int:
    """L of the row's own network."""
    data = made_up.examples(row, settings, 1, None)
    net = build_net(row.model, own.input_shape(data.input_shape), made_up.CLASSES)
    names = [name for name, value in net.named_parameters() if value.requires_grad]
    layers = layer_bounds.layers_of(net, names, getattr(own, "layers", "tensor"))
    return layer_bounds.parts_of(own, len(layers.names))  # type: ignore[arg-type]
