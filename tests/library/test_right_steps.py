"""Right steps of many kinds, in which `replay` finds nothing: with the 16 of `test_replay.py`, 50."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from jax_privacy.clipping import clipped_grad
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

import dprepro
from tests.library.test_replay import (
    CLAIMS,
    CLASSES,
    CLIP,
    EXPECTED,
    NOISE,
    RIGHT,
    WIDTH,
    Make,
    clipped,
    data,
    deep,
    images,
    mean,
    network,
    noisy,
    summed,
)

pytestmark = pytest.mark.broad  # two seconds each


class Residual(nn.Module):
    """Dense layers with a connection past them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(WIDTH, size) for size in (WIDTH, WIDTH, CLASSES))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(inputs + self.second(self.first(inputs).relu()))
        return outputs


def text() -> nn.Module:
    return nn.Sequential(nn.Embedding(30, 8), nn.Flatten(), nn.Linear(8 * 6, CLASSES))


def tokens() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(30, (8, 6), generator=generator), torch.randint(CLASSES, (8,), generator=generator)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, Tensor]]] = {
    "dense": (network, data(8)),
    "images": (images, data(8, 1, 8, 8)),
    "deep": (deep, data(8)),
    "residual": (Residual, data(8)),
    "text": (text, tokens()),
}


def opacus(make: Callable[[], nn.Module], functorch: bool = False) -> Make:
    def train_step() -> Callable[[Tensor, Tensor], Any]:
        wrapped = GradSampleModule(make(), force_functorch=functorch)
        sgd = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        optimizer = DPOptimizer(sgd, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=EXPECTED)

        def step(inputs: Tensor, labels: Tensor) -> Any:
            optimizer.zero_grad()
            F.cross_entropy(wrapped(inputs), labels).backward()
            optimizer.step()
            return wrapped, optimizer

        return step

    return train_step


def functorch(make: Callable[[], nn.Module]) -> Make:
    return opacus(make, functorch=True)


def ghost(make: Callable[[], nn.Module]) -> Make:
    def train_step() -> Callable[[Tensor, Tensor], Any]:
        wrapped = GradSampleModuleFastGradientClipping(
            make(), max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean"
        )
        sgd = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        optimizer = DPOptimizerFastGradientClipping(
            sgd, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=EXPECTED
        )
        criterion = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss(), "mean")

        def step(inputs: Tensor, labels: Tensor) -> Any:
            optimizer.zero_grad()
            criterion(wrapped(inputs), labels).backward()
            optimizer.step()
            return wrapped, optimizer

        return step

    return train_step


def by_vmap(make: Callable[[], nn.Module]) -> Make:
    def train_step() -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
        net = make()

        def loss(weights: dict[str, Tensor], x: Tensor, label: Tensor) -> Tensor:
            return F.cross_entropy(functional_call(net, weights, (x[None],)), label[None])

        def step(inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            weights = {name: value.detach() for name, value in net.named_parameters()}
            each = vmap(grad(loss), (None, 0, 0))(weights, inputs, labels)
            squares = [value.flatten(1).square().sum(1) for value in each.values()]
            factors = (CLIP / torch.stack(squares).sum(0).sqrt().clamp_min(1e-9)).clamp(max=1)
            return mean(noisy({name: torch.tensordot(factors, value, 1) for name, value in each.items()}))

        return step

    return train_step


def by_loop(make: Callable[[], nn.Module]) -> Make:
    """One backward pass for each example, and the optimizer's step."""

    def train_step() -> Callable[[Tensor, Tensor], nn.Module]:
        net = make()
        adam, named = torch.optim.Adam(net.parameters()), dict(net.named_parameters())

        def step(inputs: Tensor, labels: Tensor) -> nn.Module:
            parts = []
            for x, label in zip(inputs, labels, strict=True):
                net.zero_grad()
                F.cross_entropy(net(x[None]), label[None]).backward()
                gradient = {name: value.grad for name, value in named.items() if value.grad is not None}
                parts.append(clipped({name: value.clone() for name, value in gradient.items()}))
            for name, value in mean(noisy(summed(parts))).items():
                named[name].grad = value
            adam.step()
            adam.zero_grad()
            return net

        return step

    return train_step


def ours(make: Callable[[], nn.Module], at_once: int | None = None) -> Make:
    def train_step() -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
        net = make()

        def step(inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return mean(dprepro.noisy_sum(net, inputs, labels, CLIP, NOISE, at_once=at_once))

        return step

    return train_step


def in_place_of_backward() -> Callable[[Tensor, Tensor], nn.Module]:
    net, sampler = network(), dprepro.PoissonSampler(10 * EXPECTED, EXPECTED, 1)
    private_backward = dprepro.PrivateBackward(net, sampler, CLIP, NOISE)
    adam = torch.optim.Adam(net.parameters())

    def step(inputs: Tensor, labels: Tensor) -> nn.Module:
        private_backward(inputs, labels)
        adam.step()
        return net

    return step


def jax_loss(weights: dict[str, Any], x: Any, label: Any) -> Any:
    hidden = x
    if "table" in weights:
        hidden = weights["table"][x].reshape(-1)
    if "kernel" in weights:
        hidden = jax.lax.conv(x[None], weights["kernel"], (1, 1), "VALID").reshape(-1)
    return -jax.nn.log_softmax(jnp.tanh(hidden) @ weights["last"])[label]


def jax_weights(name: str) -> dict[str, Any]:
    first, last = jax.random.split(jax.random.key(0))
    sizes = {"dense": WIDTH, "images": 4 * 36, "text": 8 * 6}
    made = {"last": 0.3 * jax.random.normal(last, (sizes[name], CLASSES))}
    if name == "images":
        made["kernel"] = 0.3 * jax.random.normal(first, (4, 1, 3, 3))
    if name == "text":
        made["table"] = jax.random.normal(first, (30, 8))
    return made


def jax_noisy(sums: dict[str, Any], seed: int) -> dict[str, Any]:
    keys = dict(zip(sums, jax.random.split(jax.random.key(seed), len(sums)), strict=True))
    return {
        name: (value + NOISE * CLIP * jax.random.normal(keys[name], value.shape)) / EXPECTED
        for name, value in sums.items()
    }


def in_jax(name: str) -> Make:
    def clipped_gradient(weights: dict[str, Any], x: Any, label: Any) -> dict[str, Any]:
        gradient: dict[str, Any] = jax.grad(jax_loss)(weights, x, label)
        norm = jnp.sqrt(sum(jnp.square(value).sum() for value in gradient.values()))
        factor = jnp.minimum(1, CLIP / jnp.maximum(1e-9, norm))
        return jax.tree.map(lambda value: value * factor, gradient)

    each = jax.jit(jax.vmap(clipped_gradient, (None, 0, 0)))

    def train_step() -> Callable[..., dict[str, Any]]:
        weights = jax_weights(name)

        def step(inputs: Tensor, labels: Tensor, seed: int) -> dict[str, Any]:
            parts = each(weights, jnp.asarray(inputs.numpy()), jnp.asarray(labels.numpy()))
            return jax_noisy({key: value.sum(0) for key, value in parts.items()}, seed)

        return step

    return train_step


def by_jax_privacy() -> Callable[..., dict[str, Any]]:
    weights = jax_weights("dense")

    def loss(weights: dict[str, Any], x: Any, label: Any) -> Any:
        return jax_loss(weights, x[0], label[0])  # of one example, with a first dimension of 1

    clipped_sum = clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2))

    def step(inputs: Tensor, labels: Tensor, seed: int) -> dict[str, Any]:
        sums = clipped_sum(weights, jnp.asarray(inputs.numpy()), jnp.asarray(labels.numpy()))
        return jax_noisy(sums, seed)

    return step


WAYS = {
    **{"Opacus": opacus, "Opacus, functorch": functorch, "Opacus, ghost": ghost},
    **{"vmap": by_vmap, "loop": by_loop, "ours": ours},
}
STEPS: dict[str, tuple[Make, tuple[Tensor, Tensor]]] = {
    f"{way}, {name}": (step(make), examples)
    for way, step in WAYS.items()
    for name, (make, examples) in NETWORKS.items()
    if way != "Opacus" or name in ("residual", "text")  # the others are in test_replay.py
}
OTHERS: dict[str, tuple[Make, tuple[Tensor, Tensor]]] = {
    "jax-privacy": (by_jax_privacy, data(8)),
    "ours, at once": (ours(network, at_once=3), data(8)),
    "ours, in place of backward": (in_place_of_backward, data(8)),
    "ours, a large batch": (ours(network), data(64)),
}
STEPS |= OTHERS | {f"jax, {name}": (in_jax(name), NETWORKS[name][1]) for name in ("dense", "images", "text")}


def test_they_are_fifty_with_those_of_every_run() -> None:
    assert len(STEPS) + len(RIGHT) == 50


@pytest.mark.parametrize("name", STEPS)
def test_a_right_step_has_no_violation(name: str) -> None:
    make, examples = STEPS[name]
    replayed = dprepro.replay(make, *examples, **CLAIMS)
    assert replayed.violations == ()
    assert replayed.sensitivity_of_all == pytest.approx(replayed.sensitivity_allowed, rel=0.5)
    assert replayed.noise == pytest.approx(dict.fromkeys(replayed.noise, NOISE), rel=0.5)
