"""Measured numbers and bounds of a row, a line per metric and level."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from statistics import fmean
from typing import Any

from dprepro.pipeline.params import Account, Row
from dprepro.pipeline.reporting import caveats
from dprepro.pipeline.reporting.caveats import Caveat
from dprepro.pipeline.reporting.intervals import computed, mean
from dprepro.pipeline.reporting.printed import Table
from dprepro.pipeline.reporting.privacy import privacy
from dprepro.pipeline.reporting.sources import Sources
from dprepro.pipeline.results.schema import ACCOUNTING, Record, Replica

TRAINING = {"full": "as printed", "own": "paper silent", "reduced": "shorter"}
Columns = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A declared row with its record."""

    key: str
    declared: Row | Account
    sources: Sources

    def lines(self, *metrics: str) -> Iterator[Columns]:
        """Yield the columns of each metric and level, by default of all metrics of the table.

        A level that didn't run has no numbers.
        """
        replicas: dict[str, list[Replica]] = {
            self.declared.level(settings): [] for settings in self.declared.resolved
        }
        for replica in self.record.replicas if self.record else ():
            replicas.setdefault(replica.level, []).append(replica)
        for metric in metrics or (self.table.metric, *self.table.also):
            for level, there in replicas.items():
                numbers = self._numbers(metric, there) if there else {}
                if numbers:
                    numbers |= self._training(level, there) | self._privacy(there)
                elif metric != self.table.metric:
                    continue
                unit = "number" if metric in self.table.noises else self.table.unit
                yield self._row | {"metric": metric, "level": level, "unit": unit} | numbers

    @property
    def record(self) -> Record | None:
        """Record of the row; None if it hasn't run."""
        return self.sources.records.get(self.key)

    @property
    def table(self) -> Table:
        """The paper's table."""
        return self.sources.table(self.declared.paper, self.declared.table)

    @cached_property
    def _row(self) -> Columns:
        """Columns that all lines of the row share."""
        declared, row, settings = self.declared, self._trained, self.sources.settings
        line = self.sources.line(declared.paper, declared.table, declared.line)
        found = list(self._caveats())
        n = self.table.examples
        return {
            "paper": declared.paper,
            "table": declared.table,
            "line": line.key if line else declared.label,
            "label": line.label if line else declared.label,
            "row": self.key,
            "variant": declared.variant if line else "",
            "method": row.method if row else ACCOUNTING,
            "dataset": settings.raw_set(settings.split(row.data).raw) if row else None,
            "training": TRAINING[caveats.budget_of(declared, self.table)] if row else None,
            "planned": False,
            "shared_start": row is not None and row.data in self.sources.settings.starts,
            "trained_as": row.budget_of if row else None,
            "less_data": self.record.provenance.examples / n
            if self.record and n and any(caveat.fewer_data for caveat in found)
            else None,
            "remarks": "; ".join(caveat.words for caveat in found),
            "not_judged_reason": next((caveat.words for caveat in found if caveat.incomparable), None),
        }

    @property
    def _trained(self) -> Row | None:
        return self.declared if isinstance(self.declared, Row) else None

    def _caveats(self) -> Iterator[Caveat]:
        settings, root = self.sources.settings, self.sources.root
        yield from caveats.declared_caveats(self.key, self.declared, settings, self.table)
        if self.record is not None:
            yield from caveats.record_caveats(self.record, self.table)
            yield from caveats.stale_caveats(self.record, self.declared, settings, root)

    @cached_property
    def _plan(self) -> tuple[str | None, int]:
        """Digest of the row's present plan, and number of planned seeds of a level."""
        if self._trained is None or self._trained.plan is None:
            return None, 0
        settings = self.sources.settings
        return settings.plan_digest(self.key), settings.plans[self._trained.plan].seeds

    def _numbers(self, metric: str, replicas: Sequence[Replica]) -> Columns:
        """Mean and interval in the table's unit; {} if the metric wasn't measured."""
        record = self.record
        assert record is not None
        # a missing number of an account is infinite
        missing = inf if self._trained is None and metric == self.table.metric else None
        values = {
            replica.seed: self.table.scale_of(metric) * found
            for replica in replicas
            if (found := replica.metrics.get(metric, missing)) is not None
        }
        if not values:
            return {}
        ours = computed(next(iter(values.values()))) if self._trained is None else mean([*values.values()])
        above = self.sources.papers[record.paper].converged_above
        judged = self.table.convergence and metric not in self.table.noises
        failed = [
            values[each.seed] for each in replicas if each.seed in values and not has_converged(each, above)
        ]
        digest, seeds = self._plan
        plans = {record.origins[replica.origin].plan for replica in replicas}
        return {
            "n": len(values) if self._trained else None,
            "ours": ours.value,
            "half_width": ours.half,
            "by_seed": values,
            "validation": fmean(each.metrics.get("validation_accuracy", 0.0) for each in replicas),
            "converged": len(values) - len(failed) if judged else len(values),
            "failed_most": max(failed, default=None) if judged else None,
            "planned": digest is not None and plans == {digest} and len(values) == seeds,
        }

    def _training(self, level: str, replicas: Sequence[Replica]) -> Columns:
        """Largest numbers of epochs and of examples in a batch, in the row's search and its trainings."""
        record, search = self.record, self.sources.search(self.declared)
        assert record is not None
        if self._trained is None:
            return {"epochs": None, "batch": None, "examples": None}
        # a candidate has only the values of the grid
        tried = (
            [{}, *(each.settings for each in search.candidates if each.level == level)] if search else [{}]
        )
        trained = [(replica.settings, record.origins[replica.origin].examples) for replica in replicas]
        every = [(settings | candidate, examples) for candidate in tried for settings, examples in trained]
        return {
            "epochs": max(_epochs(*each) for each in every),
            "batch": max(float(settings.get("batch") or 0.0) for settings, _ in every),
            "examples": trained[0][1],
        }

    def _privacy(self, replicas: Sequence[Replica]) -> Columns:
        """Claimed epsilon and its bounds, of the least private seed."""
        record = self.record
        assert record is not None
        found = privacy(replicas, record.provenance.reproducible)
        return {
            "epsilon_paper": found.ledger.claimed,
            "epsilon_upper": found.ledger.epsilon_upper,
            "epsilon_lower": found.lower,
            "delta": found.ledger.delta,
            "privacy": found.status,
            "privacy_reason": found.reason,
        }


def has_converged(replica: Replica, above: float | None) -> bool:
    """Return True if a training converged.

    If ``above`` (`Paper.converged_above`, in percent) is set, the validation accuracy must be above it.
    Without ``above`` or a validation accuracy, the metric 'converged' decides. Without this metric, the
    result is True.
    """
    accuracy = replica.metrics.get("validation_accuracy")
    if above is not None and accuracy is not None:
        return 100 * accuracy > above
    return replica.metrics.get("converged", 1.0) > 0


def _epochs(settings: Mapping[str, Any], examples: int) -> float:
    """Epochs of a training, by `epochs` or `steps`; 0 if its settings don't say."""
    if settings.get("epochs") is not None:
        return float(settings["epochs"])
    if settings.get("steps") and settings.get("batch") and examples:
        return float(settings["steps"] * settings["batch"] / examples)
    return 0.0
