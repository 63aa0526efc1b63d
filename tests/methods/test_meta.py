"""Every method runs on torch's `meta` device, which has shapes and no values.

A tensor left on the CPU, or a read of a value inside a step, fails here as it would, or would wait, on a GPU.
Training and searches take the same steps.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dprepro.accountants import calibration
from dprepro.clipping import clippers
from dprepro.noise.streams import Streams
from dprepro.pipeline import params
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import Execution, Method, Relevances, Task, as_input
from dprepro.pipeline.methods.batch_clipping import method as batch_clipping
from dprepro.pipeline.methods.laplace import adlm, perturbed
from dprepro.pipeline.methods.private_steps import PrivateSteps
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net
from dprepro.pipeline.pretrained.lrp import relevances
from dprepro.pipeline.training.loop import SeedRun, make_task
from tests.methods.examples import made_up, shape_of
from tests.small_networks import small_networks

BROAD = params.load(Path(__file__).parents[1] / "broad/params.yaml")
META = Execution(torch.device("meta"), physical=4096)


@pytest.fixture(autouse=True)
def _noise_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no generator of numbers that aren't there. How large the noise is takes long and no device."""

    def normal(self: Streams, step: int, size: int, purpose: str = "noise") -> Tensor:
        return torch.empty(size, device=self.device)

    def laplace(values: Tensor, scales: Tensor, *_: Any) -> Tensor:
        return torch.empty(values.shape, device=values.device)

    monkeypatch.setattr(Streams, "normal", normal)
    for room in (perturbed, adlm):
        monkeypatch.setattr(room, "release_laplace", laplace)
    monkeypatch.setattr(calibration, "noise_for", lambda *_: 1.0)


@pytest.fixture(autouse=True)
def _untried_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network is tried by its values before the first step; here the first way that it can go is right."""

    class Untried:
        resets = False

        @classmethod
        def of(cls, net: nn.Module, example: Tensor, copies: int = 1) -> "Untried":
            return cls()

        def right_clipper(self, factory: clippers.ClipperFactory) -> object:
            return factory.way

    monkeypatch.setattr(clippers, "Trial", Untried)
    monkeypatch.setattr(batch_clipping, "renews_state", lambda *_: False)
    monkeypatch.setattr(PrivateSteps, "_compare_with_alone", lambda *_: None)


def built(key: str, run: SeedRun, data: Prepared) -> tuple[Task, Method]:
    row = BROAD.rows[key]
    task = make_task(run, row.model, False, data, META)
    if row.data in BROAD.relevances:
        mean = torch.empty(task.inputs.shape[1:], dtype=torch.float64, device="meta")
        relevance = Relevances(mean, len(task.labels), informed=True)
        task = replace(task, relevance=relevance)
    return task, run.settings.build_method(task, row.model.normalization)


def small(configured: Any) -> Any:
    """The settings with batches that the few examples make."""
    sets = {"mini_set": 2} if getattr(configured, "mini_set", None) not in (None, 1) else {}
    return configured.model_copy(update={"batch": 4, **sets})


def all_on_meta(tree: Any) -> bool:
    if isinstance(tree, Tensor):
        return tree.device.type == "meta"
    return all(map(all_on_meta, tree.values()))


@pytest.mark.parametrize("key", BROAD.rows)
@small_networks()
def test_a_rows_steps_need_no_value(key: str, tmp_path: Path) -> None:
    row = BROAD.rows[key]
    data = made_up(row.model, shape_of(row, BROAD), tmp_path)
    for configured in map(small, row.resolved):
        task, method = built(key, SeedRun(row.level(configured), 0, configured), data)
        with torch.no_grad():
            state, metrics = method.step(method.init(), 0)
            model = method.model(state)
            logits = method.logits(method.network(model, 0), task.public)
            for predict in method.variants(model).values():
                assert all_on_meta(predict(task.public, 0))
        assert all(map(all_on_meta, (state, metrics, model)))
        assert len(logits) == len(task.public)
        assert logits.device.type == "meta"


@pytest.mark.parametrize("model", [Model(name="adlm_cnn", normalization="response"), Model(name="lenet5")])
def test_relevances_need_no_value(model: Model) -> None:
    net = build_net(model, (1, 28, 28), 10).to("meta")
    actual = relevances(net, as_input(torch.empty(3, 1, 28, 28, dtype=torch.uint8, device="meta")))
    assert actual.shape == (3, 1, 28, 28)
    assert actual.device.type == "meta"
