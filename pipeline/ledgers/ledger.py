"""Ledger of a training: bounds on epsilon by every accountant that applies.

Further accountants for a Gaussian mechanism are two of the library's, and those of a laboratory's packages. A
module of one defines ``epsilons(spending, steps, delta, least)``. This function yields the accountant's
results after ``steps`` steps, or nothing if the accountant doesn't apply; ``least`` is the smallest proven
epsilon. The ledger shows these results next to the bounds and never uses them as bounds. ``SLOW_IMPORT`` of a
module has the names of its accountants if their library takes seconds to import; `dprepro epsilon` leaves
them out.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import fsum, inf, isfinite
from types import ModuleType
from typing import Any

from dprepro.accountants import opacus, rdp
from dprepro.accountants.attack_risk import gaussian_risk, laplace_risk, stated_risk, tradeoff
from dprepro.accountants.bounds import CLOSED, bounds_of, describe, spent_epsilon
from dprepro.accountants.gaussian import clt_mu, gaussian_epsilon, unamplified
from dprepro.accountants.laplace import Releases
from dprepro.accountants.pld import pld_epsilon
from dprepro.accountants.records import (
    AccountantEpsilon,
    NeighboringRelation,
    SampledGaussian,
    down,
    library,
    up,
)
from dprepro.accountants.worst_instance import worst_epsilon
from dprepro.fields import LARGEST
from dprepro.pipeline.extensions import cached, extensions
from dprepro.pipeline.methods.spending import Statement, statement
from dprepro.pipeline.results.schema import Ledger, Released, TrainingRecord, unit_of

EXACT = "exact for Gaussian noise, composed over epochs"
LIMIT = "an approximation by the central limit theorem, not a bound"
BASIC = "basic composition (closed form)"
# delta of further bounds for Laplace noise; they may be far below the pure epsilon, because the worst cases
# of many coordinates seldom occur together
DELTA = 1e-5
AT_DELTA = "an upper bound at delta 1e-5"
DRAWN_SCALES = "not computed: the inputs' noise depends on noisy relevances of private images"
# largest pure epsilon for which dp-accounting computes the privacy losses of Laplace noise
LAPLACE_LARGEST = 700


def fast_accountants() -> tuple[ModuleType, ...]:
    """Accountants that need no library with a slow import."""
    return tuple(accountant for accountant in accountants() if not getattr(accountant, "SLOW_IMPORT", ()))


def slow_names() -> set[str]:
    """Names of the accountants that `fast_accountants` leaves out, without the library's version."""
    return {name for accountant in accountants() for name in getattr(accountant, "SLOW_IMPORT", ())}


@cached
def accountants() -> tuple[ModuleType, ...]:
    """Accountant modules; those of laboratories are in alphabetical order."""
    return rdp, opacus, *(accountant.load() for accountant in extensions("accountants").values())


def ledger_of(
    trained: TrainingRecord,
    searched: str | None,
    steps: Iterable[int] = (),
    uses: Iterable[Statement] = (),
    others: Sequence[ModuleType] | None = None,
) -> Ledger:
    """Ledger of a training with every accountant's epsilon, from the recorded spending of what ran.

    Args:
        trained: record of the training.
        searched: name of the search that chose the hyper-parameters; None: no search did.
        steps: steps after which the ledger reports the epsilon spent so far.
        uses: uses of private data by the row and its data set that no epsilon covers.
        others: further accountants, as in `make_ledger`.
    """
    reproducible = trained.origin.reproducible  # then no guarantee holds
    reasons = trained.broken or ((statement("seeded"),) if reproducible else ())
    not_covered = uses_outside(trained, searched, uses)
    if isinstance(trained.spending, Releases):
        releases, protects = trained.spending, trained.protects
        if reproducible:
            releases, protects = releases.with_known_noise(), None
        ledger = release_ledger(releases, trained.steps, reasons, not_covered, protects, steps)
    elif trained.spending is None or trained.delta is None:
        return Ledger(
            event=None, noise_multiplier=None, sampling_rate=None, steps=trained.steps, delta=None,
            claimed=None, claimed_by=None, epsilon_upper=None, accountant=None, reasons=trained.broken,
        )  # fmt: skip
    else:
        numbers = (trained.spending, trained.steps, trained.delta, trained.claimed_by)
        ledger = make_ledger(*numbers, reasons, not_covered, steps, others)
    return ledger.model_copy(update={"noise": trained.noise, "isolation": trained.isolation})


def uses_outside(
    trained: TrainingRecord, searched: str | None, uses: Iterable[Statement]
) -> tuple[Statement, ...]:
    """Uses of private data that the epsilon of a private training doesn't cover; arguments: `ledger_of`."""
    nominal = trained.settings.get("nominal_examples")
    laplace = trained.spending.laplace if isinstance(trained.spending, Releases) else ()
    return (
        *([statement("search", search=searched)] if searched else []),
        statement("other_choices"),
        *trained.not_covered,
        statement("examples_recorded" if nominal else "examples_public"),
        statement("validation"),
        statement("timing"),
        statement("digests"),
        *uses,
        *([statement("spans")] if any(release.quantity == "relevances" for release in laplace) else []),
    )


def make_ledger(
    spending: SampledGaussian,
    steps: int,
    delta: float,
    claimed_by: str | None,
    reasons: tuple[Statement, ...] = (),
    not_covered: Iterable[Statement] = (),
    reported_steps: Iterable[int] = (),
    others: Sequence[ModuleType] | None = None,
) -> Ledger:
    """Ledger of a Gaussian mechanism. Its proven epsilon is the smallest bound; with ``reasons`` it has none.

    Args:
        spending: mechanism of a step.
        steps: number of steps.
        delta: delta of all epsilons.
        claimed_by: accountant of the claimed epsilon: 'rdp', 'pld' or 'clt'; None: nothing is claimed.
        reasons: reasons why no bound holds; empty if the bounds hold.
        not_covered: uses of private data that no epsilon covers.
        reported_steps: steps after which the ledger reports the epsilon spent so far.
        others: modules of further accountants (`accountants`); None: all of them.
    """
    bounds, grid = bounds_of(spending, steps, delta)
    epsilons = {name: bound.epsilon for name, bound in bounds.items() if bound.epsilon is not None}
    tightest = min(epsilons, key=lambda name: epsilons[name])
    results = [*bounds.values()]
    for accountant in accountants() if others is None else others:
        results += accountant.epsilons(spending, steps, delta, epsilons[tightest])
    mu, curve = None, None
    if claimed_by == "clt":
        mu = clt_mu(spending, steps)
        limit = inf if mu is None else gaussian_epsilon(mu, delta)
        epsilons["clt"] = limit if limit <= LARGEST else inf
        profiles = [unamplified(spending, steps), *([grid.delta] if grid else [])]
        curve = tradeoff(profiles, epsilons[tightest])
        results.append(_limit(spending, epsilons["clt"]))
    claimed = epsilons.get(claimed_by, inf) if claimed_by else inf
    # A claimed epsilon by the central limit theorem is for clipped gradients of mini-sets. One record may
    # reverse such a gradient, unless each mini-set is a single example of a Poisson sample.
    coins = spending.sampling in ("poisson", "allocation")
    single = coins and spending.sets == spending.batch
    shared = claimed_by == "clt" and not single
    proven: dict[str, Any] = {"epsilon_upper": None, "accountant": None}
    if not reasons:
        proven = {
            "epsilon_upper": epsilons[tightest],
            "accountant": bounds[tightest].accountant,
            "mu": mu,
            "tradeoff": curve or (),
            "spent": tuple((step, spent_epsilon(spending, step, delta)) for step in reported_steps),
            "epsilon_lower": worst_epsilon(spending, steps, delta, epsilons[tightest], shared),
            "epsilon_lower_by": _worst_pair(spending, shared),
            "risk": gaussian_risk(spending, steps, delta, epsilons[tightest]),
        }
    ledger = Ledger(
        event=describe(spending.event(steps)),
        noise_multiplier=spending.noise_multiplier,
        sampling_rate=spending.rate,
        sampling=spending.sampling,
        steps=steps,
        delta=delta,
        unit=unit_of(spending.group),
        neighbouring=spending.neighbouring,
        claimed=claimed if isfinite(claimed) else None,
        claimed_by=claimed_by,
        reasons=reasons,
        accountants=tuple(results),
        not_covered=tuple(not_covered),
        **proven,
    )
    return _stated(ledger)


def _worst_pair(spending: SampledGaussian, shared: bool) -> Statement:
    """Statement that names the pair of neighbouring data sets of the lower bound."""
    if spending.sampling == "shuffled":
        return statement("turns_one_batch_of_an_epoch")
    if spending.group is not None:
        return statement("person_at_full_length")
    single_vector = spending.sampling in ("poisson", "allocation") and not shared
    return statement("always_at_full_length" if single_vector else "turns_around")


def release_ledger(
    releases: Releases,
    steps: int,
    reasons: tuple[Statement, ...] = (),
    not_covered: Iterable[Statement] = (),
    protects: Statement | None = None,
    reported_steps: Iterable[int] = (),
) -> Ledger:
    """Ledger of Laplace noise that was added once, before the first step.

    Claimed and proven epsilon are pure: they hold at delta 0.

    Args:
        releases: releases of the training.
        steps: number of steps.
        reasons: reasons why no bound holds; empty if the bounds hold.
        not_covered: uses of private data that no epsilon covers.
        protects: statement of what is protected from which observer; None: a training example, as usual.
        reported_steps: steps after which the ledger reports the epsilon spent so far.
    """
    is_bounded = isfinite(releases.epsilon)
    is_proven = is_bounded and not reasons
    released = tuple(
        Released(
            quantity=quantity.quantity,
            claimed=quantity.claimed,
            epsilon_upper=quantity.epsilon if isfinite(quantity.epsilon) else None,
            noise=quantity.noise,
            span=quantity.span,
        )
        for quantity in releases.laplace
    )
    # for a black image and a white image of another class; the distance of their mean relevances is unknown
    opposites = [part.epsilon_upper or 0.0 for part in released if part.quantity != "relevances"]
    ledger = Ledger(
        event=str(releases),
        noise_multiplier=None,
        sampling_rate=None,
        steps=steps,
        delta=0.0,
        neighbouring=NeighboringRelation.REPLACE_ONE,
        claimed=releases.claimed,
        claimed_by="laplace",
        epsilon_upper=releases.epsilon if is_proven else None,
        accountant=BASIC if is_proven else None,
        reasons=reasons,
        accountants=_bounds_at_delta(releases) if is_bounded else (),
        not_covered=tuple(not_covered),
        releases=released,
        protects=protects,
        # everything is released before the first step
        spent=tuple((step, releases.epsilon) for step in reported_steps) if is_proven else (),
        epsilon_lower=fsum(opposites) if is_proven else None,
        epsilon_lower_by=statement("opposites") if is_proven else None,
        risk=laplace_risk(releases.epsilon) if is_proven else None,
    )
    return _stated(ledger)


@lru_cache(maxsize=64)
def _bounds_at_delta(releases: Releases) -> tuple[AccountantEpsilon, ...]:
    """Upper bounds on epsilon at `DELTA`, by Renyi DP and by privacy loss distributions."""
    accounting, pure = library("dp-accounting"), releases.epsilon
    # drawn scales of the inputs' noise: only the sum of their epsilons is the same for all of them
    if {"relevances", "inputs"} <= {release.quantity for release in releases.laplace}:
        names = (f"{name} ({accounting})" for name in ("rdp", "pld"))
        return tuple(AccountantEpsilon(accountant=name, epsilon=None, note=DRAWN_SCALES) for name in names)
    # Laplace noise is symmetric, so the neighbouring relation changes only the distances
    renyi = AccountantEpsilon(
        accountant=f"rdp ({accounting})", epsilon=rdp.rdp_epsilon(releases.event(), DELTA), note=AT_DELTA
    )
    name = f"pld ({accounting})"
    if pure > LAPLACE_LARGEST:
        reason = f"not computed above a pure epsilon of {LAPLACE_LARGEST:g}"
        return renyi, AccountantEpsilon(accountant=name, epsilon=None, note=reason)
    pld = pld_epsilon(releases.coarse_event(), DELTA, interval=1e-5 * pure)
    return renyi, AccountantEpsilon(accountant=name, epsilon=pld, note=AT_DELTA)


def _limit(spending: SampledGaussian, epsilon: float) -> AccountantEpsilon:
    """Claimed epsilon by a central limit theorem; its note says that it is exact, or an approximation."""
    note = EXACT if spending.sampling == "shuffled" else LIMIT
    finite = isfinite(epsilon)
    return AccountantEpsilon(
        accountant=f"clt ({CLOSED})",
        epsilon=epsilon if finite else None,
        note=note if finite else f"{note}; not computed, because mu is too large",
    )


def _stated(ledger: Ledger) -> Ledger:
    """Ledger with every epsilon, and the attack risk, rounded to the stored digits."""

    def upper(value: float | None) -> float | None:
        return None if value is None else up(value)

    return ledger.model_copy(
        update={
            "claimed": upper(ledger.claimed),
            "epsilon_upper": upper(ledger.epsilon_upper),
            "epsilon_lower": None if ledger.epsilon_lower is None else down(ledger.epsilon_lower),
            "accountants": tuple(
                entry.model_copy(update={"epsilon": upper(entry.epsilon)}) for entry in ledger.accountants
            ),
            "releases": tuple(
                entry.model_copy(
                    update={"claimed": up(entry.claimed), "epsilon_upper": upper(entry.epsilon_upper)}
                )
                for entry in ledger.releases
            ),
            "spent": tuple((step, up(epsilon)) for step, epsilon in ledger.spent),
            "risk": ledger.risk and stated_risk(ledger.risk),
        }
    )
