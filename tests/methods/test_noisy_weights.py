"""Noise on weights: what gets it, whose gradient is taken, what is tested; Adam against torch's."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import as_input
from dprepro.pipeline.methods.noisy_weights.method import NoisyWeights, noisy_names
from dprepro.pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from dprepro.pipeline.models.model import Model
from tests.methods.conftest import ALONE, build, noisy


def make(data: Prepared, settings: NoisyWeightsSettings, normalization: str = "none") -> NoisyWeights:
    model = Model(name="lenet5", normalization=normalization)
    method: NoisyWeights = build(data, model, settings, how=ALONE)
    return method


def test_matrices_and_kernels_get_noise_and_nothing_else(tiny: Prepared) -> None:
    method = make(tiny, noisy(), "layer")
    weights = {n for n, v in method.task.net.named_parameters() if n.endswith(".weight") and v.dim() > 1}
    assert set(method.noisy) == weights
    assert len(weights) == 5
    # an embedding table holds a text's inputs
    assert noisy_names(nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 2))) == ["1.weight"]
    tied = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 3), nn.Linear(3, 4, bias=False))
    tied[2].weight = tied[0].weight
    assert noisy_names(tied) == ["1.weight", "0.weight"]


def test_the_noise_is_gaussian_of_the_declared_width_and_fresh(tiny: Prepared) -> None:
    method = make(tiny, noisy(sigma=2))
    model = method.model(method.init())
    first, second = method.network(model, 0), method.network(model, 1)
    drawn = torch.cat([(first[name] - model[name]).flatten() / 2 for name in method.noisy]).sort()[0]
    levels = torch.distributions.Normal(0, 1).cdf(drawn)
    uniform = (torch.arange(len(drawn)) + 0.5) / len(drawn)
    # Kolmogorov-Smirnov: exceeded once in a million
    assert (levels - uniform).abs().max() < 2.7 / len(drawn) ** 0.5
    assert not torch.equal(first["0.weight"], second["0.weight"])
    assert torch.equal(first["0.bias"], model["0.bias"])
    again = method.network(model, 0)
    assert all(torch.equal(again[name], value) for name, value in first.items())


def test_an_epoch_sees_every_example_once_in_a_new_order(tiny: Prepared) -> None:
    streams = make(tiny, noisy()).task.streams
    epochs = [torch.cat([streams.shuffled(10 * e + s, 200, 20) for s in range(10)]) for e in range(2)]
    for epoch in epochs:
        assert torch.equal(epoch.sort()[0], torch.arange(200))
    assert not torch.equal(epochs[0], epochs[1])
    assert len(torch.cat([streams.shuffled(step, 200, 60) for step in range(3)]).unique()) == 180


def test_running_averages_are_those_of_torch(tiny: Prepared) -> None:
    """Eqs. 9 and 10: the biased variance of each batch, under the noise of its step."""
    method = make(tiny, noisy(sigma=0), "running_bn")
    state = method.init()
    chosen = method.task.streams.shuffled(0, 200, 20)
    summed = F.conv2d(
        as_input(method.task.inputs[chosen]),
        state["parameters"]["0.weight"], state["parameters"]["0.bias"], padding=2,
    )  # fmt: skip
    state, _ = method.step(state, 0)
    variance, mean = torch.var_mean(summed, (0, 2, 3), correction=0)
    torch.testing.assert_close(state["running"]["1.mean"], 0.1 * mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state["running"]["1.var"], 0.9 + 0.1 * variance, rtol=1e-4, atol=1e-5)


def test_at_test_an_image_does_not_depend_on_the_others(tiny: Prepared) -> None:
    for statistics in ("running", "draw"):
        method = make(tiny, noisy(statistics=statistics), "running_bn")
        network = method.network(method.model(method.init()), 0)
        inputs = torch.from_numpy(np.array(tiny.splits["test"].inputs))
        together = method.logits(network, inputs).argmax(-1)
        apart = [method.logits(network, inputs[i : i + 1]) for i in range(len(inputs))]
        alone = torch.cat(apart).argmax(-1)
        assert torch.equal(together, alone)


def test_statistics_of_the_draw_are_measured_under_its_noise(tiny: Prepared) -> None:
    method = make(tiny, noisy(sigma=1, statistics="draw"), "running_bn")
    network = method.network(method.model(method.init()), 2)
    inputs = as_input(method.task.inputs)  # 200, fewer than it would take
    summed = F.conv2d(inputs, network["0.weight"], network["0.bias"], padding=2)
    torch.testing.assert_close(network["1.mean"], summed.mean((0, 2, 3)), rtol=1e-4, atol=1e-4)


def test_normalised_networks_do_not_feel_the_scale_of_their_weights(tiny: Prepared) -> None:
    """Section 2 of the paper; without normalisation predictions change."""
    changed = {}
    for normalization in ("none", "layer", "running_bn"):
        method = make(tiny, noisy(sigma=0, statistics="draw"), normalization)
        predictions = []
        for scale in (1.0, 10.0):
            network = method._draw_network(method.model(method.init()), 0, scale)
            predictions.append(method.outputs(network, as_input(method.task.inputs[:40])))
        changed[normalization] = (predictions[0] - predictions[1]).abs().max().item()
    # all that is left is the 1e-5 added to variances
    assert changed["layer"] < 0.01
    assert changed["running_bn"] < 0.05
    assert changed["none"] > 0.05


def test_one_training_is_tested_at_every_scale(tiny: Prepared) -> None:
    """By the network of the draw whose weights, with the biases added to their products, are multiplied."""
    method = make(tiny, noisy(sigma=0.1, scales=(1, 100)), "none")
    model = method.model(method.init())
    inputs = torch.from_numpy(tiny.splits["test"].inputs)
    variants = method.variants(model)
    assert list(variants) == ["scale_1", "scale_100"]
    network = method.network(model, 0)
    assert torch.equal(variants["scale_1"](inputs, 0), method.logits(network, inputs).argmax(-1))
    by_hand = {
        name: value * (100 if name.split(".")[0] in {"0", "4", "9", "12", "15"} else 1)
        for name, value in network.items()
    }
    actual = variants["scale_100"](inputs, 0)
    assert torch.equal(actual, method.logits(by_hand, inputs).argmax(-1))
    assert not torch.equal(actual, method.logits(network, inputs).argmax(-1))
