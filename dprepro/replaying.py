"""Replay of one DP-SGD step on neighbouring batches, with the same random numbers and with others."""

import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from scipy import stats
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.overrides import TorchFunctionMode

from dprepro.checking import checked, floats
from pipeline.errors import UserError
from pipeline.fields import Positive

DRAWS = 40  # of the noise
REDRAWS = 8  # draws in which another batch's noise is compared: the random numbers are equal, so few suffice
EXAMPLES = 16  # examples that are left out of a batch, one at a time
SMALL = 3  # examples of a small batch, in which one weighs most
LARGER = 100.0  # factor of inputs whose gradients are certainly clipped
SLACK = 1e-3  # relative excess over a bound that arithmetic may cause
ERROR = 1e-5  # p-value below which noise isn't as declared
SILENT = 1e-6  # deviation, relative to the declared one, below which an entry has no noise
VALUES = 200_000  # in a test of the distribution
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
LIBRARIES = tuple(f"{name}/" for name in ("torch", "opacus", "jax", "jaxlib", "numpy", "dprepro", "pipeline"))
Array = np.ndarray
Step = Callable[..., Any]


@dataclass(frozen=True)
class Pair:
    """Neighbouring batches that show a violation: positions in the inputs, and a factor of the inputs."""

    batch: tuple[int, ...]
    neighbour: tuple[int, ...]  # of the same size if an example is replaced
    factor: float


@dataclass(frozen=True)
class Violation:
    """Violated statement of a step's privacy proof."""

    # clipping, layers, sum, mixing, sensitivity, noise, uneven, shared, reused, distribution, divisor, scale,
    # exact, shape or dtype
    name: str
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


@dataclass(frozen=True)
class Replay:
    """Measured sensitivity of a step, in clipping bounds, and violations of its declaration."""

    violations: tuple[Violation, ...]
    sensitivity: dict[str, float]  # by released tensor: largest distance that one example moves it
    sensitivity_of_all: float  # of all tensors together
    sensitivity_allowed: float  # 1, or 2 where neighbours replace an example
    noise: dict[str, float]  # deviation of each released tensor's entries
    noise_declared: float


@dataclass
class _Released:
    """Releases of one run of a step."""

    arrays: dict[str, Array]  # float64
    exact: dict[str, Any]  # numbers, shapes and types, without noise
    random_state: tuple[Any, ...]  # of the generators after the step
    later: dict[str, Array]  # arrays of the next step


@dataclass
class _Places:
    """Lines of the user's code with the step, its draws and its clipping; and outputs of its modules."""

    step: str | None = None
    draws: dict[tuple[int, ...], str] = field(default_factory=dict)  # by shape
    clips: str | None = None
    outputs: list[tuple[str, Tensor]] = field(default_factory=list)  # of modules, in order


class _Lines(TorchFunctionMode):
    """Records the user's line of each call that draws or clips."""

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
    while frame and any(f"/{library}" in frame.f_code.co_filename for library in LIBRARIES):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


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

    It needs no training and no statistics over trainings: a second on a CPU. The same noise with one example
    less gives the sensitivity of each released tensor. The same batch with other noise gives the distribution
    of each entry's noise. Half of the batch, and larger inputs, find releases that depend on private data
    without noise.

    Args:
        train_step: function without arguments that makes network and optimizer anew, always equal, and
            returns a step. The step is called as ``step(inputs, labels)``, or with a third argument ``seed``
            if it takes one, for its own generators; torch's, numpy's and Python's are seeded. It makes one
            step on the batch and returns its release: a mapping of arrays (torch, numpy or jax) and numbers
            by name; a ``torch.nn.Module``, whose gradients are read; an Opacus ``DPOptimizer`` after its
            step; or a pair of module and optimizer.
        inputs: (B, ...) of your own data, as in training; at least eight examples.
        labels: (B, ...) labels of the inputs.
        clip: clipping bound C of each example's gradient; None: the Opacus optimizer's.
        noise_multiplier: deviation of a sum's noise over C; None: the Opacus optimizer's.
        expected_batch_size: divisor of the noisy sum, 1 if sums are released; None: the Opacus optimizer's.
        seed: seed of the random numbers.

    Returns:
        Violations, each with the tensor's name, the line of the user's code, measured and allowed value, and
        the batches; and all measured sensitivities and noise.

    Raises:
        UserError: a claim is missing, there are too few examples, or a step releases nothing, no finite
            numbers, or other numbers with the same seeds.
    """
    if (size := len(inputs)) < 2 * SMALL + 2 or len(labels) != size:
        raise UserError(f"inputs: {size}, labels: {len(labels)}; needed: as many of each, at least 8")
    player = _Player(train_step, inputs, labels, seed)
    claims = player.claims()
    given = {"clip": clip, "noise_multiplier": noise_multiplier, "expected_batch_size": expected_batch_size}
    known = claims | {name: float(value) for name, value in given.items() if value is not None}
    if missing := sorted(given.keys() - known.keys()):
        raise UserError(f"{', '.join(missing)}: unknown; needed, unless a step returns a DPOptimizer")
    player.scale = known["expected_batch_size"] / known["clip"]
    return _Comparison(player, known["noise_multiplier"], known["expected_batch_size"]).replay()


class _Player:
    """Runs of the user's step."""

    def __init__(self, train_step: Step, inputs: Any, labels: Any, seed: int):
        self.train_step, self.inputs, self.labels, self.seed = train_step, inputs, labels, seed
        self.scale = 1.0  # factor from a release to a sum in clipping bounds
        self.size = len(inputs)

    @property
    def scalable(self) -> bool:
        """Return True if inputs are floating-point numbers, and not tokens."""
        return "float" in str(getattr(self.inputs, "dtype", ""))

    def claims(self) -> dict[str, float]:
        """Claims of the step's Opacus optimizer, after a step."""
        returned = self._step(self._made(0), range(self.size), 1.0, 0)
        optimizer = next((part for part in _parts(returned) if hasattr(part, "expected_batch_size")), None)
        if optimizer is None:
            return {}
        return {
            name: float(getattr(optimizer, attribute))
            for name, attribute in (
                ("clip", "max_grad_norm"),
                ("noise_multiplier", "noise_multiplier"),
                ("expected_batch_size", "expected_batch_size"),
            )
        }

    def run(self, draw: int, rows: Sequence[int], factor: float = 1.0, later: bool = False) -> _Released:
        """Releases of a step on the examples ``rows``, times a factor, with the noise of a draw."""
        step = self._made(draw)
        arrays, exact = self._read(self._step(step, rows, factor, draw))
        state = (torch.get_rng_state().numpy().tobytes(), _numpy_state(), random.getstate())
        second, _ = self._read(self._step(step, rows, factor, draw + 1)) if later else ({}, {})
        return _Released(arrays, exact, state, second)

    def places(self, rows: Sequence[int], factor: float = 1.0) -> _Places:
        """Lines of a step's draws and clipping, and outputs of its modules."""
        step = self._made(0)
        code = getattr(step, "__code__", None)
        places = _Places(code and f"{code.co_filename}:{code.co_firstlineno}")

        def note_output(layer: nn.Module, _: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not list(layer.children()):
                places.outputs.append((type(layer).__name__, output.detach().clone()))

        hook = modules.register_module_forward_hook(note_output)
        try:
            with _Lines(places):
                self._step(step, rows, factor, 0)
        finally:
            hook.remove()
        return places

    def _made(self, draw: int) -> Step:
        """Step on a fresh network, with generators seeded for ``draw``."""
        _seed(self.seed)
        step: Step = self.train_step()
        if not callable(step):
            raise UserError(f"train_step: returned {type(step).__name__}; needed: a step to be called")
        _seed(self.seed + 1 + 7919 * draw)
        return step

    def _step(self, step: Step, rows: Sequence[int], factor: float, draw: int) -> Any:
        index = np.asarray(rows)
        inputs, labels = self.inputs[index], self.labels[index]
        inputs = inputs * factor if factor != 1 else inputs
        seeded = (self.seed + 1 + 7919 * draw,) if len(inspect.signature(step).parameters) > 2 else ()
        return step(inputs, labels, *seeded)

    def _read(self, returned: Any) -> tuple[dict[str, Array], dict[str, Any]]:
        """Released arrays in clipping bounds; and released numbers, shapes and types."""
        arrays, exact = dict[str, Array](), dict[str, Any]()
        for name, value in _released(returned):
            if isinstance(value, (bool, int, float, str)) or value is None:
                exact[name] = value
                continue
            exact[f"{name}: dtype"], exact[f"{name}: shape"] = str(value.dtype), tuple(value.shape)
            arrays[name] = floats(f"released {name}", value) * self.scale
            if not np.isfinite(arrays[name]).all() or not arrays[name].size:
                raise UserError(f"released {name}: not finite, or empty; needed: finite numbers")
        if not arrays:
            raise UserError("the step released no array; needed: the noisy gradients, by name")
        return arrays, exact


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _numpy_state() -> tuple[Any, ...]:
    """State of numpy's global generator, in a form for comparisons."""
    name, keys, *others = np.random.get_state()
    return (name, np.asarray(keys).tobytes(), *others)


def _parts(returned: Any) -> tuple[Any, ...]:
    return returned if isinstance(returned, tuple) else (returned,)


def _released(returned: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of a step's return value."""
    parts = _parts(returned)
    network = next((part for part in parts if isinstance(part, nn.Module)), None)
    for part in parts:
        if isinstance(part, Mapping):
            yield from part.items()
        elif isinstance(part, nn.Module):
            for name, parameter in part.named_parameters():
                if parameter.grad is not None:
                    yield name.removeprefix("_module."), parameter.grad
            for name, buffer in part.named_buffers():
                yield f"buffer {name.removeprefix('_module.')}", buffer
        elif isinstance(part, torch.optim.Optimizer):
            groups: Iterable[Mapping[str, Any]] = part.param_groups
            for place, group in enumerate(groups):
                yield f"learning rate of group {place}", float(group["lr"])
                if network is None:
                    for index, parameter in enumerate(group["params"]):
                        yield f"group {place}, parameter {index}", parameter.grad
        else:
            kind = type(part).__name__
            raise UserError(f"the step returned {kind}; needed: a mapping, a module or an optimizer")


class _Comparison:
    """Comparisons of runs of one step."""

    def __init__(self, player: _Player, noise: float, divisor: float):
        self.player, self.noise, self.divisor = player, noise, divisor
        self.found: list[Violation] = []
        self.silent = set[str]()  # tensors with entries that have no noise
        self.every = tuple(range(player.size))
        self.half = self.every[: player.size // 2]
        self.first = player.run(0, self.every)
        again = player.run(0, self.every)
        if any(not np.array_equal(self.first.arrays[name], again.arrays[name]) for name in self.first.arrays):
            raise UserError(
                "the step released other numbers with the same seeds; needed: random numbers of torch's, "
                "numpy's or Python's generators, or of one that is seeded with a third argument, seed"
            )
        self.places = player.places(self.every)
        # if dropout draws as many numbers as a batch has examples, neighbours replace one
        self.replaced = player.run(0, self.half).random_state != self.first.random_state
        self.allowed = 2.0 if self.replaced else 1.0
        self.buffers = {name for name in self.first.arrays if name.startswith("buffer ")}

    def replay(self) -> Replay:
        """Run all comparisons."""
        deviations = self._of_noise()
        parts, total = self._of_examples()
        return Replay(
            tuple(self.found),
            parts,
            total,
            self.allowed,
            {n: float(d) for n, d in deviations.items()},
            self.noise,
        )

    def _note(
        self,
        name: str,
        tensor: str,
        message: str,
        measured: float,
        allowed: float,
        place: str | None,
        pair: Pair | None = None,
    ) -> None:
        if not any((each.name, each.tensor) == (name, tensor) for each in self.found):
            self.found.append(
                Violation(
                    name, tensor, message, float(measured), float(allowed), place or self.places.step, pair
                )
            )

    def _drawn_at(self, name: str) -> str | None:
        """Line that draws the noise of a tensor."""
        shape = self.first.arrays[name].shape
        size = self.first.arrays[name].size
        draws = self.places.draws
        return (
            draws.get(shape)
            or next((at for of, at in draws.items() if np.prod(of) == size), None)
            or (next(iter(draws.values()), None))
        )

    def _of_noise(self) -> dict[str, float]:
        """Noise deviation of each tensor; records violations of the declared noise."""
        runs = [self.player.run(1 + draw, self.every, later=True) for draw in range(DRAWS)]
        names = [name for name in self.first.arrays if name not in self.buffers]
        for name in names:
            if any(run.arrays[name].shape != self.first.arrays[name].shape for run in runs):
                raise UserError(f"released {name}: of other shapes with other noise; needed: the same")
        stacked = {name: np.stack([run.arrays[name].ravel() for run in runs]) for name in names}
        centred = {name: values - values.mean(0) for name, values in stacked.items()}
        freedom = DRAWS - 1
        deviations = {
            name: sqrt(np.square(value).sum() / freedom / value.shape[1]) for name, value in centred.items()
        }
        noisy = [name for name in names if deviations[name] > SILENT * self.noise]
        for name in names:
            squares = np.square(centred[name]).sum(0) / freedom
            silent = float((squares < (SILENT * self.noise) ** 2).mean())
            if silent:
                self.silent.add(name)
                text = f"no noise on {silent:.2g} of its entries: none is added, or the same with every seed"
                self._note("noise", name, text, 0.0, self.noise, self._drawn_at(name))
        freedoms = {name: freedom * centred[name].shape[1] for name in noisy}
        squares = sum((deviations[name] / self.noise) ** 2 * freedoms[name] for name in noisy)
        factor = sqrt(squares / max(1, sum(freedoms.values())))
        alike = not any(self._off(deviations[name] / self.noise / factor, freedoms[name]) for name in noisy)
        if noisy and alike and self._off(factor, sum(freedoms.values())):
            self._of_factor(factor, self._drawn_at(names[0]))
        for name in () if alike else noisy:
            if self._off(deviations[name] / self.noise, freedoms[name]):
                text = f"noise of {deviations[name]:.3g} clipping bounds, declared {self.noise:.3g}"
                self._note("noise", name, text, deviations[name], self.noise, self._drawn_at(name))
        for name in noisy:
            self._of_entries(name, centred[name], deviations[name])
        self._of_pairs(noisy, centred)
        self._of_later(noisy, runs, centred)
        self._of_scales(noisy, centred)
        return deviations

    def _of_factor(self, factor: float, drawn_at: str | None) -> None:
        """Record noise of all tensors that is off by one factor: a divisor, if sums are off as well."""
        larger = LARGER if self.player.scalable else 1.0
        shifted = 0.0
        for index in range(self.player.size // 2):  # some have almost no gradient
            moved, _ = self._moved(self.half, self._neighbour(self.half, index), larger)
            shifted = max(shifted, sqrt(sum(part**2 for part in moved.values())))
        if not self.replaced and abs(shifted / factor - 1) < 0.1:
            text = f"sums and noise are divided by {self.divisor / factor:.4g}, declared {self.divisor:.4g}"
            self._note("divisor", "all", text, self.divisor / factor, self.divisor, self.places.step)
        else:
            text = f"noise of {factor * self.noise:.3g} clipping bounds, declared {self.noise:.3g}"
            self._note("noise", "all", text, factor * self.noise, self.noise, drawn_at)

    @staticmethod
    def _off(factor: float, freedom: float) -> bool:
        """Return True if a deviation of so many degrees of freedom differs from the declared one."""
        squares = factor**2 * freedom
        p = 2 * min(stats.chi2.cdf(squares, freedom), stats.chi2.sf(squares, freedom))
        return bool(p < ERROR and abs(factor - 1) > SLACK)

    def _of_entries(self, name: str, noise: Array, deviation: float) -> None:
        """Test one tensor's noise: equal deviation of all entries, independence, Gaussian law."""
        freedom, entries = len(noise) - 1, noise.shape[1]
        scaled = noise / deviation
        squares = np.square(scaled).sum(0)
        silent = squares < SILENT**2
        p = entries * min(
            stats.chi2.cdf(squares[~silent].min(), freedom), stats.chi2.sf(squares.max(), freedom)
        )
        if p < ERROR and not silent.any():
            low, high = sqrt(squares.min() / freedom), sqrt(squares.max() / freedom)
            text = f"noise is {low:.2g} of the usual on some entries, and {high:.2g} on others"
            self._note("uneven", name, text, low, 1.0, self._drawn_at(name))
            return
        means = float(np.square(scaled.sum(1)).sum() / entries)  # chi-square if entries are independent
        if entries > 1 and stats.chi2.sf(means, freedom) < ERROR:
            text = "its entries share their noise, so that their differences have less"
            self._note("shared", name, text, sqrt(means / freedom), 1.0, self._drawn_at(name))
            return
        values = scaled[:, : max(1, VALUES // len(scaled))].ravel() * sqrt(len(scaled) / freedom)
        if not silent.any() and stats.kstest(values, "norm").pvalue < ERROR:
            kurtosis = float(stats.kurtosis(values))
            text = f"noise that isn't Gaussian: excess kurtosis {kurtosis:.2g} (uniform -1.2, Laplace 3)"
            self._note("distribution", name, text, kurtosis, 0.0, self._drawn_at(name))

    def _of_pairs(self, names: Sequence[str], noise: Mapping[str, Array]) -> None:
        """Record tensors that share noise, from their first entry on or up to their last."""
        for place, name in enumerate(names):
            for other in names[:place]:
                size = min(noise[name].shape[1], noise[other].shape[1])
                for ends in (slice(size), slice(-size, None)):
                    ours, theirs = noise[name][:, ends].ravel(), noise[other][:, ends].ravel()
                    alike = float(ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs))
                    if 2 * stats.norm.sf(abs(alike) * sqrt(size * (DRAWS - 1))) < ERROR / len(names) ** 2:
                        text = f"its noise correlates with that of {other} by {alike:.2f}"
                        self._note("shared", name, text, alike, 0.0, self._drawn_at(name))

    def _of_later(self, names: Sequence[str], runs: Sequence[_Released], noise: Mapping[str, Array]) -> None:
        """Record noise that is reused in the next step."""
        for name in names:
            if any(name not in run.later for run in runs):
                continue
            later = np.stack([run.later[name].ravel() for run in runs])
            later -= later.mean(0)
            size = float(np.linalg.norm(later) * np.linalg.norm(noise[name]))
            alike = float((later * noise[name]).sum()) / size if size else 0.0
            if alike > 0.9:
                text = f"its noise correlates with that of the next step by {alike:.2f}"
                self._note("reused", name, text, alike, 0.0, self._drawn_at(name))

    def _of_scales(self, names: Sequence[str], noise: Mapping[str, Array]) -> None:
        """Record noise whose scale depends on the batch: on its size, or on its values."""
        larger = LARGER if self.player.scalable else 1.0
        draws = DRAWS if self.replaced else REDRAWS
        for rows, factor, kind in ((self.half, 1.0, "divisor"), (self.every, larger, "scale")):
            if kind == "scale" and factor == 1:
                continue
            runs = [self.player.run(1 + draw, rows, factor) for draw in range(draws)]
            for name in names:
                if any(run.arrays[name].size != noise[name].shape[1] for run in runs):
                    continue  # another shape is recorded elsewhere
                others = np.stack([run.arrays[name].ravel() for run in runs])
                others -= others.mean(0)
                usual = noise[name][:draws] - noise[name][:draws].mean(0)
                ratio = float(np.linalg.norm(others) / np.linalg.norm(usual))
                # the same random numbers, unless dropout draws some before
                error = 5 / sqrt(noise[name].size) + 0.01 if self.replaced else 0.01
                if abs(ratio - 1) > error:
                    text = (
                        f"the noise of half the batch is {ratio:.3g} times that of all: a divisor that "
                        "follows the batch size, which is private"
                        if kind == "divisor"
                        else f"noise of {factor:g} times as large inputs is {ratio:.3g} times that of others"
                    )
                    tensor = "all" if len(names) > 1 else name
                    place = self.places.step if kind == "divisor" else self._drawn_at(name)
                    self._note(kind, tensor, text, ratio, 1.0, place)

    def _moved(
        self, batch: Sequence[int], neighbour: Sequence[int], factor: float
    ) -> tuple[dict[str, float], dict[str, Array]]:
        """Distance of each tensor between a batch and its neighbour, and the differences."""
        ours, theirs = (self.player.run(0, rows, factor) for rows in (batch, neighbour))
        pair = Pair(tuple(batch), tuple(neighbour), factor)
        for name in sorted(ours.exact.keys() | theirs.exact.keys()):
            was, now = ours.exact.get(name), theirs.exact.get(name)
            if was != now:
                kind = name.partition(": ")[2] or "exact"
                text = f"is {was} with an example and {now} without it: no noise hides this"
                self._note(kind, name.partition(": ")[0], text, 1.0, 0.0, self.places.step, pair)
        apart = {
            name: value - theirs.arrays[name]
            for name, value in ours.arrays.items()
            if name in theirs.arrays and theirs.arrays[name].shape == value.shape
        }
        for name in self.buffers & apart.keys():
            if np.abs(apart[name]).max(initial=0) > SILENT:
                text = "a buffer is kept that follows private data without noise"
                self._note(
                    "exact", name, text, float(np.linalg.norm(apart[name])), 0.0, self.places.step, pair
                )
        moved = {
            name: float(np.linalg.norm(value)) for name, value in apart.items() if name not in self.buffers
        }
        return moved, apart

    def _neighbour(self, batch: Sequence[int], index: int) -> tuple[int, ...]:
        """Batch without its example at ``index``, or with another example in its place."""
        if not self.replaced:
            return tuple(row for place, row in enumerate(batch) if place != index)
        other = batch[(index + 1) % len(batch)]
        return tuple(other if place == index else row for place, row in enumerate(batch))

    def _of_examples(self) -> tuple[dict[str, float], float]:
        """Largest distance that one example moves each tensor, and all together; records a violation."""
        most, farthest, worst = dict[str, float](), 0.0, None
        rounding = 1e-6 * max(float(np.linalg.norm(value)) for value in self.first.arrays.values())
        for factor in (1.0, LARGER) if self.player.scalable else (1.0,):
            for batch in (self.every[:SMALL], self.half, self.every):
                for index in range(min(len(batch), EXAMPLES)):
                    neighbour = self._neighbour(batch, index)
                    moved, _ = self._moved(batch, neighbour, factor)
                    total = sqrt(sum(part**2 for part in moved.values()))
                    most = {name: max(most.get(name, 0.0), part) for name, part in moved.items()}
                    if total > farthest:
                        farthest, worst = total, (batch, neighbour, index, factor, moved)
        assert worst is not None
        if farthest > self.allowed * (1 + SLACK) + rounding:
            self._explain(*worst, farthest)
        elif not self.replaced:
            self._of_company(rounding)
        for name in self.silent & most.keys():
            if most[name] > SILENT:
                text = f"one example moves it by {most[name]:.3g} clipping bounds, and entries have no noise"
                self._note("exact", name, text, most[name], 0.0, self.places.step)
        return most, farthest

    def _contribution(self, index: int, company: Sequence[int], factor: float) -> dict[str, Array]:
        """Contribution of one example to each tensor, in a batch with the examples ``company``."""
        batch = (index, *(row for row in company if row != index))
        return self._moved(batch, batch[1:], factor)[1]

    def _depends(self, index: int, factor: float, rounding: float) -> tuple[float, Pair]:
        """Largest difference of an example's contribution between two batches, and one of these batches."""
        few, many = self.every[-SMALL:], self.every
        ours, theirs = (self._contribution(index, company, factor) for company in (few, many))
        squares = sum(
            float(np.square(value - theirs[name]).sum()) for name, value in ours.items() if name in theirs
        )
        batch = (index, *(row for row in few if row != index))
        return max(0.0, sqrt(squares) - 4 * rounding), Pair(batch, batch[1:], factor)

    def _of_company(self, rounding: float) -> None:
        """Record contributions that depend on other examples, though none is too large."""
        for factor in (1.0, LARGER) if self.player.scalable else (1.0,):
            apart, pair = self._depends(0, factor, rounding)
            if apart > 0.02 and not any(each.name in ("divisor", "scale") for each in self.found):
                self._mixed(apart, pair)
                return

    def _mixed(self, apart: float, pair: Pair) -> None:
        module = self._mixing_module(pair)
        text = f"an example adds {apart:.3g} clipping bounds more or less as others are in the batch"
        if module:
            self._note(
                "mixing", module, f"{text}: this layer's outputs depend on them", apart, 0.0, None, pair
            )
        else:
            self._note("mixing", "all", text, apart, 0.0, self.places.clips, pair)

    def _explain(
        self,
        batch: Sequence[int],
        neighbour: Sequence[int],
        index: int,
        factor: float,
        moved: Mapping[str, float],
        farthest: float,
    ) -> None:
        """Record the reason why one example moves a sum too far."""
        pair = Pair(tuple(batch), tuple(neighbour), factor)
        worst = next(name for name, part in moved.items() if part >= 0.99 * max(moved.values()))
        text = f"one example moves the sum by {farthest:.3g} clipping bounds, allowed {self.allowed:g}"
        if any(each.name == "divisor" and each.tensor == "all" for each in self.found):
            return  # the divisor already changes all contributions
        rounding = 1e-6 * max(float(np.linalg.norm(value)) for value in self.first.arrays.values())
        bound = self.allowed * (1 + SLACK) + rounding
        module = self._mixing_module(pair)
        if self.replaced:
            apart, place = 0.0, pair
        else:
            apart, place = self._depends(batch[index], factor, rounding)
        if module:
            self._note(
                "mixing",
                module,
                f"{text}: this layer's outputs depend on others",
                farthest,
                self.allowed,
                None,
                pair,
            )
        elif apart > 0.05:
            why = "clipping after they are summed, or inputs scaled together"
            text = f"{text}; what it adds depends on the others: {why}"
            self._note("sum", worst, text, farthest, self.allowed, self.places.clips, place)
        elif sum(part > 0.9 * self.allowed for part in moved.values()) > 1 and moved[worst] <= bound:
            text = f"{text}, several tensors by one each: each is clipped by itself"
            self._note("layers", worst, text, farthest, self.allowed, self.places.clips, pair)
        else:
            text = f"{text}, this tensor by {moved[worst]:.3g}"
            self._note("clipping", worst, text, farthest, self.allowed, self.places.clips, pair)

    def _mixing_module(self, pair: Pair) -> str | None:
        """First layer whose outputs differ for examples that both batches have."""
        both = [place for place, row in enumerate(pair.batch) if pair.neighbour[place : place + 1] == (row,)]
        if not self.replaced:
            gone = next((i for i, row in enumerate(pair.batch) if pair.neighbour[i : i + 1] != (row,)), None)
            ours = [place for place in range(len(pair.batch)) if place != gone]
            theirs = list(range(len(pair.neighbour)))
        else:
            ours = theirs = both
        outputs = [self.player.places(rows, pair.factor).outputs for rows in (pair.batch, pair.neighbour)]
        for place, ((name, first), (_, second)) in enumerate(zip(*outputs, strict=False)):
            if len(first) != len(pair.batch) or len(second) != len(pair.neighbour):
                continue
            left, right = first[ours].double(), second[theirs].double()
            if left.shape != right.shape or (left - right).norm() > 1e-3 * left.norm():
                return f"{name} (layer {place + 1} of the pass)"
        return None
