"""What a method keeps is made of what was released, and each replica says for itself what it spends."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pipeline.audits.mechanism import RecordingMechanism, gaussian_of
from pipeline.data.prepared import Prepared, Split
from pipeline.methods.base import Execution, Method
from pipeline.methods.batch_clipping.settings import BatchClippingSettings
from pipeline.methods.dpsgd.settings import DpsgdSettings
from pipeline.methods.registry import build_method
from pipeline.methods.settings import MethodSettings
from pipeline.methods.tan.settings import TanSettings
from pipeline.models.model import Model
from pipeline.privacy.gradients import Bounds, Tensors
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.randomness import Streams
from pipeline.training.loop import Replica, make_task

CPU = Execution(torch.device("cpu"), replicas_at_once=None, physical=10_000)
BATCH: dict[str, Any] = {"batch": 20, "learning_rate": 0.5}
DPSGD = DpsgdSettings(epochs=0.3, epsilon=3, delta=1e-3, momentum=0.5, **BATCH)
TAN = TanSettings(steps=3, sigma=1.5, delta=1e-3, **BATCH)
CLIPPING = {"epochs": 0.3, "sigma": 0.5, "clipping": "adaptive", "side": 32, "delta": 1e-3, **BATCH}
BC = BatchClippingSettings.model_validate(CLIPPING)
RUNNING = BatchClippingSettings.model_validate({**CLIPPING, "statistics": "running"})
LENET = "lenet5"


def build(data: Prepared, model: Model, *settings: MethodSettings) -> Method:
    members = [Replica(f"replica={number}", number, configured) for number, configured in enumerate(settings)]
    task = make_task(members, model, True, data, CPU)
    return build_method(settings[0].method, task, list(settings), model.normalization)


class Tape:
    """Keeps what a mechanism releases; or, once that is played, releases it again whatever the sums are."""

    def __init__(self, mechanism: GaussianMechanism):
        self.mechanism = mechanism
        self.kept: list[Tensors] = []
        self.playing = False

    def release(self, sums: Tensors, bounds: Bounds, streams: Streams, step: int) -> Tensors:
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


def models(data: Prepared, model: Model, configured: MethodSettings) -> tuple[Tensors, Tensors]:
    """Of two private data sets and the same releases."""
    networks, tape = [], None
    for seen in (data, others(data)):
        method = build(seen, model, configured)
        tape = tape or Tape(gaussian_of(method))
        RecordingMechanism.wrap(method, tape.release)
        state = method.init()
        for step in range(3):
            state, _ = method.step(state, step)
        tape.playing = True
        networks.append(method.model(state))
    return networks[0], networks[1]


@pytest.mark.parametrize(
    ("model", "configured"),
    [
        (Model(name=LENET), DPSGD),
        (Model(name=LENET), DPSGD.model_copy(update={"optimizer": "adam", "momentum": 0.0})),
        (Model(name=LENET, normalization="public_bn"), DPSGD),
        (Model(name=LENET, normalization="group", groups=2), TAN),
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
    assert build(tiny, model, RUNNING).guarantee(0).broken
