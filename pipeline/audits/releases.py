"""Attacks on data that the row's own code released once with Laplace noise (Phan et al. 2017).

``opposites``: a coin decides for each of many examples whether it is black with one class or white with
another; the attacker computes the exact log likelihood ratio of each release. ``shared``: all examples of a
batch have the same noise; the attacker subtracts a known black example from another example, which removes
the noise. ``floating_point``: the attacker looks for pixels that can't be a white pixel with float32 noise,
or with noise on a grid.
"""

from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
import torch

from dprepro.accountants.laplace import Releases
from dprepro.auditing.epsilon_bounds import ErrorCounts
from dprepro.auditing.floating_point import impossible_on_white, off_grid
from dprepro.fields import Noise
from dprepro.noise.mechanisms import laplace_spacings
from dprepro.pipeline.audits import made_up
from dprepro.pipeline.methods.base import Execution, Relevances
from dprepro.pipeline.methods.laplace.perturbed import Perturbed
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.params import Row, Settings
from dprepro.pipeline.training.loop import SeedRun, make_task

EXAMPLES = 6000  # of one release
LARGEST_RELEASE, NUMBERS = 30_000, 3e7  # largest numbers of examples and of pixels of ``floating_point``
PAIRS = 3000  # batches of two examples, with a white example and as many without
CPU = Execution(torch.device("cpu"), physical=4096)


def make_method(
    row: Row, config: MethodSettings, settings: Settings, name: str, labels: np.ndarray, noise: Noise = "grid"
) -> Perturbed:
    """Method of the row on black examples where ``labels`` are 0 and white examples where they are 1."""
    data = made_up.examples(row, settings, len(labels) - 1, made_up.WHITE)
    train = data.splits["train"]
    white = made_up.WHITE if train.inputs.dtype == np.uint8 else 1  # both are 1 as inputs
    train.inputs[labels == 0], train.inputs[labels == 1] = made_up.BLACK, white
    train.labels[:] = labels
    task = make_task(SeedRun(name, 0, config), row.model, True, data, CPU, noise)
    mean = torch.from_numpy(np.random.default_rng(0).random(task.inputs.shape[1:]))
    task = replace(task, relevance=Relevances(mean, len(labels), informed=False))
    method = config.build_method(task, row.model.normalization)
    assert isinstance(method, Perturbed)
    return method


@dataclass(frozen=True)
class ReleaseScores:
    """Scores of black examples and of white ones, and the method that released the examples."""

    without: np.ndarray  # black examples
    within: np.ndarray  # white examples
    method: Perturbed
    # scores of black and of white examples by the labels' coefficients alone
    labels: tuple[np.ndarray, np.ndarray] | None = None


def opposites(
    row: Row,
    config: MethodSettings,
    settings: Settings,
    name: str,
    noise: Noise = "grid",
    examples: int = EXAMPLES,
) -> ReleaseScores:
    """Scores of the attack ``opposites``: log likelihood ratios."""
    white = np.random.default_rng(list(name.encode())).random(examples) < 0.5
    white[-1] = True
    method = make_method(row, config.shortened(examples, 1), settings, name, white.astype(np.int64), noise)
    release = method.release
    inputs = release.inputs.flatten(1).double()
    scales = method.input_scales.double().clamp_min(1e-12)
    scores = ((inputs.abs() - (inputs - 1).abs()) / scales).sum(1)
    scale = float(method.loss_scale) or 1e-12
    # phi^(1) = 1/2 - y: for class 0 it is -1/2 at output 0 and 1/2 at output 1
    first = release.first.double()
    labels = torch.zeros_like(scores)
    for place, black in ((0, -0.5), (1, 0.5)):
        labels = labels + ((first[:, place] - black).abs() - (first[:, place] + black).abs()) / scale
    every, alone = (scores + labels).numpy(), labels.numpy()
    return ReleaseScores(every[~white], every[white], method, (alone[~white], alone[white]))


def floating_point(
    row: Row, config: MethodSettings, settings: Settings, name: str, noise: Noise
) -> ErrorCounts:
    """Errors of the attack ``floating_point``; it calls an example black if a pixel can't come from white."""
    width = int(np.prod(made_up.examples(row, settings, 1, None).input_shape))
    examples = int(min(LARGEST_RELEASE, NUMBERS / width))
    labels = np.arange(examples) % 2
    method = make_method(
        row, config.shortened(examples, 1), settings, f"{name}/floating_point", labels, noise
    )
    pixels = method.release.inputs.flatten(1).numpy()
    if noise == "grid":
        unlike = off_grid(pixels, laplace_spacings(method.input_scales.double().numpy()))
    else:
        unlike = impossible_on_white(pixels)
    black = np.asarray(unlike.any(1))
    alarms, right = int(black[labels == 1].sum()), int(black[labels == 0].sum())
    whites = examples // 2
    return ErrorCounts(alarms, whites, examples - whites - right, examples - whites)


def shared(
    row: Row, config: MethodSettings, settings: Settings, name: str, noise: Noise = "grid", pairs: int = PAIRS
) -> ReleaseScores:
    """Scores of the attack ``shared``: a noisy example minus a noisy black one, averaged over pixels."""
    method = make_method(row, config.shortened(4, 1), settings, name, np.array([0, 0, 0, 1]), noise)
    apart_by_side: list[list[float]] = [[], []]
    for step in range(pairs):
        for white, other in ((0, 1), (1, 3)):
            batch = method._shared_noise_batch(torch.tensor([0, other]), 2 * step + white)
            apart = (batch.inputs[1] - batch.inputs[0]).flatten()
            # a pixel that is clipped in both examples differs by 0
            apart_by_side[white].append(float(apart.mean()))
    return ReleaseScores(np.array(apart_by_side[0]), np.array(apart_by_side[1]), method)


def release_epsilon(method: Perturbed) -> float | None:
    """Accounted epsilon of the inputs and labels of one release; None if no bound is proven."""
    spending = method.guarantee().spending
    assert isinstance(spending, Releases), "audited where there is Laplace noise"
    total = sum(noised.epsilon for noised in spending.laplace if noised.quantity != "relevances")
    return total if isfinite(total) else None
