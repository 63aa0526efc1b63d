"""Noise on weights: what gets it, whose gradient is taken, what is tested; optimizers against torch's."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.noisy_weights.method import NoisyWeights, noisy_names
from dprepro.pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from dprepro.pipeline.methods.optimizers import Adam, Optimizer, Sgd, decayed
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


STEPS, RATE = 4, 0.1


def problem() -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """Parameters, and gradients of every step."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"weight": (3, 4), "bias": (3,)}
    made = [
        {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        for _ in range(STEPS + 1)
    ]
    return made[0], made[1:]


def after(ours: Optimizer, weight_decay: float = 0.0) -> dict[str, Tensor]:
    parameters, gradients = problem()
    state = ours.start(parameters)
    for step, gradient in enumerate(gradients):
        state |= {"parameters": decayed(state["parameters"], RATE, weight_decay)}
        state = ours.update(state, gradient, RATE, step)
    return state["parameters"]


def by_torch(kind: Callable[..., torch.optim.Optimizer], **options: float) -> dict[str, Tensor]:
    start, gradients = problem()
    leaves = {name: value.requires_grad_() for name, value in start.items()}
    optimizer = kind(leaves.values(), lr=RATE, **options)
    for step in gradients:
        for name, value in leaves.items():
            value.grad = step[name].clone()
        optimizer.step()
    return {name: value.detach() for name, value in leaves.items()}


@pytest.mark.parametrize(("momentum", "dampening"), [(0.0, 0.0), (0.9, 0.0), (0.5, 0.9)])
def test_sgd_with_momentum_and_dampening_is_torchs(momentum: float, dampening: float) -> None:
    expected = by_torch(torch.optim.SGD, momentum=momentum, dampening=dampening)
    torch.testing.assert_close(after(Sgd(momentum, dampening)), expected)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adam_with_decoupled_weight_decay_is_torchs(decay: float) -> None:
    torch.testing.assert_close(after(Adam(), decay), by_torch(torch.optim.AdamW, weight_decay=decay))
