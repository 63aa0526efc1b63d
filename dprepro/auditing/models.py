"""Lower bounds on epsilon of your own training by canaries, from every step or from the final model."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, SkipValidation
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from dprepro.accountants.records import SampledGaussian
from dprepro.auditing.attacks import ratios
from dprepro.auditing.canaries import (
    Canaries,
    attainable_bounds,
    canary_bounds,
    fair_coins,
    make_canaries,
    margins,
)
from dprepro.auditing.epsilon_bounds import ASSUMING_NOTHING, AuditedEpsilon, Confidence, largest
from dprepro.auditing.verdicts import Shown, Verdict, beyond, could_have_shown
from dprepro.checking import checked, floats, refuse_sparse
from dprepro.clipping.functional import evaluating, of_each, outputs_of
from dprepro.errors import UserError
from dprepro.fields import Count, Delta, Epsilon, Positive

LONG = 1e6  # length of a gradient canary, above any clipping bound
WRAPPED = "_module."  # prefix of parameter names in a module wrapped by Opacus
AT_ONCE = 500  # canaries in a pass
EXPECTED = 20.0  # expected number of canaries in batches above which a right training certainly has one
NUMBERS = 2e7  # largest number of canaries' gradient entries in memory
Train = Callable[[Any, Any], Any]
Kind = Literal["mislabelled", "extreme", "gradient"]


@dataclass(frozen=True, repr=False)
class ModelAudit(Shown):
    """Verdict on a training; lower bounds on epsilon by canaries, and those of a perfect attacker."""

    epsilon_claimed: float | None
    delta: float
    attack: AuditedEpsilon  # lower bounds; they prove no privacy
    # lower bounds by name: one_run, one_run_curve; for one canary in many runs also errors, gaussian
    by: dict[str, float]
    could_show: dict[str, float]  # bounds of a perfect attacker on a training with `epsilon_claimed`
    sees: str  # 'every step' or 'the final model'
    without: np.ndarray  # scores of canaries outside the training data
    within: np.ndarray  # scores of canaries in the training data
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """The verdict; 'wrong' if a lower bound is above the claimed epsilon. Otherwise nothing is proven."""
        shown = max(self.attack.epsilon_lower, self.attack.if_gaussian)
        return (
            "wrong" if self.epsilon_claimed is not None and shown > self.epsilon_claimed else "nothing found"
        )

    def _reasons(self) -> list[str]:
        lower, gaussian = self.attack.epsilon_lower, self.attack.if_gaussian
        if self.verdict == "wrong" and self.epsilon_claimed is not None:
            upper = self.epsilon_claimed
            found = beyond(max(lower, gaussian), lower <= upper, upper, self.attack.confidence)
        else:
            found = could_have_shown(max(self.could_show.values()))
        claimed = "unknown" if self.epsilon_claimed is None else f"{self.epsilon_claimed:g}"
        return [
            found,
            f"shown by an attacker who sees {self.sees}: epsilon >= {lower:.3g}, and >= {gaussian:.3g} if "
            f"the mechanism is Gaussian (confidence {self.attack.confidence:g})",
            f"claimed epsilon: {claimed} at delta {self.delta:g}; {len(self.without)} canaries out, "
            f"{len(self.within)} in",
        ]


@checked
def audit_model(
    train: Train,
    inputs: SkipValidation[Any],
    labels: SkipValidation[Any],
    *,
    delta: Delta,
    epsilon_claimed: Epsilon | None = None,
    canaries: Count = 1000,
    kind: Kind = "mislabelled",
    runs: Count = 1,
    replace: bool = False,
    confidence: Confidence = 0.95,
    seed: Annotated[int, Field(ge=0)] = 0,
    say: Callable[[str], None] = print,
) -> ModelAudit:
    """Train your network on your data with canaries, and compute lower bounds on epsilon.

    A canary takes the place of an example, and a fair coin decides whether it is in the training data. An
    attacker guesses the coins of the canaries with the clearest scores, in fixed shares of all canaries
    (Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2024). One canary in many runs also
    has bounds from error rates: even runs give the thresholds, and odd runs the errors (Clopper and Pearson;
    Nasr et al. 2023).

    Args:
        train: function of inputs and labels, which have the types of ``inputs`` and ``labels``. If the
            function returns the trained network, a ``torch.nn.Module`` or a function from inputs to (B, K)
            logits, the attacker sees the final model. If the function yields the network before the first
            step and after each step, the attacker sees every step. Then each parameter's ``grad`` is the
            released noisy gradient, and the network must run under ``torch.func.vmap``. The function may also
            yield pairs of the network and its Opacus ``DPOptimizer``. A ``torch.nn.Module`` gets tensors on
            its own device.
        inputs: (N, ...) tensor or array of the training examples, or a dict of such by keyword. Then canaries
            are 'mislabelled', and the network gets keywords and may have named outputs with ``logits``.
        labels: (N,) classes of the training examples, from 0.
        delta: delta of the guarantee.
        epsilon_claimed: epsilon of the training, for comparison.
        canaries: number of canaries in each run.
        kind: 'mislabelled': your examples with another label. 'extreme': random labels, and inputs with only
            the smallest and largest values; the first canary has only the largest. 'gradient': long gradients
            with a direction each, which replace examples' gradients in the Opacus optimizer.
        runs: number of trainings, each with separate coins.
        replace: True for neighbours that replace an example: a canary outside leaves the original example in
            its place. The default is for neighbours that add or remove an example.
        confidence: confidence of each of the two bounds of ``attack``.
        seed: seed of canaries and coins.
        say: function that receives lines of text: the median bound of a perfect attacker, then the time left.

    Returns:
        Lower bounds on epsilon, the bounds of a perfect attacker, and the scores of all canaries.

    Raises:
        UserError: there are too few examples, classes or weights for the canaries; ``train`` returns no
            network, or yields no steps for gradient canaries.
    """
    given_labels = floats("labels", labels)
    if given_labels.ndim != 1 or not (given_labels >= 0).all() or (given_labels % 1).any():
        raise UserError(
            f"labels: of shape {given_labels.shape}; needed: (N,) classes, which are whole numbers from 0"
        )
    own_labels = given_labels.astype(int)
    classes = int(own_labels.max(initial=0)) + 1
    by_name = dict(inputs) if isinstance(inputs, Mapping) else {"inputs": inputs}
    sizes = {len(values) for values in by_name.values()}
    if isinstance(inputs, Mapping) and kind != "mislabelled":
        raise UserError(f"kind: {kind}, with inputs by keyword; allowed: mislabelled")
    if sizes != {len(own_labels)} or not canaries <= len(own_labels) or classes < 2:
        counts = (
            f"inputs: {', '.join(map(str, sorted(sizes)))}, labels: {len(own_labels)} of {classes} classes"
        )
        raise UserError(f"{counts}; needed: as many of each, at least {canaries} (canaries), 2 classes")
    form = "extreme" if kind == "gradient" else kind
    # inputs by keyword have positions in their place, as a mislabelled canary's inputs are an example's
    positions = np.arange(len(own_labels)) if isinstance(inputs, Mapping) else None
    stored = _stored(inputs) if positions is None else positions
    made = make_canaries(form, stored, own_labels, canaries, classes, seed)
    alpha, trials, independent = 1 - confidence, runs * canaries, canaries == 1
    could_show = attainable_bounds(epsilon_claimed, delta, trials, independent, alpha)
    of = "a training without noise" if epsilon_claimed is None else f"the claimed {epsilon_claimed:g}"
    most, if_gaussian = (largest(could_show, names) for names in (ASSUMING_NOTHING, None))
    say(
        f"{canaries} canaries, {runs} trainings: of {of} a perfect attacker shows epsilon >= {most:.2f}, and "
        f"{if_gaussian:.2f} if it is Gaussian"
    )
    begun = time.monotonic()
    present, scores, sees = fair_coins(runs, canaries, seed), [], set[str]()
    seen, expected = 0, 0.0  # numbers of gradient canaries in the batches so far
    for run, inside in enumerate(present):
        given = inputs if positions is None else positions
        rows, classes_of_rows = _with_canaries(given, labels, made, inside, replace)
        own = _like(made.inputs, given)
        if positions is not None:
            rows, own = (of_each(inputs, itemgetter(index)) for index in (rows, own))
        returned = train(rows, classes_of_rows)
        attack = _Steps(made, kind == "gradient", len(own_labels), own)
        if isinstance(returned, Iterator):
            scores.append(attack.scores(returned))
            sees.add("every step")
            seen, expected = seen + attack.seen, expected + attack.rows * inside.sum() / len(own_labels)
            if kind == "gradient" and not seen and expected > (EXPECTED if run < runs - 1 else 0):
                raise UserError(
                    "train: no batch had a canary's input; needed: inputs as they were given, in more steps "
                    "or runs"
                )
        elif kind == "gradient":
            raise UserError("kind: gradient; needed: to yield the network and its DPOptimizer, step by step")
        else:
            scores.append(final_scores(returned, own, made.labels))
            sees.add("the final model")
        if run == 0 and runs > 1:
            left = (time.monotonic() - begun) * (runs - 1)
            say(f"{runs - 1} more trainings take about {left / 60:.1f} minutes")
    values = np.stack(scores)
    without, within = values[~present], values[present]
    if not len(without) or not len(within):
        raise UserError(
            f"canaries: {canaries}, runs: {runs}; needed: more, as no coin fell on one of its sides"
        )
    found = canary_bounds(without, within, independent, alpha, delta)
    return ModelAudit(
        epsilon_claimed,
        delta,
        AuditedEpsilon.of(found, confidence),
        found,
        could_show,
        sees.pop(),
        without,
        within,
        time.monotonic() - begun,
    )


@checked
def worst_start(
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    epochs: Count = 20,
    learning_rate: Positive = 1e-3,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> nn.Module:
    """Copy of a network, trained by Adam without privacy on public examples similar to the private ones.

    An attacker may choose the initial weights of a private training. With these weights, ordinary examples
    have gradients near 0, and a canary's gradient stands out (Annamalai and De Cristofaro 2024).

    Args:
        network: function from inputs to logits (B, K).
        inputs: (N, ...) examples, none of them in the audited training.
        labels: (N,) classes.
        epochs: passes over the examples.
        learning_rate: learning rate of Adam.
        seed: seed of the order of the examples.

    Returns:
        The trained copy.

    Raises:
        UserError: inputs, labels and logits don't fit, or ``learning_rate`` is not above 0 and finite.
    """
    if labels.ndim != 1 or not 0 < len(labels) == len(inputs) or (labels % 1).any() or (labels < 0).any():
        raise UserError(
            f"inputs: of shape {tuple(inputs.shape)}, labels {tuple(labels.shape)}; needed: (N, ...), and "
            "(N,) classes from 0, at least one"
        )
    start, generator = copy.deepcopy(network), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(start.parameters(), lr=learning_rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels), generator=generator).split(64):
            optimizer.zero_grad()
            logits = start(inputs[rows])
            if logits.ndim != 2 or logits.shape[1] <= labels.max():
                shape = tuple(logits.shape)
                raise UserError(f"logits: of shape {shape}; needed: (B, K) of B inputs and all K classes")
            F.cross_entropy(logits, labels[rows].long()).backward()
            optimizer.step()
    start.zero_grad()
    return start


def final_scores(network: Any, inputs: Any, labels: np.ndarray) -> np.ndarray:
    """Log-odds that a trained network gives to the canaries' labels.

    Returns:
        (m,) scores.

    Raises:
        UserError: ``network`` isn't callable, or its logits have another shape or aren't finite.
    """
    if not callable(network):
        raise UserError(f"train: returned {type(network).__name__}; needed: the network, or to yield it")
    if isinstance(network, nn.Module):  # a training may itself make tensors of arrays, and move them
        inputs = _as_network(inputs, network)
    with torch.no_grad(), evaluating(network) if isinstance(network, nn.Module) else nullcontext():
        parts = [
            floats("logits", _outputs(network, of_each(inputs, itemgetter(slice(start, start + AT_ONCE)))))
            for start in range(0, len(labels), AT_ONCE)
        ]
    logits = np.concatenate(parts)
    if logits.ndim != 2 or len(logits) != len(labels) or logits.shape[1] <= labels.max():
        raise UserError(f"logits: of shape {logits.shape}; needed: (B, K) of B inputs and all K classes")
    if not np.isfinite(logits).all():
        raise UserError("logits: not finite; needed: a network whose training didn't diverge")
    return margins(logits, labels)


def _outputs(network: Any, inputs: Any) -> Any:
    """Logits of ``inputs``, which may have keywords."""
    if isinstance(inputs, dict):
        return outputs_of(network(**inputs), inputs)
    return network(inputs)


def _with_canaries(
    inputs: Any, labels: Any, canaries: Canaries, inside: np.ndarray, replace: bool
) -> tuple[Any, Any]:
    """Copies of the user's inputs and labels, with the canaries for which ``inside`` (m,) is True."""
    kept = np.ones(len(labels), bool)
    kept[canaries.positions[~inside]] = replace
    places = canaries.positions[inside]
    parts = []
    for values, theirs in ((inputs, canaries.inputs), (labels, canaries.labels)):
        changed = values.clone() if isinstance(values, Tensor) else np.array(values)
        changed[places] = _like(theirs[inside], values)
        parts.append(changed[kept])
    return parts[0], parts[1]


def _like(values: np.ndarray, others: Any) -> Any:
    """``values`` in the type and on the device of ``others``."""
    if isinstance(others, Tensor):
        return torch.from_numpy(values).to(others)
    return values.astype(np.asarray(others).dtype)


def _as_network(inputs: Any, network: nn.Module) -> Any:
    """``inputs`` as tensors on the network's device; arrays of floats get the type of its parameters."""
    if isinstance(inputs, dict):
        return {name: _as_network(values, network) for name, values in inputs.items()}
    tensor = torch.as_tensor(inputs)
    parameter = next(network.parameters(), tensor)
    is_array = not isinstance(inputs, Tensor) and tensor.is_floating_point()
    return tensor.to(parameter.device, parameter.dtype if is_array else tensor.dtype)


class _Steps:
    """Scores of canaries from the releases of all steps of one training."""

    def __init__(self, canaries: Canaries, gradients: bool, examples: int, inputs: Any):
        """Take the canaries of one training, and their ``inputs`` as ``train`` gets them.

        ``gradients``: True for canaries of kind 'gradient'. ``examples``: number of the user's examples.
        """
        self.gradients, self.examples = gradients, examples
        self.given = inputs
        self.labels = torch.from_numpy(canaries.labels.astype(np.int64))
        self.places = list[tuple[str, tuple[int, ...]]]()  # tensor and entry of each canary's gradient
        self.seen, self.rows = 0, 0  # numbers of canaries and of all examples in batches so far

    def scores(self, steps: Iterator[Any]) -> np.ndarray:
        """Scores of the canaries from all steps.

        Returns:
            (m,) log likelihood ratios if an Opacus optimizer has noise, otherwise summed projections.

        Raises:
            UserError: no step or no network is yielded.
        """
        moved: list[np.ndarray] = []
        before: Mapping[str, Tensor] | None = None
        bare, optimizer = nn.Module(), None
        for yielded in steps:
            network, optimizer = yielded if isinstance(yielded, tuple) else (yielded, None)
            if optimizer is not None and getattr(optimizer, "_is_last_step_skipped", False):
                continue  # Opacus's BatchMemoryManager: it released nothing
            if not isinstance(network, nn.Module):
                raise UserError(f"train: yielded {type(network).__name__}; needed: a torch.nn.Module")
            if before is None:
                bare = _without_hooks(network)
                if self.gradients:
                    self._inject_gradients(network, optimizer)
            else:
                moved.append(self._projections(network, bare, before))
            if not self.gradients or before is None:
                before = {name: value.detach().clone() for name, value in network.named_parameters()}
        if not moved:
            raise UserError(
                "train: yielded no step; needed: the network before the first step and after each"
            )
        if optimizer is None or not optimizer.noise_multiplier:
            return np.asarray(np.stack(moved).sum(0))
        batch = optimizer.expected_batch_size or 1
        spending = SampledGaussian(
            sampling="poisson",
            noise_multiplier=optimizer.noise_multiplier,
            examples=max(self.examples, batch),
            batch=batch,
        )
        divisor = 1 if optimizer.loss_reduction == "sum" else batch
        return ratios(np.stack(moved) * (divisor / optimizer.max_grad_norm), spending)

    def _projections(self, network: nn.Module, bare: nn.Module, before: Mapping[str, Tensor]) -> np.ndarray:
        """(m,) projections of a step's release on the canaries' gradients at the weights ``before`` it."""
        released = {name: value.grad for name, value in network.named_parameters() if value.grad is not None}
        if not released:
            raise UserError("train: yielded a network without gradients; needed: those that a step released")
        if self.gradients:
            return np.array([float(released[name][place]) for name, place in self.places])
        fixed = {name: value for name, value in before.items() if name not in released}
        fixed |= dict(network.named_buffers())

        def loss(tensors: Mapping[str, Tensor], row: Any, label: Tensor) -> Tensor:
            everything = {name.removeprefix(WRAPPED): value for name, value in {**fixed, **tensors}.items()}
            one = {name: value[None] for name, value in row.items()} if isinstance(row, dict) else row[None]
            arguments, named = ((), one) if isinstance(one, dict) else ((one,), {})
            outputs = outputs_of(functional_call(bare, everything, arguments, named), one)
            return F.cross_entropy(outputs, label[None])

        def projection(row: Any, label: Tensor) -> Tensor:
            gradient = grad(loss)({name: before[name] for name in released}, row, label)
            norm = torch.stack([value.norm() for value in gradient.values()]).norm()
            along = torch.stack([(value * released[name]).sum() for name, value in gradient.items()]).sum()
            return along / norm.clamp_min(1e-12)

        size = max(1, min(AT_ONCE, int(NUMBERS / sum(value.numel() for value in released.values()))))
        inputs = _as_network(self.given, network)
        labels = self.labels.to(next(iter(before.values())).device)
        return floats("released", vmap(projection, chunk_size=size)(inputs, labels))

    def _inject_gradients(self, network: nn.Module, optimizer: Any) -> None:
        """Make ``optimizer`` give each canary a gradient in one entry of its own, where all others get 0."""
        from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping  # takes a second

        ghost = isinstance(optimizer, DPOptimizerFastGradientClipping)  # it has no single gradients
        if ghost or not isinstance(optimizer, DPOptimizer):
            raise UserError(
                "kind: gradient; needed: to yield pairs of the network and its Opacus DPOptimizer, without "
                "ghost clipping"
            )
        trained = {name: value for name, value in network.named_parameters() if value.requires_grad}
        ends = np.cumsum([value.numel() for value in trained.values()])
        if ends[-1] < len(self.labels):
            raise UserError(f"canaries: {len(self.labels)}; allowed: as many as weights, {ends[-1]}")
        for entry in np.random.default_rng(0).choice(ends[-1], len(self.labels), replace=False):
            part = int(np.searchsorted(ends, entry, side="right"))
            name, value = list(trained.items())[part]
            place = np.unravel_index(entry - ends[part] + value.numel(), value.shape)
            self.places.append((name, tuple(map(int, place))))
        canaries = {_bytes(row): canary for canary, row in enumerate(torch.as_tensor(self.given))}
        if len(canaries) < len(self.labels):
            raise UserError(f"canaries: {len(self.labels)}; allowed: fewer, as inputs have too few entries")
        batch: list[int | None] = []  # the canary in each row of the batch

        def note_batch(_: Any, arguments: tuple[Any, ...]) -> None:
            if not arguments:
                raise UserError("kind: gradient; needed: a network whose inputs are its first argument")
            if network.training:
                batch[:] = [canaries.get(_bytes(row)) for row in arguments[0]]

        clip = optimizer.clip_and_accumulate

        def with_gradients() -> None:
            samples: dict[str, Any] = {name: vars(value)["grad_sample"] for name, value in trained.items()}
            if any(isinstance(sample, list) or len(sample) != len(batch) for sample in samples.values()):
                raise UserError(
                    "kind: gradient; needed: a step of the optimizer after each backward pass, and no other "
                    "call of the network in training mode before it"
                )
            for name, place in self.places:
                samples[name][(slice(None), *place)] = 0
            self.rows += len(batch)
            for row, canary in enumerate(batch):
                if canary is not None:
                    self.seen += 1
                    for sample in samples.values():
                        sample[row] = 0
                    name, place = self.places[canary]
                    samples[name][(row, *place)] = LONG
            clip()

        network.register_forward_pre_hook(note_batch)
        optimizer.clip_and_accumulate = with_gradients


def _without_hooks(network: nn.Module) -> nn.Module:
    """Copy of a network, or of the module that Opacus wrapped, in evaluation mode and without hooks."""
    bare = copy.deepcopy(getattr(network, WRAPPED.rstrip("."), network)).eval()
    for part in bare.modules():
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            getattr(part, kind).clear()
    return bare


def _bytes(row: Tensor) -> bytes:
    return _stored(row).tobytes()


def _stored(inputs: Any) -> np.ndarray:
    """Inputs as an array, which has no bfloat16."""
    if not isinstance(inputs, Tensor):
        return np.asarray(inputs)
    refuse_sparse("inputs", inputs)
    held = inputs.detach().cpu()
    return (held.float() if held.dtype == torch.bfloat16 else held).numpy()
