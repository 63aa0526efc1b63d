"""What float32 loses of clipped sums, beside exact ones: no more than noise on a grid accounts for."""

from collections.abc import Callable
from fractions import Fraction
from math import fsum
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dprepro import sums
from dprepro.accountants.records import SampledGaussian
from dprepro.clipping import gradients as clipping
from dprepro.clipping import layer_gradients
from dprepro.clipping.functional import Tensors
from dprepro.clipping.gradients import BookKeeping, ClippedSum, Clipper, clip_factors
from dprepro.clipping.layer_gradients import Full, Gradients, Outer, Rows, squares
from dprepro.clipping.limits import ClipLimits
from dprepro.fields import Noise
from dprepro.noise import mechanisms
from dprepro.noise.mechanisms import COMPUTING, GaussianMechanism
from dprepro.noise.streams import Streams
from dprepro.pipeline.audits import canaries
from dprepro.pipeline.methods.base import Execution, Task
from dprepro.pipeline.methods.samples import BatchSum, Sample, parts_of
from dprepro.pipeline.methods.tan.method import Tan
from dprepro.pipeline.methods.tan.settings import TanSettings

CPU = torch.device("cpu")
CLIP, WIDTH, OF_NORMS = 0.1, 40, 2.0**-14


def hidden_tail(size: int) -> Tensor:
    """Ones, and behind them numbers whose squares float32 loses when they are added to ones."""
    value = torch.full((size,), 2.0**-12.6)
    value[:64] = 1.0
    return value


def all_magnitudes(size: int) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(size, generator=random) * 10.0 ** torch.randint(-12, 9, (size,), generator=random)


@pytest.mark.parametrize("size", [1, 1025, 1_000_000])
@pytest.mark.parametrize("made", [hidden_tail, all_magnitudes, lambda size: torch.full((size,), 1 / 3)])
def test_no_clipped_vector_is_longer_than_its_bound_but_for_what_is_accounted(
    made: Callable[[int], Tensor], size: int
) -> None:
    gradient = made(size)[None]
    bounds = ClipLimits.whole(torch.tensor(CLIP), 1)
    factors, norms = clip_factors(squares(gradient)[:, None], torch.ones(1), bounds)
    vector = (gradient * factors).numpy()[0].astype(float)
    # squares of 24 bits have 48, so that a double holds them, and fsum adds without rounding
    length = fsum(vector**2) ** 0.5
    assert length <= float(bounds.limits) * (1 + OF_NORMS)
    assert length >= min(float(norms), CLIP) * (1 - OF_NORMS)


def method(noise: Noise, inputs: Tensor, physical: int) -> Tan:
    """Of a linear network that is 0, where the gradient of an example x of class 0 is (-x / 2, x / 2)."""
    net = canaries.AlternatingLinear(WIDTH, 1)
    labels = torch.zeros(len(inputs), dtype=torch.long)
    task = Task(
        net=net,
        parameters={name: value.detach() for name, value in net.named_parameters()},
        inputs=inputs,
        labels=labels,
        public=inputs[:1],
        public_labels=labels[:1],
        streams=Streams("a", True, CPU, noise),
        execution=Execution(CPU, physical=physical),
    )
    settings = TanSettings(batch=10, steps=1, sigma=1.0, learning_rate=1.0, delta=1e-5, clip=CLIP)
    return Tan(task, settings, "none")


def summed(trained: Tan, chosen: Tensor, parts: tuple[int, ...] = ()) -> np.ndarray:
    """What a step sums of some examples."""
    bounds = trained.clip_limits
    sample = Sample(chosen, torch.ones(len(chosen)), parts)
    batch: BatchSum = trained.clipped_sums(trained.task.parameters, sample, bounds, 0)
    (value,) = batch.sums.values()
    return value.double().numpy()


def exact(examples: Tensor) -> np.ndarray:
    """The sum of clipped gradients, all of which are longer than the bound, added without rounding."""
    gradients = np.stack([-examples.double().numpy(), examples.double().numpy()], 1) / 2
    lengths = np.array([fsum(row**2) for row in gradients.reshape(len(examples), -1)]) ** 0.5
    vectors = float(np.float32(CLIP)) * gradients / lengths[:, None, None]
    return np.array([fsum(column) for column in vectors.reshape(len(examples), -1).T]).reshape(2, WIDTH)


def alike(count: int) -> Tensor:
    """All pull one way with a third of something, of which a sum rounds every time to the same side."""
    return torch.full((count, WIDTH), 1e3 / 3)


def mixed(count: int) -> Tensor:
    random = torch.Generator().manual_seed(1)
    signs = torch.randn(count, WIDTH, generator=random).sign()
    return signs * 10.0 ** (4 * torch.rand(count, WIDTH, generator=random))


# what passes of 50 and of all examples add up in float32, and samples that are too large for it
SAMPLES = [(60, 1000), (170, 1000), (400, 50), (400, 1000), (3000, 1000)]


@pytest.mark.parametrize(("count", "physical"), SAMPLES)
@pytest.mark.parametrize("made", [alike, mixed])
def test_sums_are_off_by_no_more_than_is_accounted(
    made: Callable[[int], Tensor], count: int, physical: int
) -> None:
    trained = method("grid", made(count), physical)
    off = np.linalg.norm(summed(trained, torch.arange(count)) - exact(made(count)))
    assert off <= mechanisms.IN_FLOAT32 * 2.0**-24 * CLIP
    assert off <= COMPUTING / 2 * CLIP


@pytest.mark.parametrize("at_once", [20, 500, 5000])
def test_noisy_sum_rounds_no_vector_more_often_than_is_accounted(at_once: int) -> None:
    for count in range(1, 5000):
        parts = sums._parts(count, min(count, at_once), True)
        assert parts is not None
        roundings = max(parts.sizes) + (parts.together if parts.in_float64 else len(parts.sizes))
        assert roundings * count <= mechanisms.IN_FLOAT32 or parts.sizes[0] < sums.LEAST_SUM  # in float64


@pytest.mark.parametrize("at_once", [700, 3000])
@pytest.mark.parametrize("count", [170, 400, 1000, 1600, 3000])
@pytest.mark.parametrize("made", [alike, mixed])
def test_sums_of_noisy_sum_are_off_by_no_more_than_is_accounted(
    made: Callable[[int], Tensor], count: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clipping, "is_large", lambda value: True)  # sums of parts in float32
    net, labels, at_once = (
        canaries.AlternatingLinear(WIDTH, 1),
        torch.zeros(count).long(),
        min(count, at_once),
    )
    total = np.zeros((2, WIDTH))
    for some, classes in zip(made(count).split(at_once), labels.split(at_once), strict=True):
        parts = sums._parts(count, len(some), True)
        (value,) = sums._clipped_sum(net, some, classes, CLIP, None, False, parts).sums.values()
        total += value.double().numpy()
    off = np.linalg.norm(total - exact(made(count)))
    assert 0 < off <= mechanisms.IN_FLOAT32 * 2.0**-24 * CLIP


@pytest.mark.parametrize(("count", "physical"), SAMPLES)
def test_neighbouring_sums_are_no_further_apart_than_is_accounted(count: int, physical: int) -> None:
    """Every place in the sample is tried by an example that joins it, and turns all others' places around."""
    trained, every = method("grid", torch.cat([mixed(count), alike(1)]), physical), torch.arange(count)
    without = summed(trained, every)
    for place in (0, 1, count // 2, count):
        within = torch.cat([every[:place], torch.tensor([count]), every[place:]])
        assert np.linalg.norm(summed(trained, within) - without) <= CLIP * (1 + COMPUTING)


@pytest.mark.parametrize("physical", [50, 1000])
def test_neighbouring_sums_of_large_samples_in_parts_are_no_further_apart(physical: int) -> None:
    """float32 is off by more than is accounted for all of a sample, and not for the one part that differs."""
    inputs = torch.cat([alike(1500), mixed(1501)])
    trained, every = method("grid", inputs, physical), torch.arange(3001)
    within = summed(trained, every, parts_of(every.numpy(), 3001, 20))
    for place in (0, 1, 151, 1500, 3000):
        others = every[every != place]
        without = summed(trained, others, parts_of(others.numpy(), 3001, 20))
        assert np.linalg.norm(within - without) <= CLIP * (1 + COMPUTING)


def test_large_samples_are_taken_in_parts_that_other_examples_leave_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[tuple[list[float], torch.dtype]] = []
    clipper = Tan.of_examples.func  # type: ignore[attr-defined]

    def noted(self: Tan) -> Clipper:
        clip = clipper(self)

        def noting(tensors: Tensors, inputs: Tensor, labels: Tensor, mask: Tensor, bounds: ClipLimits) -> Any:
            taken.append((inputs[:, 0].tolist(), bounds.limits.dtype))
            return clip(tensors, inputs, labels, mask, bounds)

        return noting

    monkeypatch.setattr(Tan, "of_examples", property(noted))
    inputs = torch.arange(2000.0)[:, None].expand(2000, WIDTH)
    settings = TanSettings(batch=500, steps=1, sigma=1.0, learning_rate=1.0, delta=1e-5, clip=CLIP)
    trained = Tan(method("grid", inputs, 1000).task, settings, "none")
    whole = trained.task.streams.poisson(0, 2000, 0.3)

    def passes(sample: np.ndarray) -> list[tuple[list[float], torch.dtype]]:
        taken.clear()
        with monkeypatch.context() as patch:
            # not of step 0, which also takes an example alone
            patch.setattr(Streams, "poisson", lambda *_: sample)
            trained.clipped_sums(trained.task.parameters, trained.sample(0), trained.clip_limits, 1)
        return list(taken)

    complete = passes(whole)
    assert len(complete) == 4
    assert [number for numbers, _ in complete for number in numbers] == sorted(whole.tolist())
    for leaving in (0, 300, len(whole) - 1):
        left = passes(np.delete(whole, leaving))
        differing = [one != other for one, other in zip(complete, left, strict=True)]
        assert sum(differing) == 1
    # float64 where a part is too large, and there alone
    crowded = passes(np.concatenate([np.arange(181), np.arange(1000, 1180)]))
    assert [dtype for _, dtype in crowded] == [torch.float64, torch.float32]
    assert passes(np.empty(0, int)) == [([0.0], torch.float32)]


def test_samples_of_seeded_trainings_have_one_part() -> None:
    settings = TanSettings(batch=400, steps=1, sigma=1.0, learning_rate=1.0, delta=1e-5, clip=CLIP)
    for noise, parts in (("grid", 4), ("float32", 0)):
        task = method(noise, alike(1000), 1000).task  # type: ignore[arg-type]
        assert len(Tan(task, settings, "none").sample(0).parts) == parts


def test_parts_of_a_thousand_are_added_in_float32_and_of_three_thousand_in_float64() -> None:
    for count, dtype in ((1000, torch.float32), (3000, torch.float64)):
        trained, every = method("grid", mixed(count), 1000), torch.arange(count)
        parts = parts_of(every.numpy(), count, count // 125)
        sample = Sample(every, torch.ones(count), parts)
        batch = trained.clipped_sums(trained.task.parameters, sample, trained.clip_limits, 0)
        assert [value.dtype for value in batch.sums.values()] == [dtype]
        total = sum(value.double().numpy() for value in batch.sums.values())
        assert np.linalg.norm(total - exact(mixed(count))) <= (COMPUTING / 2) * CLIP * len(parts)


@pytest.mark.parametrize(("multiplier", "size"), [(0.5, 1), (1.1, 266_610), (60.0, 10_000_000)])
def test_noise_covers_what_computing_and_the_grid_add(multiplier: float, size: int) -> None:
    """By fractions: sums (1 + c) C apart, each rounded to the grid, over the noise's deviation, are 1 / z."""
    spending = SampledGaussian(sampling="poisson", noise_multiplier=multiplier, examples=100, batch=10)
    mechanism = GaussianMechanism(spending, 1.0)
    bounds = ClipLimits.whole(torch.tensor(CLIP), 1)
    spacing = Fraction(float(mechanism.spacings(bounds, size)))
    # both sums are off as float32 may be, and a vector is longer, by a deviation's rounding more
    computing = 2 * Fraction(2**15, 2**24) + Fraction(OF_NORMS) + Fraction(1, 2**20)
    root = Fraction(int(np.ceil(size**0.5 * 2**20)), 2**20)
    apart = Fraction(float(bounds.limits)) * (1 + computing) + spacing * root
    assert apart / (spacing * 2 ** mechanism.bits(size)) <= 1 / Fraction(multiplier)


def test_every_kind_of_gradients_is_summed_in_the_precision_of_its_factors() -> None:
    random = torch.Generator().manual_seed(0)
    value = torch.randn(37, 3, 5, generator=random)
    left, right = value[:, :, 0].contiguous(), value[:, 0].contiguous()
    tokens = torch.arange(3).expand(37, 3)
    kinds: dict[str, tuple[Gradients, Tensor]] = {
        "full": (Full(value), value),
        "outer": (Outer(left, right), left[:, :, None].double() * right[:, None]),
        "rows": (Rows(3, tokens, value), value),
    }
    factors = torch.rand(37, generator=random, dtype=torch.float64)
    for name, (gradients, written) in kinds.items():
        weighted = (written.double() * factors[:, None, None]).flatten(1).numpy()
        expected = np.array([fsum(column) for column in weighted.T]).reshape(3, 5)
        for finite in (True, False):
            actual = gradients.weighted_sum(factors, finite).numpy()
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-14, err_msg=name)
    assert layer_gradients.CONVERTED_AT_ONCE < 37, "the sum is of more pieces than one"


def test_parts_of_one_pass_are_summed_as_in_passes_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also beyond what float32 adds, and around a part that is too large for it."""
    sizes: list[int] = []
    one_pass = BookKeeping._one_pass

    def noted(self: BookKeeping, tensors: Tensors, inputs: Tensor, *rest: Any) -> ClippedSum:
        sizes.append(len(inputs))
        return one_pass(self, tensors, inputs, *rest)

    monkeypatch.setattr(BookKeeping, "_one_pass", noted)
    for parts in ((120,) * 8, (150,) * 20, (100, 100, 200, 100, 100)):
        trained, every = method("grid", mixed(sum(parts)), 256), torch.arange(sum(parts))
        sample = Sample(every, torch.ones(len(every)), parts)
        arguments = trained.task.parameters, sample, trained.clip_limits, 1
        assert isinstance(trained.clipper, BookKeeping)
        sizes.clear()  # of trials
        together = trained.clipped_sums(*arguments)
        shared = list(sizes)
        assert shared == ([200, 200, 200] if 200 in parts else [sum(parts)])
        with monkeypatch.context() as patch:
            patch.setattr(BookKeeping, "pass_size", lambda self, usual: 0)
            sizes.clear()
            apart = trained.clipped_sums(*arguments)
        assert sizes == list(parts)
        for name, value in apart.sums.items():
            assert value.dtype == together.sums[name].dtype
            # a part's sum is the same number; float64 adds them in another order around a large one
            torch.testing.assert_close(together.sums[name], value, rtol=0, atol=1e-13 if 200 in parts else 0)
        assert torch.equal(apart.norms, together.norms)
        assert torch.equal(apart.losses, together.losses)
