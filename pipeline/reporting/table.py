"""One table of all results: a line per paper, table, line, metric, level and row.

CSV files, numbers for DVC, MLflow, pages and `dprepro compare` are views of it. Means, percents and intervals
are computed here alone. A new column is one line here and one in each view that shows it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import pandas as pd

from dprepro.accountants.records import rounded_down, rounded_up
from dprepro.pipeline.identity.provenance import is_checkout_here, is_lost
from dprepro.pipeline.identity.validity import reason_invalid, reason_unmeasured
from dprepro.pipeline.params import PAPERS, Account, Row, Settings, papers
from dprepro.pipeline.params.papers import Paper, Printed, PrintedLine, Table
from dprepro.pipeline.reporting import verdict
from dprepro.pipeline.reporting.privacy import privacy
from dprepro.pipeline.reporting.verdict import computed, mean
from dprepro.pipeline.results import records
from dprepro.pipeline.results.schema import ACCOUNTING, Record, SearchRecord, TrainingResult

Columns = dict[str, Any]
CELL = ["paper", "table", "line", "metric", "level"]  # of the paper; the `row` with `is_primary` decides it
COLUMNS = [
    # the paper's cell, and our row: `variant` says how it differs from the paper's line, '' if it doesn't
    *CELL, "row", "label", "variant", "is_primary", "method", "dataset", "unit",
    # length of the training: 'as printed', 'paper silent' (ours), 'shorter', None in a table of our own;
    # whether all seeds were planned
    "training", "epochs", "batch", "examples", "planned", "trained_as", "shared_start", "remarks",
    # the paper's cell, its number, standard error; our seeds, mean, half its 95 % interval, values by seed
    "printed", "paper_value", "paper_error", "n", "ours", "half_width", "by_seed", "converged",
    # ours minus the paper's, half its 95 % interval, margin; status by `verdict.value`, None if nothing is
    # judged
    "difference", "difference_half_width", "margin", "status", "handicap", "not_judged_reason", "explanation",
    # claimed epsilon with an upper and a lower bound for the mechanism as it ran; status by `verdict.privacy`
    "epsilon_paper", "epsilon_upper", "epsilon_lower", "delta", "privacy", "privacy_reason",
]  # fmt: skip
OBJECTS = ["printed", "by_seed"]  # columns that a CSV file can't hold
BOUNDS = {"epsilon_upper": rounded_up, "epsilon_lower": rounded_down}
NUMBERS = ("paper_value", "ours", "half_width", "difference", *BOUNDS)
Budget = Literal["full", "own", "reduced"]
OFFICIAL = "official"
# data that stand in for the paper's, by edition
STAND_INS = {"digits": "digits of 8 x 8 pixels instead of MNIST", "synthetic": "synthetic data"}
ENOUGH_EXAMPLES = 0.9  # a smaller share of the paper's examples is a handicap
_is_lost = cache(is_lost)  # it runs git
TRAINING = {"full": "as printed", "own": "paper silent", "reduced": "shorter"}


@dataclass(frozen=True)
class Caveat:
    """A fact that a reader must know before comparing a row with the paper."""

    words: str
    incomparable: bool = False  # the row is no reproduction, so it isn't judged
    fewer_data: bool = False  # much less data than the paper's, a handicap


# The numbers are shown, not hidden: they are real, but their settings differ from the declared ones.
SETTINGS_CHANGED = Caveat("settings have changed since this run", incomparable=True)


@dataclass(frozen=True)
class Sources:
    """Declarations, papers and records."""

    settings: Settings
    root: Path
    papers: Mapping[str, Paper]  # in alphabetical order
    records: Mapping[str, Record]  # by row, of rows that ran
    searches: Mapping[str, SearchRecord]  # by name, of searches that ran

    def table(self, paper: str, key: str) -> Table:
        """A paper's table; one without printed values if its file has none."""
        own = Table(name=key, title="rows of our own", axis="", columns=[], own=True)
        return self.papers[paper].tables.get(key, own)

    def line(self, paper: str, table: str, key: str | None) -> PrintedLine | None:
        """A line of a paper's table; None if its file has none."""
        return next((line for line in self.table(paper, table).lines if line.key == key), None)

    def search(self, declared: Row | Account) -> SearchRecord | None:
        """The search that chose a row's settings; None if it has none, or the search didn't run."""
        return self.searches.get(declared.search or "") if isinstance(declared, Row) else None


def read_sources(settings: Settings, root: Path = Path(), rows: Collection[str] | None = None) -> Sources:
    """Read everything that ``settings`` declares from the files under ``root``; with ``rows``, theirs alone.

    Rows come from params.yaml, not from the folder of records, which still has records of removed rows.

    Raises:
        UserError: the file of a record, search or paper is invalid.
    """
    kept = {
        key: records.read(key, line, root)
        for key, line in settings.lines.items()
        if rows is None or key in rows
    }
    named = dict.fromkeys([*settings.searches, *(row.search for row in settings.rows.values() if row.search)])
    found = {name: records.read_search(name, root) for name in named}
    names = sorted({line.paper for line in settings.lines.values()})
    return Sources(
        settings,
        root,
        {name: papers.load(name, root / PAPERS) for name in names},
        {key: record for key, record in kept.items() if record is not None},
        {name: search for name, search in found.items() if search is not None},
    )


def results(sources: Sources) -> pd.DataFrame:
    """The table, with `COLUMNS`: rows of params.yaml, then printed values that no row decides."""
    measured = [
        line | {"declared": place}
        for place, (key, declared) in enumerate(sources.settings.lines.items())
        for line in RowResults(key, declared, sources).lines()
    ]
    primary = _primary(measured)
    lines = [line | {"is_primary": line is primary[_cell(line)]} for line in measured]
    most: dict[tuple[str, ...], float] = {}
    for line in lines:
        if line["is_primary"]:
            most[_column(line)] = max(most.get(_column(line), 0.0), line.get("epochs") or 0.0)
    lines += _printed_only(primary, sources)
    lines = [line | _judged(line, most.get(_column(line), 0.0), sources) for line in lines]
    return pd.DataFrame(lines, columns=COLUMNS)


def to_csv(table: pd.DataFrame) -> str:
    """CSV text of a table; integers stay integers in a column with missing values."""
    shown = table.drop(columns=OBJECTS, errors="ignore")
    return str(shown.convert_dtypes().to_csv(index=False, lineterminator="\n"))


def rounded(line: Mapping[Any, Any], table: Table) -> dict[str, float]:
    """Numbers of a line as pages show them: rounded to the table's decimals, bounds outwards to three digits.

    Missing ones are left out.
    """
    decimals = table.decimals_of(line["metric"])
    there = {name: float(line[name]) for name in NUMBERS if not pd.isna(line[name])}
    for name, value in there.items():
        if name in BOUNDS:
            # a bound that rounds to 0.3 may be slightly above it in floating point
            there[name] = float(BOUNDS[name](float(f"{value:.9g}"), 3))
        elif decimals is not None:
            there[name] = round(value, decimals)
    return there


def _cell(line: Columns) -> tuple[str, ...]:
    return tuple(line[name] for name in CELL)


def _column(line: Columns) -> tuple[str, ...]:
    return line["paper"], line["table"], line["metric"], line["level"]


def _primary(lines: list[Columns]) -> dict[tuple[str, ...], Columns | None]:
    """The line that decides each cell.

    Among rows that don't differ from the paper's line it is the first by: it ran; it is planned, with the
    most seeds; its training isn't shorter; it is comparable; the last planned or else the first of
    params.yaml. Results play no part.
    """

    def order(line: Columns) -> tuple[Any, ...]:
        planned = line["planned"]
        return (
            "ours" not in line,
            not planned,
            -line["n"] if planned else 0,
            line["training"] == "shorter",
            line["not_judged_reason"] is not None,
            -line["declared"] if planned else line["declared"],
        )

    chosen: dict[tuple[str, ...], Columns | None] = dict.fromkeys(map(_cell, lines))
    for line in sorted((line for line in lines if not line["variant"]), key=order, reverse=True):
        chosen[_cell(line)] = line
    return chosen


def _printed_only(primary: Mapping[tuple[str, ...], Columns | None], sources: Sources) -> Iterator[Columns]:
    """Yield a line for each printed value that no row decides."""
    for name, paper in sources.papers.items():
        for key, table in paper.tables.items():
            for line in () if table.own else table.lines:
                for metric, values in ((table.metric, line.values), *line.also.items()):
                    for level in values:
                        cell = dict(zip(CELL, (name, key, line.key, metric, level), strict=True))
                        if primary.get(_cell(cell)) is None:
                            yield cell | {
                                "label": line.label,
                                "variant": "",
                                "unit": table.unit,
                                "is_primary": True,
                                "not_judged_reason": line.untried,
                            }


def _judged(line: Columns, most: float, sources: Sources) -> Columns:
    """Columns of the paper's cell, the difference and the status; ``most``: the table's epochs."""
    table, metric = sources.table(line["paper"], line["table"]), line["metric"]
    printed_line = sources.line(line["paper"], line["table"], line["line"])
    if printed_line is None:
        return {}
    values = printed_line.values if metric == table.metric else printed_line.also.get(metric, {})
    printed = values.get(line["level"])
    if printed is None:
        return {}
    judged, reason = verdict.Judged("not run"), line["not_judged_reason"]
    if "ours" in line and reason is None:
        judged = _compared(line, printed, table, values)
    reason = reason or _reason(line)
    status: str | None = "not run" if reason else judged.status
    footnote = printed.explanation
    if metric == table.metric and line["level"] in printed_line.uncounted:
        status, footnote = None, f"not counted: {printed_line.uncounted[line['level']]}"
    return {
        "printed": printed,
        "paper_value": printed.value,
        "paper_error": printed.error,
        "margin": table.margin_at(printed),
        "difference": judged.difference,
        "difference_half_width": judged.half_width,
        "status": status if line["is_primary"] else None,
        "handicap": _handicap(line, most) if status == "lower" else None,
        "not_judged_reason": reason,
        "explanation": footnote,
    }


def _reason(line: Columns) -> str | None:
    """Reason why a result decides no printed value; None if it does."""
    if "ours" not in line:
        return "not run"
    if line["training"] == "shorter":
        return "training too short"
    if line["n"] is not None and line["n"] < verdict.FEWEST_SEEDS:
        return f"fewer than {verdict.FEWEST_SEEDS} seeds"
    return None


def _compared(line: Columns, printed: Printed, table: Table, values: dict[str, Printed]) -> verdict.Judged:
    ours = tuple(line["by_seed"].values())
    partly = line["converged"] < len(ours) and (printed.value or 0.0) > line["failed_most"]
    return verdict.value(
        ours,
        printed,
        table.margin_at(printed),
        computed=line["method"] == ACCOUNTING,
        rounding=printed.rounding(table.decimals),
        converged=line["converged"] if partly else None,
        seeds=table.seeds,
        best=max((each.value for each in values.values() if each.value is not None), default=100.0),
    )


def _handicap(line: Columns, most: float) -> str | None:
    """What the row had less of than the paper or the table's other lines: data, pretraining, epochs."""
    against = [f"{100 * line['less_data']:.0f} % of the data"] if line["less_data"] else []
    against += ["one pretrained network"] if line["shared_start"] else []
    if line["training"] == "paper silent" and line["epochs"] < most:
        against.append(f"up to {line['epochs']:g} epochs, other lines up to {most:g}")
    return ", ".join(against) or None


@dataclass(frozen=True)
class RowResults:
    """A declared row with its record."""

    key: str
    declared: Row | Account
    sources: Sources

    def lines(self, *metrics: str) -> Iterator[Columns]:
        """Yield the columns of each metric and level, by default of all metrics of the table.

        A level that didn't run has no numbers.
        """
        trainings: dict[str, list[TrainingResult]] = {
            self.declared.level(settings): [] for settings in self.declared.resolved
        }
        for training in self.record.trainings if self.record else ():
            trainings.setdefault(training.level, []).append(training)
        for metric in metrics or (self.table.metric, *self.table.also):
            for level, of_level in trainings.items():
                numbers = self._numbers(metric, of_level) if of_level else {}
                if numbers:
                    numbers |= self._training(level, of_level) | self._privacy(of_level)
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
        n, length = self.table.examples, training_length(declared, self.table)
        return {
            "paper": declared.paper,
            "table": declared.table,
            "line": line.key if line else declared.label,
            "label": line.label if line else declared.label,
            "row": self.key,
            "variant": declared.variant if line else "",
            "method": row.method if row else ACCOUNTING,
            "dataset": settings.raw_set(settings.split(row.data).raw) if row else None,
            "training": TRAINING[length] if row and not (self.table.own and length == "full") else None,
            "planned": False,
            "shared_start": row is not None and row.data in self.sources.settings.starts,
            "trained_as": row.trained_as if row else None,
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
        if self._trained and (of := self._trained.simulates) is not None:
            yield Caveat(f"simulates {of} with less noise; the ε of {of} does not apply")
        if self.record is not None:
            yield from record_caveats(self.record, self.table)
            yield from stale_caveats(self.record, self.declared, settings, root)

    @cached_property
    def _plan(self) -> tuple[str | None, int]:
        """Digest of the row's present plan, and number of planned seeds of a level."""
        if self._trained is None or self._trained.plan is None:
            return None, 0
        settings = self.sources.settings
        return settings.plan_digest(self.key), settings.plans[self._trained.plan].seeds

    def _numbers(self, metric: str, trainings: Sequence[TrainingResult]) -> Columns:
        """Mean and interval in the table's unit; {} if the metric wasn't measured."""
        record = self.record
        assert record is not None
        # a missing number of an account is infinite
        missing = inf if self._trained is None and metric == self.table.metric else None
        values = {
            training.seed: self.table.scale_of(metric) * found
            for training in trainings
            if (found := training.metrics.get(metric, missing)) is not None
        }
        if not values:
            return {}
        ours = computed(next(iter(values.values()))) if self._trained is None else mean([*values.values()])
        above = self.sources.papers[record.paper].converged_above
        judged = self.table.convergence and metric not in self.table.noises
        diverged = [each.seed for each in trainings if not has_converged(each, above)]
        failed = [values[seed] for seed in diverged if seed in values]
        digest, seeds = self._plan
        plans = {record.origins[training.origin].plan for training in trainings}
        unfinished = digest is not None and plans == {digest} and len(values) < seeds
        return {
            **({"not_judged_reason": f"{len(values)} of {seeds} declared seeds"} if unfinished else {}),
            "n": len(values) if self._trained else None,
            "ours": ours.value,
            "half_width": ours.half_width,
            "by_seed": values,
            "validation": fmean(each.metrics.get("validation_accuracy", 0.0) for each in trainings),
            "converged": len(values) - len(failed) if judged else len(values),
            "failed_most": max(failed, default=None) if judged else None,
            "planned": digest is not None and plans == {digest} and len(values) == seeds,
        }

    def _training(self, level: str, trainings: Sequence[TrainingResult]) -> Columns:
        """Largest numbers of epochs and of examples in a batch, in the row's search and its trainings."""
        record, search = self.record, self.sources.search(self.declared)
        assert record is not None
        if self._trained is None:
            return {"epochs": None, "batch": None, "examples": None}
        candidates = search.candidates if search else []
        # a candidate has only the values of the grid
        tried = [{}, *(each.settings for each in candidates if each.level == level)]
        trained = [(training.settings, record.origins[training.origin].examples) for training in trainings]
        every = [(settings | candidate, examples) for candidate in tried for settings, examples in trained]
        return {
            "epochs": max(_epochs(*each) for each in every),
            "batch": max(float(settings.get("batch") or 0.0) for settings, _ in every),
            "examples": trained[0][1],
        }

    def _privacy(self, trainings: Sequence[TrainingResult]) -> Columns:
        """Claimed epsilon and its bounds, of the least private seed."""
        record = self.record
        assert record is not None
        found = privacy(trainings, record.provenance.reproducible)
        return {
            "epsilon_paper": found.ledger.claimed,
            "epsilon_upper": found.ledger.epsilon_upper,
            "epsilon_lower": found.lower,
            "delta": found.ledger.delta,
            "privacy": found.status,
            "privacy_reason": found.reason,
        }


def has_converged(training: TrainingResult, above: float | None) -> bool:
    """Return True if a training converged.

    If ``above`` (`Paper.converged_above`, in percent) is set, the validation accuracy must be above it.
    Without ``above`` or a validation accuracy, the metric 'converged' decides. Without this metric, the
    result is True.
    """
    accuracy = training.metrics.get("validation_accuracy")
    if above is not None and accuracy is not None:
        return 100 * accuracy > above
    return training.metrics.get("converged", 1.0) > 0


def _epochs(settings: Mapping[str, Any], examples: int) -> float:
    """Epochs of a training, by `epochs` or `steps`; 0 if its settings don't say."""
    if settings.get("epochs") is not None:
        return float(settings["epochs"])
    steps, batch = settings.get("steps"), settings.get("batch")
    return float(steps * batch / examples) if steps and batch and examples else 0.0


def training_length(row: Row | Account, table: Table) -> Budget:
    """Training budget that a row declares; 'own' instead of 'full' if the paper gives no budget."""
    if not isinstance(row, Row):
        return "full"
    ours = row.budget == "full" and not table.own and not table.budget
    return "own" if ours else row.budget


def record_caveats(record: Record, table: Table) -> Iterator[Caveat]:
    """Yield caveats from the record: on the training data, and on seeded noise."""
    editions = sorted({edition for origin in record.origins for edition in origin.edition.items()})
    for edition, words in STAND_INS.items():
        if any(edition == other for _, other in editions):
            yield Caveat(words, incomparable=True)
    for raw, edition in editions:
        if edition not in (OFFICIAL, *STAND_INS):
            yield Caveat(f"{raw}: {edition} edition")
    examples = min(origin.examples for origin in record.origins)
    if table.examples is not None and examples < table.examples:
        few = examples < ENOUGH_EXAMPLES * table.examples
        words = f"trained on {examples:,} of {table.examples:,} examples"
        yield Caveat(words, fewer_data=few)
    private = any(training.ledger.event is not None for training in record.trainings)
    if any(origin.reproducible for origin in record.origins) and private:
        yield Caveat("noise seeded: no guarantee")


def stale_caveats(record: Record, row: Row | Account, settings: Settings, root: Path) -> Iterator[Caveat]:
    """Yield caveats on changes since the training: other settings or code, or a commit that git lacks.

    One more is for a planned row if no commit shows that its plan came first.
    """
    if not isinstance(row, Row):
        if record.provenance.config != settings.account_digest(record.row):
            yield SETTINGS_CHANGED
        return
    run, measured = records.read_run(record.row, root), records.read_evaluation(record.row, root).by_key
    if run is None or not measured:
        return
    reasons = {reason_invalid(training, row, None, None) for training in run.trainings}
    if "settings" in reasons:
        yield SETTINGS_CHANGED
    if reasons & {"method version", "model version"}:
        yield Caveat("trained by other code")
    if any(_is_lost(origin.revision) for origin in run.origins if origin.revision):
        order = "; git can't show that the plan came first" if row.plan else ""
        yield Caveat(f"trained with code of a commit that is not in this repository{order}")
    if row.plan and not (is_checkout_here() and all(origin.revision for origin in run.origins)):
        yield Caveat("no commit of params.yaml is recorded; git can't show that the plan came first")
    if any(reason_unmeasured(measured.get(each.key), each) == "measuring version" for each in run.trainings):
        yield Caveat("measured by other code")
