"""DP-SGD's step against a hand-written one; the two answers to where batch norm's statistics come from."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import Execution, Task, as_input
from dprepro.pipeline.methods.dpsgd.method import Dpsgd
from dprepro.pipeline.methods.dpsgd.settings import DpsgdSettings
from dprepro.pipeline.models.model import Model
from tests.conftest import dpsgd
from tests.methods.conftest import CPU, build


def make(data: Prepared, settings: DpsgdSettings, normalization: str, how: Execution = CPU) -> Any:
    return build(data, Model(name="lenet5", normalization=normalization, epsilon=0.1), settings, how=how)


def sample_of(task: Task, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    chosen = torch.from_numpy(indices)
    return as_input(task.inputs[chosen]), task.labels[chosen], torch.ones(len(chosen))


def test_without_privacy_steps_are_those_of_torchs_sgd(tiny: Prepared) -> None:
    """With weight decay apart from the gradient, which torch's SGD doesn't have."""
    method = make(tiny, dpsgd(epsilon="inf", momentum=0.9, weight_decay=0.5, learning_rate=0.05), "none")
    state = method.init()
    leaves = {n: v.clone().requires_grad_() for n, v in state["parameters"].items()}
    theirs = torch.optim.SGD(leaves.values(), lr=0.05, momentum=0.9)
    for step in range(3):
        inputs, labels, _ = sample_of(method.task, method.task.streams.poisson(step, 200, 0.1))
        theirs.zero_grad()
        logits = functional_call(method.task.net, leaves, (inputs,))
        (F.cross_entropy(logits, labels, reduction="sum") / 20).backward()
        with torch.no_grad():
            for value in leaves.values():
                value *= 1 - 0.05 * 0.5
        theirs.step()
        state, _ = method.step(state, step)
    for name, value in leaves.items():
        torch.testing.assert_close(state["parameters"][name], value.detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("epsilon", [3, "inf"])
def test_class_weights_scale_an_examples_loss_before_it_is_clipped(tiny: Prepared, epsilon: Any) -> None:
    """Weights of 0.5 for all classes are a clipping bound twice as large, and half of each sum."""
    classes = tiny.classes
    halves = make(tiny, dpsgd(epsilon=epsilon, clip=0.1, class_weights=[0.5] * classes), "none")
    plain = make(tiny, dpsgd(epsilon=epsilon, clip=0.2), "none")
    parameters, sample = plain.init()["parameters"], plain.sample(0)
    assert len(sample.mask.unique()) == 1
    weighted = halves.clipped_sums(parameters, sample, halves.clip_limits, 0)
    whole = plain.clipped_sums(parameters, sample, plain.clip_limits, 0)
    for name, value in weighted.sums.items():
        torch.testing.assert_close(value, 0.5 * whole.sums[name], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(weighted.mask, whole.mask)
    if epsilon != "inf":
        shares = (batch.metrics()["clipped_share"] for batch in (weighted, whole))
        torch.testing.assert_close(*shares)
    first = make(tiny, dpsgd(epsilon="inf", class_weights=[1.0, *[1e-30] * (classes - 1)]), "none")
    only = sample._replace(mask=sample.mask * (first.task.labels[sample.chosen] == 0))
    sums = first.clipped_sums(parameters, sample, first.clip_limits, 0).sums
    bare = make(tiny, dpsgd(epsilon="inf"), "none")
    expected = bare.clipped_sums(parameters, only, bare.clip_limits, 0).sums
    for name, value in sums.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)


def test_dropout_is_on_in_training_and_off_in_predictions(tiny: Prepared) -> None:
    method = make(tiny, dpsgd(), "none")
    net = method.task.net
    net.append(nn.Dropout(0.9))
    tensors, stored = method.network(method.task.parameters, 0), method.task.inputs[:5]
    first, again = (method.logits(tensors, stored) for _ in range(2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    without = functional_call(net[:-1], tensors, (as_input(stored),))
    torch.testing.assert_close(first, without)
    assert all(layer.training for layer in net.modules())


@pytest.mark.parametrize("normalization", ["public_bn", "batch_bn"])
def test_statistics_of_no_layer_are_refused(tiny: Prepared, normalization: str) -> None:
    method = make(tiny, dpsgd(), "none")
    with pytest.raises(UserError, match="no batch norm is trained"):
        Dpsgd(method.task, method.settings, normalization)
