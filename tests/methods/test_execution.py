"""How steps are computed never changes a result but by rounding, for every method."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.laplace.settings import IlmSettings
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.models.model import Model
from tests.conftest import dpsgd
from tests.methods.conftest import CPU, LENET, batch_clipping, build, flat, noisy, tan

MODES = [CPU, replace(CPU, physical=7), replace(CPU, reference=True)]
TANH = Model(name="lenet5_tanh")
TANH_BN = Model(name="lenet5_tanh", normalization="batch_bn", unnormalized=2)
GROUPED = Model(name="lenet5", normalization="group", groups=2)
COPIES: dict[str, Any] = {"copies": 3, "augment": "crop_flip"}
ADAM: dict[str, Any] = {**COPIES, "optimizer": "adam", "weight_decay": 0.01}
DPSGD = dpsgd(momentum=0.5, epsilon=7, clip=0.5)
NOISY = noisy(sigma=1, learning_rate=0.1)
ILM = {"batch": 20, "epochs": 0.3, "optimizer": "sgd", "variant": "paper", "sensitivity": 9800.0}
# much noise makes trainings overflow
QUIET = {"epsilon": 8.0, "learning_rate": 0.1}


class Case(NamedTuple):
    model: Model
    settings: MethodSettings
    steps: int = 2
    rtol: float = 1e-4
    atol: float = 1e-5
    groups: tuple[str, ...] = ()  # of the state; (): the model


def clipped(model: Model, **changes: Any) -> Case:
    """Batch norm over a few examples multiplies rounding errors, and so does every step."""
    return Case(model, batch_clipping(**changes), steps=3, rtol=1e-3, atol=1e-4)


def on_weights(normalization: str) -> Case:
    """Without parameters, because Adam makes whole steps of rounding errors in a gradient of zero."""
    model = Model(name="lenet5", normalization=normalization)
    return Case(model, NOISY, 1, 1e-3, 1e-4, groups=("first_moment", "running"))


CASES = {
    **{
        f"dpsgd, {kind}": Case(Model(name="lenet5", normalization=kind, epsilon=0.1), DPSGD)
        for kind in ("none", "group", "public_bn", "batch_bn")
    },
    "tan": Case(GROUPED, tan()),
    "tan, copies": Case(GROUPED, tan(**COPIES)),
    # Adam divides by the gradient's own size, which makes rounding of tiny entries large
    "tan, Adam": Case(GROUPED, tan(**ADAM), atol=2e-2),
    "batches": clipped(TANH_BN),
    "augmented mini-sets": clipped(TANH_BN, mini_set=4, augment="crop_flip"),
    "mini-sets": clipped(TANH_BN, clipping="full", mini_set=6, sampling="replacement"),
    "zhang": clipped(TANH, clipping="zhang"),
    "running averages": clipped(TANH_BN, statistics="running"),
    "single examples": clipped(TANH, mini_set=1, sampling="poisson"),
    "noisy weights": on_weights("none"),
    "noisy weights, running_bn": on_weights("running_bn"),
    "ilm": Case(
        Model(name="adlm_cnn", normalization="response"),
        IlmSettings.model_validate({**ILM, **QUIET}),
        *(1, 1e-3, 1e-3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_how_it_is_computed_never_changes_the_result(tiny: Prepared, name: str) -> None:
    case = CASES[name]
    results, metrics = [], []
    for how in MODES:
        method = build(tiny, case.model, case.settings, how=how)
        state = method.init()
        for step in range(case.steps):
            state, noted = method.step(state, step)
        groups = [state[group] for group in case.groups] or [method.model(state)]
        results.append(torch.cat([flat(group) for group in groups if group]))
        metrics.append(torch.stack(list(noted.values())))
    for result, noted in zip(results[1:], metrics[1:], strict=True):
        torch.testing.assert_close(result, results[0], rtol=case.rtol, atol=case.atol)
        torch.testing.assert_close(noted, metrics[0], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (LENET, dpsgd(epsilon=8, clip=0.5)),
        (GROUPED, tan(sigma=2.5, clip=3.0)),
        (TANH, batch_clipping()),
        (TANH, batch_clipping(sampling="poisson", mini_set=1)),
        (TANH_BN, batch_clipping(clipping="full", mini_set=3)),
    ],
)
def test_the_guarantee_is_of_the_noise_that_is_added(
    tiny: Prepared, model: Model, settings: MethodSettings
) -> None:
    """Noise of each part's bound, times the distance, the multiplier and the root of the parts."""
    method = build(tiny, model, settings)
    bounds = method.clip_limits
    if settings.method == "batch_clipping":
        bounds = type(bounds)(**method.new_bounds(method.init(), 0)["bounds"])
    limits = bounds.members @ bounds.limits
    scale = settings.distance * len(bounds.limits) ** 0.5 * method.guarantee().spending.noise_multiplier
    torch.testing.assert_close(method.mechanism.deviations(bounds), scale * limits)
