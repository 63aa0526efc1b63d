"""Cells of a row: its numbers at each level, with everything that verdicts on them need."""

from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean

from dprepro.pipeline.reporting.judging.guarantees import guarantee
from dprepro.pipeline.reporting.judging.intervals import computed, mean
from dprepro.pipeline.reporting.printed import Printed, Table
from dprepro.pipeline.reporting.results import Caveat, Cell
from dprepro.pipeline.results import schema
from dprepro.pipeline.results.schema import Record, Replica, SearchRecord

# Failed training is a finding only after a search of this many step sizes, with this ratio of the largest to
# the smallest.
STEP_SIZES, SPAN = 3, 100.0


@dataclass(frozen=True)
class RecordCells:
    """Record of a row, with the other inputs of its cells: table, caveats, search and plan."""

    record: Record
    table: Table
    caveats: tuple[Caveat, ...] = ()  # of the row
    search: SearchRecord | None = None  # search that chose the settings; None: none was run
    converged_above: float | None = None  # percent; see `Paper`
    plan: str | None = None  # digest of the row's plan and settings; None: exploratory
    planned_seeds: int = 0  # per level

    def cells(self, metric: str, printed: dict[str, Printed]) -> dict[str, Cell]:
        """Cells of a metric by level, with the cells ``printed`` at these levels.

        A missing number of an account is infinite.
        """
        infinite = self.accounted and metric == self.table.metric
        replicas: dict[str, list[Replica]] = {}
        for replica in self.record.replicas:
            if metric in replica.metrics or infinite:
                replicas.setdefault(replica.level, []).append(replica)
        return {
            level: self._cell(metric, level, tuple(at), printed.get(level)) for level, at in replicas.items()
        }

    @property
    def accounted(self) -> bool:
        """Return True if the numbers were computed without training, and so have no spread."""
        return self.record.method == schema.ACCOUNTING

    def _cell(self, metric: str, level: str, replicas: tuple[Replica, ...], printed: Printed | None) -> Cell:
        scale = self.table.scale_of(metric)
        values = tuple(scale * replica.metrics.get(metric, inf) for replica in replicas)
        ours = computed(values[0]) if self.accounted else mean(values)
        trained = metric not in self.table.noises
        failed: tuple[float, ...] = ()
        if trained and self.table.convergence:
            by_seed = zip(values, replicas, strict=True)
            failed = tuple(
                value for value, replica in by_seed if not has_converged(replica, self.converged_above)
            )
        untried = (
            None if len(failed) < len(replicas) or self.table.rates_given else _untried(self.search, level)
        )
        against = [
            caveat for caveat in self.caveats if caveat.inconclusive and (trained or not caveat.training)
        ]
        incomparable = any(caveat.incomparable for caveat in self.caveats)
        theirs = printed.value if printed and not incomparable else None
        return Cell(
            row=self.record.row,
            level=level,
            values=values,
            mean=ours,
            printed=printed,
            difference=None if theirs is None else ours.value - theirs,
            guarantee=guarantee(replicas, self.record.provenance.reproducible),
            replicas=replicas,
            planned=self._as_planned(replicas),
            caveat=next((caveat.words for caveat in against), untried),
            only_shorter=bool(against) and all(caveat.training for caveat in against) and untried is None,
            untried=untried,
            failed=failed,
            draws=_draws(replicas, metric, scale),
        )

    def _as_planned(self, replicas: tuple[Replica, ...]) -> bool:
        """Return True if all planned seeds of a level were trained under the present plan."""
        plans = {self.record.origins[replica.origin].plan for replica in replicas}
        return self.plan is not None and plans == {self.plan} and len(replicas) == self.planned_seeds


def has_converged(replica: Replica, above: float | None) -> bool:
    """Return True if a training converged.

    If ``above`` (`Paper.converged_above`, in percent) is set, the validation accuracy must be above it; test
    accuracy without validation examples. Without ``above`` or an accuracy, the metric 'converged' decides.
    Without this metric, the result is True.
    """
    accuracy = replica.metrics.get("validation_accuracy", replica.metrics.get("test_accuracy"))
    if above is not None and accuracy is not None:
        return 100 * accuracy > above
    return replica.metrics.get("converged", 1.0) > 0


def _untried(search: SearchRecord | None, level: str) -> str | None:
    """Note that too few step sizes were tried for failed training to be a finding; None if enough were."""
    if not search:
        return "no convergence (step sizes were not searched)"
    rates = {
        candidate.settings["learning_rate"]
        for candidate in search.candidates
        if candidate.level == level and "learning_rate" in candidate.settings
    }
    # with a tolerance, because 0.1 / 0.001 is not 100 in floating point
    if len(rates) >= STEP_SIZES and max(rates) / min(rates) >= SPAN * (1 - 1e-9):
        return None
    if not rates:
        return "no convergence (step sizes were not searched at this level)"
    tried = ", ".join(f"{rate:g}" for rate in sorted(rates))
    return f"no convergence after too narrow a search of step sizes: {tried}"


def _draws(replicas: tuple[Replica, ...], metric: str, scale: float) -> float | None:
    """Standard deviation over tests with new noise, as root mean square over seeds; None: no such tests."""
    name = f"{metric}_draws_std"
    spreads = [scale * replica.metrics[name] for replica in replicas if name in replica.metrics]
    return sqrt(fmean(spread**2 for spread in spreads)) if spreads else None
