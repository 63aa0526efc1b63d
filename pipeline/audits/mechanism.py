"""Mechanism audit: canaries go through a row's own training steps, and the attacker sees every release.

The row's method runs with its own settings: sampling, clipping, sums and noise. Only the network and the data
are made for the attack (`pipeline.audits.canaries`), and images aren't augmented. The attacker knows every
example but one, the record (a canary). Each step is scored by the log likelihood ratio of the release in the
record's direction, under the row's sampling. The score is a mean over layers whose gradients alternate in
sign, so noise that layers share cancels out. Single canaries have all scores of `dprepro.auditing.attacks`.

Two kinds of methods are attacked differently:

* Methods that clip each example: a thousand canaries in one run. Each is in the data with probability 1/2 and
  has a direction of its own.
* Methods that clip means: independent runs with and without a record that reverses each mean with it. The
  runs have fewer examples and steps than the row; the accounted epsilon beside the bound is that of the runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from dprepro.accountants.records import SampledGaussian
from dprepro.auditing.attacks import canary_scores, ratios
from dprepro.clipping.functional import Tensors
from dprepro.clipping.limits import ClipLimits
from dprepro.fields import Noise
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.noise.streams import Streams
from dprepro.pipeline.audits import canaries
from dprepro.pipeline.methods.base import Method
from dprepro.pipeline.methods.settings import MethodSettings

CANARIES, LAYERS = 1000, 2  # of one run
LONGEST = 2500  # steps of one run
RUNS = 120  # runs with the record, and as many without, if means are clipped
BATCHES, ROUNDS = 8, 64  # largest number of examples of such a run, in batches, and of its steps


@dataclass(frozen=True)
class MechanismScores:
    """Scores of an attacker, such as log likelihood ratios, without and with the record."""

    without: np.ndarray
    within: np.ndarray
    spending: SampledGaussian  # one step of the method that ran
    delta: float  # of the method's guarantee
    steps: int
    # scores of other attackers by name: without, within
    others: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


Release = Callable[[Tensors, ClipLimits, Streams, int], Tensors]


@dataclass(frozen=True)
class RecordingMechanism(GaussianMechanism):
    """A method's mechanism whose `release` is the function ``releasing``."""

    releasing: Release

    @classmethod
    def wrap(cls, method: Method, releasing: Release) -> None:
        """Replace the mechanism of ``method`` by one that calls ``releasing``."""
        mechanism = gaussian_of(method)
        method.mechanism = cls(mechanism.spending, mechanism.distance, releasing)

    def release(self, sums: Tensors, bounds: ClipLimits, streams: Streams, step: int) -> Tensors:
        """Result of ``releasing``, with the arguments of `GaussianMechanism.release`."""
        return self.releasing(sums, bounds, streams, step)


def gaussian_of(method: Method) -> GaussianMechanism:
    """Gaussian mechanism of a method that has one."""
    assert method.mechanism is not None, "audited where there is a Gaussian mechanism"
    return method.mechanism


@dataclass(frozen=True)
class RecordedReleases:
    """Releases of a method's steps."""

    moved: np.ndarray  # (T, R, D) release of each step and training in each direction, in clipping bounds
    spending: SampledGaussian  # one step
    delta: float


def record_releases(
    settings: MethodSettings,
    kinds: canaries.CanaryExamples,
    names: Sequence[str],
    parts: int,
    noise: Noise,
    steps: int,
    group: int | None = None,
) -> RecordedReleases:
    """Run ``steps`` steps on the examples ``kinds`` for each of ``names``, and record the releases.

    The network has ``parts`` layers.
    """
    task = canaries.task(kinds, names[0], parts, noise, group)
    method = settings.build_method(task, "none")
    spending, delta = spent_by(method)
    mechanism, recorded = gaussian_of(method), []

    def release(sums: Tensors, bounds: ClipLimits, streams: Streams, step: int) -> Tensors:
        released = mechanism.release(sums, bounds, streams, step)
        # each layer of a part has an equal share of the part's bound
        limits = bounds.members @ (bounds.limits / bounds.members.sum(0).sqrt())  # (T,)
        # the gradient of an example of class 0 points to (-1, 1) / sqrt(2) in the first layer
        apart = [
            canaries.layer_sign(at) * (value[1] - value[0]) / 2**0.5
            for at, value in enumerate(released.values())
        ]
        recorded.append((torch.stack(apart, 1) / limits).mean(1))  # (D,), in clipping bounds
        return released

    RecordingMechanism.wrap(method, release)
    for name in names:
        # the same method, because its clipper needs tests of the network
        streams = Streams(name, True, task.streams.device, noise)
        method.task = replace(task, streams=streams)
        state = method.init()
        for step in range(steps):
            with torch.no_grad():
                state, _ = method.step(state, step)
    moved = torch.stack(recorded).unflatten(0, (len(names), steps)).transpose(0, 1)
    return RecordedReleases(moved.double().numpy(), spending, delta)


def canary_settings(settings: MethodSettings) -> MethodSettings:
    """Settings for an attack by canaries, with a step size so small that the network doesn't change."""
    return settings.for_audit(images=False).changed({"learning_rate": canaries.RATE})


def audit_singles(
    settings: MethodSettings,
    examples: int,
    steps: int,
    name: str,
    noise: Noise = "grid",
    group: int | None = None,
) -> MechanismScores:
    """Scores of canaries in one run of a method that clips each example.

    With a ``group``, as in `SampledGaussian`, each canary is the only example of its person.
    """
    steps = min(steps, LONGEST)
    count = min(CANARIES, examples)
    included = np.random.default_rng(list(name.encode())).random(count) < 0.5
    kinds = canaries.single_canaries(examples, torch.from_numpy(included))
    recorded = record_releases(canary_settings(settings), kinds, [name], LAYERS, noise, steps, group)
    moved, spending = recorded.moved[:, 0], recorded.spending
    sides = {
        name: (scores[~included], scores[included])
        for name, scores in canary_scores(moved, spending, spending.examples).items()
    }
    return MechanismScores(*sides.pop("ratios"), spending, recorded.delta, steps, sides)


def audit_crowd(
    settings: MethodSettings,
    examples: int,
    steps: int,
    parts: int,
    name: str,
    noise: Noise = "grid",
    runs: int = RUNS,
) -> MechanismScores:
    """Scores of runs with a record, which reverses each clipped mean that contains it, and without a record.

    The network has ``parts`` layers. Runs have at most `BATCHES` batches of ``examples``, and `ROUNDS` steps.
    """
    crowded = canary_settings(settings)
    examples, steps = min(examples, BATCHES * crowded.batch), min(steps, ROUNDS)

    def recorded(within: bool) -> RecordedReleases:
        names = [f"{name}/{within}/{run}" for run in range(runs)]
        kinds = canaries.crowd_with_record(examples, within)
        return record_releases(crowded, kinds, names, parts, noise, steps)

    sides = recorded(False), recorded(True)
    spending = sides[0].spending
    # all clipped vectors point one way, except those that the record turned around
    without, within = (ratios((spending.sets - side.moved[:, :, 0]) / 2, spending) for side in sides)
    return MechanismScores(without, within, spending, sides[0].delta, steps)


def spent_by(method: Method) -> tuple[SampledGaussian, float]:
    """Spending of one step of a Gaussian method, and the delta of its guarantee."""
    guarantee = method.guarantee()
    assert isinstance(guarantee.spending, SampledGaussian), "audited where there is a Gaussian mechanism"
    assert guarantee.delta is not None, "goes with the spending"
    return guarantee.spending, guarantee.delta


def mechanism_of(
    config: MethodSettings, examples: int, name: str, group: int | None = None
) -> GaussianMechanism:
    """Gaussian mechanism of a row's settings, for the row's number of examples and ``group``."""
    kinds = canaries.single_canaries(examples, torch.ones(1, dtype=torch.bool))
    task = canaries.task(kinds, name, 1, group=group)
    return gaussian_of(canary_settings(config).build_method(task, "none"))
