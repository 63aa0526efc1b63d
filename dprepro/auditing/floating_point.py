"""Attack on floating-point arithmetic: some floats can't come from the sampler's noise alone.

Proofs of privacy add real numbers. A float32 Gaussian of numpy is an integer below 2^23 times one of 256
constants (the layers of its ziggurat, without the tail), times its deviation. Many floats are no such
product. A release with one of these floats contains more than noise (Mironov 2012; Jin et al. 2022). The
attacker knows what all other examples add to a coordinate, here nothing, and sees one release. A single
impossible number proves that the record is there. Parameters after a step are rounded again, so the attack
works on them only if they begin at 0, where they equal the release. For grid noise, a number off the grid
proves that the record is there.
"""

from math import erfc, exp, log, pi, sqrt

import numpy as np
import torch

from dprepro.auditing.epsilon_bounds import ErrorCounts
from dprepro.clipping.limits import ClipLimits
from dprepro.fields import Noise
from dprepro.noise.mechanisms import GaussianMechanism
from dprepro.noise.streams import Streams

COORDINATES, RELEASES = 10_000, 2  # coordinates of a release; releases with the record, and as many without
TAIL, LAYERS, BITS = 3.6541528853610088, 256, 23  # of numpy's ziggurat for float32
NEAR = 2  # floats on either side of a quotient that are also tried


def attack_floating_point(
    mechanism: GaussianMechanism, clip: float, name: str, noise: Noise = "grid", releases: int = RELEASES
) -> ErrorCounts:
    """Errors of the attack, counted over the coordinates of releases with and without a record.

    The record's clipped gradient has length ``clip`` and equal coordinates.
    """
    streams = Streams(f"{name}/floating_point", True, torch.device("cpu"), noise)
    bounds = ClipLimits.whole(torch.tensor(clip), 1)
    deviation = mechanism.deviations(bounds).numpy()[0]
    spacing = mechanism.spacings(bounds, COORDINATES).numpy()

    def seen(added: float, first: int) -> int:
        sums = torch.full((COORDINATES,), added)
        released = [
            mechanism.release({"sum": sums}, bounds, streams, first + release)["sum"].numpy()
            for release in range(releases)
        ]
        numbers = np.concatenate(released)
        alarms = off_grid(numbers, spacing) if noise == "grid" else impossible(numbers, deviation)
        return int(alarms.sum())

    count = releases * COORDINATES
    return ErrorCounts(seen(0.0, 0), count, count - seen(clip / COORDINATES**0.5, releases), count)


def impossible(released: np.ndarray, deviation: np.float32) -> np.ndarray:
    """(N,) mask, True where a float32 number can't be ``deviation`` times a draw of the Gaussian sampler."""
    middle = (released / np.float64(deviation)).astype(np.float32)
    made = (np.abs(middle) > (1 - 1e-6) * TAIL) | (released == 0)
    for apart in range(-NEAR, NEAR + 1):
        draws = (middle.view(np.int32) + apart).view(np.float32)
        fits = ~made & (deviation * draws == released)
        made[fits] = drawable(draws[fits])
    return np.asarray(~made)


def off_grid(released: np.ndarray, spacings: np.ndarray) -> np.ndarray:
    """Mask, True where a float32 number isn't a multiple of its grid's spacing, rounded to float32."""
    return np.asarray((np.rint(released / spacings) * spacings).astype(np.float32) != released)


def drawable(draws: np.ndarray) -> np.ndarray:
    """(N,) mask, True where the layers of numpy's ziggurat, without its tail, can give the float32 number."""
    sizes, factors = np.abs(draws)[:, None], ziggurat()
    integers = np.rint(sizes / factors.astype(np.float64)).clip(0, 2**BITS - 1).astype(np.float32)
    return np.asarray((integers * factors == sizes).any(1))


def ziggurat() -> np.ndarray:
    """(256,) float32 factors of the ziggurat's layers, which have equal areas (Marsaglia and Tsang 2000)."""

    def density(at: float) -> float:
        return exp(-at * at / 2)

    area = TAIL * density(TAIL) + sqrt(pi / 2) * erfc(TAIL / sqrt(2))
    edges = [area / density(TAIL), TAIL]
    while len(edges) < LAYERS:
        edges.append(sqrt(-2 * log(area / edges[-1] + density(edges[-1]))))
    return (np.array(edges) / 2**BITS).astype(np.float32)


def impossible_on_white(released: np.ndarray) -> np.ndarray:
    """Mask, True where a float32 number can't be the sum of a white pixel (1) and float32 noise.

    Near 0 such sums have fewer bits than other numbers.
    """
    noise = released - np.float32(1)
    return np.asarray(np.float32(1) + noise != released)
