"""Bugs planted in the real code, each of which an audit must see: what it shows is above what is accounted.

Some bugs no attack can see, as they are in secrets or in the bounds of an attack; a test fails with each of
them. `test_planted` tries them all. ``python -m tests.audits.planted`` prints what the pair attack shows of
leaks of growing size.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from dprepro.accountants.bounds import smallest_bound
from dprepro.accountants.records import SampledGaussian
from dprepro.auditing import epsilon_bounds, floating_point
from dprepro.clipping import layer_gradients
from dprepro.clipping.functional import Tensors
from dprepro.clipping.limits import ClipLimits
from dprepro.noise import mechanisms, rounded_noise
from dprepro.noise import streams as randomness
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.noise.streams import Streams
from dprepro.pipeline import params
from dprepro.pipeline.audits import mechanism, pair, releases
from dprepro.pipeline.audits.mechanism import MechanismScores
from dprepro.pipeline.ledgers import ledger
from dprepro.pipeline.methods import private_steps
from dprepro.pipeline.methods.batch_clipping.settings import BatchClippingSettings
from dprepro.pipeline.methods.dpsgd.method import Dpsgd
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.methods.samples import BatchSum, Sample
from dprepro.pipeline.methods.tan.method import Tan
from dprepro.pipeline.methods.tan.settings import TanSettings
from dprepro.pipeline.results.schema import SearchRecord
from tests.audits import test_bounds
from tests.ledgers import test_composition, test_of_a_training
from tests.privacy import test_mechanisms, test_randomness, test_rounded_noise, test_rounding

DELTA, ALPHA = 1e-5, 0.05
EXAMPLES, STEPS = 4000, 50
TAN = TanSettings(batch=400, steps=STEPS, sigma=1.2, learning_rate=1.0, delta=DELTA)
ALLOCATION = TAN.model_copy(update={"sampling": "allocation", "steps": 4 * STEPS})
PARTS, CROWD, ROUNDS, RUNS = 4, 50, 4, 100
# few steps of little noise: of many steps with more, an audit shows the same and takes longer
BC = BatchClippingSettings.model_validate(
    {
        "batch": CROWD, "epochs": 1.0, "learning_rate": 1.0, "sigma": 3.0, "clipping": "adaptive",
        "sampling": "fixed", "delta": DELTA,
    }
)  # fmt: skip
SETTINGS = params.load(Path(__file__).parents[2] / "params.yaml")
LAYER_NORM, PUBLIC_BN = "davody-t5-ln-lenet5", "davody-t5-bn-lenet5"
ILM = "phan-f4a-ilm-sound-reduced"
AuditedEpsilon = tuple[
    float, float
]  # epsilon that an audit shows, and what is accounted for what it attacked


def singles(other: str | None = None, of: TanSettings = TAN) -> Callable[[], AuditedEpsilon]:
    """By a thousand canaries in one run; ``other``: an attacker beside the one by likelihoods."""

    def audit() -> AuditedEpsilon:
        scores = mechanism.audit_singles(of, EXAMPLES, of.steps, "singles")
        return told(scores, scores.others[other] if other else (scores.without, scores.within))

    return audit


def crowd() -> AuditedEpsilon:
    """By runs with a record that turns clipped means around, and without."""
    scores = mechanism.audit_crowd(BC, CROWD, ROUNDS, PARTS, "planted", runs=RUNS)
    return told(scores, (scores.without, scores.within))


def labels() -> AuditedEpsilon:
    """By the noise on two coefficients of the loss, at delta 0: half of an epsilon of 4."""
    row = SETTINGS.rows[ILM]
    configured = row.resolved[0].model_copy(update={"epsilon": 4.0})
    attack = releases.opposites(row, configured, SETTINGS, "planted", examples=4000)
    assert attack.labels is not None
    return epsilon_bounds.by_thresholds(*attack.labels, ALPHA, 0.0), configured.loss_share * 4.0


def floats() -> AuditedEpsilon:
    """By which numbers noise on a grid can make, of one release."""
    spending = SampledGaussian(sampling="poisson", noise_multiplier=1.1, examples=100, batch=10)
    errors = floating_point.attack_floating_point(GaussianMechanism(spending, 1.0), 1.0, "planted")
    shown = epsilon_bounds.by_coordinates(errors, floating_point.COORDINATES, ALPHA, DELTA)
    return shown, epsilon_bounds.epsilon_of_mu(1 / 1.1, DELTA)


def computed(key: str, seeds: int = 24) -> Callable[[], AuditedEpsilon]:
    """By how far a record moves the sums of a row's own network, over the noise that is measured."""

    def audit() -> AuditedEpsilon:
        row = SETTINGS.rows[key]
        with patch.object(pair, "RUNS", seeds):
            attack = pair.audit_pair(row, row.resolved[-1], SETTINGS, "planted")
        return epsilon_bounds.epsilon_of_mu(attack.mu(ALPHA), DELTA), epsilon_upper(attack.scores)

    return audit


def told(scores: MechanismScores, told_by: tuple[np.ndarray, np.ndarray]) -> AuditedEpsilon:
    return epsilon_bounds.by_gaussian(epsilon_bounds.split(*told_by)[0], ALPHA, DELTA), epsilon_upper(scores)


def epsilon_upper(scores: MechanismScores) -> float:
    return smallest_bound(scores.spending, scores.steps, DELTA)


REAL, ON_GRID, SEED = GaussianMechanism.deviations, mechanisms._on_grid, Streams._seed


def halved(self: GaussianMechanism, bounds: ClipLimits) -> Tensor:
    return REAL(self, bounds) / 2


def without_root(self: GaussianMechanism, bounds: ClipLimits) -> Tensor:
    return REAL(self, bounds) / len(bounds.limits) ** 0.5


def once(self: GaussianMechanism, bounds: ClipLimits) -> Tensor:
    return REAL(self, bounds) / self.distance


RELEASE, RELEASED = GaussianMechanism.release, PrivateSteps.released


def halved_in_secret(
    self: GaussianMechanism, sums: Tensors, bounds: ClipLimits, streams: Streams, step: int
) -> Tensors:
    """Half the noise that `deviations` declares."""
    released = RELEASE(self, sums, bounds, streams, step)
    return {name: (value + sums[name]) / 2 for name, value in released.items()}


def leaking(share: float) -> Callable[..., Tensors]:
    """A mechanism's release with a share of the exact sum added."""

    def release(self: GaussianMechanism, sums: Tensors, *others: Any) -> Tensors:
        return {name: value + share * sums[name] for name, value in RELEASE(self, sums, *others).items()}

    return release


def leaking_beside(share: float) -> Callable[..., Tensors]:
    """A step's noisy sum with a share of the exact sum added behind the mechanism."""

    def released(self: PrivateSteps, sums: Tensors, *others: Any) -> Tensors:
        return {name: value + share * sums[name] for name, value in RELEASED(self, sums, *others).items()}

    return released


def exact_statistics(
    self: GaussianMechanism, sums: Tensors, bounds: ClipLimits, streams: Streams, step: int
) -> Tensors:
    """Noise on the gradients, and none on the statistics beside them."""
    released = RELEASE(self, sums, bounds, streams, step)
    return {
        name: sums[name] if name.endswith((".mean", ".var")) else value for name, value in released.items()
    }


def same_in_layers(
    self: GaussianMechanism, sums: Tensors, bounds: ClipLimits, streams: Streams, step: int
) -> Tensors:
    """The same numbers for each layer, in its own size."""
    deviations = self.deviations(bounds)
    return {
        name: (value + of_tensor * streams.normal(step, value.numel()).reshape(value.shape)).float()
        for of_tensor, (name, value) in zip(deviations, sums.items(), strict=True)
    }


NORMAL, POISSON, LAPLACE = Streams.rounded_normal, Streams.poisson, Streams.rounded_laplace
ALLOCATED = Streams.allocated


def same_noise(self: Streams, step: int, size: int, bits: int) -> Tensor:
    return NORMAL(self, 0, size, bits)


def same_in_pairs(self: Streams, step: int, size: int, bits: int) -> Tensor:
    return NORMAL(self, step // 2, size, bits)


def same_for_all(self: Streams, purpose: str, step: int) -> int:
    """That of a training without a name."""
    return SEED(SimpleNamespace(entropy=self.entropy, name="", reproducible=True), purpose, step)  # type: ignore[arg-type]


def quieter(self: Streams, step: int, count: int, scales: np.ndarray, purpose: str) -> Any:
    return LAPLACE(self, step, count, scales / 2, purpose)


def same_key(self: Streams, purpose: str, step: int) -> int:
    """That of the step before, where noise is drawn."""
    return SEED(self, purpose, step // 2 if purpose == "noise" else step)


def unrounded(values: list[Tensor], noise: Tensor, spacings: Tensor) -> Tensor:
    return (torch.cat(values) / spacings + noise).mul_(spacings).float()


def coarser(values: list[Tensor], noise: Tensor, spacings: Tensor) -> Tensor:
    """The sum on a grid 2^12 times as coarse."""
    rounded = (torch.cat(values) / (4096 * spacings)).round() * 4096 * spacings
    return ON_GRID([rounded.float()], noise, spacings)


def afterwards(values: list[Tensor], noise: Tensor, spacings: Tensor) -> Tensor:
    """The sum rounded with the noise, which has its own digits still."""
    digits = torch.rand(noise.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return ON_GRID([(torch.cat(values) + (noise + digits) * spacings).float()], 0 * noise, spacings)


def without_room(self: GaussianMechanism, bounds: ClipLimits, size: int) -> Tensor:
    """Noise for the sum as it is, without the spacing times the root of d by which rounding moves it."""
    return self.deviations(bounds).double() * 2.0 ** -self.bits(size)


def twice(self: Streams, step: int, examples: int, rate: float) -> np.ndarray:
    return POISSON(self, step, examples, min(1.0, 2 * rate))


def of_fixed_size(self: Streams, step: int, examples: int, rate: float) -> np.ndarray:
    generator = self._generator("sample", step)
    return np.sort(generator.choice(examples, round(examples * rate), replace=False))


def in_order(self: Streams, step: int, examples: int, rate: float) -> np.ndarray:
    size = round(examples * rate)
    return np.arange(step * size, (step + 1) * size) % examples


def same_each_epoch(self: Streams, step: int, examples: int, batches: int, participations: int) -> Any:
    return ALLOCATED(self, step % batches, examples, batches, participations)


def in_two_batches(self: Streams, step: int, examples: int, batches: int, participations: int) -> Any:
    return ALLOCATED(self, step, examples, batches, 2)


def of_fixed_sizes(self: Streams, step: int, examples: int, batches: int, participations: int) -> Any:
    """A shuffled order, cut into batches of one size."""
    epoch, position = divmod(step, batches)
    return np.sort(self._generator("allocation", epoch).permutation(examples)[position::batches])


def unclipped(self: Tan, parameters: Tensors, sample: Sample, bounds: ClipLimits, step: int) -> BatchSum:
    """Gradients five times as long as they may be: as if clipped to another constant."""
    batch = CLIPPED(self, parameters, sample, bounds, step)
    return batch._replace(sums={name: 5 * value for name, value in batch.sums.items()})


def after_the_mean(self: Tan, parameters: Tensors, sample: Sample, bounds: ClipLimits, step: int) -> BatchSum:
    """The batch's mean is clipped, and taken for a sum: alone among nobodies, a canary keeps its length."""
    batch = CLIPPED(self, parameters, sample, bounds, step)
    count = sample.mask.sum().clamp_min(1)
    # the mean of the unclipped, clipped to C, times the batch
    total = torch.stack([value.square().sum() for value in batch.sums.values()]).sum().sqrt()
    factor = self.settings.clip * count / total.clamp_min(1e-12)
    return batch._replace(sums={name: value * factor for name, value in batch.sums.items()})


CLIPPED = Tan.clipped_sums


@dataclass(frozen=True)
class Planted:
    """Where a bug is planted."""

    owner: Any
    attribute: str
    planted: Any

    @contextmanager
    def there(self) -> Iterator[None]:
        with patch.object(self.owner, self.attribute, self.planted):
            yield


@dataclass(frozen=True)
class Bug(Planted):
    """A bug, and the audit that sees it."""

    audit: Callable[[], AuditedEpsilon]


BUGS: dict[str, Bug] = {
    "noise halved": Bug(GaussianMechanism, "deviations", halved, singles()),
    "clipping off": Bug(Tan, "clipped_sums", unclipped, singles()),
    "clipping after the mean": Bug(Tan, "clipped_sums", after_the_mean, singles()),
    "a key reused in the next step": Bug(Streams, "_seed", same_key, singles("repeats")),
    "noise reused across steps": Bug(Streams, "rounded_normal", same_noise, singles("repeats")),
    "noise repeated in pairs of steps": Bug(Streams, "rounded_normal", same_in_pairs, singles("repeats")),
    "the same noise in all layers": Bug(GaussianMechanism, "release", same_in_layers, singles()),
    "the same noise in all clipped parts": Bug(GaussianMechanism, "release", same_in_layers, crowd),
    "less noise than is declared": Bug(GaussianMechanism, "release", halved_in_secret, computed(LAYER_NORM)),
    "a tenth of the exact sum in the release": Bug(
        GaussianMechanism, "release", leaking(0.1), computed(LAYER_NORM)
    ),
    "a hundredth of the exact sum beside the release": Bug(
        PrivateSteps, "released", leaking_beside(0.01), computed(LAYER_NORM)
    ),
    "statistics without noise": Bug(GaussianMechanism, "release", exact_statistics, computed(PUBLIC_BN)),
    "a sum that isn't rounded": Bug(mechanisms, "_on_grid", unrounded, floats),
    "sampling twice the rate": Bug(Streams, "poisson", twice, singles()),
    "the same allocation each epoch": Bug(
        Streams, "allocated", same_each_epoch, singles("same_batches", ALLOCATION)
    ),
    "allocation to two batches of an epoch": Bug(
        Streams, "allocated", in_two_batches, singles(of=ALLOCATION)
    ),
    "a fixed order sampled": Bug(Streams, "poisson", in_order, singles("order")),
    "sensitivity C where it is 2 C": Bug(GaussianMechanism, "deviations", once, crowd),
    "layerwise noise without sqrt(L)": Bug(GaussianMechanism, "deviations", without_root, crowd),
    "Laplace scale halved": Bug(Streams, "rounded_laplace", quieter, labels),
}


@dataclass(frozen=True)
class Fault(Planted):
    """A bug that no attack on noise can see, and the test that fails with it."""

    test: Callable[[], None]


def entropy(draw: Callable[[], bytes]) -> Any:
    """The module `secrets`, with this for an answer."""
    return SimpleNamespace(token_bytes=lambda count: draw().ljust(count, b"\0"))


def without_the_entropy(self: Streams, step: int, size: int, bits: int) -> Tensor:
    return self._prefetcher.draw((size, bits), step, partial(self._rounded_normal, size=size, bits=bits))


GUARANTEE, LEDGER_OF, TAIL = Dpsgd.guarantee, ledger.ledger_of, rounded_noise._tail
CANDIDATES, ONE_RUN, BY_ERRORS = SearchRecord.spent, epsilon_bounds.one_run, epsilon_bounds.by_errors
INHERITED = random.Random(0)  # whose state a forked worker inherits


def undivided(ways: dict[str, epsilon_bounds.BoundFunction], alpha: float) -> dict[str, float]:
    return {name: way(alpha) for name, way in ways.items()}


NEIGHBOURS = partial(
    test_mechanisms.test_neighbouring_sums_are_no_further_apart_on_the_grid_than_noise_hides, 1.1, 266_610
)


def patched(test: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test(patch)


def every_candidate() -> None:
    with TemporaryDirectory() as folder:
        test_composition.test_a_row_and_every_candidate_of_its_search_are_composed(Path(folder))


OF_THE_SYSTEM = test_randomness.test_256_bits_are_asked_of_the_operating_system
BEHIND_THE_NOISE = test_randomness.test_each_of_them_is_behind_the_noise_and_nothing_else_is
FAULTS: dict[str, Fault] = {
    "secret samples of a fixed size": Fault(
        Streams, "poisson", of_fixed_size, test_randomness.test_secret_samples_are_poisson_samples
    ),
    "allocated batches of a fixed size": Fault(
        Streams,
        "allocated",
        of_fixed_sizes,
        partial(test_randomness.test_secret_batches_are_random_allocations, 1),
    ),
    "entropy of 16 bits": Fault(randomness, "secrets", entropy(lambda: os.urandom(2)), OF_THE_SYSTEM),
    "entropy cut to 32 bits": Fault(
        randomness, "secrets", entropy(lambda: os.urandom(32)[:4]), BEHIND_THE_NOISE
    ),
    "entropy by the clock": Fault(
        randomness,
        "secrets",
        entropy(lambda: time.time_ns().to_bytes(8, "big")),
        test_randomness.test_the_clock_is_not_behind_them,
    ),
    "one entropy for all workers": Fault(
        randomness,
        "secrets",
        entropy(lambda: INHERITED.randbytes(32)),
        partial(patched, test_randomness.test_workers_of_one_process_have_entropy_and_threads_of_their_own),
    ),
    "seeds of 32 bits": Fault(
        Streams,
        "_seed",
        lambda *arguments: SEED(*arguments) % 2**32,
        partial(test_randomness.test_every_generator_is_keyed_with_256_bits, "rounded_normal"),
    ),
    "a key that is the same at every step": Fault(
        Streams,
        "_seed",
        lambda self, purpose, step: SEED(self, purpose, 0),
        partial(test_mechanisms.test_noise_is_new_at_every_step_and_in_every_training, "grid"),
    ),
    "noise reused across trainings": Fault(
        Streams,
        "_seed",
        same_for_all,
        partial(test_mechanisms.test_noise_is_new_at_every_step_and_in_every_training, "grid"),
    ),
    "a sum's grid of 2^12 times the spacing": Fault(mechanisms, "_on_grid", coarser, NEIGHBOURS),
    "a sum rounded after the noise": Fault(
        mechanisms,
        "_on_grid",
        afterwards,
        partial(test_mechanisms.test_sum_and_noise_are_rounded_each_and_added_exactly, 0.7, 0.3, 3.0),
    ),
    "noise without the sensitivity that rounding adds": Fault(
        GaussianMechanism, "spacings", without_room, NEIGHBOURS
    ),
    "integers without the sensitivity that rounding adds": Fault(
        GaussianMechanism,
        "spacings",
        without_room,
        test_mechanisms.test_integers_spend_no_more_than_dp_accounting_says_of_real_numbers,
    ),
    "noise without the sensitivity that computing adds": Fault(
        mechanisms,
        "COMPUTING",
        0.0,
        partial(test_rounding.test_noise_covers_what_computing_and_the_grid_add, 1.1, 266_610),
    ),
    "norms of long tensors in float32": Fault(
        layer_gradients,
        "BLOCK",
        2**40,
        partial(
            test_rounding.test_no_clipped_vector_is_longer_than_its_bound_but_for_what_is_accounted,
            test_rounding.hidden_tail,
            1_000_000,
        ),
    ),
    "large samples in float32": Fault(
        private_steps,
        "IN_FLOAT32",
        2**40,
        partial(
            test_rounding.test_sums_are_off_by_no_more_than_is_accounted, test_rounding.alike, 3000, 1000
        ),
    ),
    "parts that move with an example": Fault(
        private_steps,
        "parts_of",
        lambda sample, examples, parts: (len(sample) // 4,) * 3 + (len(sample) - len(sample) // 4 * 3,),
        partial(
            patched,
            test_rounding.test_large_samples_are_taken_in_parts_that_other_examples_leave_as_they_are,
        ),
    ),
    "numbers that are as near as can be to two integers": Fault(
        rounded_noise,
        "UNIFORM_ERROR",
        0.0,
        test_rounded_noise.test_float64_is_off_by_less_than_it_is_taken_to_be,
    ),
    "points at the density that float64 decides": Fault(
        rounded_noise,
        "HEIGHT_ERROR",
        0.0,
        test_rounded_noise.test_float64_is_off_by_less_than_it_is_taken_to_be,
    ),
    "every point of a tail accepted": Fault(
        rounded_noise,
        "_tail",
        lambda generator: (TAIL(generator)[0], 0.0),
        test_rounded_noise.test_the_tails_are_those_of_a_normal,
    ),
    "numbers kept without the entropy": Fault(
        Streams,
        "rounded_normal",
        without_the_entropy,
        test_randomness.test_numbers_drawn_ahead_go_with_the_entropy,
    ),
    "a ledger that ignores what is broken": Fault(
        ledger,
        "ledger_of",
        lambda trained, *others: LEDGER_OF(trained.model_copy(update={"broken": ()}), *others),
        partial(
            test_of_a_training.test_a_seed_or_a_flaw_leaves_the_claim_and_no_bound,
            *(test_of_a_training.POISSON, False, (test_of_a_training.FLAW,), test_of_a_training.FLAW),
        ),
    ),
    "alpha undivided over shares": Fault(
        epsilon_bounds,
        "one_run",
        lambda correct, guesses, canaries, alpha, delta: ONE_RUN(
            correct, guesses, canaries, len(epsilon_bounds.SHARES) * alpha, delta
        ),
        test_bounds.test_shares_of_the_canaries_share_the_confidence,
    ),
    "alpha undivided over thresholds": Fault(
        epsilon_bounds,
        "by_errors",
        lambda errors, alpha, delta: BY_ERRORS(errors, 2 * alpha, delta),
        test_bounds.test_thresholds_share_the_confidence,
    ),
    "alpha undivided over an attack's bounds": Fault(
        epsilon_bounds,
        "joint_bounds",
        undivided,
        test_bounds.test_the_bounds_of_an_attack_share_the_confidence,
    ),
    "one candidate dropped": Fault(
        SearchRecord, "spent", lambda self: islice(CANDIDATES(self), 1, None), every_candidate
    ),
}


def main() -> None:
    """Print the bounds of the pair attack for each share of the exact sum that a step leaks."""
    torch.set_num_threads(1)
    row = SETTINGS.rows[LAYER_NORM]
    largest = next(config for config in row.resolved if config.private)  # its largest epsilon
    print("share, in the release: gaussian, computed; outside it: gaussian, computed")
    for share in (0.0, 0.1, 0.25, 0.5, 1.0):
        leaks = (
            Planted(GaussianMechanism, "release", leaking(share)),
            Planted(PrivateSteps, "released", leaking_beside(share)),
        )
        shown = []
        for leak in leaks:
            with leak.there():
                attack = pair.audit_pair(row, largest, SETTINGS, "planted")
            shown += [told(attack.scores, (attack.scores.without, attack.scores.within))[0]]
            shown += [epsilon_bounds.epsilon_of_mu(attack.mu(ALPHA), DELTA)]
        print(f"{share:4.2f} " + " ".join(f"{epsilon:10.4g}" for epsilon in shown), flush=True)
    print(f"accounted {epsilon_upper(attack.scores):.4g}")


if __name__ == "__main__":
    main()
