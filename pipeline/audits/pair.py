"""The end-to-end audit: many short trainings with a record and without it, through the whole path.

The row's own network, sampling, gradients, clipping, noise and optimiser train on a few random images and one
more, which is white all over and of another class. Without it nobody draws it, or, where neighbours replace
one, there is another like the others. The attacker knows every example and sees the model at the start and at
the end, with all that is kept in it: he asks how far it went where the record alone would have moved it. A
step takes all examples, and the guarantee is accounted for as it is here. What canaries behind the clipping
can't catch, examples that move each other's gradients and statistics that leave without noise, this can.

A hundred trainings can't tell whether half of the exact sum is in the model beside the noisy sum. Two
comparisons without chance can:

* A model after some steps with the record must equal the model without it if both sides' mechanisms release
  the same numbers: then all that depends on the record is in the releases.
* The mechanism's releases of both sides' sums with the same noise must be as far apart as the sums.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from pipeline.audits import made_up
from pipeline.audits.mechanism import RecordingMechanism, Scores, gaussian_of, spent_by
from pipeline.methods.base import Execution, Method
from pipeline.methods.registry import build_method
from pipeline.methods.settings import MethodSettings
from pipeline.params import Row, Settings
from pipeline.privacy.gradients import Bounds, Tensors
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.parameters import Noise
from pipeline.privacy.randomness import Streams
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.training.loop import Replica, make_task

BATCH, STEPS = 8, 1
RUNS, FEWEST, NUMBERS = 100, 24, 2e7  # on either side; fewer where networks are large
DRAWS = 300  # of the noise that is measured; fewer likewise
CPU = Execution(torch.device("cpu"), replicas_at_once=1, physical=256)
# Largest target epsilon: noise that is some in a long training may be hardly any in a few batches
LARGEST_EPSILON = 8.0
FLOOR = 1e-8  # of a tensor's noise: what nothing is added to differs by float32's rounding alone
REPLAYED = 3  # steps with the releases of the other side
ROUNDED = 1.005  # by how much rounding may move releases further apart than sums: five times its share


class Without(Streams):
    """Streams whose samples never have some examples: a data set that they were removed from."""

    absent: np.ndarray  # their positions

    def poisson(self, step: int, examples: int, rate: float) -> list[np.ndarray]:
        """Poisson samples of the others."""
        return [sample[~np.isin(sample, self.absent)] for sample in super().poisson(step, examples, rate)]

    def allocated(self, step: int, examples: int, batches: int, participations: int) -> list[np.ndarray]:
        """Allocated batches of the others."""
        samples = super().allocated(step, examples, batches, participations)
        return [sample[~np.isin(sample, self.absent)] for sample in samples]


@dataclass(frozen=True)
class Overheard:
    """A step's sums, and the mechanism that released them."""

    mechanism: GaussianMechanism
    sums: Tensors
    bounds: Bounds
    streams: Streams

    def released(self, streams: Streams, step: int) -> Tensors:
        """The release of these sums with a step's noise."""
        return self.mechanism.release(self.sums, self.bounds, streams, step)


@dataclass(frozen=True)
class PairAttack:
    """What the pair of data sets shows."""

    scores: Scores
    # how far the record moved each tensor of the sums of a step, or of the releases if these moved further
    # than rounding explains; and the tensor's number of entries
    moved: list[tuple[float, int]]
    noise: list[float]  # variances of what the mechanism adds to the entries of each, as measured
    draws: int  # of it
    beside: bool  # whether the record moved the model where the releases were the same

    def mu(self, alpha: float) -> float:
        """Lower bound on mu of a step's Gaussian release of this pair, at significance ``alpha``.

        Each tensor's noise has a chi-squared upper confidence bound. If the record moves the model beside the
        release, mu is infinite.
        """
        if self.beside:
            return inf
        total = 0.0
        for (moved, entries), variance in zip(self.moved, self.noise, strict=True):
            freedom = entries * (self.draws - 1)
            most = variance * freedom / float(chi2.ppf(alpha / len(self.moved), freedom))
            total += 0.0 if moved == 0 else moved**2 / most if most > 0 else inf
        return total**0.5


def short(config: MethodSettings, steps: int = STEPS) -> MethodSettings:
    """Settings of the short trainings, with no larger target epsilon than `LARGEST_EPSILON`."""
    small = config.shortened(BATCH, steps)
    target = getattr(small, "epsilon", LARGEST_EPSILON)
    return small.changed({"epsilon": min(target, LARGEST_EPSILON)}) if small.private else small


def audit_pair(
    row: Row, config: MethodSettings, settings: Settings, name: str, noise: Noise = "grid"
) -> PairAttack:
    """Scores of short trainings on either side, and how far the record moved the sums of a step."""
    small = short(config)
    data = {
        within: made_up.examples(row, settings, BATCH - 1, made_up.WHITE if within else None)
        for within in (False, True)
    }
    spent: list[tuple[SampledGaussian, float]] = []
    exact: list[Overheard] = []  # of either side

    def method_of(within: bool, names: list[str], shortened: MethodSettings) -> Method:
        """The row's method on one side's data."""
        members = [Replica(name, 0, shortened) for name in names]
        task = make_task(members, row.model, True, data[within], CPU, noise)
        if not within and small.add_or_remove:
            streams = Without(task.streams.names, True, CPU.device, noise)
            streams.absent = np.array([len(white.labels) - 1])
            # a record that is removed, and not one that is like the others
            task = replace(task, inputs=white.inputs, labels=white.labels, streams=streams)
        return build_method(row.method, task, [shortened] * len(names), row.model.normalization)

    def moved(within: bool, count: int, silent: bool = False) -> Tensor:
        """(R, P) how far everything kept has moved from the start; ``silent``: without noise."""
        method = method_of(within, [f"{name}/{within}/{run}" for run in range(count)], small)
        spent.append(spent_by(method))
        if not silent:
            return _way(method)
        mechanism = gaussian_of(method)

        def release(sums: Tensors, bounds: Bounds, streams: Streams, _: int) -> Tensors:
            exact.append(Overheard(mechanism, sums, bounds, streams))
            return {name: value.float() for name, value in sums.items()}  # float32 as releases are

        RecordingMechanism.wrap(method, release)
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
    there, absent = exact
    variances_of_noise = measured(partial(there.released, there.streams), draws)
    # with the same noise on both sides
    renewed = [Streams(there.streams.names, True, CPU.device, noise) for _ in exact]
    releases = [side.released(streams, 0) for side, streams in zip(exact, renewed, strict=True)]
    moves, released = _apart(there.sums, absent.sums), _apart(*releases)
    if _multiples(released, variances_of_noise) > ROUNDED * _multiples(moves, variances_of_noise):
        moves = released
    longer = short(config, REPLAYED)
    sides = [method_of(within, [f"{name}/replayed"], longer) for within in (False, True)]
    # what a method says of itself is in its replicas' ledgers, and needs no attack
    beside = not any(side.guarantee(0).broken for side in sides) and _differs(*sides)
    return PairAttack(scored, moves, variances_of_noise, draws, beside)


def _apart(sums: Tensors, others: Tensors) -> list[tuple[float, int]]:
    """Of each tensor of the only replica the distance, and the number of entries."""
    apart = [(value.double() - others[name].double())[0] for name, value in sums.items()]
    return [(float(value.norm()), value.numel()) for value in apart]


def _multiples(moves: list[tuple[float, int]], variances: list[float]) -> float:
    """The distance of all tensors in standard deviations of their noise."""
    return sum(moved**2 / max(of, FLOOR**2) for (moved, _), of in zip(moves, variances, strict=True)) ** 0.5


def _differs(without: Method, within: Method) -> bool:
    """Whether the models of both sides differ after steps that released the same numbers."""
    said: list[Tensors] = []

    def says(sums: Tensors, bounds: Bounds, streams: Streams, step: int) -> Tensors:
        said.append(released := mechanisms[0].release(sums, bounds, streams, step))
        return {name: value.clone() for name, value in released.items()}

    def repeats(sums: Tensors, bounds: Bounds, streams: Streams, step: int) -> Tensors:
        mechanisms[1].release(sums, bounds, streams, step)  # with its effects, if it has any
        return said[step]

    mechanisms = [gaussian_of(side) for side in (without, within)]
    RecordingMechanism.wrap(without, says)
    RecordingMechanism.wrap(within, repeats)
    return not torch.equal(_way(without, REPLAYED), _way(within, REPLAYED))


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


def _way(method: Method, steps: int = STEPS) -> Tensor:
    state = method.init()
    start = method.model(state)
    for step in range(steps):
        with torch.no_grad():
            state, _ = method.step(state, step)
    after = method.model(state)
    return torch.cat([(after[name] - start[name]).flatten(1) for name in after], 1)
