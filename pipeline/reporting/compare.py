"""Two rows side by side at equal proven epsilon."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.params import Settings
from pipeline.privacy.accounting import noise_for, poisson_gaussian, rdp_epsilon, tightest
from pipeline.reporting.cells import Ran
from pipeline.reporting.judging.guarantees import SAME, incomparable
from pipeline.reporting.judging.intervals import Mean, contrast
from pipeline.reporting.printed import Table
from pipeline.reporting.results import Cell, validation
from pipeline.results import records
from pipeline.results.schema import Ledger
from pipeline.rounding import rounded_down

DIGITS = 4  # of a setting that is suggested
TABLE = Table(name="", title="", axis="", columns=[], own=True)  # of accuracies in percent


@dataclass(frozen=True)
class Comparison:
    """A level of the first row, and what of the second compares with it."""

    cell: Cell
    # of the second, with the weights of their means: a level proven to spend as much; or the two next to that
    # epsilon, between which accuracies are taken as linear in its logarithm; or of those that spend less the
    # one that validates best
    rivals: tuple[tuple[float, Cell], ...]
    difference: Mean | None  # first minus second
    lacking: bool  # the second has no level that is proven to spend as much
    asked: float | None  # the epsilon that such a level asks for; None: its noise isn't told by an epsilon

    @property
    def interpolated(self) -> bool:
        """Whether the second's accuracy lies between two that were measured."""
        return len(self.rivals) == 2


def proven(cell: Cell) -> float:
    """The bound on the epsilon of the worst seed; infinite where there is none."""
    epsilon_upper = cell.guarantee.ledger.epsilon_upper
    return inf if epsilon_upper is None else epsilon_upper


def compared(first: str, second: str, settings: Settings) -> list[Comparison]:
    """Each level of row ``first``, beside what row ``second`` reaches at the same proven epsilon.

    Raises:
        UserError: there is no such row or it was not run; or the rows' epsilons are of different data sets,
            neighbours or deltas.
    """
    sets = [settings.split(settings.row(key).data).raw for key in (first, second)]
    if sets[0] != sets[1]:
        raise UserError(f"{first} and {second}: epsilons of different data sets, {sets[0]} and {sets[1]}")
    bounded = [cell for cell in _cells(second, settings) if isfinite(proven(cell))]
    comparisons = []
    for cell in _cells(first, settings):
        epsilon, ledger = proven(cell), cell.guarantee.ledger
        for rival in bounded if isfinite(epsilon) else ():
            if why := incomparable(ledger, rival.guarantee.ledger):
                raise UserError(f"{first} and {second}: epsilons that can't be compared: {why}")
        rivals = _rivals(epsilon, bounded)
        terms = [(1.0, first, cell), *((-weight, second, rival) for weight, rival in rivals)]
        equal = len(rivals) == 2 or any(epsilon <= SAME * proven(rival) for _, rival in rivals)
        lacking = isfinite(epsilon) and bool(bounded) and not equal
        asked = _asked(second, ledger, settings) if lacking else None
        comparisons.append(Comparison(cell, rivals, contrast(terms) if rivals else None, lacking, asked))
    return comparisons


def _rivals(epsilon: float, bounded: Sequence[Cell]) -> tuple[tuple[float, Cell], ...]:
    """What of the second row compares with a level of this proven epsilon, and how much each counts.

    Of several levels the one that validates best is taken; test data choose nothing.
    """
    if not 0 < epsilon < inf:
        return ()
    if same := [rival for rival in bounded if epsilon / SAME <= proven(rival) <= SAME * epsilon]:
        return ((1.0, max(same, key=validation)),)
    below = [rival for rival in bounded if 0 < proven(rival) < epsilon]
    above = [rival for rival in bounded if proven(rival) > epsilon]
    if below and above:
        low = max(below, key=lambda rival: (proven(rival), validation(rival)))
        high = max(above, key=lambda rival: (-proven(rival), validation(rival)))
        share = log(epsilon / proven(low)) / log(proven(high) / proven(low))
        return ((1 - share, low), (share, high))
    return ((1.0, max(below, key=validation)),) if below else ()


def _asked(key: str, ledger: Ledger, settings: Settings) -> float | None:
    """The epsilon that a level of row ``key`` asks for to be proven to spend what this ledger proves."""
    row, epsilon, delta = settings.rows[key], ledger.epsilon_upper, ledger.delta
    told = "accountant" in row.own_settings.model_fields and (row.axis or row.own_settings.axis) == "epsilon"
    if not told or not epsilon or not delta:
        return None
    try:
        level = row.configured({"epsilon": epsilon})
        examples = settings.split(row.data).train
        rate, steps = level.batch / examples, level.total_steps(examples)
        if level.accountant == "rdp":  # which asks for more noise at the same epsilon
            noise = noise_for(epsilon, delta, rate, steps, tightest(epsilon, delta, steps))
            epsilon = rdp_epsilon(poisson_gaussian(rate, noise, steps), delta)
    except (ValidationError, UserError):
        return None
    return float(rounded_down(epsilon, DIGITS))


def _cells(key: str, settings: Settings) -> list[Cell]:
    """What a row reached, the level that is proven to spend most first."""
    record = records.read(key, settings.row(key))
    if record is None:
        raise UserError(f"{key}: not run; `dprepro train {key}`, `evaluate` and `ledger` make its numbers")
    cells = Ran(record, TABLE, (), {}, None, None, 0).cells(TABLE.metric, {})
    return sorted(cells.values(), key=lambda cell: -proven(cell))
