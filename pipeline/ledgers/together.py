"""What all trainings of a row, and of the search that chose its settings, release together.

A table's cell is a mean over seeds, a row has several levels, and a search looks at what each of its
candidates reached: whoever sees them all has seen the same private examples as often.
"""

import json
from collections import Counter
from collections.abc import Iterator
from math import fsum, isfinite
from pathlib import Path

from pipeline.ledgers.ledger import bounds_of
from pipeline.ledgers.opinions import library
from pipeline.ledgers.precision import up
from pipeline.methods.settings import MethodSettings
from pipeline.params import Settings
from pipeline.privacy.accounting import noise_for
from pipeline.privacy.laplace import Releases
from pipeline.privacy.spending import Spending
from pipeline.privacy.subsampling import composed
from pipeline.results.records import Run, Together, Trained, search_path

BASIC = "the sum of each one's bound at its share of delta"
# up to which the trainings' losses are composed on one grid
LARGEST_GRID = 50.0
INTERVAL = 1e-3

# of one training: mechanism and steps, or a pure epsilon of what was released at once
Spent = tuple[Spending, int] | float


def together(run: Run, search: str | None, settings: Settings, root: Path = Path()) -> Together | None:
    """What a row's private replicas and its search spend in all; None where that is no more than one does.

    Replicas without a bound, and the candidates of a search whose spending can't be told from here, are not
    in it, and are counted as left out.
    """
    private = [
        (one, spent)
        for one in run.replicas
        if (spent := _of_replica(one)) is not None and not run.origin(one).reproducible
    ]
    candidates = list(_candidates(run, search, settings, root)) if search else []
    known = [one for one in candidates if one is not None]
    every = [*(spent for _, spent in private), *known]
    if not private or len(every) < 2:
        return None
    delta = private[0][0].delta or 0.0
    epsilon, by = _bound(Counter(one for one in every if isinstance(one, tuple)), delta)
    return Together(
        epsilon=up(epsilon + fsum(one for one in every if isinstance(one, float))),
        delta=delta,
        by=by,
        trainings=len(private),
        searched=len(known),
        left_out=len(run.replicas) - len(private) + len(candidates) - len(known),
    )


def _bound(trainings: Counter[tuple[Spending, int]], delta: float) -> tuple[float, str]:
    """Epsilon at ``delta`` of all trainings, and how it was found."""
    count = trainings.total()
    if not count:
        return 0.0, BASIC
    basic = fsum(number * _least(*one, delta / count) for one, number in trainings.items())
    largest = max(_least(*one, delta) for one in trainings)
    if largest > LARGEST_GRID or any(one.sampling == "shuffled" for one, _ in trainings):
        return basic, BASIC
    (first, number), *others = trainings.items()
    losses = composed(first[0], number * first[1], INTERVAL)
    for one, number in others:
        losses = losses.compose(composed(one[0], number * one[1], INTERVAL))
    fine = losses.get_epsilon_for_delta(delta)
    return (fine, f"pld ({library('dp-accounting')})") if fine < basic else (basic, BASIC)


def _least(spending: Spending, steps: int, delta: float) -> float:
    bounds, _ = bounds_of(spending, steps, delta)
    return min(one.epsilon for one in bounds.values() if one.epsilon is not None)


def _of_replica(one: Trained) -> Spent | None:
    """None where nothing bounds it."""
    if one.broken:
        return None
    if one.accounted_then is not None:
        return one.accounted_then.accounted if one.accounted_then.releases else None
    if isinstance(one.spending, Releases):
        return one.spending.epsilon if isfinite(one.spending.epsilon) else None
    return None if one.spending is None else (one.spending, one.steps)


def _candidates(run: Run, search: str, settings: Settings, root: Path) -> Iterator[Spent | None]:
    """What each training of a search spent; None of those that weren't private, or can't be told."""
    path = search_path(search, root)
    asked = settings.searches.get(search)
    if asked is None or not path.exists():
        return
    row, found = settings.rows[asked.row], json.loads(path.read_text(encoding="utf-8"))
    examples = found["provenance"]["examples"]
    levels = {row.level(row.configured(level)): level for level in (asked.levels or row.levels)}
    for candidate in found["candidates"]:
        level = levels.get(candidate["level"])
        others = {key: value for key, value in candidate["settings"].items() if not key.startswith("model.")}
        own = None if level is None else row.configured(level, asked.settings, others)
        for _ in range(candidate["seeds"]):
            yield _spent(own, examples, run) if own is not None and own.private else None


def _spent(own: MethodSettings, examples: int, run: Run) -> Spent | None:
    """What a training with settings ``own`` spends, by the replicas of the row with the same noise."""
    values, steps = own.model_dump(mode="json"), own.total_steps(examples)
    if "accountant" in values:  # noise by the target and the number of steps
        noise = noise_for(
            values["epsilon"], values["delta"], values["batch"] / examples, steps, values["accountant"]
        )
        once = Spending(sampling="poisson", noise_multiplier=noise, examples=examples, batch=values["batch"])
        return once, steps
    noises = ("sigma", "epsilon", "batch", "mini_set", "sampling", "variant")
    for one in run.replicas:
        if all(one.settings.get(name) == values.get(name) for name in noises):
            found = _of_replica(one)
            return (found[0], steps) if isinstance(found, tuple) else found
    return None
