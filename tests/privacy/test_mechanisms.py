"""Noise scale, sampling, secrecy of the streams."""

import numpy as np
import pytest
import torch

from pipeline.audits import canaries
from pipeline.methods.batch_clipping.settings import BatchClippingSettings
from pipeline.methods.dpsgd.settings import DpsgdSettings
from pipeline.methods.registry import build_method
from pipeline.methods.settings import MethodSettings
from pipeline.methods.tan.settings import TanSettings
from pipeline.privacy.gradients import Bounds
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.randomness import Streams
from pipeline.privacy.spending import Spending

CPU = torch.device("cpu")


def streams(reproducible: bool = True, names: tuple[str, ...] = ("a", "b")) -> Streams:
    return Streams(names, reproducible, CPU)


def mechanism_of(*multipliers: float, distance: float = 1.0) -> GaussianMechanism:
    return GaussianMechanism(
        tuple(
            Spending(sampling="poisson", noise_multiplier=multiplier, examples=100, batch=10)
            for multiplier in multipliers
        ),
        distance,
    )


def whole(tensors: int, *clips: float) -> Bounds:
    """The same tensors of each replica in one part."""
    parts = [Bounds.whole(torch.tensor(clip), tensors) for clip in clips]
    return Bounds(*(torch.stack(own) for own in zip(*parts, strict=True)))


def test_noise_has_standard_deviation_z_times_clip_for_each_replica() -> None:
    mechanism = mechanism_of(1.5, 3.0)
    sums = {"w": torch.zeros(2, 300, 100), "s": torch.zeros(2, 20_000)}
    noisy = mechanism.release(sums, whole(2, 0.5, 2.0), streams(), step=0)
    for value in noisy.values():
        flat = value.flatten(1)
        assert torch.allclose(flat.std(1), torch.tensor([0.75, 6.0]), rtol=0.02)
        assert (flat.mean(1).abs() < torch.tensor([0.02, 0.15])).all()


def test_the_sum_comes_through_the_noise() -> None:
    mechanism, bounds = mechanism_of(2.0, 2.0), whole(1, 1.0, 1.0)
    zero = mechanism.release({"w": torch.zeros(2, 7)}, bounds, streams(), 3)["w"]
    five = mechanism.release({"w": torch.full((2, 7), 5.0)}, bounds, streams(), 3)["w"]
    torch.testing.assert_close(five - zero, torch.full((2, 7), 5.0))


@pytest.mark.parametrize("shares", [None, torch.tensor([[1.0, 2.0]])])
def test_parts_together_have_the_multiplier_that_is_accounted(shares: torch.Tensor | None) -> None:
    """Footnote 4: part g at noise s_g over sensitivity d_g is G_(d/s); together the root of their squares."""
    mechanism = mechanism_of(0.7, distance=2.0)
    bounds = Bounds(
        torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]),
        torch.tensor([[0.3, 5.0]]),
        torch.tensor([[1.0, 4.0, 1.0]]),
    )
    deviations = mechanism.deviations(bounds, shares)[0]
    # the noise inside a clipped part is that of its tensors, multiplied by their weights
    parts = [2 * 0.3 / deviations[0], 2 * 0.3 / (4 * deviations[1]), 2 * 5.0 / deviations[2]]
    assert parts[0] == pytest.approx(parts[1])
    assert (parts[0] ** 2 + parts[2] ** 2) ** -0.5 == pytest.approx(0.7)
    if shares is not None:
        assert parts[2] / parts[0] == pytest.approx(2.0)


DELTAS: dict[str, MethodSettings] = {
    "dpsgd": DpsgdSettings(batch=10, epochs=1, learning_rate=1, epsilon=1, delta=1e-5),
    "tan": TanSettings(batch=10, steps=10, sigma=1.2, learning_rate=1.0, delta=1e-5),
    "batch_clipping": BatchClippingSettings(
        batch=10, epochs=1, learning_rate=1, sigma=2, clipping="layerwise", delta=1e-5
    ),
}


@pytest.mark.parametrize("name", DELTAS)
def test_each_replica_is_held_to_its_own_delta(name: str) -> None:
    kinds = canaries.many(100, 5, torch.ones(5, dtype=torch.bool))
    both = [DELTAS[name].model_copy(update={"delta": delta}) for delta in (1e-3, 1e-7)]
    method = build_method(name, canaries.task(kinds, ("a", "b"), 1), both, "none")
    assert [method.guarantee(replica).delta for replica in range(2)] == [1e-3, 1e-7]


def test_noise_is_new_every_step_and_for_every_replica() -> None:
    drawn = [streams().normal(step, 50) for step in range(3)]
    rows = torch.cat(drawn)
    assert len({tuple(row.tolist()) for row in rows}) == 6
    correlation = torch.corrcoef(rows) - torch.eye(6)
    assert correlation.abs().max() < 0.6


def test_a_poisson_sample_has_the_binomial_count_and_every_example_the_same_chance() -> None:
    source, examples, rate = streams(names=("a",)), 40, 0.2
    samples = [source.poisson(step, examples, rate)[0] for step in range(4000)]
    counts = np.array([len(sample) for sample in samples])
    assert all(len(set(sample.tolist())) == len(sample) for sample in samples)
    assert abs(counts.mean() - 8) < 0.15
    assert abs(counts.var() - 6.4) < 0.6
    hits = np.bincount(np.concatenate(samples), minlength=examples) / len(samples)
    assert np.abs(hits - rate).max() < 4.5 * np.sqrt(rate * (1 - rate) / len(samples))


def test_batches_of_fixed_size_have_every_example_once_or_independently() -> None:
    source = streams(names=("a", "b"))
    batches = torch.stack([source.fixed(step, 12, 5) for step in range(3000)])
    assert all(len(set(batch.tolist())) == 5 for batch in batches[:50, 0])
    # every example in every place: mini-sets are cut from the order
    chances = torch.stack([(batches[:, 0] == example).float().mean(0) for example in range(12)])
    assert (chances - 1 / 12).abs().max() < 4.5 * (1 / 12 / 3000) ** 0.5
    drawn = torch.stack([source.replaced(step, 12, 5) for step in range(3000)])[:, 0]
    twice = torch.tensor([len(set(batch.tolist())) < 5 for batch in drawn]).float().mean()
    assert twice == pytest.approx(1 - 11 / 12 * 10 / 12 * 9 / 12 * 8 / 12, abs=0.04)
    assert not torch.equal(batches[0, 0], batches[0, 1])


def test_seeded_streams_repeat_and_fresh_ones_do_not() -> None:
    torch.testing.assert_close(streams().normal(5, 10), streams().normal(5, 10))
    assert not torch.equal(streams(False).normal(5, 10), streams(False).normal(5, 10))
    same = [streams(False).poisson(0, 1000, 0.3)[0].tolist() for _ in range(2)]
    assert same[0] != same[1]


def test_two_replicas_never_share_a_name() -> None:
    with pytest.raises(ValueError, match="the same name twice"):
        streams(names=("a", "a"))


def test_a_replica_does_not_depend_on_its_neighbours() -> None:
    together, alone = streams(names=("a", "b")), streams(names=("b",))
    torch.testing.assert_close(together.normal(2, 9)[1], alone.normal(2, 9)[0])
    assert together.poisson(2, 99, 0.5)[1].tolist() == alone.poisson(2, 99, 0.5)[0].tolist()
