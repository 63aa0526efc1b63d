"""The fast way through a joint batch against one whole backward pass an example, in double precision."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from pipeline.methods.dpsgd import front_tangents, joint_gradients
from pipeline.methods.dpsgd.joint_gradients import JointBookKeeping, joint_clipper, through_everything
from pipeline.methods.registry import build_net
from pipeline.models.model import Model
from pipeline.models.normalization import BatchStatistics, measuring
from pipeline.privacy.gradients import Bounds, ClippedSum, Tensors

SAMPLE, PUBLIC, CLASSES = 7, 5, 10


def features() -> nn.Module:
    """A first layer of more inputs than the joint batch has examples."""
    model = Model(name="tf_tutorial", normalization="batch_bn", epsilon=0.1, trainable="linear")
    return build_net(model, (2304,), CLASSES)


def frozen() -> nn.Module:
    """Its first two layers stay as they are."""
    net = features()
    for name, parameter in net.named_parameters():
        if name.startswith(("classifier.0.", "classifier.1.")):
            parameter.requires_grad_(False)
    return net


def small() -> nn.Module:
    """Layers of fewer inputs than examples, with and without biases, and an image's batch norm."""
    return nn.Sequential(
        BatchStatistics(1, 0.1),
        nn.Linear(3, 5),  # of each row of each image
        nn.Flatten(),
        nn.Linear(15, 8, bias=False),
        BatchStatistics(8, 0.1),
        nn.Tanh(),
        nn.Linear(8, CLASSES),
    )


def lenet5() -> nn.Module:
    """Two blocks of convolutions in front."""
    model = Model(name="lenet5", normalization="batch_bn", epsilon=0.1)
    return build_net(model, (1, 28, 28), CLASSES)


def block() -> nn.Sequential:
    """One block, whose kernel jumps and whose pools overlap, without biases."""
    return nn.Sequential(
        nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0), bias=False),
        BatchStatistics(3, 0.1),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=1, padding=1),
        nn.Flatten(),
        nn.Linear(75, CLASSES),
    )


def jumping() -> nn.Module:
    """Two such blocks."""
    first, norm, *rest = block()
    own = nn.Conv2d(3, 4, 3, stride=2, padding=1)
    second = (own, BatchStatistics(4, 0.1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, CLASSES))
    return nn.Sequential(first, norm, *rest[:2], *second)


NETWORKS = {
    "features": (features, (2304,)),
    "frozen": (frozen, (2304,)),
    "small": (small, (1, 3, 3)),
    "lenet5": (lenet5, (1, 28, 28)),
    "block": (block, (2, 9, 6)),
    "jumping": (jumping, (2, 9, 6)),
}


class Joint:
    """A joint batch of a network, and the losses of its private examples."""

    def __init__(self, kind: str):
        torch.manual_seed(3)
        make, shape = NETWORKS[kind]
        self.net = net = make().double()
        self.inputs = torch.rand(SAMPLE + PUBLIC, *shape, dtype=torch.float64)
        self.labels = torch.arange(SAMPLE) % CLASSES
        self.mask = torch.ones(SAMPLE, dtype=torch.float64)
        self.tensors = {
            name: value.detach() + 0.1 * torch.randn_like(value)
            for name, value in net.named_parameters()
            if value.requires_grad
        }

    def losses(self, tensors: Tensors) -> Tensor:
        counted = torch.cat([self.mask, self.mask.new_ones(PUBLIC)])
        with measuring(self.net, counted):
            logits = functional_call(self.net, tensors, (self.inputs,))
        return F.cross_entropy(logits[:SAMPLE], self.labels, reduction="none")

    def bounds(self, clip: float) -> Bounds:
        return Bounds.whole(torch.tensor(clip, dtype=torch.float64), len(self.tensors))

    def both(self, clip: float, at_once: int = 3) -> tuple[ClippedSum, ClippedSum]:
        rest = (self.losses, self.tensors, self.mask, self.bounds(clip), at_once)
        fast = joint_clipper(self.net, self.inputs[:1], reference=False, alone=True)
        assert isinstance(fast, JointBookKeeping)
        return fast(*rest), through_everything(*rest)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_it_is_one_backward_pass_an_example(kind: str, clip: float) -> None:
    joint = Joint(kind)
    joint.mask[4] = 0  # padding
    fast, obvious = joint.both(clip)
    assert list(fast.sums) == list(joint.tensors)
    for name, value in obvious.sums.items():
        torch.testing.assert_close(fast.sums[name], value, rtol=1e-9, atol=1e-12)
    there = joint.mask > 0
    torch.testing.assert_close(fast.norms[there], obvious.norms[there])
    torch.testing.assert_close(fast.losses, obvious.losses)
    assert not fast.losses.requires_grad


def test_of_an_empty_sample_nothing_is_added() -> None:
    joint = Joint("features")
    joint.mask[:] = 0
    for found in joint.both(0.5):
        assert all((value == 0).all() for value in found.sums.values())


def test_how_many_passes_run_side_by_side_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("small", "lenet5"):
        joint, sums = Joint(kind), []
        for passes in (1, 4, 100):
            monkeypatch.setattr(joint_gradients, "PASSES", passes)
            monkeypatch.setattr(front_tangents, "IMAGES", passes)
            sums.append(joint.both(0.5, at_once=1)[0].sums)
        for other in sums[1:]:
            for name, value in other.items():
                torch.testing.assert_close(value, sums[0][name])


@pytest.mark.parametrize("kind", ["features", "small", "lenet5"])
@pytest.mark.parametrize("place", [0, SAMPLE])
def test_what_is_not_finite_adds_nothing(kind: str, place: int) -> None:
    """One such example, private or public, spoils the statistics, and with them every gradient."""
    joint = Joint(kind)
    joint.inputs[place].flatten()[3] = torch.inf
    for found in joint.both(0.5):
        assert not torch.isfinite(found.norms).any()
        assert all((value == 0).all() for value in found.sums.values())


def test_a_sum_is_no_longer_than_its_examples_bounds() -> None:
    joint = Joint("features")
    fast, _ = joint.both(0.01)
    assert bool((fast.norms > 0.01).all())
    length = torch.cat([value.flatten() for value in fast.sums.values()]).norm()
    assert 0 < length <= SAMPLE * 0.01 * (1 + 1e-9)


def test_other_layers_and_other_machines_take_the_obvious_way() -> None:
    joint = Joint("small")
    net, example = joint.net, joint.inputs[:1]
    assert joint_clipper(net, example, reference=True, alone=True) is through_everything
    assert joint_clipper(net, example, reference=False, alone=False) is through_everything
    last, shares = (nn.Linear(CLASSES, CLASSES).double() for _ in range(2))
    shares.weight = last.weight
    # no rule; used twice; two layers with one weight
    for more in (nn.PReLU().double(), nn.Sequential(last, last), nn.Sequential(last, shares)):
        longer = nn.Sequential(net, more)
        assert joint_clipper(longer, example, reference=False, alone=True) is through_everything


def test_of_convolutions_it_takes_those_in_front_alone() -> None:
    images = torch.rand(1, 2, 9, 6)
    assert isinstance(joint_clipper(block(), images, reference=False, alone=True), JointBookKeeping)
    frozen_norm, behind, no_norm, alike, again = (block() for _ in range(5))
    frozen_norm[1].requires_grad_(False)
    behind.insert(4, nn.Conv2d(3, 3, 1))
    no_norm[1] = nn.Identity()
    alike[2] = nn.Tanh()
    again.insert(4, again[3])  # the same pool twice, which among the children stands once
    for net in (frozen_norm, behind, no_norm, alike, again):
        assert joint_clipper(net, images, reference=False, alone=True) is through_everything


@pytest.mark.parametrize("doubled", [False, True])
def test_the_fast_way_is_taken_where_it_is_right(doubled: bool) -> None:
    """It doesn't know of a hook that doubles what a layer puts out."""
    net = nn.Sequential(nn.Linear(6, 5), BatchStatistics(5, 1e-3), nn.Tanh(), nn.Linear(5, 3))
    if doubled:
        net[0].register_forward_hook(lambda layer, arguments, output: output * (1 + output))
    found = joint_clipper(net, torch.rand(1, 6), False, True)
    assert (found is through_everything) == doubled
