"""The mechanism audit: canaries through a row's own step, by whoever sees everything that a step releases.

What runs is the row's method with its settings: its sampling, its clipping, its sums, its noise. Only the
network and the data are made for the attack (`pipeline.audits.canaries`), and images aren't augmented. The
attacker knows every example but whether the record is there, and scores each step by the log likelihood ratio
of what was released in the record's own direction, as Poisson or other sampling mixes it. Layers have
opposite gradients in turn, so that noise which they share takes itself away. Of single canaries he also tries
two that a right mechanism makes useless: how much a direction differs between steps whose noise is most
alike, as it may come again, and what it has where its batch would be if the data were gone through in order.

* Where an example is clipped by itself, a thousand canaries are in one run by coin: a direction each.
* Where means are clipped, one record turns them around, in independent runs with it and without; to be cheap
  these have fewer examples and steps, and are accounted for as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log, log1p

import numpy as np
import torch
from scipy.special import logsumexp

from pipeline.audits import canaries
from pipeline.methods.base import Method
from pipeline.methods.registry import build_method
from pipeline.methods.settings import MethodSettings
from pipeline.privacy.gradients import Bounds, Tensors
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.parameters import Noise
from pipeline.privacy.randomness import Streams
from pipeline.privacy.sampled_gaussian import SampledGaussian
from pipeline.privacy.worst_instance import vector_counts

CANARIES, LAYERS = 1000, 2  # of one run
LONGEST = 2500  # steps of one run
ROUNDING = 1e-6  # of what is released, in clipping bounds
RUNS = 120  # on either side, where means are clipped
BATCHES, ROUNDS = 8, 64  # examples of such a run, in batches, and its steps


@dataclass(frozen=True)
class Scores:
    """How sure an attacker is of each canary that it is there: log likelihood ratios."""

    without: np.ndarray
    within: np.ndarray
    spending: SampledGaussian  # one step, as the method that ran says
    delta: float  # of its guarantee
    steps: int
    one_run: bool  # whether the canaries were together in one run
    # the same by other attackers, by name: without, within
    others: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


Release = Callable[[Tensors, Bounds, Streams, int], Tensors]


@dataclass(frozen=True)
class RecordingMechanism(GaussianMechanism):
    """A method's mechanism, with another function in place of its release."""

    releasing: Release

    @classmethod
    def wrap(cls, method: Method, releasing: Release) -> None:
        """Wrap the mechanism of ``method``."""
        mechanism = gaussian_of(method)
        method.mechanism = cls(mechanism.spendings, mechanism.distance, releasing)

    def release(self, sums: Tensors, bounds: Bounds, streams: Streams, step: int) -> Tensors:
        """Noisy ``sums``, as `GaussianMechanism.release`."""
        return self.releasing(sums, bounds, streams, step)


def gaussian_of(method: Method) -> GaussianMechanism:
    """The mechanism of a method that has one."""
    assert method.mechanism is not None, "audited where there is a Gaussian mechanism"
    return method.mechanism


@dataclass(frozen=True)
class Overheard:
    """What the steps of a method released, as an attacker hears it."""

    moved: np.ndarray  # (T, R, D) in each direction, in clipping bounds
    spending: SampledGaussian  # one step
    delta: float


def overheard(
    settings: Sequence[MethodSettings],
    kinds: canaries.Kinds,
    names: Sequence[str],
    parts: int,
    noise: Noise,
    steps: int,
) -> Overheard:
    """Run ``steps`` steps of replicas with these settings and names on examples of these kinds."""
    task = canaries.task(kinds, names, parts, noise=noise)
    method = build_method(settings[0].method, task, settings, "none")
    spending, delta = spent_by(method)
    mechanism, heard = gaussian_of(method), []

    def release(sums: Tensors, bounds: Bounds, streams: Streams, step: int) -> Tensors:
        released = mechanism.release(sums, bounds, streams, step)
        # of a part's bound each of its layers has an equal share
        layers = bounds.members.sum(1, keepdim=True)
        limits = (bounds.members @ (bounds.limits[..., None] / layers.mT.sqrt()))[..., 0]  # (R, T)
        # the gradient of class 0 points to (-1, 1) / sqrt(2) in the first layer
        apart = [
            canaries.sign(at) * (value[:, 1] - value[:, 0]) / 2**0.5
            for at, value in enumerate(released.values())
        ]
        heard.append((torch.stack(apart, 2) / limits[:, None]).mean(2))  # (R, D), in clipping bounds
        return released

    RecordingMechanism.wrap(method, release)
    state = method.init()
    for step in range(steps):
        with torch.no_grad():
            state, _ = method.step(state, step)
    return Overheard(torch.stack(heard).double().numpy(), spending, delta)


def plain(settings: MethodSettings) -> MethodSettings:
    """Settings for canaries, with a step size that moves nothing."""
    return settings.for_audit(images=False).changed({"learning_rate": canaries.RATE})


def audit_singles(
    settings: MethodSettings, examples: int, steps: int, name: str, noise: Noise = "grid", replicas: int = 1
) -> Scores:
    """Canaries of one run of a method that clips each example by itself, of which one more adds itself.

    With more ``replicas``, an attacker also compares these, whose noise should differ.
    """
    steps = min(steps, LONGEST)
    count = min(CANARIES, examples)
    present = torch.from_numpy(np.random.default_rng(_seed(name)).random(count) < 0.5)
    kinds = canaries.many(examples, count, present)
    names = [name, *(f"{name}/{replica}" for replica in range(1, replicas))]
    heard = overheard([plain(settings)] * replicas, kinds, names, LAYERS, noise, steps)
    moved, spending, there = heard.moved[:, 0], heard.spending, present.numpy()
    scores = ratios(moved, spending)
    # a place's batch, if an epoch went through the data in order
    phases = np.arange(count) // spending.batch
    period = max(1, spending.examples // spending.batch)
    turns = (np.arange(steps)[:, None] % period) == phases
    others = {"repeats": repeats(moved), "order": (moved * turns).sum(0)}
    if spending.sampling == "allocation":
        others["same_batches"] = ratios_of_same_batches(moved, spending)
    if replicas > 1:
        others["replicas"] = (moved - heard.moved[:, 1]).var(0)
    return Scores(
        scores[~there],
        scores[there],
        spending,
        heard.delta,
        steps,
        one_run=True,
        others={name: (values[~there], values[there]) for name, values in others.items()},
    )


def audit_crowd(
    settings: MethodSettings,
    examples: int,
    steps: int,
    parts: int,
    name: str,
    noise: Noise = "grid",
    runs: int = RUNS,
) -> Scores:
    """Runs with a record that turns around every clipped mean it is in, and runs without it."""
    crowded = plain(settings)
    examples, steps = min(examples, BATCHES * crowded.batch), min(steps, ROUNDS)

    def heard(within: bool) -> Overheard:
        names = [f"{name}/{within}/{run}" for run in range(runs)]
        kinds = canaries.crowd(examples, within)
        return overheard([crowded] * runs, kinds, names, parts, noise, steps)

    sides = heard(False), heard(True)
    spending = sides[0].spending
    # all of k clipped vectors point one way, but those that the record turned around
    without, within = (ratios((spending.sets - side.moved[:, :, 0]) / 2, spending) for side in sides)
    return Scores(without, within, spending, sides[0].delta, steps, one_run=False)


def repeats(heard: np.ndarray) -> np.ndarray:
    """(D,) how far each direction of (T, D) differs between a step and the one whose noise is most alike."""
    lengths = np.square(heard).sum(1)
    distances = lengths[:, None] + lengths - 2 * heard @ heard.T
    np.fill_diagonal(distances, np.inf)
    apart = np.abs(heard - heard[distances.argmin(1)])
    # in what is usual in this step, which most canaries are not in
    usual = np.median(apart, axis=1, keepdims=True).clip(ROUNDING)
    return np.asarray(np.square(apart / usual).sum(0))


def ratios(moved: np.ndarray, spending: SampledGaussian) -> np.ndarray:
    """(R,) log likelihood ratios of (T, R) releases, in distances that the record moves them by."""
    variance = spending.noise_multiplier**2
    if spending.sampling in ("shuffled", "allocation"):
        batches = spending.batches
        whole = moved[: len(moved) // batches * batches].reshape(-1, batches, moved.shape[1])
        of_epoch = logsumexp((2 * whole - 1) / (2 * variance), axis=1) - log(batches)
        return np.asarray(of_epoch.sum(0))
    counts, chances = vector_counts(spending)
    never = log1p(-min(chances.sum(), 1 - 1e-12))
    terms = [np.full_like(moved, never)]
    terms += [
        log(chance) + (2 * count * moved - count**2) / (2 * variance)
        for count, chance in zip(counts, chances, strict=True)
    ]
    return np.asarray(logsumexp(np.stack(terms), axis=0).sum(0))


def ratios_of_same_batches(moved: np.ndarray, spending: SampledGaussian) -> np.ndarray:
    """(R,) log likelihood ratios of (T, R) releases if each epoch has the same allocation to batches."""
    epochs = len(moved) // spending.batches
    whole = moved[: epochs * spending.batches].reshape(epochs, spending.batches, moved.shape[1])
    return np.asarray(logsumexp((2 * whole - 1).sum(0) / (2 * spending.noise_multiplier**2), axis=0))


def spent_by(method: Method) -> tuple[SampledGaussian, float]:
    """One step of a method with a Gaussian mechanism, and the delta of its guarantee."""
    guarantee = method.guarantee(0)
    assert isinstance(guarantee.spending, SampledGaussian), "audited where there is a Gaussian mechanism"
    assert guarantee.delta is not None, "goes with the spending"
    return guarantee.spending, guarantee.delta


def _seed(name: str) -> Sequence[int]:
    return list(name.encode())
