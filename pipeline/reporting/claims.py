"""Judges the claims of a paper by its effects, values and bounds."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import pandas as pd

from dprepro.errors import UserError
from dprepro.pipeline.params.papers import PREVIOUS, Bound, Claim, Effect, Value
from dprepro.pipeline.reporting import verdict
from dprepro.pipeline.reporting.effects import Cell, Results, confounded, difference, measured, reason_not_run
from dprepro.pipeline.reporting.privacy import worst
from dprepro.pipeline.reporting.table import Columns, Sources
from dprepro.pipeline.reporting.verdict import Mean, computed, contrast

Place = tuple[str, str]  # reference of a line, level
BOUNDS: dict[str, verdict.Part] = {  # what the status of a claimed epsilon says about a claim on it
    "proven": "holds", "exceeded": "fails", "not proven": "not proven", "no claim": "not run",
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """What decides a claim at a level."""

    left: Place
    right: Place | float | None  # the line or number that ``left`` is compared with
    verdict: verdict.Part
    ours: Mean | None = None
    theirs: float | None = None  # the same of the printed numbers
    above: float | None = None
    below: float | None = None
    reason: str | None = None  # why it isn't judged; what a bound says
    ratio: bool = False  # ``ours`` and ``theirs`` are ratios, not differences
    lines: tuple[Columns, ...] = ()  # of the table, that decide the part

    @property
    def confounded(self) -> bool:
        """Whether it isn't judged although both sides ran, as they differ in a handicap."""
        return self.verdict == "not run" and self.ours is not None


@dataclass(frozen=True)
class ClaimResult:
    """A claim with its parts and its status."""

    paper: str
    claim: Claim
    parts: tuple[Part, ...]

    @property
    def status(self) -> verdict.Claim:
        """By `verdict.claim`, or by the unit test that decides it."""
        if self.claim.unit_test:
            return "supported" if self.claim.unit_test.holds else "contradicted"
        return verdict.claim(part.verdict for part in self.parts)

    @property
    def tally(self) -> str:
        """How many parts hold: ``5 of 6 hold, 1 uncertain``, ``0 of 5 hold, 6 confounded``.

        '' if they decide nothing.
        """
        if not self.parts or self.status == "not tested":
            return ""
        found = Counter("confounded" if part.confounded else part.verdict for part in self.parts)
        ran = len(self.parts) - found["confounded"] - found["not run"]
        others = (f", {found[each]} {each}" for each in ("uncertain", "confounded", "not run") if found[each])
        return f"{found['holds']} of {ran} hold{''.join(others)}"


def claims(table: pd.DataFrame, sources: Sources) -> list[ClaimResult]:
    """Judge every claim of every paper by the table of results."""
    results = Results(table)
    return [
        ClaimResult(name, claim, tuple(_Judge(name, results, sources).parts(claim)))
        for name, paper in sources.papers.items()
        for claim in paper.claims
    ]


@dataclass(frozen=True)
class _Judge:
    paper: str
    results: Results
    sources: Sources

    def parts(self, claim: Claim) -> Iterator[Part]:
        for test in claim.tests:
            if isinstance(test, Effect):
                yield from self._effects(test)
            else:
                for level in test.at:
                    yield self._value(test, level) if isinstance(test, Value) else self._bound(test, level)

    def _cell(self, place: Place) -> Cell:
        (table, _, rest), level = place[0].partition("/"), place[1]
        line, _, metric = rest.partition(":")
        return self.paper, table, line, metric or self.sources.table(self.paper, table).metric, level

    def _printed(self, place: Place) -> float | None:
        return self.sources.papers[self.paper].lines[place[0]].number(place[1])

    def _effects(self, test: Effect) -> Iterator[Part]:
        levels = (
            [(after, before) for before, after in pairwise(test.at)]
            if test.right_at == PREVIOUS
            else [(level, test.right_at or level) for level in test.at]
        )
        for level, other in levels:
            left = test.left, level
            if isinstance(test.right, str):
                yield self._effect(test, left, (test.right, other))
            else:
                yield self._against_number(test, left, test.right)

    def _against_number(self, test: Effect, left: Place, number: float) -> Part:
        line = self.results.primary(self._cell(left))
        theirs = self._printed(left)
        reason = reason_not_run(line) if line else "not run"
        if line is None or reason:
            return Part(left, number, "not run", None, theirs, test.above, test.below, reason)
        ours = measured(line).mean
        less = Mean(ours.value - number, ours.half_width, ours.n)
        judged = verdict.part(less, test.above, test.below)
        return Part(left, number, judged, ours, theirs, test.above, test.below, lines=(line,))

    def _effect(self, test: Effect, left: Place, right: Place) -> Part:
        one, two = self.results.pair(self._cell(left), self._cell(right))
        printed = self._printed(left), self._printed(right)
        theirs = None
        if printed[0] is not None and printed[1] is not None:
            theirs = printed[0] / printed[1] if test.ratio and printed[1] else printed[0] - printed[1]
        reason = reason_not_run(one, two) if one and two else "not run"
        if one is None or two is None or reason:
            return Part(left, right, "not run", None, theirs, test.above, test.below, reason)
        ours = difference(one, two)
        if left[0].partition("/")[0] == right[0].partition("/")[0] and (
            reason := confounded(one, two, ours.value)
        ):
            given = (ours, theirs, test.above, test.below, f"confounded: {reason}")
            return Part(left, right, "not run", *given, lines=(one, two))
        judged = verdict.part(ours, test.above, test.below)
        if test.ratio:
            judged, ours = _ratio(one, two, test), computed(one["ours"] / two["ours"] if two["ours"] else inf)
        claimed = theirs, test.above, test.below
        return Part(left, right, judged, ours, *claimed, ratio=test.ratio, lines=(one, two))

    def _value(self, test: Value, level: str) -> Part:
        place = test.of, level
        line = self.results.primary(self._cell(place))
        reason = reason_not_run(line) if line else "not run"
        if line is None or reason:
            return Part(place, None, "not run", reason=reason)
        n, converged = len(line["by_seed"]), line["converged"]
        share = f"{converged:.0f} of {n} seeds converge"
        if 0 < converged < n:
            return Part(place, None, "uncertain", measured(line).mean, reason=share, lines=(line,))
        judged: verdict.Part = "holds" if (converged == n) is test.converges else "fails"
        return Part(place, None, judged, measured(line).mean, reason=share, lines=(line,))

    def _bound(self, test: Bound, level: str) -> Part:
        place = test.of, level
        line = self.results.primary(self._cell(place))
        if line is None or not isinstance(line["by_seed"], dict):
            return Part(place, None, "not run")
        if test.above is not None:
            other = self.results.primary(self._cell((test.of, test.right_at or "")))
            return self._apart(test.above, place, line, other)
        if test.release is not None:
            return self._release(test.release, place, line)
        return Part(place, None, BOUNDS[line["privacy"]], reason=line["privacy"], lines=(line,))

    def _release(self, quantity: str, place: Place, line: Columns) -> Part:
        record = self.sources.records[line["row"]]
        ledger = worst(training.ledger for training in record.trainings if training.level == place[1])
        released = next((part for part in ledger.releases if part.quantity == quantity), None)
        if released is None:
            names = ", ".join(part.quantity for part in ledger.releases) or "none"
            raise UserError(f"{place[0]}: release: {quantity}; allowed: {names}")
        status = verdict.privacy(released.claimed, released.epsilon_upper, None)
        return Part(place, None, BOUNDS[status], reason=f"{quantity}: {status}")

    def _apart(self, times: float, place: Place, line: Columns, other: Columns | None) -> Part:
        """Judge whether epsilon is surely, or surely not, more than ``times`` that of ``other``."""
        if other is None or not isinstance(other["by_seed"], dict):
            return Part(place, None, "not run")
        (low, high), (other_low, other_high) = _bounds(line), _bounds(other)
        judged: verdict.Part = (
            "holds" if low > times * other_high else "fails" if high <= times * other_low else "uncertain"
        )
        return Part(place, (place[0], other["level"]), judged, above=times)


def _bounds(line: Columns) -> tuple[float, float]:
    low, high = line["epsilon_lower"], line["epsilon_upper"]
    return 0.0 if pd.isna(low) else low, inf if pd.isna(high) else high


def _ratio(left: Columns, right: Columns, test: Effect) -> verdict.Part:
    """Judge the bounds of left / right as those of left - bound x right, for right > 0."""
    if right["ours"] <= 0:
        return "uncertain"
    found = set()
    for bound, sides in ((test.above, (0.0, None)), (test.below, (None, 0.0))):
        if bound is not None:
            terms = [(1.0, left["row"], measured(left)), (-bound, right["row"], measured(right))]
            found.add(verdict.part(contrast(terms), *sides))
    return next(each for each in ("fails", "not run", "uncertain", "holds") if each in found)
