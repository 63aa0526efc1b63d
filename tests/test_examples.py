"""The algorithms by hand, one page each: every page's step is the engine's, and every page runs."""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dprepro.accountants.calibration import noise_for, poisson_gaussian
from dprepro.accountants.pld import pld_epsilon
from dprepro.clipping.normalization import BatchStatistics
from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.base import Execution, Relevances, Task, as_input
from dprepro.pipeline.methods.batch_clipping.settings import BatchClippingSettings
from dprepro.pipeline.methods.laplace.settings import AdlmSettings
from dprepro.pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from dprepro.pipeline.methods.tan.settings import TanSettings
from dprepro.pipeline.models.model import Model
from tests.conftest import dpsgd
from tests.methods.conftest import build

EXAMPLES = Path(__file__).parents[1] / "examples"
PAGES = sorted(EXAMPLES.glob("*_by_hand.py"))
STEP = 3  # of the engine that is compared
N, BATCH, CLASSES = 200, 20, 10


def page(name: str) -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def size(tensors: dict[str, Tensor]) -> int:
    return sum(value.numel() for value in tensors.values())


def examples(task: Task, chosen: Tensor) -> tuple[Tensor, Tensor]:
    return as_input(task.inputs[chosen]), task.labels[chosen]


def assert_alike(actual: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 1e-6) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-4, atol=atol)


def test_dpsgd_is_the_engines(tiny: Prepared, cpu: Execution) -> None:
    configured = dpsgd(clip=0.4, learning_rate=0.3)
    method = build(tiny, Model(name="lenet5"), configured, how=cpu)
    before, task = method.init()["parameters"], method.task
    sigma = noise_for(configured.epsilon, configured.delta, 0.1, configured.total_steps(N), "rdp")
    expected = page("dpsgd_by_hand").private_step(
        task.net, before, *examples(task, torch.from_numpy(task.streams.poisson(STEP, N, 0.1))),
        clip=0.4, sigma=sigma, batch=BATCH, rate=0.3, noise=task.streams.normal(STEP, size(before)),
    )  # fmt: skip
    assert_alike(method.step(method.init(), STEP)[0]["parameters"], expected)


def test_batch_clipping_is_the_engines(tiny: Prepared, cpu: Execution) -> None:
    by_hand = page("batch_clipping_by_hand")
    torch.manual_seed(0)
    net = by_hand.network()
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    theirs = nn.Sequential(
        *(
            BatchStatistics(len(layer.weight), 1e-5) if isinstance(layer, by_hand.BatchNorm) else layer
            for layer in by_hand.network()
        )
    )
    configured = BatchClippingSettings(
        batch=12, epochs=0.5, learning_rate=0.3, clipping="adaptive", clip=0.05, sigma=0.5, delta=1e-3
    )
    method: Any = build(
        tiny, Model(name="lenet5", normalization="batch_bn"), configured, how=cpu,
        net=theirs, parameters=parameters,
    )  # fmt: skip
    method.views.scale = None  # the page takes pixels in [0, 1]
    task = method.task
    public = as_input(task.public), task.public_labels
    bounds = by_hand.layer_bounds(net, parameters, *public, 0.05)
    state = method.init()
    state |= method.new_bounds(state, 0)
    torch.testing.assert_close(state["bounds"]["limits"], bounds, rtol=1e-4, atol=1e-7)
    expected = by_hand.private_step(
        net, parameters, *examples(task, task.streams.fixed(STEP, N, 12)),
        bounds=bounds, sigma=0.5, rate=0.3, noise=task.streams.normal(STEP, size(parameters)),
    )  # fmt: skip
    after = method.step(state, STEP)[0]
    assert_alike(after["parameters"], expected, atol=1e-5)
    # at test by the statistics of public images
    by_hand.fix_statistics(net, expected, public[0])
    images = torch.from_numpy(tiny.splits["test"].inputs)
    logits = method.logits(method.network(method.model(after), 0), images)
    torch.testing.assert_close(
        logits, torch.func.functional_call(net, expected, (as_input(images),)), rtol=1e-3, atol=1e-3
    )


def test_noisy_weights_are_the_engines(tiny: Prepared, cpu: Execution) -> None:
    by_hand = page("noisy_weights_by_hand")
    configured = NoisyWeightsSettings(batch=BATCH, epochs=1, learning_rate=0.01, sigma=0.5)
    method = build(tiny, Model(name="lenet5", normalization="layer"), configured, how=cpu)
    state, task = method.init(), method.task
    means = state["parameters"]
    moments = state["first_moment"], state["second_moment"]
    noisy = sum(value.numel() for value in means.values() if value.dim() > 1)
    for number in range(2):
        means, moments = by_hand.step(
            task.net, means, moments, *examples(task, task.streams.shuffled(number, N, BATCH)),
            sigma=0.5, rate=0.01, number=number, noise=task.streams.normal(number, noisy),
        )  # fmt: skip
        state, _ = method.step(state, number)
    # Adam divides by the gradient's size, so that of the smallest it is rounding that shows
    assert_alike(state["parameters"], means, atol=1e-4)


def test_tan_is_the_engines(tiny: Prepared, cpu: Execution) -> None:
    by_hand, copies = page("tan_by_hand"), 2
    configured = TanSettings(
        batch=BATCH, steps=10, sigma=1.5, clip=0.4, learning_rate=0.5, delta=1e-3,
        copies=copies, augment="crop_flip",
    )  # fmt: skip
    # a pool over equal pixels of a crop's border takes one by rounding: the reference takes the page's
    how = replace(cpu, reference=True)
    method: Any = build(tiny, Model(name="lenet5", normalization="layer"), configured, how=how)
    method.views.scale = None  # the page takes pixels in [0, 1]
    task, before = method.task, method.init()["parameters"]
    chosen = torch.from_numpy(task.streams.poisson(STEP, N, 0.1))
    images, labels = examples(task, chosen)
    draws = task.streams.uniform(STEP, len(chosen) * copies * 3, "augment").reshape(len(chosen), copies, 3)
    cropped = [
        torch.stack([by_hand.crop_flip(image, numbers) for numbers in own])
        for image, own in zip(images, draws, strict=True)
    ]
    parameters, average = by_hand.private_step(
        task.net, before, before, torch.stack(cropped), labels, step=STEP, clip=0.4, sigma=1.5,
        batch=BATCH, rate=0.5, decay=0.9999, noise=task.streams.normal(STEP, size(before)),
    )  # fmt: skip
    after, _ = method.step(method.init(), STEP)
    assert_alike(after["parameters"], parameters)
    assert_alike(after["average"], average)


def test_adlm_is_the_engines_and_spends_what_the_page_says(tiny: Prepared, cpu: Execution) -> None:
    by_hand, features = page("adlm_by_hand"), 784
    configured = AdlmSettings(
        batch=BATCH, epochs=1, learning_rate=0.1, epsilon=2000, optimizer="sgd", variant="paper",
        sensitivity="maps",
    )  # fmt: skip
    relevances = torch.linspace(0.2, 0.6, features, dtype=torch.double)
    method: Any = build(
        tiny, Model(name="adlm_cnn", normalization="response"), configured, how=cpu,
        relevance=Relevances(relevances.reshape(1, 28, 28), N, informed=False),
    )  # fmt: skip
    task, streams = method.task, method.task.streams

    def noise(purpose: str, *shape: int) -> Tensor:
        return streams.laplace(0, int(np.prod(shape)), purpose).reshape(shape)

    # a quarter, a quarter and a half of epsilon
    beta = by_hand.ratios(relevances.float(), noise("relevance", features), N, 500)
    torch.testing.assert_close(method.ratios, beta, rtol=1e-4, atol=1e-6)
    scales = by_hand.input_scale(features, BATCH, 500), by_hand.loss_scale(BATCH, 1000)
    noises = {name: noise(name, N, CLASSES) for name in ("first", "second")}
    released = by_hand.release(
        as_input(task.inputs), task.labels, beta, scales, {"inputs": noise("inputs", N, features), **noises}
    )
    for name, value in released.items():
        torch.testing.assert_close(getattr(method.release, name), value, rtol=1e-4, atol=1e-5)
    batch = {name: value[streams.shuffled(STEP, N, BATCH)] for name, value in released.items()}
    bias = 1 + scales[0] * noise("bias", 1)[0]
    expected = by_hand.step(task.net, method.init()["parameters"], batch, bias, 0.1)
    assert_alike(method.step(method.init(), STEP)[0]["parameters"], expected, atol=1e-5)
    spent = {part.quantity: part.epsilon for part in method.guarantee().spending.laplace}
    assert spent["inputs"] == pytest.approx((beta / scales[0]).sum().item(), rel=1e-4)
    assert spent["labels"] == pytest.approx(2 / scales[1], rel=1e-4)
    assert spent["relevances"] == pytest.approx(500 / 2)


SHORT: dict[str, dict[str, object]] = {
    "adlm_by_hand": {"BATCH": 50},
    "batch_clipping_by_hand": {"BATCH": 20, "EPOCHS": 1},
    "dpsgd_by_hand": {"BATCH": 20, "EPOCHS": 1},
    "noisy_weights_by_hand": {"BATCH": 50, "EPOCHS": 1, "DRAWS": 2},
    "tan_by_hand": {"BATCH": 32, "STEPS": 3},
}


@pytest.mark.parametrize("name", [path.stem for path in PAGES])
def test_a_page_trains_and_prints(
    name: str, tiny: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, split in tiny.splits.items():
        np.save(tmp_path / f"{part}.inputs.npy", split.inputs)
        np.save(tmp_path / f"{part}.labels.npy", split.labels)
    module = page(name)
    for constant, value in SHORT[name].items():
        assert hasattr(module, constant)
        setattr(module, constant, value)
    module.main(tmp_path)
    printed = capsys.readouterr().out
    assert "test accuracy" in printed
    if name == "dpsgd_by_hand":
        event = poisson_gaussian(0.1, 0.9, 10)
        assert f"epsilon <= {pld_epsilon(event, 1e-5):.2f}" in printed


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_short_and_takes_nothing_from_here(path: Path) -> None:
    lines: Sequence[str] = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert not [line for line in lines if line.startswith(("import dprepro", "from dprepro"))]
