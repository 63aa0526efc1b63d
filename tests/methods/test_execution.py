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
from tests.methods.conftest import CPU, LENET, batch_clipping, build, noisy, tan

MODES = [
    CPU,
    replace(CPU, replicas_at_once=1, physical=7),
    replace(CPU, replicas_at_once=2, physical=23),
    replace(CPU, reference=True),
]
TANH = Model(name="lenet5_tanh")
TANH_BN = Model(name="lenet5_tanh", normalization="batch_bn", unnormalized=2)
GROUPED = Model(name="lenet5", normalization="group", groups=2)
COPIES: dict[str, Any] = {"copies": 3, "augment": "crop_flip"}
ADAM: dict[str, Any] = {**COPIES, "optimizer": "adam", "weight_decay": 0.01}
DPSGD = (dpsgd(), dpsgd(epsilon=7, clip=0.5, learning_rate=0.1), dpsgd(momentum=0.5, epsilon=1))
NOISY = (noisy(), noisy(sigma=1, learning_rate=0.1, averaging=0.5), noisy(sigma=0))
ILM = {"batch": 20, "epochs": 0.3, "optimizer": "sgd", "variant": "paper", "sensitivity": 9800.0}
# much noise makes trainings overflow
QUIET = {"epsilon": 8.0, "learning_rate": 0.1}, {"epsilon": 16.0, "learning_rate": 0.2}


class Case(NamedTuple):
    model: Model
    settings: tuple[MethodSettings, ...]
    steps: int = 2
    rtol: float = 1e-4
    atol: float = 1e-5
    groups: tuple[str, ...] = ()  # of the state; (): the model


def averaged(**changes: Any) -> tuple[MethodSettings, ...]:
    return tan(**changes), tan(sigma=0.5, clip=1.0, learning_rate=0.1, ema=0.5, **changes)


def clipped(model: Model, **changes: Any) -> Case:
    """Batch norm over a few examples multiplies rounding errors, and so does every step."""
    settings = batch_clipping(**changes), batch_clipping(**changes, sigma=1.0, clip=0.1, learning_rate=0.1)
    return Case(model, settings, steps=3, rtol=1e-3, atol=1e-4)


def on_weights(normalization: str) -> Case:
    """Without parameters, because Adam makes whole steps of rounding errors in a gradient of zero."""
    model = Model(name="lenet5", normalization=normalization)
    return Case(model, NOISY, 1, 1e-3, 1e-4, groups=("first_moment", "running"))


CASES = {
    **{
        f"dpsgd, {kind}": Case(Model(name="lenet5", normalization=kind, epsilon=0.1), DPSGD)
        for kind in ("none", "group", "public_bn", "batch_bn")
    },
    "tan": Case(GROUPED, averaged()),
    "tan, copies": Case(GROUPED, averaged(**COPIES)),
    # Adam divides by the gradient's own size, which makes rounding of tiny entries large
    "tan, Adam": Case(GROUPED, averaged(**ADAM), atol=2e-2),
    "batches": clipped(TANH_BN),
    "random mini-sets": clipped(TANH_BN, mini_set=4, sampling="poisson", augment="crop_flip"),
    "mini-sets": clipped(TANH_BN, clipping="full", mini_set=6, sampling="replacement"),
    "zhang": clipped(TANH, clipping="zhang"),
    "running averages": clipped(TANH_BN, statistics="running"),
    "single examples": clipped(TANH, mini_set=1, sampling="poisson"),
    "noisy weights": on_weights("none"),
    "noisy weights, running_bn": on_weights("running_bn"),
    "ilm": Case(
        Model(name="adlm_cnn", normalization="response"),
        tuple(IlmSettings.model_validate({**ILM, **own}) for own in QUIET),
        *(1, 1e-3, 1e-3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_how_it_is_computed_never_changes_the_result(tiny: Prepared, name: str) -> None:
    case = CASES[name]
    results, metrics = [], []
    for how in MODES:
        method = build(tiny, case.model, *case.settings, how=how)
        state = method.init()
        for step in range(case.steps):
            state, noted = method.step(state, step)
        groups = [state[group] for group in case.groups] or [method.model(state)]
        tensors = [value for group in groups for value in group.values()]
        results.append(torch.cat([value.reshape(len(value), -1) for value in tensors], 1))
        metrics.append(torch.stack(list(noted.values())))
    for result, noted in zip(results[1:], metrics[1:], strict=True):
        torch.testing.assert_close(result, results[0], rtol=case.rtol, atol=case.atol)
        torch.testing.assert_close(noted, metrics[0], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (LENET, (dpsgd(), dpsgd(epsilon=8, clip=0.5))),
        (GROUPED, (tan(sigma=2.5, clip=3.0),)),
        (TANH, (batch_clipping(),)),
        (TANH, (batch_clipping(sampling="poisson", mini_set=1),)),
        (TANH_BN, (batch_clipping(clipping="full", mini_set=3),)),
    ],
)
def test_the_guarantee_is_of_the_noise_that_is_added(
    tiny: Prepared, model: Model, settings: tuple[MethodSettings, ...]
) -> None:
    """Noise of each part's bound, times the distance, the multiplier and the root of the parts."""
    method = build(tiny, model, *settings)
    state = method.init()
    bounds = method.bounds(method.clips)
    if settings[0].method == "batch_clipping":
        bounds = type(bounds)(**method.new_bounds(state, 0)["bounds"])
    expected = torch.tensor(
        [method.guarantee(replica).spending.noise_multiplier for replica in range(len(settings))]
    )
    limits = (bounds.members @ bounds.limits[..., None])[..., 0]
    scale = settings[0].distance * bounds.limits.shape[-1] ** 0.5
    torch.testing.assert_close(method.mechanism.deviations(bounds), scale * expected[:, None] * limits)
