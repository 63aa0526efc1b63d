"""The attack on arithmetic: which floats a sampler can make tells what was released from noise alone.

A proof of privacy adds a real number to a real number. A float32 Gaussian of numpy's is an integer below
2^23 times one of 256 constants (its ziggurat's layers, the tail aside), and then times its deviation, which
leaves out floats as well; so that of noise alone every number is such a product, and of noise that something
was added to many aren't (Mironov 2012; Jin et al. 2022). The attacker knows what all others add to a
coordinate, here nothing, sees one release, and needs no statistics: a single number that the sampler can't
make means that the record is there. What becomes of a release, such as parameters after a step, is rounded
again: where they begin at 0 they are the release itself, and elsewhere they are not attacked. Of noise on a
grid he knows the grid, and a number off it means that the record is there.
"""

from math import erfc, exp, log, pi, sqrt

import numpy as np
import torch

from pipeline.audits import canaries
from pipeline.audits.bounds import Errors
from pipeline.audits.mechanism import gaussian_of, plain
from pipeline.methods.registry import build_method
from pipeline.methods.settings import MethodSettings
from pipeline.privacy.gradients import Bounds
from pipeline.privacy.mechanisms import GaussianMechanism
from pipeline.privacy.parameters import Noise
from pipeline.privacy.randomness import Streams

COORDINATES, RELEASES = 10_000, 2  # of a release, and on either side
TAIL, LAYERS, BITS = 3.6541528853610088, 256, 23  # of numpy's ziggurat for float32
NEAR = 2  # floats beside a quotient that may have given it


def mechanism_of(config: MethodSettings, examples: int, name: str) -> GaussianMechanism:
    """The row's own, on as many examples as the row has."""
    kinds = canaries.many(examples, 1, torch.ones(1, dtype=torch.bool))
    method = build_method(config.method, canaries.task(kinds, [name], 1), [plain(config)], "none")
    return gaussian_of(method)


def audit(
    mechanism: GaussianMechanism, clip: float, name: str, noise: Noise = "grid", releases: int = RELEASES
) -> Errors:
    """Of coordinates of releases without a record and with it, those called wrongly.

    The record's clipped gradient is as long as ``clip`` and the same in every coordinate.
    """
    streams = Streams([f"{name}/floating_point"], True, torch.device("cpu"), noise)
    bounds = Bounds(*(part[None] for part in Bounds.whole(torch.tensor(clip), 1)))
    deviation = mechanism.deviations(bounds).numpy()[0, 0]
    spacing = mechanism.spacings(bounds, COORDINATES).numpy()[0]

    def seen(added: float, first: int) -> int:
        sums = torch.full((1, COORDINATES), added)
        released = [
            mechanism.release({"sum": sums}, bounds, streams, first + release)["sum"].numpy()[0]
            for release in range(releases)
        ]
        numbers = np.concatenate(released)
        alarms = off_grid(numbers, spacing) if noise == "grid" else impossible(numbers, deviation)
        return int(alarms.sum())

    count = releases * COORDINATES
    return Errors(seen(0.0, 0), count, count - seen(clip / COORDINATES**0.5, releases), count)


def impossible(released: np.ndarray, deviation: np.float32) -> np.ndarray:
    """(N,) whether no number that the Gaussian sampler makes gives a float32, times ``deviation``."""
    middle = (released / np.float64(deviation)).astype(np.float32)
    made = (np.abs(middle) > (1 - 1e-6) * TAIL) | (released == 0)
    for apart in range(-NEAR, NEAR + 1):
        draws = (middle.view(np.int32) + apart).view(np.float32)
        fits = ~made & (deviation * draws == released)
        made[fits] = drawable(draws[fits])
    return np.asarray(~made)


def off_grid(released: np.ndarray, spacings: np.ndarray) -> np.ndarray:
    """Whether a float32 is no multiple of its spacing, rounded."""
    return np.asarray((np.rint(released / spacings) * spacings).astype(np.float32) != released)


def drawable(draws: np.ndarray) -> np.ndarray:
    """(N,) whether numpy's ziggurat makes each float32, its tail aside."""
    sizes, factors = np.abs(draws)[:, None], ziggurat()
    integers = np.rint(sizes / factors.astype(np.float64)).clip(0, 2**BITS - 1).astype(np.float32)
    return np.asarray((integers * factors == sizes).any(1))


def ziggurat() -> np.ndarray:
    """(256,) float32 factors of the layers (Marsaglia and Tsang 2000): each has the same area."""

    def density(at: float) -> float:
        return exp(-at * at / 2)

    area = TAIL * density(TAIL) + sqrt(pi / 2) * erfc(TAIL / sqrt(2))
    edges = [area / density(TAIL), TAIL]
    while len(edges) < LAYERS:
        edges.append(sqrt(-2 * log(area / edges[-1] + density(edges[-1]))))
    return (np.array(edges) / 2**BITS).astype(np.float32)


def unlike_white(released: np.ndarray) -> np.ndarray:
    """Whether no float32 noise added to 1, a white pixel, gives a float32: near 0 the sum has fewer bits."""
    noise = released - np.float32(1)
    return np.asarray(np.float32(1) + noise != released)
