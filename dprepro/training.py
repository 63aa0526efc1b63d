"""An attack on anybody's training with DP-SGD."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import getclosurevars, isfunction
from math import ceil
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from dprepro.accounting import epsilon
from dprepro.auditing import AuditedEpsilon, Confidence
from dprepro.checking import checked, floats
from pipeline.audits import bounds
from pipeline.audits.mechanism import ratios, repeats
from pipeline.audits.mistakes import Mistake, recognise
from pipeline.errors import UserError
from pipeline.privacy.parameters import Delta, Epsilon
from pipeline.privacy.sampled_gaussian import SampledGaussian

SHORT, LONG = 1e3, 1e4  # lengths of examples' gradients, above any clipping bound
BLANKS = 500  # directions that no example has
FEWEST_STEPS, FEWEST_IN_BATCH = 20, 20  # from which sums of batches are about normal
MOST_EXAMPLES = 50_000  # take 20 GB in the attacker's directions
SHARES = 10**6  # of all examples, in which a sampling rate is accounted for
ERROR = 0.001  # with which a right training looks like any mistake
TESTS = 7

Train = Callable[[np.ndarray], Iterable[Any]]


@dataclass(frozen=True)
class Claims:
    """What a training says of itself."""

    noise_multiplier: float  # standard deviation of a sum's noise over the clipping bound
    sample_rate: float
    steps: int
    delta: float
    epsilon: float | None  # as its own accountant says; None: not given


@dataclass(frozen=True)
class TrainingAudit:
    """What a training claims, what its settings spend and what an attack on it shows."""

    claimed: Claims
    epsilon_upper: float | None  # upper bound on epsilon of the claimed settings, by `epsilon`
    attack: AuditedEpsilon  # lower bounds: so much is spent at least; no safety
    looks_like: tuple[Mistake, ...]  # hints; of right trainings about one in a thousand has any

    @property
    def broken(self) -> bool:
        """Whether the attack shows more than is claimed or accounted. False proves nothing."""
        upper = [value for value in (self.claimed.epsilon, self.epsilon_upper) if value is not None]
        return bool(upper) and max(self.attack.epsilon_lower, self.attack.if_gaussian) > min(upper)


@checked
def audit_training(
    train: Train,
    *,
    delta: Delta,
    noise_multiplier: float | None = None,
    sample_rate: float | None = None,
    epsilon_claimed: Epsilon | None = None,
    examples: Annotated[int, Field(ge=2, le=MOST_EXAMPLES, multiple_of=2)] = 1000,
    confidence: Confidence = 0.95,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> TrainingAudit:
    """Attack a training, run twice on examples of the attacker's own, by whoever sees every step.

    In the first run each example is there by a fair coin and has a direction of its own; from what was
    released in it the attacker guesses whether it was (Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis
    and Chaudhuri 2024). In the second all examples pull in two directions, for `Mistake`s to be seen.

    Args:
        train: called with (N, W) float32 examples, it trains a network whose loss on an example x is <w, x>,
            so that its gradient is x: in torch ``nn.Linear(W, 1, bias=False)(x).mean()``. After each step it
            yields what the step released: an Opacus ``DPOptimizer``, whose parameter's ``grad``, claims and
            batch are read; or (W,) numbers, such as the noisy mean gradient, on a scale that stays the same;
            or a pair of these and the (B, W) examples that the step took, by which samplers are told apart.
            Its batches, noise and clipping (to less than 1,000) are those to be audited. Batches are
            ``sample_rate * N`` examples, expected.
        delta: of the guarantee.
        noise_multiplier: claimed; None: as the Opacus optimizer says.
        sample_rate: claimed; None: as the accountant of Opacus's engine was told in the last step. (The
            optimizer's ``expected_batch_size`` is rounded down.)
        epsilon_claimed: of these steps on N examples, such as ``engine.get_epsilon(delta)``.
        examples: N, an even number up to `MOST_EXAMPLES`.
        confidence: with which each of the two bounds holds.
        seed: of the coins.

    Raises:
        UserError: a claim is missing or not allowed, there are too few steps or examples in a batch, or what
            is released has another shape or isn't finite.
    """
    width, rows = examples + BLANKS, np.arange(examples)
    # each its own, by which an example is known in a batch
    lengths = (np.where(rows % 2, LONG, SHORT) * (1 + rows / examples)).astype(np.float32)
    canaries, crowd = np.zeros((2, examples, width), np.float32)
    present = np.random.default_rng(seed).random(examples) < 0.5
    canaries[rows, rows] = lengths * present
    crowd[rows, rows % 2] = lengths

    first, opacus_claims, _ = _releases(train, canaries)
    second, _, batch_lengths = _releases(train, crowd)
    sigma = noise_multiplier if noise_multiplier is not None else opacus_claims.get("noise_multiplier")
    rate = sample_rate if sample_rate is not None else opacus_claims.get("sample_rate")
    if sigma is None or rate is None:
        raise UserError(
            "noise_multiplier, sample_rate: unknown; needed: both, or a step yields the "
            "DPOptimizer of an Opacus engine"
        )
    if not (sigma > 0 and FEWEST_IN_BATCH / examples <= rate < 1):
        raise UserError(
            f"noise_multiplier {sigma:g}, sample_rate {rate:g}; allowed: above 0, and below 1 with at least "
            f"{FEWEST_IN_BATCH} of {examples} examples in a batch"
        )
    batch, steps = round(rate * examples), len(first)
    # the rate itself, as a share of a million: rounded to a batch of so few examples it may come out smaller
    spent = epsilon(
        examples=SHARES, batch=ceil(rate * SHARES), noise_multiplier=sigma, delta=delta, steps=steps
    )
    noise = [np.maximum(run[:, examples:].std(1, keepdims=True), 1e-30) for run in (first, second)]
    projections = first[:, :examples] / noise[0] * sigma  # in clipping bounds, if the noise is as claimed
    spending = SampledGaussian(sampling="poisson", noise_multiplier=sigma, examples=examples, batch=batch)
    # who goes through the data in order has a canary in the same batch of every epoch
    in_turn = np.arange(steps)[:, None] % max(1, examples // batch) == rows // batch
    attacks = [ratios(projections, spending), repeats(projections), (projections * in_turn).sum(0)]
    alpha = (1 - confidence) / len(attacks)
    sides = [(scores[~present], scores[present]) for scores in attacks]
    mistakes = recognise(
        second[:, :2] / noise[1],
        np.concatenate([first[:, examples:], second[:, examples:]]),
        examples,
        rate,
        sigma,
        _positions(batch_lengths, lengths),
    )
    return TrainingAudit(
        Claims(sigma, rate, steps, delta, epsilon_claimed),
        spent.epsilon_upper,
        AuditedEpsilon(
            epsilon_lower=max(bounds.by_one_run(*side, alpha, delta) for side in sides),
            if_gaussian=max(bounds.by_one_run_curve(*side, alpha, delta) for side in sides) if delta else 0.0,
            confidence=confidence,
        ),
        tuple(mistake for mistake in mistakes if mistake.p < ERROR / TESTS),
    )


def _releases(
    train: Train, examples: np.ndarray
) -> tuple[np.ndarray, dict[str, float], list[np.ndarray | None]]:
    """(T, W) of what a run's steps released, what its Opacus optimizer claims, and the batches' (B,) lengths.

    A batch that isn't told is None.
    """
    from opacus.optimizers import DPOptimizer  # takes a second

    released, claims, width = [], dict[str, float](), examples.shape[1]
    batch_lengths: list[np.ndarray | None] = []
    steps = train(examples.copy())
    if not isinstance(steps, Iterable):
        raise UserError(f"train: returned {type(steps).__name__}; needed: to yield what each step released")
    for number, step in enumerate(steps):
        value, batch = step if isinstance(step, tuple) and len(step) == 2 else (step, None)
        if isinstance(step, DPOptimizer):
            if any(parameter.grad is None for parameter in step.params):
                raise UserError(f"step {number}: no gradient; needed: a yield before zero_grad()")
            value = torch.cat([parameter.grad.flatten() for parameter in step.params])
            batch = _per_example(step)
            claims |= {"noise_multiplier": float(step.noise_multiplier), **_accounted(step)}
        if batch is not None:
            batch = floats(f"step {number}: batch", batch)
            if batch.ndim != 2 or batch.shape[1] != width:
                raise UserError(f"step {number}: batch of shape {batch.shape}; needed: (B, {width})")
        batch_lengths.append(None if batch is None else np.linalg.norm(batch, axis=1))
        released.append(floats(f"step {number}", value).ravel())
        if released[-1].shape != (width,) or not np.isfinite(released[-1]).all():
            raise UserError(
                f"step {number} released {released[-1].shape}; needed: {width} finite numbers, a weight's "
                "each"
            )
    if len(released) < FEWEST_STEPS:
        raise UserError(f"train: {len(released)} steps; needed: at least {FEWEST_STEPS}")
    return np.stack(released), claims, batch_lengths


def _accounted(optimizer: Any) -> dict[str, float]:
    """The sampling rate of an Opacus step, from the accountant that the optimizer's hook told of it."""
    from opacus.accountants.accountant import IAccountant

    hook = optimizer.step_hook
    accountant = getclosurevars(hook).nonlocals.get("self") if isfunction(hook) else None
    if not isinstance(accountant, IAccountant) or not accountant.history:
        return {}
    _, rate, _ = accountant.history[-1]
    return {"sample_rate": float(rate)}


def _per_example(optimizer: Any) -> np.ndarray | None:
    """(B, W) gradients of an Opacus step's examples before they were clipped; None where they are gone."""
    samples = [getattr(parameter, "grad_sample", None) for parameter in optimizer.params]
    if any(sample is None for sample in samples):
        return None
    return torch.cat([sample.flatten(1) for sample in optimizer.grad_samples], 1).detach().cpu().numpy()


def _positions(batch_lengths: list[np.ndarray | None], lengths: np.ndarray) -> list[np.ndarray] | None:
    """Of each batch the positions of its examples, which are known by ``lengths`` (N,).

    Rows of zeros are left out: they have no gradient here. None where a batch isn't told, or has rows that
    are nobody's.
    """
    order = np.argsort(lengths)
    sorted_lengths, batches = lengths[order].astype(float), []
    for batch in batch_lengths:
        if batch is None:
            return None
        present = batch[batch > 0]
        index = np.searchsorted((sorted_lengths[1:] + sorted_lengths[:-1]) / 2, present)
        if not np.allclose(sorted_lengths[index], present, rtol=1e-5):
            return None
        batches.append(order[index])
    return batches
