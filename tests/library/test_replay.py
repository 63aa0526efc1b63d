"""Replay of right steps and of steps with a planted mistake, by hand, with Opacus and with jax."""

import random
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional as F

import dprepro
from dprepro.auditing.replay import Violation, _line
from tests.docs.blocks import blocks

CLIP, NOISE, EXPECTED, BATCH, WIDTH, CLASSES = 1.0, 1.1, 64, 8, 20, 3
CLAIMS: dict[str, Any] = {"clip": CLIP, "noise_multiplier": NOISE, "expected_batch_size": EXPECTED}
ADAPTIVE: dict[str, Any] = {
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 1.0,
    "max_clipbound": 9.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 5.0,
}
LIMIT = 60.0  # seconds of processor time for a replay, which takes two
Make = Callable[[], Callable[..., Any]]
Sums = dict[str, Tensor]


def data(size: int = BATCH, *shape: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(size, *(shape or (WIDTH,)), generator=generator)
    return inputs, torch.randint(CLASSES, (size,), generator=generator)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def gradients(net: nn.Module, inputs: Tensor, labels: Tensor) -> list[Sums]:
    """Gradients of single examples' losses, which the batch's other examples may be in."""
    losses = F.cross_entropy(net(inputs), labels, reduction="none")
    names, weights = zip(*net.named_parameters(), strict=True)
    each = torch.autograd.grad(losses, weights, torch.eye(len(losses)), is_grads_batched=True)
    return [dict(zip(names, gradient, strict=True)) for gradient in zip(*each, strict=True)]


def clipped(gradient: Sums, clip: float = CLIP) -> Sums:
    norm = torch.cat([value.flatten() for value in gradient.values()]).norm()
    factor = (clip / norm.clamp_min(1e-9)).clamp(max=1)
    return {name: value * factor for name, value in gradient.items()}


def unclipped(gradient: Sums) -> Sums:
    return gradient


def each_clipped(gradient: Sums) -> Sums:
    return {name: clipped({name: value})[name] for name, value in gradient.items()}


def summed(parts: list[Sums]) -> Sums:
    return {name: torch.stack([part[name] for part in parts]).sum(0) for name in parts[0]}


def noisy(sums: Sums) -> Sums:
    return {name: value + NOISE * CLIP * torch.randn_like(value) for name, value in sums.items()}


def mean(sums: Sums, divisor: float = EXPECTED) -> Sums:
    return {name: value / divisor for name, value in sums.items()}


def by_hand(
    net: Callable[[], nn.Module] = network,
    prepare: Callable[[Tensor], Tensor] = lambda inputs: inputs,
    clip: Callable[[Sums], Sums] = clipped,
    total: Callable[[list[Sums]], Sums] = summed,
    noise: Callable[[Sums], Sums] = noisy,
    divide: Callable[[Sums, Tensor], dict[str, Any]] = lambda sums, inputs: mean(sums),
) -> Make:
    """A step whose parts can be changed."""

    def train_step() -> Callable[[Tensor, Tensor], dict[str, Any]]:
        made = net()

        def step(inputs: Tensor, labels: Tensor) -> dict[str, Any]:
            parts = [clip(gradient) for gradient in gradients(made, prepare(inputs), labels)]
            return divide(noise(total(parts)), inputs)

        return step

    return train_step


def with_opacus(
    net: Callable[[], nn.Module] = network,
    change: Callable[[DPOptimizer], None] = lambda optimizer: None,
    after: Callable[[nn.Module, list[Tensor]], None] = lambda net, raw: None,
    zero: bool | None = None,
    alone: bool = False,
    reduction: str = "mean",
    kind: type[DPOptimizer] = DPOptimizer,
    functorch: bool = False,
    **options: Any,
) -> Make:
    """A step of Opacus; ``change`` its optimizer between the backward pass and the step.

    ``after`` it gets the network and its raw gradients; ``zero``: option of a zero_grad behind it.
    """

    def train_step() -> Callable[[Tensor, Tensor], Any]:
        wrapped = GradSampleModule(net(), loss_reduction=reduction, force_functorch=functorch)
        loss = nn.CrossEntropyLoss(reduction=reduction)
        claims = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "expected_batch_size": EXPECTED}
        sgd = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        optimizer = kind(sgd, **(claims | options), loss_reduction=reduction)

        def step(inputs: Tensor, labels: Tensor) -> Any:
            optimizer.zero_grad()
            loss(wrapped(inputs), labels).backward()
            raw = [parameter.grad.clone() for parameter in wrapped.parameters()]
            change(optimizer)
            optimizer.step()
            after(wrapped, raw)
            if zero is not None:
                optimizer.zero_grad(set_to_none=zero)
            return optimizer if alone else (wrapped, optimizer)

        return step

    return train_step


def adding(noise: Callable[[str, Tensor], Tensor]) -> Make:
    """A step that adds something else to the sum of that name."""
    return by_hand(noise=lambda sums: {name: value + noise(name, value) for name, value in sums.items()})


def with_less_noise(on: str, share: float | Tensor) -> Make:
    """A share of the noise, or a share for each entry, on tensors whose name ends so."""
    return adding(lambda name, value: NOISE * torch.randn_like(value) * (share if name.endswith(on) else 1))


SOME = (torch.rand(16, WIDTH, generator=torch.Generator().manual_seed(1)) >= 0.02).float()
ROWS = torch.where(torch.arange(16) < 4, 0.25, 1.0)[:, None]


def the_same(sums: Sums) -> Sums:
    """The same generator, seeded anew for each tensor."""
    seed = int(torch.randint(2**31, ()))
    return {
        name: value + NOISE * torch.randn(value.shape, generator=torch.Generator().manual_seed(seed))
        for name, value in sums.items()
    }


def seeded(name: str, value: Tensor) -> Tensor:
    return NOISE * torch.randn(value.shape, generator=torch.Generator().manual_seed(value.numel()))


def seeding(make: Make, seed: int = 42) -> Callable[..., Any]:
    """A training that first seeds all generators."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    return make()


def by_the_largest(sums: Sums) -> Sums:
    """Noise whose scale follows the sum."""
    norm = torch.stack([value.norm() for value in sums.values()]).norm()
    return {name: value + NOISE * norm / 4 * torch.randn_like(value) for name, value in sums.items()}


def with_reused_noise() -> Callable[..., Any]:
    """Noise that is drawn once for all steps."""
    kept: dict[str, Tensor] = {}
    return adding(lambda name, value: NOISE * kept.setdefault(name, torch.randn_like(value)))()


def after_the_sum(parts: list[Sums]) -> Sums:
    total = summed(parts)
    return {name: 8 * value for name, value in clipped(total).items()}


def sparse(sums: Sums, inputs: Tensor) -> dict[str, Any]:
    """As many rows as the inputs' mean says."""
    released = mean(sums)
    return released | {"0.weight": released["0.weight"][: 1 + int(1e4 * inputs.abs().mean()) % 16]}


def half_precision(sums: Sums, inputs: Tensor) -> dict[str, Any]:
    released = mean(sums)
    return {name: value.double() if len(inputs) % 2 else value for name, value in released.items()}


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES))


class Centred(nn.Module):
    """Subtracts the mean over the batch."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 10 * (inputs - inputs.mean(0))


def rate_by_norm(optimizer: DPOptimizer) -> None:
    norms = torch.stack([sample.flatten(1).norm(dim=1) for sample in optimizer.grad_samples]).norm(dim=0)
    optimizer.param_groups[0]["lr"] = 0.1 / float(norms.max())


def in_place_of_backward(share: float = 1.0) -> Make:
    """A step of `PrivateBackward` with a share of the noise."""

    def train_step() -> Callable[[Tensor, Tensor], nn.Module]:
        net, sampler = network(), dprepro.PoissonSampler(10 * EXPECTED, EXPECTED, 1)
        private_backward = dprepro.PrivateBackward(net, sampler, CLIP, share * NOISE)
        adam = torch.optim.Adam(net.parameters())

        def step(inputs: Tensor, labels: Tensor) -> nn.Module:
            private_backward(inputs, labels)
            adam.step()
            return net

        return step

    return train_step


MISTAKES: dict[str, tuple[Make, str, str]] = {
    "half the noise": (adding(lambda name, value: NOISE / 2 * torch.randn_like(value)), "noise", "all"),
    "half the noise on one tensor": (with_less_noise("2.weight", 0.5), "noise", "2.weight"),
    "no noise on biases": (with_less_noise("bias", 0), "noise", "0.bias"),
    "no noise on 2 %": (with_less_noise("0.weight", SOME), "noise", "0.weight"),
    "a quarter of the noise on a quarter": (with_less_noise("0.weight", ROWS), "uneven", "0.weight"),
    "one number for a tensor": (adding(lambda name, value: NOISE * torch.randn(())), "shared", "0.weight"),
    "the same noise for all tensors": (by_hand(noise=the_same), "shared", "2.weight"),
    "seeded noise": (adding(seeded), "seeded", "0.weight"),
    "a seed in the training": (lambda: seeding(by_hand()), "seeded", "0.weight"),
    "uniform noise": (
        adding(lambda name, value: NOISE * 12**0.5 * (torch.rand_like(value) - 0.5)),
        "distribution", "0.weight",
    ),
    "noise by the sum's norm": (by_hand(noise=by_the_largest), "scale", "all"),
    "noise that comes again": (with_reused_noise, "reused", "0.weight"),
    "no clipping": (by_hand(clip=unclipped), "clipping", "0.weight"),
    "a clip of two": (by_hand(clip=lambda gradient: clipped(gradient, 2.0)), "clipping", "0.weight"),
    "C for each tensor": (by_hand(clip=each_clipped), "layers", "0.weight"),
    "clipping after the sum": (by_hand(clip=unclipped, total=after_the_sum), "sum", "0.weight"),
    "clipping of the sum": (
        by_hand(clip=unclipped, total=lambda parts: clipped(summed(parts))), "sum", "all",
    ),
    "batch norm": (by_hand(net=with_batch_norm), "mixing", "BatchNorm1d (layer 2 of the pass)"),
    "inputs over their largest": (
        by_hand(prepare=lambda x: 9 * x / x.abs().max()), "mixing", "Linear (layer 1 of the pass)",
    ),
    "the true batch size": (by_hand(divide=lambda sums, x: mean(sums, len(x))), "divisor", "all"),
    "division by N": (by_hand(divide=lambda sums, x: mean(sums, 1000)), "divisor", "all"),
    "a number without noise": (
        by_hand(divide=lambda sums, x: mean(sums) | {"mean": float(x.mean())}), "exact", "mean",
    ),
    "a shape by the data": (by_hand(divide=sparse), "shape", "0.weight"),
    "a type by the data": (by_hand(divide=half_precision), "dtype", "0.weight"),
    "Opacus, a clip of two": (
        with_opacus(max_grad_norm=2 * CLIP, noise_multiplier=NOISE / 2), "clipping", "0.weight",
    ),
    "half the noise, in place of backward": (in_place_of_backward(0.5), "noise", "all"),
    "Opacus, a rate by the norms": (with_opacus(change=rate_by_norm), "exact", "learning rate of group 0"),
}  # fmt: skip


# Words of the lines at which some of the mistakes are
AT = {
    "half the noise": "NOISE / 2 * torch.randn_like",
    "a clip of two": "clamp(max=1)",
    "uniform noise": "torch.rand_like",
}


@cache
def replayed(name: str) -> dprepro.Replay:
    """Replay of a mistaken or a right step on flat inputs, once for all tests."""
    make = MISTAKES[name][0] if name in MISTAKES else RIGHT[name][0]
    return dprepro.replay(make, *data(), **CLAIMS)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_named_with_its_tensor_and_place(name: str) -> None:
    _, mistake, tensor = MISTAKES[name]
    begun = time.process_time()
    found = replayed(name).violations
    assert time.process_time() - begun < LIMIT
    places = {(each.name, each.tensor): each.place.rpartition(":") for each in found}
    assert (mistake, tensor) in places, found
    lines = Path(__file__).read_text().splitlines()
    assert {file for file, *_ in places.values()} == {__file__}
    assert all(0 < int(line) <= len(lines) for *_, line in places.values())
    assert AT.get(name, "") in lines[int(places[mistake, tensor][2]) - 1]


def by_size(sums: Sums, inputs: Tensor) -> Sums:
    return mean(sums, len(inputs))


def noise_of_each(parts: list[Sums]) -> Sums:
    return summed([noisy(part) for part in parts])


BY_HAND = by_hand()


def least(size: int, make: Make = BY_HAND) -> Make:
    """A step that takes no smaller batch."""

    def train_step() -> Callable[..., Any]:
        inner = make()

        def step(inputs: Tensor, labels: Tensor) -> Any:
            assert len(inputs) >= size
            return inner(inputs, labels)

        return step

    return train_step


@torch.no_grad()
def move_by_raw(net: nn.Module, raw: list[Tensor]) -> None:
    for parameter, gradient in zip(net.parameters(), raw, strict=True):
        parameter.sub_(0.1 * gradient)


class Shaken(nn.Module):
    """Draws a random number of its own, which all examples share."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * (1 + 0.5 * torch.randn(()))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (with_opacus(net=lambda: nn.Sequential(Centred(), network())), {"mixing"}),
        (with_opacus(zero=True), set()),
        (with_opacus(zero=False), set()),
        (with_opacus(after=move_by_raw, zero=True), {"exact"}),
        (by_hand(clip=unclipped, divide=by_size), {"divisor", "clipping"}),
        (by_hand(clip=each_clipped, divide=by_size), {"divisor", "layers"}),
        (by_hand(net=with_batch_norm, divide=by_size), {"divisor", "mixing"}),
        (by_hand(divide=lambda sums, x: mean(sums, float(x.abs().sum()) / 5)), {"divisor"}),
        (by_hand(total=noise_of_each, noise=lambda sums: sums), {"scale", "noise"}),
        (by_hand(net=lambda: nn.Sequential(Shaken(), network())), set()),
        (least(BATCH), set()),
        (least(6), set()),
        (least(BATCH, by_hand(clip=unclipped)), {"clipping"}),
    ],
)
def test_a_step_of_somebody_elses_code_gets_all_its_names_and_no_other(make: Make, names: set[str]) -> None:
    """Scalar modules, cleared gradients, two mistakes at once, weights as a release, batches of one size."""
    assert {each.name for each in dprepro.replay(make, *data(), **CLAIMS).violations} == names


def under_autocast() -> Callable[[Tensor, Tensor], Any]:
    step = BY_HAND()

    def autocast(inputs: Tensor, labels: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return {name: value.float() for name, value in step(inputs, labels).items()}

    return autocast


def test_a_step_in_half_precision_is_refused_with_its_layer() -> None:
    """Its sums move by more than the bound, by rounding that depends on the batch."""
    with pytest.raises(dprepro.UserError, match=r"the step, layer '0': computes in torch.bfloat16, whose"):
        dprepro.replay(under_autocast, *data(), **CLAIMS)


@pytest.mark.parametrize("mistaken", [False, True])
def test_a_replay_is_shown_with_its_verdict_first(mistaken: bool) -> None:
    found = replayed("no clipping" if mistaken else "by hand")
    first, *others = str(found).splitlines()
    assert repr(found) == str(found)
    assert first.partition(":")[0] == found.verdict == ("wrong" if mistaken else "nothing found")
    assert ("clipping: 0.weight" in first) == mistaken
    assert f"<strong>{found.verdict}</strong>" in found._repr_html_()
    assert len(others) == len(found.violations)


def test_a_slow_step_is_compared_on_fewer_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dprepro.auditing.replay.SECONDS", 2.0)

    def slow() -> Callable[..., Any]:
        inner = by_hand()()

        def step(inputs: Tensor, labels: Tensor) -> Any:
            end = time.process_time() + 0.001 * len(inputs)
            while time.process_time() < end:
                pass
            return inner(inputs, labels)

        return step

    begun = time.process_time()
    with pytest.warns(UserWarning, match="the first 8 of 16 examples are compared"):
        assert not dprepro.replay(slow, *data(16), **CLAIMS).violations
    assert time.process_time() - begun < LIMIT


def test_a_folder_of_the_user_may_have_a_librarys_name() -> None:
    names: dict[str, Any] = {"line": _line}
    exec(compile("def step():\n    return line()", "/home/user/pipeline/train.py", "exec"), names)
    assert names["step"]() == "/home/user/pipeline/train.py:2"


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES)
    )


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.Dropout(0.3), nn.Linear(16, CLASSES))


def with_branches(gradient: Sums) -> Sums:
    """Clipping by a condition on each example alone."""
    norm = float(torch.stack([value.norm() for value in gradient.values()]).norm())
    return {name: value * CLIP / norm for name, value in gradient.items()} if norm > CLIP else gradient


def share_each(gradient: Sums) -> Sums:
    """A share of C for each tensor."""
    root = len(gradient) ** 0.5
    return {name: clipped({name: value}, CLIP / root)[name] for name, value in gradient.items()}


@cache
def tried_network() -> nn.Module:
    """A network that the engine tries once, and that no step changes."""
    return network()


def of_this_engine() -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    net = tried_network()

    def step(inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return mean(noisy(dprepro.clipped_sum(net, inputs, labels, clip=CLIP).sums))

    return step


def with_secret_noise() -> Callable[[Tensor, Tensor], dict[str, Tensor]]:
    net = network()

    def step(inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return mean(dprepro.noisy_sum(net, inputs, labels, clip=CLIP, noise_multiplier=NOISE))

    return step


def with_adam() -> Callable[[Tensor, Tensor], Any]:
    net = network()
    adam = torch.optim.Adam(net.parameters())

    def step(inputs: Tensor, labels: Tensor) -> Any:
        released = mean(noisy(summed([clipped(gradient) for gradient in gradients(net, inputs, labels)])))
        for name, parameter in net.named_parameters():
            parameter.grad = released[name]
        adam.step()
        return net

    return step


def in_numpy() -> Callable[..., dict[str, np.ndarray]]:
    weights = np.random.default_rng(0).normal(size=WIDTH)

    def step(inputs: Tensor, labels: Tensor, seed: int) -> dict[str, np.ndarray]:
        rows, targets = inputs.numpy(), labels.numpy()
        each = (rows @ weights - targets)[:, None] * rows
        each /= np.maximum(1, np.linalg.norm(each, axis=1, keepdims=True) / CLIP)
        noise = NOISE * CLIP * np.random.default_rng(seed).normal(size=WIDTH)
        return {"weights": (each.sum(0) + noise) / EXPECTED}

    return step


@pytest.mark.parametrize("by_name", [True, False])
def test_a_seed_may_be_given_by_name_and_other_options_get_none(by_name: bool) -> None:
    step = in_numpy()

    def named(inputs: Tensor, labels: Tensor, *, seed: int, training: bool = True) -> dict[str, np.ndarray]:
        return step(inputs, labels, seed)

    def drawing(inputs: Tensor, labels: Tensor, **options: Any) -> dict[str, np.ndarray]:
        assert not options
        return step(inputs, labels, np.random.randint(2**31))

    found = dprepro.replay(lambda: named if by_name else drawing, *data(8), **CLAIMS)
    assert found.violations == ()


def in_numpy_with_dropout() -> Callable[..., dict[str, np.ndarray]]:
    """Dropout of a generator of its own: a mask follows its example's position, as by split jax keys."""
    weights = np.random.default_rng(0).normal(size=WIDTH)

    def step(inputs: Tensor, labels: Tensor, seed: int) -> dict[str, np.ndarray]:
        kept = np.random.default_rng([seed, 1]).random((len(inputs), WIDTH)) < 0.5
        rows, targets = 2 * kept * inputs.numpy(), labels.numpy()
        each = (rows @ weights - targets)[:, None] * rows
        each /= np.maximum(1, np.linalg.norm(each, axis=1, keepdims=True) / CLIP)
        noise = NOISE * CLIP * np.random.default_rng([seed, 2]).normal(size=WIDTH)
        return {"weights": (each.sum(0) + noise) / EXPECTED}

    return step


def in_jax() -> Callable[..., dict[str, Any]]:
    weights = jnp.ones(WIDTH)
    slope = jax.vmap(jax.grad(lambda w, row, target: (row @ w - target) ** 2), (None, 0, 0))

    def step(inputs: Tensor, labels: Tensor, seed: int) -> dict[str, Any]:
        each = slope(weights, jnp.asarray(inputs.numpy()), jnp.asarray(labels.numpy()))
        each = each / jnp.maximum(1, jnp.linalg.norm(each, axis=1, keepdims=True) / CLIP)
        noise = NOISE * CLIP * jax.random.normal(jax.random.key(seed), (WIDTH,))
        return {"weights": (each.sum(0) + noise) / EXPECTED}

    return step


def text() -> nn.Module:
    """Embedded tokens, which the inputs name by their size."""

    class Tokens(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return (9 * inputs.abs()).long().clamp(max=29)

    return nn.Sequential(Tokens(), nn.Embedding(30, 4), nn.Flatten(), nn.Linear(4 * WIDTH, CLASSES))


def ghost_clipping() -> Callable[[Tensor, Tensor], Any]:
    wrapped = GradSampleModuleFastGradientClipping(
        network(), max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean"
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


RIGHT: dict[str, tuple[Make, tuple[int, ...]]] = {
    "by hand": (by_hand(), ()),
    "by hand, images": (by_hand(net=images), (1, 8, 8)),
    "by hand, dropout": (by_hand(net=with_dropout), ()),
    "by hand, branches": (by_hand(clip=with_branches), ()),
    "by hand, shares of C": (by_hand(clip=share_each), ()),
    "by hand, Adam": (with_adam, ()),
    "by hand, numpy": (in_numpy, ()),
    "by hand, numpy, dropout": (in_numpy_with_dropout, ()),
    "by hand, jax": (in_jax, ()),
    "this engine": (of_this_engine, ()),
    "this engine, seeded weights and secret noise": (lambda: seeding(with_secret_noise), ()),
    "Opacus": (with_opacus(), ()),
    "Opacus, images": (with_opacus(net=images), (1, 8, 8)),
    "Opacus, dropout": (with_opacus(net=with_dropout), ()),
    "Opacus, functorch": (with_opacus(net=text, functorch=True), ()),
    "Opacus, ghost": (ghost_clipping, ()),
    "this engine, in place of backward": (in_place_of_backward(), ()),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_step_has_no_violation(name: str) -> None:
    """With seeds 1 to 3 none has any either, which takes minutes."""
    make, shape = RIGHT[name]
    found = dprepro.replay(make, *data(8, *shape), **CLAIMS) if shape else replayed(name)
    assert found.violations == ()
    assert found.sensitivity_of_all == pytest.approx(found.sensitivity_allowed, rel=0.5)
    assert found.noise == pytest.approx(dict.fromkeys(found.noise, NOISE), rel=0.5)


def test_dropout_of_a_large_batch_is_not_taken_for_noise() -> None:
    """Its variance counted as noise, and grew with the batch as if by a wrong divisor."""
    assert dprepro.replay(with_opacus(net=with_dropout, noise_multiplier=0.3), *data(128)).violations == ()


@pytest.mark.parametrize(
    ("name", "mistaken"),
    [
        ("noise", by_hand(net=with_dropout, noise=lambda sums: noisy_by(sums, 0.5))),
        ("divisor", by_hand(net=with_dropout, divide=lambda sums, inputs: mean(sums, len(inputs)))),
        ("shared", by_hand(net=with_dropout, noise=lambda sums: noisy_by(sums, 1.0, shared=True))),
    ],
)
def test_beside_dropout_a_mistake_is_seen(name: str, mistaken: Make) -> None:
    found = dprepro.replay(mistaken, *data(64), **CLAIMS).violations
    assert name in {violation.name for violation in found}


def noisy_by(sums: Sums, factor: float, shared: bool = False) -> Sums:
    """Noise of another size, or one number for all entries of a tensor."""
    scale = factor * NOISE * CLIP
    drawn = {name: torch.randn(() if shared else value.shape) for name, value in sums.items()}
    return {name: value + scale * drawn[name] for name, value in sums.items()}


def test_an_opacus_optimizer_of_sums_has_no_divisor() -> None:
    """`expected_batch_size` is ignored with it, so one example seemed to move the sum by 64 bounds."""
    assert dprepro.replay(with_opacus(reduction="sum"), *data()).violations == ()


@pytest.mark.parametrize("kept", ["a buffer", "a tensor"])
def test_large_numbers_without_noise_hide_no_mistake(kept: str) -> None:
    """1e-6 of such numbers' length was allowed as rounding: here 318 clipping bounds."""

    def with_positions(sums: Sums, inputs: Tensor) -> dict[str, Any]:
        name = "buffer positions" if kept == "a buffer" else "positions"
        return {**mean(sums), name: 1e5 * torch.arange(WIDTH)}

    step = by_hand(clip=lambda gradient: clipped(gradient, 2 * CLIP), divide=with_positions)
    found = dprepro.replay(step, *data(), **CLAIMS)
    assert found.sensitivity_of_all == pytest.approx(2, rel=0.01)
    assert "clipping" in {violation.name for violation in found.violations}


def test_claims_of_an_opacus_optimizer_are_read_and_its_parameters_have_numbers() -> None:
    found = dprepro.replay(with_opacus(alone=True), *data())
    assert found.violations == ()
    assert found.noise_declared == NOISE
    assert "group 0, parameter 0" in found.sensitivity


def test_a_violation_names_the_pair_on_which_it_shows() -> None:
    inputs, labels = data()
    (violation,) = replayed("no clipping").violations
    pair = violation.pair
    assert len(pair.batch) == len(pair.neighbour) + 1
    (example,) = set(pair.batch) - set(pair.neighbour)
    torch.manual_seed(0)
    (gradient,) = gradients(network(), pair.factor * inputs[[example]], labels[[example]])
    norm = torch.stack([value.norm() for value in gradient.values()]).norm().item()
    assert violation.measured == pytest.approx(norm, rel=0.5)
    assert str(violation).startswith(f"{violation.place}: clipping: 0.weight: one example moves the sum by ")


def two_networks(both: bool = False) -> Make:
    """An optimizer of two networks, the second without noise; a step returns the first or ``both``."""

    def train_step() -> Callable[[Tensor, Tensor], Any]:
        first, second = GradSampleModule(nn.Linear(WIDTH, 8)), GradSampleModule(nn.Linear(8, CLASSES))
        sgd = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        optimizer = DPOptimizer(sgd, noise_multiplier=NOISE, max_grad_norm=CLIP, expected_batch_size=EXPECTED)

        def step(inputs: Tensor, labels: Tensor) -> Any:
            optimizer.zero_grad()
            F.cross_entropy(second(first(inputs)), labels).backward()
            optimizer.step()
            for parameter in second.parameters():
                parameter.grad = parameter.summed_grad / EXPECTED
            return (first, second, optimizer) if both else (first, optimizer)

        return step

    return train_step


def test_parameters_of_the_optimizer_that_the_module_lacks_are_read() -> None:
    """Only the module's gradients were read, so the other network's had no violation."""
    found = {
        violation.name: violation.tensor for violation in dprepro.replay(two_networks(), *data()).violations
    }
    assert found["exact"].startswith("group 0, parameter ")


@pytest.mark.parametrize(
    ("make", "inputs", "claims", "says"),
    [
        (by_hand(), data()[0][:4], CLAIMS, "inputs: 4, labels: 8; needed: as many of each, at least 8"),
        (by_hand(), data()[0], {}, "clip, expected_batch_size, noise_multiplier: unknown"),
        (lambda: 3, data()[0], CLAIMS, "train_step: returned int; needed: a step"),
        (lambda: lambda inputs, labels: {}, data()[0], CLAIMS, "released no array"),
        (lambda: lambda inputs, labels: [1], data()[0], CLAIMS, "the step returned list"),
        (lambda: lambda *_: {"net": {"w": torch.ones(2)}}, data()[0], CLAIMS, "released net: dict; needed"),
        (lambda: lambda *_: {"w": torch.ones(2).bfloat16()}, data()[0], CLAIMS, "w: torch.bfloat16, whose"),
        (two_networks(both=True), data()[0], {}, "released weight: twice; needed: a name of its own"),
        (lambda: after_zero_grad(), data()[0], CLAIMS, "released no array"),
        (with_opacus(noise_multiplier=0.0), data()[0], {}, "noise_multiplier: 0; allowed: above 0"),
        (with_opacus(kind=AdaClipDPOptimizer, **ADAPTIVE), data()[0], {}, "clip, noise_multiplier: unknown"),
        (by_hand(), data()[0].to_sparse(), CLAIMS, "inputs: torch.sparse_coo; allowed: dense"),
        (
            lambda: lambda *_: {"w": np.random.default_rng().random(9)},
            data()[0],
            CLAIMS,
            "other numbers",
        ),
    ],
)
def test_what_cannot_be_replayed_is_a_line(make: Any, inputs: Any, claims: dict[str, Any], says: str) -> None:
    with pytest.raises(dprepro.UserError, match=says):
        dprepro.replay(make, inputs, data()[1], **claims)


def test_random_numbers_after_a_replay_are_those_without_it() -> None:
    """A private training that followed in the same process drew its noise from a known seed."""

    def state() -> Any:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()

    before = state()
    dprepro.replay(with_opacus(), *data())
    assert state() == before
    with pytest.raises(dprepro.UserError):
        dprepro.replay(with_opacus(noise_multiplier=0.0), *data())
    assert state() == before


def test_more_noise_than_declared_is_a_violation_unless_it_covers_rounding() -> None:
    """With `noisy_sum`, whose noise is .5 % larger, 24,000 weights seemed to have another divisor."""

    def found(factor: float) -> tuple[Violation, ...]:
        def step(inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
            sums = clipped({"w": inputs[:, 0].sum() * torch.ones(30_000)})
            return mean({"w": sums["w"] + factor * NOISE * torch.randn(30_000)})

        return dprepro.replay(lambda: step, torch.zeros(8, 1), torch.zeros(8), **CLAIMS).violations

    assert found(1.005) == ()
    assert {violation.name for violation in found(1.01)} & {"noise", "divisor"}
    assert {violation.name for violation in found(0.99)} & {"noise", "divisor"}


def after_zero_grad() -> Callable[[Tensor, Tensor], Any]:
    net = nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.BatchNorm1d(CLASSES).eval())

    def step(inputs: Tensor, labels: Tensor) -> Any:
        F.cross_entropy(net(inputs), labels).backward()
        net.zero_grad()
        return net

    return step


def test_the_page_runs() -> None:
    scope: dict[str, Any] = {}
    for block in blocks():
        if block.page == "docs/audit-your-model.md":
            exec(block.text, scope)
    names = {(violation.name, violation.tensor) for violation in scope["found"].violations}
    assert {("noise", "0.bias"), ("noise", "2.bias")} <= names
    assert scope["found"].sensitivity_of_all > 1
    assert scope["learnt"].attack.if_gaussian > 3
    assert scope["learnt"].verdict == "wrong"
    assert scope["seen"].verdict == "nothing found"
