"""What a method keeps is made of what was released, and each training says for itself what it spends."""

from dataclasses import replace

import pytest
import torch

from dprepro.clipping.functional import Tensors
from dprepro.clipping.limits import ClipLimits
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.noise.streams import Streams
from dprepro.pipeline.audits.mechanism import RecordingMechanism, gaussian_of
from dprepro.pipeline.data.prepared import Prepared, Split
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.models.model import Model
from tests.conftest import dpsgd
from tests.methods.conftest import LENET, batch_clipping, build, tan

DPSGD = dpsgd(epochs=0.3, momentum=0.5)
BC = batch_clipping(batch=20, epochs=0.3, learning_rate=0.5)
RUNNING = BC.model_copy(update={"statistics": "running"})


class Tape:
    """Keeps what a mechanism releases; or, once that is played, releases it again whatever the sums are."""

    def __init__(self, mechanism: GaussianMechanism):
        self.mechanism = mechanism
        self.kept: list[Tensors] = []
        self.playing = False

    def release(self, sums: Tensors, bounds: ClipLimits, streams: Streams, step: int) -> Tensors:
        if self.playing:
            return self.kept[step]
        released = self.mechanism.release(sums, bounds, streams, step)
        self.kept.append({name: value.clone() for name, value in released.items()})
        return released


def others(data: Prepared) -> Prepared:
    """The same with other private images: the training split turned upside down."""
    train = data.splits["train"]
    turned = Split(255 - train.inputs[::-1].copy(), train.labels.copy())
    return replace(data, splits={**data.splits, "train": turned})


def models(data: Prepared, network: Model, configured: MethodSettings) -> tuple[Tensors, Tensors]:
    """Of two private data sets and the same releases."""
    networks, tape = [], None
    for seen in (data, others(data)):
        method = build(seen, network, configured)
        tape = tape or Tape(gaussian_of(method))
        RecordingMechanism.wrap(method, tape.release)
        state = method.init()
        for step in range(3):
            state, _ = method.step(state, step)
        tape.playing = True
        model = method.model(state)
        # apart from the model, whose tensors a tested network may have under the same names
        tested = {f"tested {name}": value for name, value in method.network(model, 0).items()}
        networks.append({**model, **tested})
    return networks[0], networks[1]


@pytest.mark.parametrize(
    ("model", "configured"),
    [
        (LENET, DPSGD),
        (LENET, DPSGD.model_copy(update={"optimizer": "adam", "momentum": 0.0})),
        (Model(name="lenet5", normalization="public_bn"), DPSGD),
        (Model(name="lenet5", normalization="group", groups=2), tan()),
        (Model(name="lenet5_tanh", normalization="batch_bn", unnormalized=2), BC),
    ],
)
def test_a_model_is_made_of_what_was_released(
    tiny: Prepared, model: Model, configured: MethodSettings
) -> None:
    network, other = models(tiny, model, configured)
    # also the average of weights, and whatever else is kept
    assert all(torch.equal(value, other[name]) for name, value in network.items())


def test_running_averages_are_not_and_the_ledger_says_so(tiny: Prepared) -> None:
    model = Model(name="lenet5_tanh", normalization="batch_bn", unnormalized=2)
    network, other = models(tiny, model, RUNNING)
    assert not all(torch.equal(value, other[name]) for name, value in network.items())
    assert build(tiny, model, RUNNING).guarantee().broken
