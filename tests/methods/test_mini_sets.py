"""Who is in which mini-set; steps of `test_batch_clipping` show their gradients."""

import pytest
import torch
from torch import nn

from dprepro.clipping.normalization import BatchStatistics
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.batch_clipping import mini_sets
from dprepro.pipeline.methods.batch_clipping.mini_sets import draw_mini_sets
from dprepro.pipeline.methods.batch_clipping.settings import BatchClippingSettings

EXAMPLES = 30


def settings(**changes: object) -> BatchClippingSettings:
    values = {"batch": 12, "epochs": 1, "learning_rate": 0.1, "clipping": "full"}
    return BatchClippingSettings.model_validate(values | changes)


def streams() -> Streams:
    return Streams("a", True, torch.device("cpu"))


@pytest.mark.parametrize("sampling", ["fixed", "replacement", "shuffled"])
@pytest.mark.parametrize("size", [None, 1, 4])
def test_sets_of_a_batch_of_fixed_size(sampling: str, size: int | None) -> None:
    configured = settings(sampling=sampling, mini_set=size)
    sets = draw_mini_sets(streams(), configured, 3, EXAMPLES)
    assert sets.chosen.shape == (configured.sets, configured.set_size)
    assert sets.mask.min() == 1
    assert (len(sets.chosen.unique()) < 12) == (sampling == "replacement")


@pytest.mark.parametrize("size", [None, 1, 4])
def test_a_poisson_sample_is_in_the_sets_once_and_whole(size: int | None) -> None:
    configured = settings(sampling="poisson", mini_set=size)
    for step in range(20):
        sets = draw_mini_sets(streams(), configured, step, EXAMPLES)
        sample = streams().poisson(step, EXAMPLES, 12 / EXAMPLES)
        assert sorted(sets.chosen[sets.mask > 0].tolist()) == sorted(sample.tolist())
        for members, present in zip(sets.chosen, sets.mask, strict=True):
            # padded with its own: whether another set is longer must not matter
            assert set(members.tolist()) == (set(members[present > 0].tolist()) or {0})
        if size == 1:
            assert sets.mask.sum(1).max() <= 1
        else:
            assert len(sets.mask) == configured.sets


def test_the_sets_of_a_poisson_sample_are_drawn_evenly_and_for_each_example_alone() -> None:
    configured = settings(sampling="poisson", mini_set=4)
    counts = torch.zeros(3)
    apart = total = 0
    for step in range(600):
        sets = draw_mini_sets(streams(), configured, step, EXAMPLES)
        counts += sets.mask.sum(1)
        places = {int(e): k for k, row in enumerate(sets.chosen) for e in row[sets.mask[k] > 0]}
        if 0 in places and 1 in places:
            total += 1
            apart += places[0] != places[1]
    assert (counts / counts.sum() - 1 / 3).abs().max() < 0.03
    assert abs(apart / total - 2 / 3) < 0.2


def test_an_empty_poisson_sample_has_a_set_with_nobody_in_it() -> None:
    configured = settings(sampling="poisson", batch=1)
    step = next(s for s in range(99) if len(streams().poisson(s, EXAMPLES, 1 / EXAMPLES)) == 0)
    sets = draw_mini_sets(streams(), configured, step, EXAMPLES)
    assert sets.mask.sum() == 0
    net, parameters, inputs, labels = example()
    nobody = mini_sets.gradient(net, parameters, False, inputs, labels, torch.zeros(12))
    assert nobody.loss == 0
    assert all(bool((value == 0).all()) for value in nobody.values.values())


def example() -> tuple[nn.Module, dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), BatchStatistics(5, 1e-3), nn.Tanh(), nn.Linear(5, 3))
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    return net, parameters, torch.randn(12, 6), torch.arange(12) % 3
