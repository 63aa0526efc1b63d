"""General Batch Clipping against steps written by hand; sensitivity on neighbouring data; its guarantee."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from dprepro.clipping.limits import ClipLimits
from dprepro.clipping.normalization import BatchStatistics
from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.batch_clipping.method import BatchClipping, layer_bounds, layer_names
from dprepro.pipeline.methods.batch_clipping.settings import BatchClippingSettings
from dprepro.pipeline.methods.samples import Sample
from dprepro.pipeline.methods.spending import statement
from dprepro.pipeline.models.model import Model
from tests.conftest import dpsgd
from tests.methods.conftest import LENET, batch_clipping, build

BN = Model(name="lenet5_tanh", normalization="batch_bn", unnormalized=2)
PLAIN = Model(name="lenet5_tanh")
SAMPLINGS = ["fixed", "replacement", "shuffled"]


def make(data: Prepared, model: Model, wanted: BatchClippingSettings) -> BatchClipping:
    method: BatchClipping = build(data, model, wanted)
    return method


def begun(method: BatchClipping) -> tuple[dict, ClipLimits]:
    """State and bounds of the first step."""
    state = method.init()
    state |= method.new_bounds(state, 0)
    return state, ClipLimits(*(state["bounds"][name] for name in ClipLimits._fields))


def test_layers_are_clipped_to_the_papers_bounds_and_zhangs() -> None:
    norms = torch.tensor([3, 4, 0.5, 0.0, 6, 4.5])
    adaptive, zhang = layer_bounds(0.2, norms), layer_bounds(None, norms)
    torch.testing.assert_close(adaptive.limits, 0.2 * norms / 6)
    torch.testing.assert_close(zhang.limits, norms)
    assert layer_bounds(0.2, 0 * norms).limits.tolist() == [0.0] * 6  # no gradient
    for bounds in (adaptive, zhang):
        assert torch.equal(bounds.members, torch.eye(6))
    net = nn.Sequential(nn.Conv2d(1, 2, 3), BatchStatistics(2, 1e-5), nn.Flatten(), nn.Linear(8, 3))
    assert layer_names(net, [name for name, _ in net.named_parameters()]) == [
        *("conv/0.weight", "conv/0.bias", "norm/1.weight", "norm/1.bias", "linear/3.weight", "linear/3.bias")
    ]


class Remembers(nn.Module):
    """Scales by the first batch that it sees, as ActNorm does."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.scale == 0:
            self.scale.copy_(inputs.detach().std())
        return inputs / self.scale


def test_a_network_that_keeps_something_of_its_inputs_is_refused(tiny: Prepared) -> None:
    """What it keeps would move every later gradient, beyond what a clipped one may."""
    method = make(tiny, PLAIN, batch_clipping(mini_set=4))
    kept = nn.Sequential(nn.Flatten(), Remembers(), nn.Linear(1024, 10))
    method.task = replace(method.task, net=kept)
    with pytest.raises(UserError, match=r"keeps something of its inputs in '1\.scale'"):
        method.init()
    # the examples of a set may see each other
    mixes = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1024, track_running_stats=False), nn.Linear(1024, 10))
    method.task = replace(method.task, net=mixes)
    method.init()


class Rarely(nn.Module):
    """A layer that adds the inputs of an earlier call from its twentieth call on, which no trial reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.earlier = 0, torch.zeros(())

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        earlier = self.earlier
        self.earlier = inputs.detach().mean()
        return inputs + 100 * earlier if self.calls > 20 else inputs


def test_state_that_matters_late_is_renewed_before_each_mini_set(tiny: Prepared) -> None:
    sums = []
    for layer in (nn.Identity(), Rarely()):
        method = make(tiny, PLAIN, batch_clipping(mini_set=4))
        net = nn.Sequential(nn.Flatten(), layer, nn.Linear(1024, 10))
        parameters = {name: torch.ones(value.shape) / 100 for name, value in net.named_parameters()}
        method.task = replace(method.task, net=net, parameters=parameters)
        bounds = method.bounds(1.0)
        sums += [
            method.clipped_sums(parameters, method.sample(step), bounds, step).sums for step in range(9)
        ][-1:]
    for name, value in sums[0].items():
        torch.testing.assert_close(sums[1][name], value)


def test_individual_clipping_is_dp_sgd_at_twice_sigma(tiny: Prepared) -> None:
    private = dpsgd(batch=12, clip=0.2, learning_rate=0.3, epsilon=4.0)
    theirs = build(tiny, LENET, private)
    multiplier = theirs.mechanism.spending.noise_multiplier
    configured = batch_clipping(
        sampling="poisson", mini_set=1, clipping="full", sigma=multiplier / 2, side=None
    )
    method = make(tiny, LENET, configured)
    method.views.scale = None  # DP-SGD takes its images in [0, 1]
    expected, _ = theirs.step(theirs.init(), 4)
    actual, _ = method.step(method.init() | method.new_bounds(method.init(), 0), 4)
    for name, value in expected["parameters"].items():
        torch.testing.assert_close(actual["parameters"][name], value, rtol=1e-4, atol=1e-6)
    spending = method.guarantee().spending
    assert spending == theirs.guarantee().spending.model_copy(update={"sets": 12})
    assert spending.noise_multiplier == pytest.approx(multiplier)


def moved(
    method: BatchClipping, state: dict, bounds: ClipLimits, sets: Sample, other: Sample | None, example: int
) -> Tensor:
    """(G,) how far each part of the clipped sum moves, in units of its C_g, when an example is replaced.

    With ``other``, when the sets become those instead.
    """
    before = method.sums(state, sets, bounds, 0)[0]
    inputs, labels = method.task.inputs, method.task.labels
    kept = inputs[example].clone(), labels[example].clone()
    if other is None:
        inputs[example], labels[example] = 255 - inputs[example], (labels[example] + 5) % 10
    after = method.sums(state, other or sets, bounds, 0)[0]
    inputs[example], labels[example] = kept
    squares = torch.stack([(after[name] - before[name]).square().sum() for name in before])
    parts = squares @ bounds.members
    return parts.sqrt() / bounds.limits


@pytest.mark.parametrize(
    ("sampling", "size", "clipping"),
    [
        *((sampling, size, "full") for sampling in SAMPLINGS for size in (None, 1, 2)),
        *(("fixed", size, "adaptive") for size in (None, 1, 2)),
        ("poisson", 1, "full"),
    ],
)
def test_one_record_moves_every_part_by_at_most_what_is_accounted(
    tiny: Prepared, sampling: str, size: int | None, clipping: str
) -> None:
    model = PLAIN if size == 1 else BN
    configured = batch_clipping(batch=4, sampling=sampling, mini_set=size, clipping=clipping, clip=1e-3)
    furthest = torch.zeros(1)
    method = make(tiny, model, configured)
    state, bounds = begun(method)
    for step in range(9):
        sets = method.sample(step)
        if sets.mask.sum() == 0:
            continue
        example = int(sets.chosen.flatten()[0])
        there = sets.chosen == example
        times = int(there.reshape(len(there), -1).any(1).sum())
        if sampling == "poisson":  # the record leaves the sample
            mask = sets.mask.clone()
            mask[0] = 0
            movement = moved(method, state, bounds, sets, Sample(sets.chosen, mask), example)
        else:
            movement = moved(method, state, bounds, sets, None, example)
        assert (movement <= times * method.settings.distance * (1 + 1e-3)).all()
        furthest = torch.maximum(furthest, movement.max())
    # 2 C is needed, but for an example that is a mini-set of its own and leaves: then C is
    alone = sampling == "poisson" and size == 1
    assert furthest > (0.99 if alone else 1.05)
    assert method.settings.distance == (1.0 if alone else 2.0)


def test_a_shuffled_run_resumes_only_between_orders(tiny: Prepared) -> None:
    """A resumed run draws a new order; inside one, examples would be in two batches of an epoch."""
    method = make(tiny, BN, batch_clipping(sampling="shuffled"))
    assert [done for done in range(1, 49) if method.resumable(done)] == [16, 32, 48]
    assert make(tiny, BN, batch_clipping(sampling="fixed")).resumable(5)


def test_what_is_not_private_says_so(tiny: Prepared) -> None:
    for configured in (batch_clipping(clipping="none", sigma=0), batch_clipping(sigma=0)):
        actual = make(tiny, BN, configured).guarantee()
        assert actual.spending is None
        assert actual.broken
    assert make(tiny, BN, batch_clipping()).guarantee().broken == ()
    leaking = make(tiny, BN, batch_clipping(statistics="running")).guarantee()
    assert leaking.spending is not None
    assert leaking.broken == (statement("running_averages"),)
    # there are no averages without batch norm
    assert make(tiny, PLAIN, batch_clipping(statistics="running")).guarantee().broken == ()


def test_step_size_and_clipping_constant_diminish_by_the_epoch(tiny: Prepared) -> None:
    configured = batch_clipping(batch=20, epochs=3, rate_decay=0.9, clip_decay=0.5)
    steps = configured.total_steps(200)
    assert [configured.epoch_at(step, steps) for step in (0, 9, 10, 19, 20, 29)] == [0, 0, 1, 1, 2, 2]
    assert configured.rate_at(25, steps) == pytest.approx(0.3 * 0.81)
    assert configured.clip_at(10, steps) == pytest.approx(0.1)
    method = make(tiny, PLAIN, configured)
    state = method.init()
    limits = []
    for step in range(21):
        state, _ = method.step(state, step)
        limits.append(state["bounds"]["limits"].max().item())
    assert limits == pytest.approx([0.2] * 10 + [0.1] * 10 + [0.05])
