"""End-to-end audit: many short trainings with a record and without it, through the whole code path.

The row's own network, sampling, gradients, clipping, noise and optimiser train on a few random images and the
record, a white image of another class. Trainings without the record never sample it; under the replace-one
relation, another random image takes the record's place. The attacker knows every example, sees all tensors
of the first and the last model, and scores how far they moved in the direction in which the record moves
them. Each step takes all examples of its data set, and epsilon is accounted for such steps. This audit finds
leaks before the clipping, which the canaries of `pipeline.audits.mechanism` can't find: examples that change
each other's gradients, and statistics that are released without noise.

Suppose that faulty code adds half of the sum without noise to the model, besides the noisy sum. A hundred
trainings usually don't detect this, but two deterministic comparisons do:

* A training with the record and one without it are given the same releases. Their models must be equal,
  because a model depends on the record only through the releases.
* The sum with the record and the sum without it get the same noise. Their releases must be as far apart as
  the two sums.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dprepro.accountants.records import SampledGaussian
from dprepro.auditing.pairs import SumsOfPair, noise_variances
from dprepro.clipping.functional import Tensors
from dprepro.clipping.limits import ClipLimits
from dprepro.fields import Noise
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.noise.streams import Streams
from dprepro.pipeline.audits import made_up
from dprepro.pipeline.audits.mechanism import MechanismScores, RecordingMechanism, gaussian_of, spent_by
from dprepro.pipeline.methods.base import CPU, Method
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.training.loop import SeedRun, make_task

BATCH, STEPS = 8, 1
# Runs with the record, and as many without: `RUNS`; for large networks `NUMBERS` divided by their size, but
# at least `FEWEST`
RUNS, FEWEST, NUMBERS = 100, 24, 2e7
DRAWS = 300  # releases that measure the noise; fewer for large networks
# Largest target epsilon: the noise of a long training may be almost none in a few batches
LARGEST_EPSILON = 8.0
FLOOR = 1e-8  # least deviation of a tensor's noise: tensors without noise differ by the rounding of float32
REPLAYED = 3  # steps with the releases of the other side
# Largest ratio of the releases' distance to the sums' distance that rounding explains, with a factor of five
ROUNDED = 1.005


class Without(Streams):
    """Streams that never sample the ``absent`` examples, as if the data set lacked these examples."""

    absent: np.ndarray  # positions of these examples

    def poisson(self, step: int, examples: int, rate: float) -> np.ndarray:
        """Poisson sample without the ``absent`` examples."""
        return self._present(super().poisson(step, examples, rate))

    def allocated(self, step: int, examples: int, batches: int, participations: int) -> np.ndarray:
        """Allocated batch without the ``absent`` examples."""
        return self._present(super().allocated(step, examples, batches, participations))

    def _present(self, sample: np.ndarray) -> np.ndarray:
        return sample[~np.isin(sample, self.absent)]


@dataclass(frozen=True)
class RecordedSums:
    """Sums of one step, and the mechanism that released them."""

    mechanism: GaussianMechanism
    sums: Tensors
    bounds: ClipLimits
    streams: Streams

    def released(self, streams: Streams, step: int) -> Tensors:
        """Release of these sums with the noise of ``step``."""
        return self.mechanism.release(self.sums, self.bounds, streams, step)


@dataclass(frozen=True)
class PairAttack(SumsOfPair):
    """Results of the attack on a pair of data sets."""

    scores: MechanismScores


def short_settings(config: MethodSettings, steps: int = STEPS) -> MethodSettings:
    """Settings of the short trainings; the target epsilon is at most `LARGEST_EPSILON`."""
    small = config.shortened(BATCH, steps)
    target = getattr(small, "epsilon", LARGEST_EPSILON)
    return small.changed({"epsilon": min(target, LARGEST_EPSILON)}) if small.private else small


def audit_pair(
    row: Row, config: MethodSettings, settings: Settings, name: str, noise: Noise = "grid"
) -> PairAttack:
    """Attack on short trainings with and without the record."""
    small = short_settings(config)
    data = {
        within: made_up.examples(row, settings, BATCH - 1, made_up.WHITE if within else None)
        for within in (False, True)
    }
    spent: list[tuple[SampledGaussian, float]] = []
    exact: list[RecordedSums] = []  # with the record, without it

    def streams_of(within: bool, run: SeedRun) -> Streams:
        """Streams of a run; they never sample a record that is absent, and not replaced by another image."""
        if within or not small.add_or_remove:
            return Streams(run.name, True, CPU.device, noise)
        streams = Without(run.name, True, CPU.device, noise)
        streams.absent = np.array([len(white.labels) - 1])
        return streams

    def method_of(within: bool, name: str, shortened: MethodSettings) -> Method:
        """The row's method on the data with the record (``within``) or without it."""
        run = SeedRun(name, 0, shortened)
        task = make_task(run, row.model, True, data[within], CPU, noise)
        task = replace(task, streams=streams_of(within, run))
        if not within and small.add_or_remove:
            task = replace(task, inputs=white.inputs, labels=white.labels)
        return shortened.build_method(task, row.model.normalization)

    def moved(within: bool, count: int, silent: bool = False) -> Tensor:
        """(R, P) changes of the model's P numbers in R = ``count`` trainings; ``silent``: without noise."""
        runs = [SeedRun(f"{name}/{within}/{number}", 0, small) for number in range(count)]
        method = method_of(within, runs[0].level, small)
        spent.append(spent_by(method))
        if silent:
            mechanism = gaussian_of(method)

            def release(sums: Tensors, bounds: ClipLimits, streams: Streams, _: int) -> Tensors:
                exact.append(RecordedSums(mechanism, sums, bounds, streams))
                return {name: value.float() for name, value in sums.items()}  # float32 as releases are

            RecordingMechanism.wrap(method, release)
        changes = []
        for run in runs:
            method.task = replace(method.task, streams=streams_of(within, run))
            changes.append(_displacement(method))
        return torch.stack(changes)

    white = make_task(SeedRun("white", 0, small), row.model, True, data[True], CPU)
    direction = (moved(True, 1, silent=True) - moved(False, 1, silent=True))[0]
    runs, draws = (int(max(FEWEST, min(most, NUMBERS / len(direction)))) for most in (RUNS, DRAWS))
    without, within = moved(False, runs), moved(True, runs)
    # the best test divides each entry by its noise variance, which is measured over the runs
    variances = torch.cat([without - without.mean(0), within - within.mean(0)]).double().square().mean(0)
    weights = direction.double() / _tensor_means(variances, white.parameters).clamp_min(FLOOR**2)
    scores = [(side.double() @ weights).numpy() for side in (without, within)]
    scored = MechanismScores(scores[0], scores[1], *spent[0], STEPS)
    present, absent = exact
    variances_of_noise = noise_variances(partial(present.released, present.streams), draws)
    # both sides get the same noise
    renewed = [Streams(present.streams.name, True, CPU.device, noise) for _ in exact]
    releases = [side.released(streams, 0) for side, streams in zip(exact, renewed, strict=True)]
    moves, released = _distances(present.sums, absent.sums), _distances(*releases)
    if _multiples(released, variances_of_noise) > ROUNDED * _multiples(moves, variances_of_noise):
        moves = released
    longer = short_settings(config, REPLAYED)
    sides = [method_of(within, f"{name}/replayed", longer) for within in (False, True)]
    # a method that declares its guarantee broken is broken in its ledgers too, and needs no attack
    bypassed = not any(side.broken for side in sides) and _differs(*sides)
    return PairAttack(moves, variances_of_noise, draws, bypassed, scored)


def _distances(sums: Tensors, others: Tensors) -> list[tuple[float, int]]:
    """For each tensor: norm of ``sums`` - ``others``, and number of entries."""
    differences = [value.double() - others[name].double() for name, value in sums.items()]
    return [(float(value.norm()), value.numel()) for value in differences]


def _multiples(moves: list[tuple[float, int]], variances: list[float]) -> float:
    """Norm of all tensors' distances ``moves``, each divided by the standard deviation of its noise."""
    return sum(moved**2 / max(of, FLOOR**2) for (moved, _), of in zip(moves, variances, strict=True)) ** 0.5


def _differs(without: Method, within: Method) -> bool:
    """Return True if the models without and with the record differ after steps with equal releases."""
    releases: list[Tensors] = []

    def record(sums: Tensors, bounds: ClipLimits, streams: Streams, step: int) -> Tensors:
        releases.append(released := mechanisms[0].release(sums, bounds, streams, step))
        return {name: value.clone() for name, value in released.items()}

    def repeat(sums: Tensors, bounds: ClipLimits, streams: Streams, step: int) -> Tensors:
        mechanisms[1].release(sums, bounds, streams, step)  # for its side effects
        return releases[step]

    mechanisms = [gaussian_of(side) for side in (without, within)]
    RecordingMechanism.wrap(without, record)
    RecordingMechanism.wrap(within, repeat)
    return not torch.equal(_displacement(without, REPLAYED), _displacement(within, REPLAYED))


def _tensor_means(noise: Tensor, parameters: Tensors) -> Tensor:
    """(P,) variances ``noise`` of P entries, averaged over each parameter, and over all other tensors."""
    sizes = [value.numel() for value in parameters.values()]
    if others := len(noise) - sum(sizes):
        sizes.append(others)
    return torch.cat([part.mean().expand(len(part)) for part in noise.split(sizes)])


def _displacement(method: Method, steps: int = STEPS) -> Tensor:
    """(P,) changes of the model's P numbers by ``steps`` steps."""
    state = method.init()
    start = method.model(state)
    for step in range(steps):
        with torch.no_grad():
            state, _ = method.step(state, step)
    after = method.model(state)
    return torch.cat([(after[name] - start[name]).flatten() for name in after])
