"""Replay of one DP-SGD step on neighbouring batches, with the same and with other random numbers."""

import inspect
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import hypot, inf, sqrt
from typing import Annotated, Any, cast

import numpy as np
import torch
from pydantic import Field
from scipy import stats
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from dprepro.auditing.mistakes import MistakeName
from dprepro.auditing.verdicts import Shown, Verdict
from dprepro.checking import checked, floats, refuse_sparse, warn
from dprepro.clipping.clippers import NoHalfPrecision
from dprepro.clipping.functional import of_each
from dprepro.clipping.network_state import restored_randomness
from dprepro.errors import UserError
from dprepro.fields import Positive
from dprepro.sums import REPEATED, Repeated

DRAWS = 40  # draws of the noise
REDRAWS = 8  # draws that compare the noise of another batch: with equal random numbers, few draws suffice
RUNS = 400  # of a step in a replay, about
SECONDS = 20.0  # of a replay, about; a slower step gets fewer examples
EXAMPLES = 16  # largest number of examples that are left out of a batch, one at a time
SMALL = 3  # examples of a small batch, in which one example has much weight
LARGER = 100.0  # factor of inputs whose gradients are certainly clipped
SLACK = 1e-3  # relative excess over a bound that arithmetic may cause
COVER = 6e-3  # relative excess of noise that covers rounding, as in `noisy_sum`
ERROR = 1e-5  # p-value below which noise isn't as declared
SEEDED = "seeded noise: {} has the same, which whoever knows the seed can subtract"
ALIKE = 1e-3  # p-value above which numbers are taken for noise
SILENT = 1e-6  # deviation, relative to the declared one, below which an entry has no noise
COMPANY = 0.02  # difference of contributions, in clipping bounds, that isn't rounding
MIXED = 0.1  # share of dropout in the variance of noise above which the noise's distribution isn't tested
VALUES = 200_000  # largest number of values in a test of the distribution
RANDOM = {
    "randn",
    "randn_like",
    "normal",
    "normal_",
    "rand",
    "rand_like",
    "uniform_",
    "laplace",
    "exponential_",
}
CLIPPING = {"clamp", "clamp_", "clip", "clip_", "clamp_max", "clamp_max_", "minimum", "clip_grad_norm_"}
# folders of libraries; a folder of the user may have the same name
LIBRARIES = tuple(
    f"{folder}{os.sep}"
    for name in ("torch", "opacus", "jax", "jaxlib", "numpy", "pydantic", "dprepro")
    for found in [find_spec(name)]
    for folder in (found and found.submodule_search_locations) or ()
)
Array = np.ndarray
Step = Callable[..., Any]


@dataclass(frozen=True)
class Pair:
    """Neighbouring batches that show a violation."""

    batch: tuple[int, ...]  # positions in the inputs
    neighbour: tuple[int, ...]  # also positions; as many as in `batch` if an example is replaced
    factor: float  # the inputs are multiplied by this


@dataclass(frozen=True)
class Violation:
    """Violation of an assumption of a step's privacy proof."""

    name: MistakeName
    tensor: str  # name of the released tensor, or 'all'
    message: str
    measured: float
    allowed: float
    place: str | None  # FILE:LINE; None: unknown
    pair: Pair | None  # None: any batch shows it

    def __str__(self) -> str:
        """Message in one line."""
        place = f"{self.place}: " if self.place else ""
        return f"{place}{self.name}: {self.tensor}: {self.message}"


@dataclass(frozen=True, repr=False)
class Replay(Shown):
    """Verdict on a step: violations of its privacy proof; sensitivity and noise, in clipping bounds."""

    violations: tuple[Violation, ...]
    sensitivity: dict[str, float]  # by released tensor: largest distance that one example moves it
    sensitivity_of_all: float  # of all tensors together
    sensitivity_allowed: float  # 1, or 2 if neighbours replace an example
    noise: dict[str, float]  # standard deviation of each released tensor's entries
    noise_declared: float

    @property
    def verdict(self) -> Verdict:
        """'wrong' if there are violations. 'nothing found' is no proof."""
        return "wrong" if self.violations else "nothing found"

    def _reasons(self) -> list[str]:
        measured = (
            f"one example moves the sum by up to {self.sensitivity_of_all:.3g} clipping bounds, allowed "
            f"{self.sensitivity_allowed:g}; noise of {min(self.noise.values()):.3g} to "
            f"{max(self.noise.values()):.3g} bounds, declared {self.noise_declared:.3g}"
        )
        return [*map(str, self.violations), measured]


@dataclass
class _Released:
    """Releases of one run of a step."""

    arrays: dict[str, Array]  # float64
    exact: dict[str, Any]  # numbers, shapes and types, without noise
    random_state: tuple[Any, ...]  # of the generators after the step
    later: dict[str, Array]  # arrays of the next step


@dataclass
class _Places:
    """Lines of the user's code with a step, its random numbers and its clipping; outputs of its modules."""

    step: str | None = None
    draws: dict[tuple[int, ...], str] = field(default_factory=dict)  # by shape
    clips: str | None = None
    outputs: list[tuple[str, Tensor]] = field(default_factory=list)  # of modules, in order


class _Lines(TorchFunctionMode):
    """Torch mode that records the line of the user's code that draws random numbers, and that clips."""

    def __init__(self, places: _Places):
        super().__init__()
        self.places = places

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        result = function(*arguments, **(options or {}))
        name = getattr(function, "__name__", "")
        if name in RANDOM and isinstance(result, Tensor):
            self.places.draws[tuple(result.shape)] = _line()
        elif name in CLIPPING:
            self.places.clips = _line()
        return result


def _line() -> str:
    """FILE:LINE of the innermost frame outside libraries."""
    frame = inspect.currentframe()
    while frame and frame.f_code.co_filename.startswith(LIBRARIES):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


@restored_randomness()  # a private training that follows must not draw its noise from a known seed
@checked
def replay(
    train_step: Callable[..., Any],
    inputs: Any,
    labels: Any,
    *,
    clip: Positive | None = None,
    noise_multiplier: Positive | None = None,
    expected_batch_size: Positive | None = None,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> Replay:
    """Run one private step on neighbouring batches with the same random numbers, and compare the releases.

    This takes a second on a CPU and needs no training. Runs with the same noise and one example less give the
    sensitivity of each released tensor. Runs on the same batch with other noise give the distribution of each
    entry's noise. Runs on half of the batch and on larger inputs reveal releases that depend on private data
    without noise.

    Args:
        train_step: function without arguments that makes equal networks and optimizers at each call, and
            returns a step. The step is called as ``step(inputs, labels)``. A step with a third positional
            argument, or with an argument ``seed`` by name, gets a seed for its own generators; the generators
            of torch, numpy and Python are seeded already.
            The step makes one step on the batch and returns its release: a mapping from names to arrays
            (torch, numpy or jax) and numbers; a ``torch.nn.Module``, whose gradients are read; an Opacus
            ``DPOptimizer`` after its step; or a pair of module and optimizer.
        inputs: (B, ...) inputs from your own data, as in training, or a dict of such; at least eight.
        labels: (B, ...) labels of the inputs.
        clip: clipping bound C of each example's gradient; None: that of the Opacus optimizer.
        noise_multiplier: standard deviation of a sum's noise, divided by C; None: as for ``clip``.
        expected_batch_size: divisor of the noisy sum, 1 if sums are released; None: as for ``clip``, and 1
            if the optimizer has ``loss_reduction="sum"``.
        seed: seed of the random numbers.

    Returns:
        Measured sensitivities and noise, and violations. Each violation has the tensor's name, the line of
        the user's code, the measured and the allowed value, and the batches.

    Raises:
        UserError: a setting is unknown, there are too few examples, or a step releases nothing, numbers that
            aren't finite, or different numbers with the same seeds.
    """
    by_name = inputs.items() if isinstance(inputs, Mapping) else [("inputs", inputs)]
    for name, values in (*by_name, ("labels", labels)):
        if not hasattr(values, "shape") or not len(values.shape):
            raise UserError(f"{name}: {type(values).__name__}; needed: a tensor or an array of examples")
        refuse_sparse(name, values)
    size = len(next(iter(inputs.values()), ())) if isinstance(inputs, Mapping) else len(inputs)
    if size < 2 * SMALL + 2 or len(labels) != size or any(len(values) != size for _, values in by_name):
        raise UserError(f"inputs: {size}, labels: {len(labels)}; needed: as many of each, at least 8")
    player = _Player(train_step, inputs, labels, seed)
    claims = player.claims()
    begun = time.process_time()
    player.claims()  # once more: the first call also loads libraries
    seconds = time.process_time() - begun
    if (fewer := max(2 * SMALL + 2, int(size * SECONDS / (RUNS * seconds)))) < size:
        warn(f"a step takes {seconds:.2g} s; the first {fewer} of {size} examples are compared")
        player = _Player(train_step, _rows(inputs, slice(fewer)), labels[:fewer], seed)
    given = {"clip": clip, "noise_multiplier": noise_multiplier, "expected_batch_size": expected_batch_size}
    known = claims | {name: float(value) for name, value in given.items() if value is not None}
    if missing := sorted(given.keys() - known.keys()):
        text = "unknown; needed, unless a step returns a DPOptimizer with a fixed clipping bound"
        raise UserError(f"{', '.join(missing)}: {text}")
    for name, value in known.items():
        if not 0 < value < inf:
            raise UserError(f"{name}: {value:g}; allowed: above 0, and finite")
    player.scale = known["expected_batch_size"] / known["clip"]
    return _Comparison(player, known["noise_multiplier"], known["expected_batch_size"]).replay()


class _Player:
    """Runs of the user's step."""

    def __init__(self, train_step: Step, inputs: Any, labels: Any, seed: int):
        self.train_step, self.inputs, self.labels, self.seed = train_step, inputs, labels, seed
        self.scale = 1.0  # factor from a release to a sum in clipping bounds
        self.size, self.runs = len(labels), 0
        self.repeated = Repeated(random.randbytes, {})

    def claims(self) -> dict[str, float]:
        """Clipping bound, noise multiplier and expected batch size of the Opacus optimizer, if any."""
        returned = self._step(self._made(0), range(self.size), 1.0, 0)
        optimizer = next((part for part in _parts(returned) if hasattr(part, "expected_batch_size")), None)
        if optimizer is None:
            return {}
        summed = getattr(optimizer, "loss_reduction", "mean") == "sum"
        divisor = {"expected_batch_size": 1.0 if summed else float(optimizer.expected_batch_size)}
        # adaptive clipping: a step changes C, and the noise is larger than declared
        if any(hasattr(optimizer, name) for name in ("unclipped_num_std", "_adjusted_noise_multiplier")):
            return divisor
        return divisor | {
            "clip": float(optimizer.max_grad_norm),
            "noise_multiplier": float(optimizer.noise_multiplier),
        }

    def run(self, draw: int, rows: Sequence[int], factor: float = 1.0, later: bool = False) -> _Released:
        """Releases of a step on ``rows`` times ``factor``, seeded by ``draw``; of two steps if ``later``."""
        self.runs += 1
        if sys.stderr.isatty() and self.runs % 10 == 0:
            print(f"\rreplay: {self.runs} steps of about {RUNS}", end="\r", file=sys.stderr, flush=True)
        step = self._made(draw)
        arrays, exact = self._read(self._step(step, rows, factor, draw))
        name, keys, *others = np.random.get_state()
        state = (torch.get_rng_state().tolist(), name, np.asarray(keys).tolist(), others, random.getstate())
        second, _ = self._read(self._step(step, rows, factor, draw + 1)) if later else ({}, {})
        return _Released(arrays, exact, state, second)

    def freely(self, draw: int) -> dict[str, Array]:
        """Released arrays of a step whose generators, seeded by ``draw``, ``train_step`` may seed anew."""
        _seed(self.seed + 1 + 7919 * draw)
        step = self.train_step()
        own = Repeated(os.urandom, self.repeated.factories)  # no seed of the user's reaches this noise
        return self._read(self._step(step, range(self.size), 1.0, draw, repeated=own))[0]

    def places(self, rows: Sequence[int], factor: float = 1.0) -> _Places:
        """`_Places` of a step on the examples ``rows`` with inputs times ``factor``."""
        step = self._made(0)
        code = getattr(step, "__code__", None)
        places = _Places(code and f"{code.co_filename}:{code.co_firstlineno}")

        def note_output(layer: nn.Module, _: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not list(layer.children()):
                places.outputs.append((type(layer).__name__, output.detach().clone()))

        hook = modules.register_module_forward_hook(note_output)
        try:
            with NoHalfPrecision("the step"), _Lines(places):
                self._step(step, rows, factor, 0)
        finally:
            hook.remove()
        return places

    def _made(self, draw: int) -> Step:
        """Step of a fresh network, with generators seeded by ``draw``."""
        _seed(self.seed)
        step: Step = self.train_step()
        if not callable(step):
            raise UserError(f"train_step: returned {type(step).__name__}; needed: a step to be called")
        _seed(self.seed + 1 + 7919 * draw)
        return step

    def weights(self, rows: Sequence[int]) -> dict[str, Array]:
        """Weights after a step on ``rows`` whose optimizer gets the same gradients for any ``rows``."""
        step = self._made(0)
        given = GivenGradients(replaced=True)
        returned = self._step(step, rows, 1.0, 0, given)
        if not given.read:
            return {}
        return {
            name.removeprefix("_module."): floats(name, parameter)
            for part in _parts(returned)
            if isinstance(part, nn.Module)
            for name, parameter in part.named_parameters()
        }

    def _step(
        self,
        step: Step,
        rows: Sequence[int],
        factor: float,
        draw: int,
        gradients: "GivenGradients | None" = None,
        repeated: Repeated | None = None,
    ) -> Any:
        index = np.asarray(rows)
        inputs, labels = _rows(self.inputs, index, factor), self.labels[index]
        seed, others = self.seed + 1 + 7919 * draw, list(inspect.signature(step).parameters.values())[2:]
        by_name = [other for other in others if other.kind in (other.KEYWORD_ONLY, other.VAR_KEYWORD)]
        seeded = (seed,) if others[:1] != by_name[:1] else ()
        named = {"seed": seed} if any(other.name == "seed" for other in by_name) else {}
        # the noise of `noisy_sum` is secret, and has no other seed
        token = REPEATED.set(repeated or self.repeated)
        self.gradients = gradients or GivenGradients()
        hook = register_optimizer_step_pre_hook(self.gradients)
        try:
            return step(inputs, labels, *seeded, **named)
        finally:
            hook.remove()
            REPEATED.reset(token)

    def _read(self, returned: Any) -> tuple[dict[str, Array], dict[str, Any]]:
        """Released arrays in units of the clipping bound; released numbers, shapes and types, unchanged."""
        arrays, exact = dict[str, Array](), dict[str, Any]()
        for name, value in _released(returned, self.gradients.read):
            if name in arrays or name in exact:
                raise UserError(f"released {name}: twice; needed: a name of its own for each release")
            if isinstance(value, (bool, int, float, str)) or value is None:
                exact[name] = value
                continue
            if not hasattr(value, "dtype"):
                raise UserError(
                    f"released {name}: {type(value).__name__}; needed: an array or a number, by its own name"
                )
            exact[f"{name}: dtype"], exact[f"{name}: shape"] = str(value.dtype), tuple(value.shape)
            if str(value.dtype).endswith("float16"):  # also bfloat16
                raise UserError(
                    f"released {name}: {value.dtype}, whose rounding may exceed what an example moves; "
                    "needed: the release before it is rounded"
                )
            arrays[name] = floats(f"released {name}", value) * self.scale
            if not np.isfinite(arrays[name]).all() or not arrays[name].size:
                raise UserError(f"released {name}: not finite, or empty; needed: finite numbers")
        if all(name.startswith("buffer ") for name in arrays):
            raise UserError(
                "the step released no array; needed: the noisy gradients, by name, before zero_grad()"
            )
        return arrays, exact


def _rows(inputs: Any, index: Any, factor: float = 1.0) -> Any:
    """Inputs of the examples ``index``, numbers with a fraction times ``factor``."""
    return of_each(
        inputs,
        lambda values: values[index] * factor if factor != 1 and _has_fractions(values) else values[index],
    )


def _has_fractions(inputs: Any) -> bool:
    """Return whether inputs, or some by keyword, are floating-point numbers, which a factor multiplies."""
    parts = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    return any("float" in str(getattr(part, "dtype", "")) for part in parts)


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _parts(returned: Any) -> tuple[Any, ...]:
    return returned if isinstance(returned, tuple) else (returned,)


@dataclass
class GivenGradients:
    """Hook of optimizers: gradients of the parameters when an optimizer makes its step, by id."""

    replaced: bool = False  # True: the optimizer gets gradients of ones in their place
    read: dict[int, Tensor] = field(default_factory=dict)

    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Read, and replace, the gradients of an optimizer that makes its step."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.read[id(parameter)] = parameter.grad.detach().clone()
                    if self.replaced:
                        parameter.grad = torch.ones_like(parameter.grad)


def _released(returned: Any, at_step: Mapping[int, Tensor]) -> Iterator[tuple[str, Any]]:
    """Names and values in a step's return value; gradients that are 0 after it are those ``at_step``."""
    parts = _parts(returned)

    def gradient_of(parameter: Tensor) -> Tensor | None:
        gradient = parameter.grad
        if id(parameter) in at_step and (gradient is None or not gradient.any()):  # after zero_grad()
            return at_step[id(parameter)]
        return gradient

    of_modules = {id(value) for part in parts if isinstance(part, nn.Module) for value in part.parameters()}
    for part in parts:
        if isinstance(part, Mapping):
            yield from part.items()
        elif isinstance(part, nn.Module):
            for name, parameter in part.named_parameters():
                if (gradient := gradient_of(parameter)) is not None:
                    yield name.removeprefix("_module."), gradient
            for name, buffer in part.named_buffers():
                yield f"buffer {name.removeprefix('_module.')}", buffer
        elif isinstance(part, torch.optim.Optimizer):
            groups: Iterable[Mapping[str, Any]] = part.param_groups
            for place, group in enumerate(groups):
                yield f"learning rate of group {place}", float(group["lr"])
                for index, parameter in enumerate(group["params"]):
                    if id(parameter) not in of_modules:
                        yield f"group {place}, parameter {index}", gradient_of(parameter)
        else:
            kind = type(part).__name__
            raise UserError(f"the step returned {kind}; needed: a mapping, a module or an optimizer")


class _Comparison:
    """Comparisons of runs of one step."""

    def __init__(self, player: _Player, noise: float, divisor: float):
        self.player, self.noise, self.divisor = player, noise, divisor
        self.found: list[Violation] = []
        self.silent = set[str]()  # tensors with entries that have no noise
        self.common = 1.0  # factor of all sums and noise, by a wrong divisor
        self.by_size = False  # sums and noise are divided by the number of examples in the batch
        self.overall = 1.0  # all noise, relative to the declared noise
        self.spreads = dict[tuple[tuple[int, ...], float], float]()  # of `_spread`, by batch
        self.by_data = False  # they are divided by a number that follows the examples
        self.every = tuple(range(player.size))
        self.half = self.every[: player.size // 2]
        self.other = (self.half * 3)[: player.size]  # as many examples as all, with some of them twice
        self.factors = (1.0, LARGER) if _has_fractions(player.inputs) else (1.0,)  # of inputs
        self.first = player.run(0, self.every)
        again = player.run(0, self.every)
        if any(not np.array_equal(self.first.arrays[name], again.arrays[name]) for name in self.first.arrays):
            raise UserError(
                "the step released other numbers with the same seeds; needed: random numbers of torch's, "
                "numpy's or Python's generators, or of one that is seeded with a third argument, seed"
            )
        self.places = player.places(self.every)
        # batches of which an example is left out, or replaced
        sizes = (self.every[:SMALL], self.half, self.every)
        self.batches = [batch for batch in sizes if self._runs(batch[1:])]
        # a step may need a batch of all; and if an example's random numbers depend on the batch size or its
        # position, as with dropout, neighbours replace an example
        self.replaced = len(self.batches) < 3 or self._of_draws() or self._of_positions()
        if not self.batches:
            self.batches = [self.every]
        elif len(self.batches) < 3:
            self.batches = [batch for batch in self.batches if self._runs(batch)]
        self.allowed = 2.0 if self.replaced else 1.0
        self.rounding = 0.0  # of releases, in clipping bounds
        self.buffers = {name for name in self.first.arrays if name.startswith("buffer ")}
        # rows whose noise is measured; few if random numbers of the network vary their gradients, too
        self.random = self.replaced or self._draws_itself()
        few = self.every[: 2 * SMALL + 2]
        self.noisy_rows = few if self.random and self._runs(few) else self.every

    def _runs(self, rows: Sequence[int]) -> bool:
        """Return whether the step takes a batch of ``rows``; it takes one of all examples."""
        try:
            self.player.run(0, rows)
        except UserError:
            raise
        except Exception:  # whatever a step raises on a batch that is too small for it
            return False
        return True

    def _of_draws(self) -> bool:
        """Return whether the number of random numbers follows the size of a batch."""
        return self.player.run(0, self.half).random_state != self.first.random_state

    def _of_positions(self) -> bool:
        """Return whether gradients have random numbers that follow the positions of examples in a batch.

        A step may draw them from a generator of its own, such as a jax key that is split for examples. The
        order of a batch changes no sum otherwise, except if examples are mixed by position, which is the same
        with all random numbers.
        """
        changes = []
        for draw in (0, 1):
            ours, theirs = (self.player.run(draw, rows).arrays for rows in (self.every, self.every[::-1]))
            changes.append({name: ours[name] - theirs[name] for name in ours if _alike(ours, theirs, name)})
        largest = max(float(np.linalg.norm(value)) for value in self.first.arrays.values())
        first, second = changes
        names = [name for name in first if _alike(first, second, name)]
        apart = hypot(*(float(np.linalg.norm(first[name] - second[name])) for name in names))
        return apart > COMPANY + 4e-6 * largest

    def _draws_itself(self) -> bool:
        """Return whether the network draws random numbers that do not depend on the number of examples."""
        runs = [[self.player.run(draw, rows).arrays for draw in (1, 2)] for rows in (self.every, self.half)]
        (ours, again), (theirs, others) = runs
        largest = max(float(np.linalg.norm(value)) for value in self.first.arrays.values())
        for name in ours.keys() & again.keys() & theirs.keys() & others.keys():
            if len({arrays[name].shape for arrays in (ours, again, theirs, others)}) == 1:
                noise, other = ours[name] - again[name], theirs[name] - others[name]
                size = float(np.square(noise).sum())
                # equal random numbers give equal noise, but for a factor
                rest = other - noise * (float((noise * other).sum()) / size if size else 0.0)
                if np.linalg.norm(rest) > COMPANY + 1e-5 * largest:
                    return True
        return False

    def _varied(self, rows: int) -> float:
        """Largest variance, over all entries, that the network's random numbers add to a sum of ``rows``.

        Dropout draws them for each example; examples may also share them.

        Returns:
            The variance, in squared clipping bounds.
        """
        return float(rows) if self.replaced else float(rows**2) if self.random else 0.0

    def replay(self) -> Replay:
        """Run all comparisons."""
        deviations = self._of_noise()
        # large numbers without noise, such as a buffer of positions, don't round the noisy ones
        noisy = (name for name, deviation in deviations.items() if deviation > SILENT * self.noise)
        lengths = (float(np.linalg.norm(self.first.arrays[name])) for name in noisy)
        self.rounding = 1e-6 * max(lengths, default=0.0)
        self._of_weights()
        parts, total = self._of_examples()
        return Replay(tuple(self.found), parts, total, self.allowed, deviations, self.noise)

    def _note(
        self,
        name: MistakeName,
        tensor: str,
        message: str,
        measured: float,
        allowed: float = 0.0,
        place: str | None = None,
        pair: Pair | None = None,
    ) -> None:
        """Record a violation ``name``, unless the tensor has one already; ``place`` None: the step's line."""
        if not any((each.name, each.tensor) == (name, tensor) for each in self.found):
            place = place or self.places.step
            self.found.append(Violation(name, tensor, message, float(measured), allowed, place, pair))

    def _drawn_at(self, name: str) -> str | None:
        """Line that draws numbers in a tensor's shape, or else in its size, or else any numbers."""
        value, draws = self.first.arrays[name], self.places.draws
        as_many = (at for shape, at in draws.items() if np.prod(shape) == value.size)
        return draws.get(value.shape) or next(as_many, None) or next(iter(draws.values()), None)

    def _of_noise(self) -> dict[str, float]:
        """Standard deviation of each tensor's noise; records violations of the declared noise."""
        runs = [self.player.run(1 + draw, self.noisy_rows, later=True) for draw in range(DRAWS)]
        names = [name for name in self.first.arrays if name not in self.buffers]
        for name in names:
            if any(run.arrays[name].shape != runs[0].arrays[name].shape for run in runs):
                raise UserError(f"released {name}: of other shapes with other noise; needed: the same")
        centred = {name: _centred(run.arrays[name] for run in runs) for name in names}
        freedom = DRAWS - 1
        variances = {name: np.square(value).sum(0) / freedom for name, value in centred.items()}
        deviations = {name: sqrt(value.mean()) for name, value in variances.items()}
        noisy = [name for name in names if deviations[name] > SILENT * self.noise]
        for name in names:
            silent = float((variances[name] < (SILENT * self.noise) ** 2).mean())
            if silent == 1 and self._is_seeded(name):
                self.silent.add(name)
                self._note("seeded", name, SEEDED.format("every step"), 0.0, self.noise, self._drawn_at(name))
            elif silent:
                self.silent.add(name)
                entries = "any" if silent == 1 else f"{100 * silent:.2g} %"
                text = f"no noise on {entries} of its entries: none is added, or the same with every seed"
                self._note("noise", name, text, 0.0, self.noise, self._drawn_at(name))
        ours, theirs = (self.player.freely(draw) for draw in (1, 2))
        for name in noisy:
            if _alike(ours, theirs, name) and np.abs(ours[name] - theirs[name]).max() < SILENT * self.noise:
                text = SEEDED.format("every training")
                self._note("seeded", name, text, 0.0, self.noise, self._drawn_at(name))
        self._of_size(noisy, centred)
        self._of_scales(noisy, centred)
        if self.by_size:
            by = self._factor(self.noisy_rows, 1.0)
            centred = {name: value / by for name, value in centred.items()}
            deviations = {name: deviation / by for name, deviation in deviations.items()}
        freedoms = {name: freedom * centred[name].shape[1] for name in noisy}
        ratios = {name: deviations[name] / self.noise for name in noisy}
        squares = sum(ratios[name] ** 2 * freedoms[name] for name in noisy)
        factor = self.overall = sqrt(squares / max(1, sum(freedoms.values())))
        alike = not (self.random or any(_off(ratios[name] / factor, freedoms[name]) for name in noisy))
        if noisy and alike and _off(factor, sum(freedoms.values())):
            self._of_factor(factor, self._drawn_at(names[0]))
        for name in () if alike else noisy:
            declared = centred[name].shape[1] * self.noise**2  # variance of all entries together
            if _off(ratios[name], freedoms[name], sqrt(1 + self._varied(len(self.noisy_rows)) / declared)):
                text = f"noise of {deviations[name]:.3g} clipping bounds, declared {self.noise:.3g}"
                self._note("noise", name, text, deviations[name], self.noise, self._drawn_at(name))
        for name in noisy:
            self._of_entries(name, centred[name] / deviations[name])
        self._of_pairs(noisy, centred)
        for name in noisy:
            if all(name in run.later for run in runs):
                alike_later = _correlation(_centred(run.later[name] for run in runs), centred[name])
                if alike_later > 0.9:
                    text = f"its noise correlates with that of the next step by {alike_later:.2f}"
                    self._note("reused", name, text, alike_later, place=self._drawn_at(name))
        return deviations

    def _is_seeded(self, name: str) -> bool:
        """Return whether a tensor whose noise never changes has the declared noise, the same in each run.

        Clipped sums of two halves add up to that of all, so that one noise remains of the sum of both.
        """
        halves = self.half, self.every[len(self.half) :]
        if not all(map(self._runs, halves)):
            return False
        parts = [self.player.run(0, half).arrays for half in halves]
        if not all(_alike(self.first.arrays, part, name) for part in parts):
            return False
        rest = (sum(part[name] for part in parts) - self.first.arrays[name]).ravel() / self.noise
        normal = float(stats.kstest(rest, "norm").pvalue) > ALIKE
        return normal and not _off(float(np.sqrt(np.square(rest).mean())), rest.size)

    def _of_weights(self) -> None:
        """Record weights that follow private data otherwise than through the gradients of the optimizer."""
        ours, theirs = (self.player.weights(rows) for rows in (self.every, self.other))
        for name in ours.keys() & theirs.keys():
            if (apart := float(np.abs(ours[name] - theirs[name]).max(initial=0))) > 0:
                text = f"weights move by {apart:.3g} with other examples and equal noisy gradients"
                self._note("exact", name, text, apart)

    def _of_factor(self, factor: float, drawn_at: str | None) -> None:
        """Record that all noise is ``factor`` times the declared one; if sums are, too, a wrong divisor."""
        shifted = max(  # some examples have almost no gradient
            hypot(*self._distances(self._moved(self._without(batch, index, self.factors[-1]))).values())
            for batch in [self.batches[len(self.batches) // 2]]
            for index in range(len(batch))
        )
        if not self.replaced and abs(shifted / factor - 1) < 0.1:
            divisor, self.common = self.divisor / factor, factor
            text = f"sums and noise are divided by {divisor:.4g}, declared {self.divisor:.4g}"
            self._note("divisor", "all", text, divisor, self.divisor)
        else:
            text = f"noise of {factor * self.noise:.3g} clipping bounds, declared {self.noise:.3g}"
            self._note("noise", "all", text, factor * self.noise, self.noise, drawn_at)

    def _of_entries(self, name: str, scaled: Array) -> None:
        """Test a tensor's noise: equal deviation of all entries, independence, Gaussian distribution."""
        freedom, entries = len(scaled) - 1, scaled.shape[1]
        squares = np.square(scaled).sum(0)
        silent = squares < SILENT**2
        # largest variance by dropout, in units of the noise's, if it is all in one direction
        one = self._varied(len(self.noisy_rows)) / self.noise**2
        least, most = squares[~silent].min() * (1 + one / entries), squares.max() / (1 + one)
        p = entries * min(stats.chi2.cdf(least, freedom), stats.chi2.sf(most, freedom))
        if p < ERROR and not silent.any():
            low, high = sqrt(least / freedom), sqrt(most / freedom)
            text = f"noise is {low:.2g} of the usual on some entries, and {high:.2g} on others"
            self._note("uneven", name, text, low, 1.0, self._drawn_at(name))
            return
        # chi-square if entries are independent
        means = float(np.square(scaled.sum(1)).sum() / entries) / (1 + one)
        if entries > 1 and stats.chi2.sf(means, freedom) < ERROR:
            text = "its entries share their noise, so that their differences have less"
            self._note("shared", name, text, sqrt(means / freedom), 1.0, self._drawn_at(name))
            return
        values = scaled[:, : max(1, VALUES // len(scaled))].ravel() * sqrt(len(scaled) / freedom)
        mixed = one / entries > MIXED  # with gradients that need not be Gaussian
        if not (silent.any() or mixed) and stats.kstest(values, "norm").pvalue < ERROR:
            kurtosis = float(stats.kurtosis(values))
            text = f"noise that isn't Gaussian: excess kurtosis {kurtosis:.2g} (uniform -1.2, Laplace 3)"
            self._note("distribution", name, text, kurtosis, place=self._drawn_at(name))

    def _of_pairs(self, names: Sequence[str], noise: Mapping[str, Array]) -> None:
        """Record tensors with correlated noise; entries are paired from the start, or from the end."""
        for place, name in enumerate(names):
            for other in names[:place]:
                size = min(noise[name].shape[1], noise[other].shape[1])
                for ends in (slice(size), slice(-size, None)):
                    alike = _correlation(noise[name][:, ends], noise[other][:, ends])
                    of_dropout = self._varied(len(self.noisy_rows)) / (2 * size * self.noise**2)
                    alike = float(np.sign(alike)) * max(0.0, abs(alike) - of_dropout)
                    if 2 * stats.norm.sf(abs(alike) * sqrt(size * (DRAWS - 1))) < ERROR / len(names) ** 2:
                        text = f"its noise correlates with that of {other} by {alike:.2f}"
                        self._note("shared", name, text, alike, place=self._drawn_at(name))

    def _of_size(self, names: Sequence[str], noise: Mapping[str, Array]) -> None:
        """Record noise whose scale depends on the number of examples in the batch."""
        rows = self.noisy_rows[: len(self.noisy_rows) // 2]
        if not self._runs(rows):
            return
        for name, ratio in self._other_scales(names, noise, rows, 1.0):
            tensor = "all" if len(names) > 1 else name
            text = f"the noise of half the batch is {ratio:.3g} times that of all"
            off = abs(ratio * len(rows) / len(self.noisy_rows) - 1)
            self.by_size = self.by_size or off < (0.1 if self.random else 0.003)
            if self.by_size:
                why = "a divisor that follows the batch size, which is private"
                self._note("divisor", tensor, f"{text}: {why}", ratio, 1.0)
            elif ratio < 1:
                each = ", as if it were drawn for each example" if abs(ratio**2 - 0.5) < 0.05 else ""
                text = f"{text}{each}: it shows the batch size, which is private"
                self._note("scale", tensor, text, ratio, 1.0, self._drawn_at(name))

    def _of_scales(self, names: Sequence[str], noise: Mapping[str, Array]) -> None:
        """Record noise whose scale depends on the values of the examples."""
        for factor in self.factors[1:]:
            for name, ratio in self._other_scales(names, noise, self.noisy_rows, factor):
                text = f"noise of {factor:g} times as large inputs is {ratio:.3g} times that of others"
                tensor = "all" if len(names) > 1 else name
                self._note("scale", tensor, text, ratio, 1.0, self._drawn_at(name))

    def _other_scales(
        self, names: Sequence[str], noise: Mapping[str, Array], rows: Sequence[int], factor: float
    ) -> Iterator[tuple[str, float]]:
        """Tensors with another scale of noise for ``rows`` times ``factor``, and the ratio of both scales."""
        draws = DRAWS if self.replaced else REDRAWS
        runs = [self.player.run(1 + draw, rows, factor) for draw in range(draws)]
        for name in names:
            if any(run.arrays[name].size != noise[name].shape[1] for run in runs):
                continue  # another shape is recorded elsewhere
            usual, others = _centred(noise[name][:draws]), _centred(run.arrays[name] for run in runs)
            ratio = float(np.linalg.norm(others) / np.linalg.norm(usual))
            # the random numbers are the same, unless dropout draws some before the noise
            error = 5 / sqrt(noise[name].size) + 0.01 if self.replaced else 0.01
            squares = float(np.square(usual).sum()) / (draws - 1)
            fewer, more = (self._varied(len(part)) / squares for part in (self.noisy_rows, rows))
            if not sqrt(max(0.0, 1 - fewer)) - error < ratio < sqrt(1 + more) + error:
                yield name, ratio

    def _factor(self, rows: Sequence[int], factor: float) -> float:
        """Factor of the sum and noise of a batch: what divides them in place of the declared divisor."""
        if self.by_size:
            return self.divisor / len(rows)
        if not self.by_data:
            return self.common
        ours, theirs = (self._spread(each, by) for each, by in ((rows, factor), (self.noisy_rows, 1.0)))
        return self.overall * ours / theirs

    def _spread(self, rows: Sequence[int], factor: float) -> float:
        """Size of the difference of two releases of one batch, whose noise differs."""
        if (batch := (tuple(rows), factor)) not in self.spreads:  # pairs share their batches
            one, other = (self.player.run(draw, rows, factor).arrays for draw in (1, 2))
            apart = (float(np.linalg.norm(one[name] - other[name])) for name in one if name in other)
            self.spreads[batch] = hypot(*apart)
        return self.spreads[batch]

    def _moved(self, pair: Pair) -> dict[str, Array]:
        """Difference of each tensor between a batch and its neighbour; records exact values that differ."""
        ours, theirs = (self.player.run(0, rows, pair.factor) for rows in (pair.batch, pair.neighbour))
        for name in sorted(ours.exact.keys() | theirs.exact.keys()):
            was, now = ours.exact.get(name), theirs.exact.get(name)
            if was != now:
                tensor, _, kind = name.partition(": ")
                text = f"is {was} with an example and {now} without it: no noise hides this"
                self._note(cast(MistakeName, kind or "exact"), tensor, text, 1.0, pair=pair)
        of_ours, of_theirs = (self._factor(rows, pair.factor) for rows in (pair.batch, pair.neighbour))
        apart = {
            name: value / of_ours - theirs.arrays[name] / of_theirs
            for name, value in ours.arrays.items()
            if _alike(ours.arrays, theirs.arrays, name)
        }
        for name in self.buffers & apart.keys():
            if np.abs(apart[name]).max(initial=0) > SILENT:
                text = "a buffer is kept that follows private data without noise"
                self._note("exact", name, text, float(np.linalg.norm(apart[name])), pair=pair)
        return apart

    def _distances(self, apart: Mapping[str, Array]) -> dict[str, float]:
        """Length of each tensor's difference, without buffers."""
        return {name: float(np.linalg.norm(apart[name])) for name in apart if name not in self.buffers}

    def _without(self, batch: tuple[int, ...], index: int, factor: float) -> Pair:
        """Batch, and its neighbour with no or another example at ``index``; ``factor`` is that of `Pair`."""
        others = () if not self.replaced else (batch[(index + 1) % len(batch)],)
        return Pair(batch, (*batch[:index], *others, *batch[index + 1 :]), factor)

    def _of_examples(self) -> tuple[dict[str, float], float]:
        """Largest distance that one example moves each tensor, and all tensors together; notes violations."""
        most, farthest, worst = self._farthest()
        if farthest > self._bound and not self.replaced and (scale := self._named("scale")):
            self.by_data = True  # if that brings sums within the bound, noise and sums have one divisor
            others = self._farthest()
            self.by_data = others[1] <= self._bound
            if self.by_data:
                most, farthest, worst = others
                explained = ("scale", "divisor", "noise")
                self.found = [each for each in self.found if each.name not in explained]
                text = "sums and noise are divided by a number that follows private data"
                self._note("divisor", "all", text, scale.measured, 1.0)
        if farthest > self._bound:
            self._explain(*worst, farthest)
        elif not self.replaced:
            self._of_company()
        for name in self.silent & most.keys():
            if most[name] > SILENT:
                text = f"one example moves it by {most[name]:.3g} clipping bounds, and entries have no noise"
                self._note("exact", name, text, most[name])
        return most, farthest

    @property
    def _bound(self) -> float:
        """Largest distance that one example may move all tensors together, as they are computed."""
        return self.allowed * (1 + SLACK) + self.rounding

    def _named(self, name: MistakeName) -> Violation | None:
        return next((each for each in self.found if each.name == name), None)

    def _farthest(self) -> tuple[dict[str, float], float, tuple[Pair, int, dict[str, float]]]:
        """Largest distances of each tensor, and of all; and pair, example and distances for the latter."""
        most, farthest, worst = dict[str, float](), -1.0, None
        for factor in self.factors:
            for batch in self.batches:
                for index in range(min(len(batch), EXAMPLES)):
                    pair = self._without(batch, index, factor)
                    moved = self._distances(self._moved(pair))
                    most = {name: max(most.get(name, 0.0), part) for name, part in moved.items()}
                    if hypot(*moved.values()) > farthest:
                        farthest, worst = hypot(*moved.values()), (pair, index, moved)
        assert worst is not None
        return most, farthest, worst

    def _depends(self, index: int, factor: float) -> tuple[float, Pair]:
        """Distance of an example's contributions to a small and the whole batch; the small batch's `Pair`."""
        batches = [
            (index, *(row for row in company if row != index))
            for company in (self.every[-SMALL:], self.every)
        ]
        few, many = (Pair(batch, batch[1:], factor) for batch in batches)
        ours, theirs = self._moved(few), self._moved(many)
        apart = hypot(*(float(np.linalg.norm(ours[name] - theirs[name])) for name in ours if name in theirs))
        return max(0.0, apart - 4 * self.rounding), few

    def _of_company(self) -> None:
        """Record that an example's contribution depends on other examples, though its size is allowed."""
        for factor in self.factors:
            apart, pair = self._depends(0, factor)
            if apart > COMPANY and not self._named("scale"):
                text = f"an example adds {apart:.3g} clipping bounds more or less as others are in the batch"
                if module := self._mixing_module(pair):
                    text = f"{text}: this layer's outputs depend on them"
                name: MistakeName = "mixing" if module else "sum"
                place = None if module else self.places.clips
                self._note(name, module or "all", text, apart, 0.0, place, pair)
                return

    def _explain(self, pair: Pair, index: int, moved: Mapping[str, float], farthest: float) -> None:
        """Record why the example at ``index`` moves the sum by ``farthest``, its tensors by ``moved``."""
        tensor = next(name for name, part in moved.items() if part >= 0.99 * max(moved.values()))
        text = f"one example moves the sum by {farthest:.3g} clipping bounds, allowed {self.allowed:g}"
        name: MistakeName
        place, shown = self.places.clips, pair
        apart, company = (0.0, pair) if self.replaced else self._depends(pair.batch[index], pair.factor)
        if module := self._mixing_module(pair):
            name, tensor, place = "mixing", module, None
            text = f"{text}: this layer's outputs depend on others"
        elif apart > 0.05:
            name, shown = "sum", company
            why = "clipping after they are summed, or inputs scaled together"
            text = f"{text}; what it adds depends on the others: {why}"
        elif (
            sum(part > 0.9 * self.allowed for part in moved.values()) > 1
            and moved[tensor] <= self.allowed * (1 + SLACK) + self.rounding
        ):
            name, text = "layers", f"{text}, several tensors by one each: each is clipped by itself"
        else:
            name, text = "clipping", f"{text}, this tensor by {moved[tensor]:.3g}"
        self._note(name, tensor, text, farthest, self.allowed, place, shown)

    def _mixing_module(self, pair: Pair) -> str | None:
        """First layer whose outputs differ for examples that both batches have."""
        if self.replaced:
            rows = zip(pair.batch, pair.neighbour, strict=True)
            ours = theirs = [place for place, (one, other) in enumerate(rows) if one == other]
        else:
            ours = [place for place, row in enumerate(pair.batch) if row in pair.neighbour]
            theirs = list(range(len(pair.neighbour)))
        outputs = [self.player.places(rows, pair.factor).outputs for rows in (pair.batch, pair.neighbour)]
        for place, ((name, first), (_, second)) in enumerate(zip(*outputs, strict=False)):
            sizes = [output.shape[:1] for output in (first, second)]  # of losses that are scalars: ()
            if sizes != [(len(pair.batch),), (len(pair.neighbour),)]:
                continue
            left, right = first[ours].double(), second[theirs].double()
            if left.shape != right.shape or (left - right).norm() > 1e-3 * left.norm():
                return f"{name} (layer {place + 1} of the pass)"
        return None


def _alike(ours: Mapping[str, Array], theirs: Mapping[str, Array], name: str) -> bool:
    """Return whether both releases have an array of this name, of one shape."""
    return name in theirs and ours[name].shape == theirs[name].shape


def _off(factor: float, freedom: float, most: float = 1.0) -> bool:
    """Return True if chance can't explain a standard deviation ``factor`` times the declared one.

    ``most``: largest such factor without chance.
    """
    low, high = (factor / bound for bound in (1 - SLACK, most * (1 + COVER)))
    p = 2 * min(stats.chi2.cdf(low**2 * freedom, freedom), stats.chi2.sf(high**2 * freedom, freedom))
    return bool(p < ERROR)


def _centred(draws: Iterable[Array]) -> Array:
    """(N, M) values: M numbers of each of N runs, minus their means over the runs."""
    values = np.stack([draw.ravel() for draw in draws])
    return np.asarray(values - values.mean(0))


def _correlation(ours: Array, theirs: Array) -> float:
    """Correlation of two arrays whose means are already subtracted; 0 if one array is all zeros."""
    size = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    return float((ours * theirs).sum()) / size if size else 0.0
