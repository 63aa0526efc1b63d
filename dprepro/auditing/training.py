"""Attack on your own DP-SGD training loop."""

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import getclosurevars, isfunction
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from dprepro.accountants.records import SampledGaussian
from dprepro.accounting import epsilon
from dprepro.auditing.attacks import canary_scores
from dprepro.auditing.canaries import attainable_bounds
from dprepro.auditing.epsilon_bounds import LARGEST, AuditedEpsilon, Confidence, lower_bounds
from dprepro.auditing.mistakes import Mistake, recognise
from dprepro.auditing.verdicts import Shown, Verdict, beyond, could_have_shown
from dprepro.checking import checked, floats
from dprepro.errors import UserError
from dprepro.fields import Delta, Epsilon

SHORT, LONG = 1e3, 1e4  # lengths of examples' gradients, above any clipping bound
BLANKS = 500  # directions without examples
FEWEST_STEPS, FEWEST_IN_BATCH = 20, 20  # for sums of batches that are about normal
MOST_EXAMPLES = 50_000  # their directions take 20 GB of the attacker's memory
SHARES = 10**6  # sampling rates are accounted for as multiples of 1 / SHARES
FALSE_ALARM_RATE = 0.001  # probability that a correct training looks like any mistake
CERTAIN = 1e-9  # p-value below which a mistake is no hint, but certain
AGAIN = 5  # steps of a third run, which shows noise that every run repeats
SPREAD = 16  # weights with a gradient, of an example with many of them
WHOLE = 1.001  # largest ratio of a clipped sum to that of a whole batch's gradients, because of rounding
MORE = 0.05  # share of further examples in the second run

Train = Callable[[np.ndarray], Iterable[Any]]


@dataclass(frozen=True)
class Claims:
    """Claimed settings and epsilon of a training."""

    noise_multiplier: float  # standard deviation of a sum's noise, divided by the clipping bound
    sample_rate: float
    steps: int
    delta: float
    epsilon: float | None  # by the training's own accountant; None: not given


@dataclass(frozen=True, repr=False)
class TrainingAudit(Shown):
    """Verdict on a training; its claimed, accounted and attacked epsilon."""

    claimed: Claims
    epsilon_upper: float | None  # upper bound on epsilon of the claimed settings, by `epsilon`
    attack: AuditedEpsilon  # lower bounds; they prove no privacy
    looks_like: tuple[Mistake, ...]  # about one in a thousand correct trainings has any
    could_show: float  # lower bound that a perfect attacker shows if epsilon is as claimed

    @property
    def verdict(self) -> Verdict:
        """The verdict.

        'wrong': a lower bound is above the claimed or accounted epsilon, or a mistake is certain (its p-value
        is below `CERTAIN`). 'suspicious': the training looks like a mistake. 'nothing found' proves nothing.
        """
        if self._beyond() or any(mistake.p < CERTAIN for mistake in self.looks_like):
            return "wrong"
        return "suspicious" if self.looks_like else "nothing found"

    def _beyond(self) -> list[str]:
        """Line about a lower bound that is above the claimed or accounted epsilon, if any is."""
        upper = min(
            value for value in (self.claimed.epsilon, self.epsilon_upper, math.inf) if value is not None
        )
        shown = max(self.attack.epsilon_lower, self.attack.if_gaussian)
        assuming = self.attack.epsilon_lower <= upper
        return [beyond(shown, assuming, upper, self.attack.confidence)] if shown > upper else []

    def _reasons(self) -> list[str]:
        mistakes = [
            f"{mistake.name}: {mistake.looks_like} (p = {mistake.p:.1g})"
            for mistake in sorted(self.looks_like, key=lambda mistake: mistake.p)
        ]
        found = [*self._beyond(), *mistakes] or [could_have_shown(self.could_show)]
        upper = "unknown" if self.epsilon_upper is None else f"<= {self.epsilon_upper:.4g}"
        own = "" if self.claimed.epsilon is None else f"; claimed epsilon {self.claimed.epsilon:.4g}"
        return [
            *found,
            f"claimed: noise multiplier {self.claimed.noise_multiplier:g}, sampling rate "
            f"{self.claimed.sample_rate:g}, {self.claimed.steps} steps; accounted epsilon {upper} at delta "
            f"{self.claimed.delta:g}{own}",
        ]


@checked
def audit_training(
    train: Train,
    *,
    delta: Delta,
    noise_multiplier: float | None = None,
    sample_rate: float | None = None,
    epsilon_claimed: Epsilon | None = None,
    sampling: Literal["poisson", "allocation"] = "poisson",
    examples: Annotated[int, Field(ge=2, le=MOST_EXAMPLES, multiple_of=2)] = 1000,
    confidence: Confidence = 0.999,
    seed: Annotated[int, Field(ge=0)] = 0,
) -> TrainingAudit:
    """Run a training loop on the attacker's examples, and attack it by the releases of all steps.

    In the first run the examples' gradients have three directions, for tests of `Mistake`s. The second run
    has more examples. N of them are canaries with a direction each, and a fair coin decides whether a canary
    is in. The attacker guesses the coins from the releases of as many steps as the first run has (Steinke,
    Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2024). The third run is on the first run's
    examples, and ends after a few steps: it shows seeded noise, which every run repeats.

    Args:
        train: function of (N, W) float32 examples, called again with a few more examples. The function trains
            a network whose loss on an example x is <w, x>, so that the gradient is x: in torch
            ``nn.Linear(W, 1, bias=False)(x).mean()``. Its sampling, noise and clipping are audited; the
            clipping bound must be below 1,000, and the expected batch size is ``sample_rate * N``. The
            function yields the release of each step. A release is an Opacus ``DPOptimizer``, whose
            parameters' ``grad``, settings and batch are read; or (W,) numbers on a constant scale, such as
            the noisy mean gradient; or a pair of such numbers and the (B, W) examples of the step, for tests
            of the sampler. Steps that Opacus's ``BatchMemoryManager`` skips release nothing, but show parts
            of the batch.
        delta: delta of the guarantee.
        noise_multiplier: claimed noise multiplier; None: that of the Opacus optimizer.
        sample_rate: claimed sampling probability; None: that of the Opacus engine's accountant in the last
            step. (The optimizer's ``expected_batch_size`` is rounded down.)
        epsilon_claimed: epsilon of these steps on N examples, such as ``engine.get_epsilon(delta)``.
        sampling: claimed sampling. 'poisson': Poisson samples. 'allocation': each example is in one random
            batch of an epoch of 1 / ``sample_rate`` batches (`BallsAndBinsSampler`).
        examples: N, an even number up to `MOST_EXAMPLES`.
        confidence: confidence of each of the two bounds.
        seed: seed of the coins.

    Returns:
        The verdict, possible mistakes, lower bounds on epsilon, and the claim.

    Raises:
        UserError: a claim is missing or not allowed, there are too few steps or examples in a batch, or a
            release has another shape or isn't finite.
    """
    width, rows = examples + BLANKS, np.arange(examples)
    # different lengths identify an example in a batch
    lengths = (np.where(rows % 3, LONG, SHORT) * (1 + rows / examples)).astype(np.float32)
    directions = np.zeros((3, width), np.float32)
    directions[0, 0] = directions[1, 1] = 1
    directions[2, np.linspace(2, examples - 1, SPREAD).astype(int)] = 1
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    of_crowd = lengths[:, None] * directions[rows % 3]
    crowd = _releases(train, of_crowd)
    if len(crowd.steps) < FEWEST_STEPS:
        raise UserError(f"train: {len(crowd.steps)} steps; needed: at least {FEWEST_STEPS}")
    sigma = noise_multiplier if noise_multiplier is not None else crowd.claims.get("noise_multiplier")
    rate = sample_rate if sample_rate is not None else crowd.claims.get("sample_rate")
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
    batch, steps = round(rate * examples), len(crowd.steps)
    # more examples, by whole batches: they change a divisor that depends on the number of examples
    more = examples + batch * math.ceil(MORE * examples / batch)
    present = np.random.default_rng(seed).random(examples) < 0.5
    inputs = np.zeros((more, width), np.float32)
    inputs[rows, rows] = lengths * present
    canaries = _releases(train, inputs)
    again = _releases(train, of_crowd, AGAIN)
    # the rate is rounded up to a millionth: rounded to a whole batch of few examples, it could be too small
    shares = (SHARES, math.ceil(rate * SHARES)) if sampling == "poisson" else (_batches(rate), 1)
    with warnings.catch_warnings(action="ignore"):  # of a delta above 1 / SHARES
        spent = epsilon(
            examples=shares[0],
            batch=shares[1],
            noise_multiplier=sigma,
            delta=delta,
            steps=steps,
            sampling=sampling,
        )
    runs = crowd, canaries, again
    noise = [np.maximum(run.steps[:, examples:].std(1, keepdims=True), 1e-30) for run in runs]
    # in clipping bounds, if the noise is as claimed
    projections = (canaries.steps[:, :examples] / noise[1] * sigma)[:steps]
    spending = SampledGaussian(sampling=sampling, noise_multiplier=sigma, examples=examples, batch=batch)
    attacks = canary_scores(projections, spending, more)
    found = dict[str, float]()  # the largest of all attacks
    for scores in attacks.values():
        sides, names = (scores[~present], scores[present]), ("one_run", "one_run_curve")
        bounds = lower_bounds(*sides, names, (1 - confidence) / len(attacks), delta)
        found |= {name: max(bound, found.get(name, 0.0)) for name, bound in bounds.items()}
    empty = ~directions.any(0), np.append(~present, np.ones(BLANKS, dtype=bool))
    mistakes = recognise(
        crowd.steps @ directions.T / noise[0],
        np.bincount(rows % 3).tolist(),
        [run.steps[:, examples:] / np.median(scale) for run, scale in zip(runs, noise, strict=True)],
        [
            run.steps[:, weights] * run.known_divisor(rate, size)
            for run, weights, size in zip((crowd, canaries), empty, (examples, more), strict=True)
        ],
        more,
        rate,
        sigma,
        _positions(crowd.batch_lengths, lengths),
        _batches(rate) if sampling == "allocation" else None,
    )
    least = min(value for value in (epsilon_claimed, spent.epsilon_upper, math.inf) if value is not None)
    return TrainingAudit(
        Claims(sigma, rate, steps, delta, epsilon_claimed),
        spent.epsilon_upper,
        AuditedEpsilon.of(found, confidence),
        tuple(mistake for mistake in mistakes if mistake.p < FALSE_ALARM_RATE / len(mistakes)),
        max(
            attainable_bounds(
                least if least < LARGEST else None, delta, examples, False, 1 - confidence
            ).values()
        ),
    )


def _batches(rate: float) -> int:
    """Number of batches of an epoch with random allocation.

    Returns:
        1 / ``rate``.

    Raises:
        UserError: 1 / ``rate`` is no whole number.
    """
    batches = round(1 / rate)
    if not math.isclose(batches * rate, 1, rel_tol=1e-6):
        raise UserError(f"sample_rate: {rate:g}; allowed with 'allocation': 1 over the batches of an epoch")
    return batches


@dataclass(frozen=True)
class _Run:
    """Releases of all steps of a run, and the claims of its Opacus optimizer."""

    steps: np.ndarray  # (T, W)
    claims: dict[str, float]  # noise multiplier and sampling rate of its Opacus optimizer
    divisors: list[int]  # expected batch size of its Opacus optimizer at each step
    batch_lengths: list[np.ndarray | None]  # (B,) lengths of each batch's examples; None: not known

    def known_divisor(self, rate: float, examples: int) -> float:
        """Divisor of Opacus's mean gradient if it is the expected batch size, rounded down; otherwise 1.

        This divisor depends on the number of examples. For Opacus this number is public, so the divisor is no
        mistake.

        Returns:
            The divisor.
        """
        usual = float(np.median(self.divisors)) if self.divisors else math.inf
        return usual if abs(usual - self.claims.get("sample_rate", rate) * examples) <= 1 else 1.0


def _releases(train: Train, examples: np.ndarray, most: int | None = None) -> _Run:
    """Releases of a run of ``train`` on ``examples``, or of its first ``most`` steps."""
    from opacus.optimizers import DPOptimizer  # takes a second

    released, claims, width = [], dict[str, float](), examples.shape[1]
    divisors: list[int] = []
    first_scale: tuple[float, float] | None = None
    batch_lengths: list[np.ndarray | None] = []
    earlier: list[np.ndarray | None] = []  # parts of the batch that `BatchMemoryManager` has split
    steps = train(examples.copy())
    if not isinstance(steps, Iterable):
        raise UserError(f"train: returned {type(steps).__name__}; needed: to yield what each step released")
    for number, step in enumerate(steps):
        value, batch = step if isinstance(step, tuple) and len(step) == 2 else (step, None)
        if isinstance(step, DPOptimizer):
            if step._is_last_step_skipped:  # it released nothing; the gradient is that of a part of the batch
                earlier.append(_per_example(step))
                continue
            if any(parameter.grad is None for parameter in step.params):
                raise UserError(f"step {number}: no gradient; needed: a yield before zero_grad()")
            scale = float(step.noise_multiplier), float(step.max_grad_norm)
            if first_scale not in (None, scale):
                raise UserError(
                    f"step {number}: noise multiplier and clipping bound {scale}, {first_scale} before; "
                    "allowed: the same in all steps"
                )
            first_scale = scale
            value = torch.cat([parameter.grad.flatten() for parameter in step.params])
            batch, earlier = _whole_batch(step, earlier), []
            divisors.append(1 if step.loss_reduction == "sum" else step.expected_batch_size or 1)
            claims |= {"noise_multiplier": float(step.noise_multiplier), **_accounted(step)}
        elif isinstance(step, torch.optim.Optimizer):
            raise UserError(
                f"step {number}: {type(step).__name__}; allowed: Opacus's DPOptimizer, or {width} released "
                "numbers"
            )
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
        if len(released) == most:
            break
    if not released:
        raise UserError("train: no steps; needed: to yield what each step released")
    return _Run(np.stack(released), claims, divisors, batch_lengths)


def _accounted(optimizer: Any) -> dict[str, float]:
    """Sampling rate of an Opacus step, from the accountant in the optimizer's hook; empty if none."""
    from opacus.accountants.accountant import IAccountant

    hook = optimizer.step_hook
    accountant = getclosurevars(hook).nonlocals.get("self") if isfunction(hook) else None
    if not isinstance(accountant, IAccountant) or not accountant.history:
        return {}
    _, rate, _ = accountant.history[-1]
    return {"sample_rate": float(rate)}


def _per_example(optimizer: Any) -> np.ndarray | None:
    """(B, W) gradients, of W entries each, of an Opacus step's examples before clipping; None if gone."""
    samples = [getattr(parameter, "grad_sample", None) for parameter in optimizer.params]
    if any(sample is None for sample in samples):
        return None
    return torch.cat([sample.flatten(1) for sample in optimizer.grad_samples], 1).detach().cpu().numpy()


def _whole_batch(optimizer: Any, earlier: list[np.ndarray | None]) -> np.ndarray | None:
    """`_per_example` of a step with the ``earlier`` parts of its batch.

    If a training yields no optimizer after skipped steps, the clipped sum is larger than that of the known
    gradients.

    Returns:
        (B, W) gradients; None if a part is unknown.
    """
    parts = [*earlier, _per_example(optimizer)]
    known = [part for part in parts if part is not None]
    sums = [parameter.summed_grad for parameter in optimizer.params]
    if len(known) < len(parts) or any(value is None for value in sums):
        return None
    batch = np.concatenate(known)
    norms = np.linalg.norm(batch.astype(float), axis=1, keepdims=True)
    clipped = (batch * np.minimum(1, float(optimizer.max_grad_norm) / (norms + 1e-6))).sum(0)
    summed = torch.cat([value.flatten() for value in sums]).detach().cpu().numpy()
    return batch if np.linalg.norm(summed) <= WHOLE * np.linalg.norm(clipped) else None


def _positions(batch_lengths: list[np.ndarray | None], lengths: np.ndarray) -> list[np.ndarray] | None:
    """Positions of each batch's examples, which are recognised by the ``lengths`` (N,) of all examples.

    Examples of zeros are left out, because they have no gradient here.

    Returns:
        An array for each batch; None if a batch is unknown, or contains anything but the examples.
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
