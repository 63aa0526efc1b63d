"""The end-to-end audit: many short trainings with a record and without it, through the whole path.

The row's own network, sampling, gradients, clipping, noise and optimiser train on a few random images and one
more, which is white all over and of another class. Without it nobody draws it, or, where neighbours replace
one, there is another like the others. The attacker knows every example and sees the model at the start and at
the end, with all that is kept in it: he asks how far it went where the record alone would have moved it. A
step takes all examples, and the guarantee is accounted for as it is here. What canaries behind the clipping
can't catch, examples that move each other's gradients and statistics that leave without noise, this can.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from pipeline.audits import made_up
from pipeline.audits.mechanism import Scores, Tapped, spent_by
from pipeline.methods.base import Execution, Method
from pipeline.methods.registry import build_method
from pipeline.methods.settings import MethodSettings
from pipeline.params import Row, Settings
from pipeline.privacy.gradients import Bounds, Tensors
from pipeline.privacy.parameters import Noise
from pipeline.privacy.randomness import Streams
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.training.loop import Replica, make_task

BATCH, STEPS = 8, 1
RUNS, FEWEST, NUMBERS = 100, 24, 2e7  # on either side; fewer where networks are large
DRAWS = 300  # of the noise that is measured; fewer likewise
CPU = Execution(torch.device("cpu"), replicas_at_once=1, physical=256)
FLOOR = 1e-8  # of a tensor's noise: what nothing is added to differs by float32's rounding alone


class Absent(Streams):
    """Streams of which nobody draws the last example: a data set that it was removed from."""

    def poisson(self, step: int, examples: int, rate: float) -> list[np.ndarray]:
        """Poisson samples of the others."""
        return [sample[sample < examples - 1] for sample in super().poisson(step, examples, rate)]


@dataclass(frozen=True)
class PairAttack:
    """What the pair of data sets shows."""

    scores: Scores
    # how far the record moved each tensor of the sums of a step, and how many entries it has
    moved: list[tuple[float, int]]
    noise: list[float]  # variances of what the mechanism adds to the entries of each, as measured
    draws: int  # of it

    def mu(self, alpha: float) -> float:
        """Of the Gaussian that a step releases of this very pair, at least, at significance ``alpha``.

        The noise is at most as large as chi-squared has it, tensor by tensor.
        """
        total = 0.0
        for (moved, entries), variance in zip(self.moved, self.noise, strict=True):
            freedom = entries * (self.draws - 1)
            most = variance * freedom / float(chi2.ppf(alpha / len(self.moved), freedom))
            total += 0.0 if moved == 0 else moved**2 / most if most > 0 else inf
        return total**0.5


def audit_pair(
    row: Row, config: MethodSettings, settings: Settings, name: str, noise: Noise = "grid"
) -> PairAttack:
    """Scores of short trainings on either side, and how far the record moved the sums of a step."""
    small = config.shortened(BATCH, STEPS)
    data = {
        within: made_up.examples(row, settings, BATCH - 1, made_up.WHITE if within else None)
        for within in (False, True)
    }
    spent: list[tuple[SampledGaussian, float]] = []
    # the sums of either side, and the mechanism's release of them at any step
    exact: list[tuple[Tensors, Callable[[int], Tensors]]] = []

    def moved(within: bool, count: int, silent: bool = False) -> Tensor:
        """(R, P) how far everything kept has moved from the start; ``silent``: without noise."""
        members = [Replica(f"{name}/{within}/{run}", 0, small) for run in range(count)]
        task = make_task(members, row.model, True, data[within], CPU, noise)
        if not within and small.poisson:
            streams = Absent(task.streams.names, True, CPU.device, noise)
            # a record that is removed, and not one that is like the others
            task = replace(task, inputs=white.inputs, labels=white.labels, streams=streams)
        method = build_method(row.method, task, [small] * count, row.model.normalization)
        spent.append(spent_by(method))
        if not silent:
            return _way(method)
        mechanism = method.mechanism  # type: ignore[attr-defined]

        def release(sums: Tensors, bounds: Bounds, streams: Streams, _: int) -> Tensors:
            exact.append((sums, lambda step: mechanism.release(sums, bounds, streams, step)))
            return {name: value.float() for name, value in sums.items()}  # float32 as releases are

        method.mechanism = Tapped(mechanism, release)  # type: ignore[attr-defined]
        return _way(method)

    white = make_task([Replica("white", 0, small)], row.model, True, data[True], CPU)
    way = (moved(True, 1, silent=True) - moved(False, 1, silent=True))[0]
    runs, draws = (int(max(FEWEST, min(most, NUMBERS / len(way)))) for most in (RUNS, DRAWS))
    without, within = moved(False, runs), moved(True, runs)
    # a Gaussian's best test weighs every entry by its noise; the spread over the runs tells that
    variances = torch.cat([without - without.mean(0), within - within.mean(0)]).double().square().mean(0)
    weights = way.double() / _levelled(variances, method_sizes(white.parameters, len(way))).clamp_min(
        FLOOR**2
    )
    scores = [(side.double() @ weights).numpy() for side in (without, within)]
    scored = Scores(scores[0], scores[1], *spent[0], STEPS, one_run=False)
    (sums, release), (others, _) = exact
    apart = {name: (value - others[name])[0] for name, value in sums.items()}
    moves = [(float(value.double().norm()), value.numel()) for value in apart.values()]
    return PairAttack(scored, moves, measured(release, draws), draws)


def measured(release: Callable[[int], Tensors], draws: int) -> list[float]:
    """The variance of each tensor's entries over so many releases of the same sums."""
    first = release(0)
    totals = {name: torch.zeros(2, *value.shape, dtype=torch.float64) for name, value in first.items()}
    for draw in range(1, draws):
        for name, value in release(draw).items():
            apart = value.double() - first[name]
            totals[name] += torch.stack([apart, apart.square()])
    return [
        float((square - total.square() / draws).mean() / (draws - 1)) for total, square in totals.values()
    ]


def method_sizes(parameters: Tensors, total: int) -> list[int]:
    """Numbers of entries of the tensors that are kept, parameters first; what is beside them is one more."""
    sizes = [value[0].numel() for value in parameters.values()]
    return [*sizes, total - sum(sizes)] if total > sum(sizes) else sizes


def _levelled(noise: Tensor, sizes: list[int]) -> Tensor:
    """(P,) variances, each tensor's own mean: its entries have the same noise."""
    return torch.cat([part.mean().expand(len(part)) for part in noise.split(sizes)])


def _way(method: Method) -> Tensor:
    state = method.init()
    start = method.model(state)
    for step in range(STEPS):
        with torch.no_grad():
            state, _ = method.step(state, step)
    after = method.model(state)
    return torch.cat([(after[name] - start[name]).flatten(1) for name in after], 1)
