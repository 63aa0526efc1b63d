"""Fingerprint of a network's frozen tensors: parameters without a gradient, and buffers.

A model's `build` may load frozen tensors from a file or compute them. Training doesn't change them, so weight
files leave them out, and a run's record has their fingerprint. A hash would be too strict, because two
machines may round a computed table, such as sines of positions, differently. Random projections are equal up
to rounding, and change with any relevant change of the tensors (Johnson and Lindenstrauss 1984).
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dprepro.errors import UserError
from dprepro.pipeline.data.prepared import Declared, Prepared
from dprepro.pipeline.identity.validity import reason_invalid
from dprepro.pipeline.methods.settings import MethodSettings
from dprepro.pipeline.params import Model, Row
from dprepro.pipeline.results.records import run_path
from dprepro.pipeline.results.schema import RowTrainings, TrainingKey, TrainingRecord

if TYPE_CHECKING:
    from torch import Tensor, nn

PROJECTIONS = 2
TOLERANCE = 1e-5  # absolute tolerance of each number of a fingerprint; one tensor contributes about 1


def frozen_fingerprint(net: "nn.Module") -> tuple[float, ...]:
    """Sums of random projections and norms over ``net``'s frozen tensors; names and shapes count too.

    Args:
        net: the network as `build` returned it.

    Returns:
        `PROJECTIONS` + 1 numbers; () if all parameters are trained.
    """
    parameters = [(name, value) for name, value in net.named_parameters() if not value.requires_grad]
    frozen: dict[str, Tensor] = {**dict(parameters), **dict(net.named_buffers())}
    if not frozen:
        return ()
    total = np.zeros(PROJECTIONS + 1)
    for name, tensor in frozen.items():
        flat = tensor.detach().double().cpu().numpy().ravel()
        values = np.nan_to_num(flat, nan=3.0, posinf=2.0, neginf=-2.0)  # masks may be infinite
        seed = hashlib.sha256(f"{name} {tuple(tensor.shape)}".encode()).digest()
        stream = np.random.PCG64(list(seed))
        # from name and shape alone, so that a tensor of zeros changes the numbers too
        total += stream.random_raw(PROJECTIONS + 1) / 2.0**64
        if (norm := float(np.linalg.norm(values))) == 0:
            continue
        signs = np.unpackbits(stream.random_raw(PROJECTIONS * (len(values) // 64 + 1)).view(np.uint8))
        drawn = signs.reshape(PROJECTIONS, -1)[:, : len(values)]
        total += np.array([*(values.sum() - 2 * (drawn @ values)), norm * np.log1p(norm)]) / norm
    return tuple(round(float(number), 9) for number in total)


def same_fingerprint(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether two fingerprints are equal up to rounding."""
    return len(first) == len(second) and np.allclose(first, second, rtol=0, atol=TOLERANCE)


def frozen_here(model: Model, settings: MethodSettings, seed: int, data: Prepared) -> tuple[float, ...]:
    """Fingerprint of the frozen tensors that a model's `build` gives a training now.

    Raises:
        UserError: as `build_net`.
    """
    from dprepro.pipeline.models.networks import fresh_net  # which imports torch

    return frozen_fingerprint(fresh_net(seed, model, settings.input_shape(data.input_shape), data.classes))


def frozen_changed(entry: TrainingRecord, row: Row, data: Prepared | Declared) -> bool:
    """Return whether `build` gives a training of ``row`` other frozen tensors now than it had.

    Only prepared data decide the network's size; for others the result is False.
    """
    if not isinstance(data, Prepared):
        return False
    settings = type(row.resolved[0]).recorded(entry.settings)
    return not same_fingerprint(frozen_here(row.model, settings, entry.seed, data), entry.frozen)


def valid_trainings(
    run: RowTrainings | None, row: Row, data: Prepared | Declared
) -> dict[TrainingKey, TrainingRecord]:
    """Recorded trainings that are those of ``row`` as declared now, frozen tensors included."""
    trainings = run.trainings if run else ()
    return {each.key: each for each in trainings if not reason_invalid(each, row, data, frozen_changed)}


def require_usable(
    trainings: Iterable[TrainingRecord], row: Row, data: Prepared | Declared, root: Path = Path()
) -> None:
    """Check that weights may be used: settings, data and frozen tensors are the present ones.

    Raises:
        UserError: some differ.
    """
    for entry in trainings:
        if why := reason_invalid(entry, row, data, frozen_changed, code=False):
            raise UserError(
                f"{run_path(entry.row, root)}: trained with other {why} than are here; "
                f"run `dprepro train {entry.row}`"
            )
