"""Contents of pages: the table in a paper's own layout, headlines, lines of the ledger, and rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, NamedTuple

import pandas as pd

from dprepro.pipeline.ledgers.sentences import counted, downwards, number, upwards
from dprepro.pipeline.params.papers import Headline, Paper, Printed, Table, short
from dprepro.pipeline.reporting.claims import ClaimResult, Part
from dprepro.pipeline.reporting.effects import Results
from dprepro.pipeline.reporting.privacy import not_covered, specific
from dprepro.pipeline.reporting.table import STAND_INS, Columns, Sources
from dprepro.pipeline.reporting.wording import fixed, half, level_value, level_words, printed, signed
from dprepro.pipeline.results.schema import GUESS, Record, Scores

# A sign tells statuses apart in print, and for readers who can't tell colours apart.
SIGNS = {
    "reproduced": "■", "higher": "▲", "lower": "▼", "uncertain": "◆", "not run": "□",
    "same direction": "■", "opposite": "✕", "none in either": "○", "only in one": "◐", "confounded": "◇",
    "proven": "■", "exceeded": "✕", "not proven": "◇", "no claim": "–",
    "supported": "■", "contradicted": "✕", "mixed": "◐", "not tested": "□",
}  # fmt: skip
PARTS = {"holds": "✓", "fails": "✕", "uncertain": "?", "not proven": "◇", "not run": "–"}
VALUES = ("reproduced", "higher", "lower", "uncertain", "not run")
BADNESS = ("", "no claim", "proven", "not proven", "exceeded")
TEXTS = ("row", "status", "handicap", "not_judged_reason", "privacy")
HANDICAP = "h"  # beside the sign of a 'lower' with a handicap


@dataclass(frozen=True)
class Report:
    """All that pages show."""

    sources: Sources
    table: pd.DataFrame
    effects: pd.DataFrame
    claims: tuple[ClaimResult, ...]
    picture: str | None = None  # SVG of accuracy against proven epsilon

    @cached_property
    def papers(self) -> list["PaperView"]:
        """Published papers, then the titles of rows of our own."""
        views = [PaperView(key, self) for key in self.sources.papers]
        return sorted(views, key=lambda view: not view.paper.published)

    @cached_property
    def results(self) -> Results:
        """Lines of the table by cell."""
        return Results(self.table)

    def label(self, effect: Columns, side: str) -> str:
        """Label of a side's line."""
        line = self.sources.line(effect["paper"], effect["table"], effect[f"{side}_line"])
        return line.label if line else ""

    @cached_property
    def lines(self) -> list["Cell"]:
        """Results and printed values in the order of the papers' tables, the judged first."""
        grids = [grid for view in self.papers for grid in view.grids]
        found = [each for grid in grids for each in grid.every if each.ran or each.printed]
        return sorted(found, key=lambda each: (not each.judged, not each.ran))


@dataclass(frozen=True)
class Cell:
    """A line of the table, in words."""

    line: Columns
    table: Table
    paper: str  # short name
    key: str | None  # of the row; None: no row is declared
    level: str
    ran: bool
    status: str  # of the printed value; '' without one
    sign: str  # of the status, with a mark for a handicap
    printed: str  # '' if the paper prints nothing
    ours: str  # mean with half its interval; '' if the row hasn't run
    difference: str  # '' if no numbers are compared
    share: str  # of converged trainings, if not all converged
    note: str  # the handicap, or why the value isn't judged
    privacy: str  # status of the claimed epsilon; '' if the row hasn't run
    claimed: str
    at_most: str
    at_least: str

    @property
    def half_width(self) -> str:
        """Half the 95 % interval of the difference, after it; '' if nothing is trained or compared."""
        shown = self.difference and self.trained
        return f" ± {half(self.line['difference_half_width'], self.table.decimals)}" if shown else ""

    @property
    def mark(self) -> str:
        """What stands beside the value: the status' sign, or why a result isn't compared."""
        if self.uncounted:
            return "(not counted)"
        if self.ran and self.status == "not run":
            return "" if self.note in STAND_INS.values() else f"({self.note})"
        return self.sign

    @property
    def uncounted(self) -> bool:
        """Whether the paper prints it, but it is never judged."""
        return bool(self.printed and self.line["is_primary"] and not self.status)

    @property
    def bound(self) -> str:
        """What is known of the claimed epsilon: ``ε ≤ 2.72``, ``ε ≥ 2 (claimed 0.25)``, ``ε not proven``."""
        if self.privacy == "exceeded":
            return f"ε ≥ {self.at_least} (claimed {self.claimed})"
        return f"ε ≤ {self.at_most}" if self.privacy == "proven" else "ε not proven" if self.claims else ""

    @property
    def claims(self) -> bool:
        """Whether an epsilon is claimed."""
        return self.privacy not in ("", "no claim")

    @property
    def judged(self) -> bool:
        """Whether it decides a printed value."""
        return self.status not in ("", "not run")

    @property
    def trained(self) -> bool:
        """Whether it is a network's result, not one of accounting."""
        return self.ran and not pd.isna(self.line["n"])

    @property
    def place(self) -> str:
        """The paper's table, short: ``Davody T5``."""
        return f"{self.paper.split()[0]} {_short(self.table)}"

    @property
    def name(self) -> str:
        """Its line and level: ``Davody T5, LeNet-5, ε = 7``."""
        variant = f" ({self.line['variant']})" if self.line["variant"] else ""
        return f"{self.place}, {self.line['label']}{variant}, {self.level}"

    @property
    def title(self) -> str:
        """Text on hover."""
        n = "" if not self.ran or pd.isna(self.line["n"]) else f"{self.line['n']:.0f} seeds"
        epsilon = f"ε ≤ {self.at_most} {self.privacy}" if self.privacy == "proven" else self.privacy
        parts = (self.status, n, self.share, self.note, epsilon if self.claims else "")
        return ", ".join(filter(None, parts))


def _short(table: Table) -> str:
    name = table.name
    words = {"Table ": "T", "Figure ": "F", "Figures ": "F", "Section ": "§", " and ": "+", " (": "", ")": ""}
    for word, letter in words.items():
        name = name.replace(word, letter)
    return name


def cell(line: Columns, sources: Sources) -> Cell:
    """Words of a line of the table."""
    table, text = sources.table(line["paper"], line["table"]), {name: _text(line[name]) for name in TEXTS}
    decimals, n, converged = table.decimals_of(line["metric"]), line["n"], line["converged"]
    ran, status, apart = isinstance(line["by_seed"], dict), text["status"], line["difference"]
    partly = ran and not pd.isna(n) and converged < n
    claimed, upper, lower = (line[f"epsilon_{name}"] for name in ("paper", "upper", "lower"))
    return Cell(
        line=line,
        table=table,
        paper=short(sources.papers[line["paper"]]),
        key=text["row"] or None,
        level=level_words(line["level"]),
        ran=ran,
        status=status,
        sign=SIGNS[status] + (HANDICAP if text["handicap"] else "") if status else "",
        printed=printed(line["printed"], table.decimals).replace(" 0.", " .")
        if isinstance(line["printed"], Printed)
        else "",
        ours=_ours(line, decimals) if ran else "",
        difference="" if pd.isna(apart) or not isfinite(apart) else signed(apart, decimals),
        share=f"{converged:.0f} of {n:.0f} converge" if partly else "",
        note=text["handicap"] or text["not_judged_reason"],
        privacy=text["privacy"],
        claimed="above 1e308" if pd.isna(claimed) else upwards(claimed),
        at_most="none" if pd.isna(upper) else upwards(upper),
        at_least="–" if pd.isna(lower) else downwards(lower),
    )


def _ours(line: Columns, decimals: int | None) -> str:
    text = fixed(line["ours"], decimals)
    if pd.isna(line["n"]):
        return text
    if pd.isna(line["half_width"]):
        return f"{text} (n = {line['n']:.0f})"
    return f"{text} ± {half(line['half_width'], decimals)}"


def base_rate(found: Cell, sources: Sources) -> str:
    """Percentage of test examples in the most frequent class; '' if it isn't recorded."""
    trainings = sources.records[found.line["row"]].trainings
    rates = (each.scores.base_rate for each in trainings if isinstance(each.scores, Scores))
    return next((f"{100 * rate:.1f}" for rate in rates if rate is not None), "")


def guess(found: Cell, sources: Sources) -> str:
    """Number of the level's seeds whose test accuracy guessing has too, in words; '' if there are none."""
    trainings = [each for each in sources.records[found.line["row"]].trainings if each.scores is not None]
    of_level = [each for each in trainings if each.level == found.line["level"]]
    guesses = [each for each in of_level if each.scores and each.scores.guess]
    return f"{GUESS} ({len(guesses)} of {counted(len(of_level), 'seed')})" if guesses else ""


def uses(found: Cell, sources: Sources) -> str:
    """Uses of private data of a result that no epsilon covers, besides those that all rows share."""
    record = sources.records[found.line["row"]]
    training = next(each for each in record.trainings if each.level == found.line["level"])
    every = not_covered(training.ledger, training.attacks, record.composition)
    return "; ".join(use.words for use in specific(every))


class Why(NamedTuple):
    """Values that differ for one reason."""

    cells: str
    text: str


@dataclass(frozen=True)
class Grid:
    """A table in the paper's layout."""

    key: str
    table: Table
    levels: tuple[str, ...]
    heads: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Cell | None, ...]], ...]  # label, cell at each level
    # label, row and cells of rows that decide nothing
    others: tuple[tuple[str, str, tuple[Cell | None, ...]], ...]

    @property
    def cells(self) -> list[Cell]:
        """Cells of the paper's lines."""
        return [cell for _, cells in self.lines for cell in cells if cell]

    @property
    def every(self) -> list[Cell]:
        """Cells of all rows."""
        return self.cells + [cell for _, _, cells in self.others for cell in cells if cell]

    @property
    def short(self) -> str:
        """Short name: ``T5``."""
        return _short(self.table)

    @property
    def ran(self) -> bool:
        """Whether anything ran."""
        return any(cell.ran for cell in self.cells) or bool(self.others)

    @property
    def prints(self) -> bool:
        """Whether the paper prints values."""
        return any(cell.printed for cell in self.cells)

    @property
    def counts(self) -> str:
        """Number of values of each status: ``■ 12 ▲ 3``."""
        found = Counter(cell.status for cell in self.cells if cell.status)
        return " ".join(f"{SIGNS[status]} {found[status]}" for status in VALUES if found[status])

    @property
    def why(self) -> list[Why]:
        """Values that differ or aren't counted, with the explanation."""
        by_reason: dict[tuple[str, str], dict[str, list[str]]] = {}
        for label, cells in self.lines:
            for cell in cells:
                if cell and (cell.uncounted or cell.status in ("higher", "lower")):
                    reason = _text(cell.line["explanation"]) or "Unexplained.", cell.note
                    of_line = by_reason.setdefault(reason, {}).setdefault(label, [])
                    apart = f": {cell.sign} {cell.difference}" if cell.status else ""
                    of_line.append(f"{cell.level}{apart}")
        return [
            Why(
                "; ".join(f"{label}, {', '.join(levels)}" for label, levels in found.items())
                + (f" (h: {handicap})" if handicap else ""),
                text,
            )
            for (text, handicap), found in by_reason.items()
        ]

    @property
    def rows(self) -> dict[str, dict[str, list[str]]]:
        """Levels with their bounds, by row that ran, by label of the line."""
        found: dict[str, dict[str, list[str]]] = {}
        for label, cells in self.lines:
            for cell in cells:
                if cell and cell.ran and cell.key:
                    level = ": ".join(filter(None, (cell.line["level"], cell.bound)))
                    found.setdefault(label, {}).setdefault(cell.key, []).append(level)
        return found

    @property
    def unproven(self) -> dict[str, str]:
        """Privacy status of lines with a claimed epsilon that isn't proven at some level, by label."""
        worst = {label: _worst(cell for cell in cells if cell) for label, cells in self.lines}
        return {label: status for label, status in worst.items() if status in ("not proven", "exceeded")}

    @property
    def training(self) -> str:
        """Length of our training, number of examples, and data that stand in for the paper's, in words."""
        ran = [cell.line for cell in self.cells if cell.ran and not pd.isna(cell.line["epochs"])]
        if not ran:
            return ""
        kinds = {_text(line["training"]) for line in ran} - {""}
        epochs = {line["epochs"] for line in ran}
        examples = {int(line["examples"]) for line in ran}
        length = ("up to " if len(epochs) > 1 else "") + f"{number(max(epochs))} epoch"
        length += "s" if max(epochs) != 1 else ""
        paper = f" of {self.table.examples:,}" if self.table.examples else ""
        data = " to ".join(dict.fromkeys(f"{each:,}" for each in (min(examples), max(examples))))
        kind = f" ({' or '.join(sorted(kinds))})" if kinds else ""
        reasons = {line["not_judged_reason"] for line in ran}
        instead = [words for words in STAND_INS.values() if words in reasons]
        if instead:
            return f"our training is on {', '.join(instead)}: {length}, {data} examples"
        return f"our training{kind}: {length}, {data}{paper} examples"

    @property
    def rebuild(self) -> str | None:
        """Command that trains or computes a cell again."""
        judged = [cell for cell in self.cells if cell.judged]
        cell = min(judged, key=lambda cell: (not cell.trained, not cell.claims), default=None)
        if not cell or cell.trained:
            return f"dprepro rerun {cell.key} --level {cell.line['level']} --seeds 1" if cell else None
        return f"dprepro account {cell.key}"


@dataclass(frozen=True)
class PaperView:
    """A paper with its results."""

    key: str
    report: Report

    @property
    def paper(self) -> Paper:
        """What its file says."""
        return self.report.sources.papers[self.key]

    @property
    def name(self) -> str:
        """Short name."""
        return short(self.paper)

    @cached_property
    def grids(self) -> list[Grid]:
        """Tables with declared rows or printed values: the main one first, rows of our own last."""
        own = self.report.table[self.report.table["paper"] == self.key]
        keys = [*self.paper.tables, *sorted(set(own["table"]) - set(self.paper.tables))]
        there = set(own["table"])
        grids = [_grid(own[own["table"] == key], self, key) for key in keys if key in there]
        first = [head.of.partition("/")[0] for head in self.paper.headlines if head.of] or keys
        return sorted(grids, key=lambda grid: (grid.key != first[0], not grid.prints))

    @cached_property
    def claims(self) -> list[ClaimResult]:
        """Claims that something may decide, the decided first."""
        found = [each for each in self.report.claims if each.paper == self.key and not each.claim.untested]
        return sorted(found, key=lambda each: each.status == "not tested")

    @cached_property
    def untested(self) -> list[ClaimResult]:
        """Sentences that nothing decides."""
        return [each for each in self.report.claims if each.paper == self.key and each.claim.untested]

    @property
    def headlines(self) -> list["HeadlineResult"]:
        """What the first page says of the paper: headlines for which this project declares rows."""
        return list(filter(None, (_headline(headline, self) for headline in self.paper.headlines)))

    def part_words(self, part: Part) -> str:
        """Part of a claim: what is compared, ours, the paper's and what is claimed."""
        left, right = part.left, part.right
        text = f"{self.paper.lines[left[0]].label}"
        if isinstance(right, tuple) and right[0] != left[0]:
            text += f" {'÷' if part.ratio else '−'} {self.paper.lines[right[0]].label}"
        text += f", {level_words(left[1])}"
        if isinstance(right, tuple) and right[1] != left[1]:
            text += f" against {level_words(right[1])}"
        apart = isinstance(right, tuple) and not part.ratio
        base = 0.0 if isinstance(right, tuple) or right is None else right
        if part.ours is not None:
            wide = f" ± {half(part.ours.half_width, 2)}" if part.ours.half_width else ""
            text += f": {signed(part.ours.value, 2) if apart else fixed(part.ours.value, 2)}{wide}"
        bounds = [f"> {base + part.above:g}"] if part.above is not None else []
        bounds += [f"< {base + part.below:g}"] if part.below is not None else []
        text += f", claimed {' and '.join(bounds)}" if bounds else ""
        if part.theirs is not None:
            text += f", printed {signed(part.theirs, 2) if apart else number(part.theirs)}"
        found = cell(part.lines[0], self.report.sources) if part.lines else None
        if found and part.ours is not None and found.claims and found.at_most != "none":
            text += f", at ε ≤ {found.at_most}"
        if not all(line["is_primary"] for line in part.lines):
            text += f", of the rows {' and '.join(line['row'] for line in part.lines)}"
        why = f": {_remark([found])}" if found and part.reason == found.privacy == "exceeded" else ""
        return text + (f" ({part.reason}{why})" if part.reason else "")

    def line(self, place: tuple[str, str]) -> Columns | None:
        """Line of the table that decides (TABLE/LINE, level), in the table's own metric."""
        table, _, rest = place[0].partition("/")
        metric = self.report.sources.table(self.key, table).metric
        return self.report.results.primary((self.key, table, rest.partition(":")[0], metric, place[1]))

    def result(self, place: tuple[str, str]) -> Cell | None:
        """The result that decides (TABLE/LINE, level); None: not run."""
        line = self.line(place)
        ran = line is not None and isinstance(line["by_seed"], dict)
        return cell(line, self.report.sources) if line is not None and ran else None


class HeadlineResult(NamedTuple):
    """A headline: what the paper says, what is found, and the privacy."""

    says: str
    paper: str
    ours: str
    status: str  # of the value, or ''
    sign: str  # of the status
    privacy: str  # a status, or ''
    remark: str  # on the privacy
    href: str


def _headline(headline: Headline, view: PaperView) -> HeadlineResult | None:
    page = f"papers/{view.key}.html"
    if headline.of is not None:
        line = view.line((headline.of, headline.at or ""))
        if line is None or not isinstance(line["row"], str):
            return None
        value = cell(line, view.report.sources)
        found = value.printed, value.ours, value.status, value.sign, value.privacy
        href = f"{page}#{headline.of.partition('/')[0]}"
        return HeadlineResult(headline.says, *found, _remark([value]), href)
    claims = {each.claim.key: each for each in view.report.claims if each.paper == view.key}
    result = claims[headline.claim or ""]
    if not any(all(_declared(place, view) for place in (part.left, part.right)) for part in result.parts):
        return None
    places = [place for part in result.parts for place in (part.left, part.right)]
    cells = [each for place in places if isinstance(place, tuple) and (each := view.result(place))]
    status, href = "" if result.tally else "not run", f"{page}#claim-{result.claim.key}"
    reasons = {part.reason or "" for part in result.parts} - {"not run"}
    ours = result.tally or (reasons.pop() if len(reasons) == 1 else "")
    judged = ours, status, SIGNS.get(status, ""), _worst(cells)
    return HeadlineResult(headline.says, "yes", *judged, _remark(cells), href)


def _declared(place: Any, view: PaperView) -> bool:
    """Whether a row is declared for one side of a claim; a number needs none."""
    line = view.line(place) if isinstance(place, tuple) else {"row": ""}
    return line is not None and isinstance(line["row"], str)


def _worst(cells: Iterable[Cell]) -> str:
    return max((cell.privacy for cell in cells), key=BADNESS.index, default="")


def _remark(cells: Sequence[Cell]) -> str:
    """How much more is spent than is claimed, where the least is claimed; or why nothing is proven."""
    exceeded = [cell for cell in cells if cell.privacy == "exceeded"]
    if not exceeded:
        reasons = (cell.line["privacy_reason"] for cell in cells if cell.privacy == "not proven")
        return next(reasons, "").partition(":")[0]
    worst = min(exceeded, key=lambda cell: float(cell.line["epsilon_paper"]))
    return f"ε ≥ {worst.at_least} where {worst.claimed} is claimed"


def _grid(own: pd.DataFrame, view: PaperView, key: str) -> Grid:
    """A table of a paper; ``own`` are its lines of the table of all results."""
    table = view.report.sources.table(view.key, key)
    levels = _levels(table, own)
    further = own.loc[own["printed"].notna() & (own["metric"] != table.metric), "metric"].unique()
    lines, others = [], []
    for metric in (table.metric, *further):
        of_metric = own[own["metric"] == metric]
        for name in dict.fromkeys([*(line.key for line in table.lines), *of_metric["line"]]):
            of_line = of_metric[of_metric["line"] == name]
            label = next(iter(of_line["label"]), name)
            label += f", {table.also[metric]}" if metric != table.metric else ""
            decide = of_line["is_primary"]
            if decide.any():
                lines.append((label, _cells(of_line[decide], levels, view)))
            for row, of_row in of_line[~decide & of_line["ours"].notna()].groupby("row", sort=False):
                first = of_row.iloc[0]
                apart = first["variant"] or row
                others.append((f"{label}: {apart}", str(row), _cells(of_row, levels, view)))
    return Grid(key, table, levels, _heads(levels), tuple(lines), tuple(others))


def _cells(lines: pd.DataFrame, levels: Sequence[str], view: PaperView) -> tuple[Cell | None, ...]:
    found = {line["level"]: cell(line, view.report.sources) for line in lines.to_dict("records")}
    return tuple(found.get(level) for level in levels)


def _levels(table: Table, own: pd.DataFrame) -> tuple[str, ...]:
    """Columns, with further levels of rows: in numerical order if the columns have one, else at the end."""

    def value(level: str) -> float:
        try:
            return float(level.partition("=")[2])
        except ValueError:  # a word comes last if numbers rise
            return float("inf")

    levels = list(dict.fromkeys([*table.columns, *own["level"]]))
    for falling in (False, True):
        if len(table.columns) > 1 and sorted(table.columns, key=value, reverse=falling) == table.columns:
            return tuple(sorted(levels, key=value, reverse=falling))
    return tuple(levels)


def _heads(levels: Sequence[str]) -> tuple[str, ...]:
    """Column heads: ``ε = ∞``, ``8``, ``4``; all with names if the levels name different settings."""
    one = len({level.partition("=")[0] for level in levels}) == 1
    return tuple(
        level_words(level) if not one or place == 0 else level_value(level)
        for place, level in enumerate(levels)
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def row_settings(record: Record) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings that all levels share, and further settings by level; unset ones are left out."""
    settings = {
        training.level: {name: value for name, value in training.settings.items() if value is not None}
        for training in record.trainings
    }
    first, *others = settings.values()
    common = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}
    special = {
        level: {name: value for name, value in each.items() if name not in common}
        for level, each in settings.items()
    }
    return common, {level: further for level, further in special.items() if further}
