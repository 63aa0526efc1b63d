"""One paper's page: its verdicts, its tables, what it claims, what it leaves open."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.reporting import wording
from pipeline.reporting.figures import Drawn
from pipeline.reporting.findings import Said
from pipeline.reporting.gather import PaperResult
from pipeline.reporting.judging import values
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.judging.claim_test import Outcome
from pipeline.reporting.judging.guarantees import VACUOUS
from pipeline.reporting.pages.environment import environment
from pipeline.reporting.results import LineResult, TableResult
from pipeline.results.records import Record

# A claim's status in plain words, and its tone; the others depend on what was run.
PLAIN = {
    "reproduced": ("yes", "good"),
    "not reproduced": ("no", "bad"),
    "undecided": ("undecided: seeds differ too much", "warn"),
    "waits for a GPU": ("waits for a GPU", "faint"),
    "by construction": ("yes, by how this project accounts", "faint"),
    "not tested": ("not tested", "faint"),
    "not run": ("not run", "faint"),
}


@dataclass(frozen=True)
class Section:
    """A filled table with the figures drawn from it."""

    result: TableResult
    levels: str | None  # SVG
    curves: str | None
    figures: tuple[Drawn, ...]  # that the paper's file asks for


@dataclass(frozen=True)
class Chapter:
    """A paper with all that its page shows."""

    result: PaperResult
    sections: tuple[Section, ...]
    claims: tuple[ClaimResult, ...]
    findings: tuple[Said, ...]


@dataclass(frozen=True)
class Share:
    """A part of a bar: how many, what they are, and the page's colour for it."""

    count: int
    words: str
    tone: str  # good, bad, warn, plain or faint


def render(chapter: Chapter) -> str:
    """The paper's page as HTML."""
    made = environment()
    made.filters |= {
        "agreement": agreement,
        "verdicts": verdicts,
        "verdict": verdict,
        "privacy_bought": privacy_bought,
        "claims_met": claims_met,
        "plainly": plainly,
        "settings_of": settings_of,
        "left_out": left_out,
    }
    return made.get_template("paper.html").render(chapter=chapter, up="../")


def agreement(result: PaperResult) -> list[Share]:
    """Every value that the paper prints, by its verdict."""
    counts: Counter[str] = Counter(value.verdict for value in values.judge(result))
    return _shares(
        counts,
        ("agrees", "agree with the paper", "good"),
        ("above", "above the paper", "plain"),
        ("below", "below the paper", "bad"),
        ("not judged", "not judged: too small a budget, less data, too few seeds or step sizes", "warn"),
        ("waits for a GPU", "wait for a GPU", "faint"),
        ("not run", "not run", "faint"),
    )


def verdict(line: LineResult, level: str) -> str:
    """What became of a printed value, in words."""
    return values.of_line(line.line, line.rows, level).words if line.line else ""


def verdicts(result: PaperResult) -> str:
    """The paper in a sentence: how many of its values agree, differ, can't be judged, wait, were not run."""
    summary = values.summary(result)
    if not summary.total:
        return ""
    parts = [f"{summary.agree} agree", f"{summary.differ} differ"]
    if summary.not_judged:
        parts.append(
            f"{summary.not_judged.total()} can't be judged yet ({values.reasons(summary.not_judged)})"
        )
    parts.append(f"{summary.waiting} wait for a GPU" + _hours(summary))
    parts.append(f"{summary.not_run.total()} not run")
    if summary.not_run:
        parts[-1] += f" ({values.reasons(summary.not_run)})"
    text = f"Of {summary.total} printed values {', '.join(parts[:-1])}, and {parts[-1]}."
    if summary.out_of_scope:
        text += f" {summary.out_of_scope} more numbers are out of scope, for the reasons given below."
    return text


def _hours(summary: values.Summary) -> str:
    parts = []
    if summary.gpu_hours:
        parts.append(f"about {_roughly(summary.gpu_hours)} GPU hours by their operations")
    if summary.uncounted:
        parts.append(f"{_rows(summary.uncounted)} not counted")
    return f" ({', '.join(parts)})" if parts else ""


def privacy_bought(result: PaperResult) -> list[Share]:
    """Every cell of a row as in the paper, by what its claim of an epsilon is worth."""
    rows = [row for table in result.tables if not table.table.own for row in table.rows if not row.variant]
    cells = [cell for row in rows for cell in row.cells.values()]
    counts: Counter[str] = Counter(cell.guarantee.state for cell in cells)
    return _shares(
        counts,
        ("holds", "the claimed ε holds", "good"),
        ("weaker", "only a larger ε than claimed is proven", "warn"),
        ("exceeds", "spend more than is claimed", "bad"),
        ("vacuous", f"no privacy to speak of: a bound above ε = {VACUOUS:.1f}", "bad"),
        ("none_proven", "does not hold", "bad"),
        ("none", "claim no privacy", "faint"),
    )


def claims_met(claims: Sequence[ClaimResult]) -> list[Share]:
    """Every claim of the paper by its status; none that is tested on an experiment of our own."""
    counts: Counter[str] = Counter(claim.status for claim in claims if not claim.own)
    return _shares(
        counts,
        ("reproduced", "reproduced", "good"),
        ("not reproduced", "not reproduced", "bad"),
        ("undecided", "undecided", "warn"),
        ("not judged", "run, but not judged: too small a budget, less data or too few step sizes", "warn"),
        ("only differently", "decided with a change alone", "plain"),
        ("by construction", "hold by construction", "faint"),
        ("waits for a GPU", "wait for a GPU", "faint"),
        ("not tested", "not tested", "faint"),
        ("not run", "not run", "faint"),
    )


def _shares(counts: Counter[str], *parts: tuple[str, str, str]) -> list[Share]:
    return [Share(counts[key], words, tone) for key, words, tone in parts if counts[key]]


def settings_of(record: Record) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The method's settings: those that all levels share, and what each level has beside its name."""
    by_level = {replica.level: replica.settings for replica in record.replicas}
    first, *others = by_level.values()
    common = {name: value for name, value in first.items() if all(own.get(name) == value for own in others)}
    special: dict[str, dict[str, Any]] = {}
    for level, own in by_level.items():
        said = {*common, level.partition("=")[0]}
        if left := {name: value for name, value in own.items() if name not in said}:
            special[level] = left
    return common, special


def plainly(result: ClaimResult) -> tuple[str, str]:
    """A claim's verdict in plain words, and its tone.

    What was run too small to decide still says where it points.
    """
    if result.status == "not judged":
        small = next(one for one in result.assessments if not one.variant and one.status == "not judged")
        return f"run small: {_pointing(small.outcomes)}", "warn"
    if result.status == "only differently":
        changed = [one for one in result.assessments if one.status in ("reproduced", "not reproduced")]
        held = sum(one.status == "reproduced" for one in changed)
        return f"only with a change: holds for {held} of {len(changed)}", "plain"
    return PLAIN[result.status]


def _pointing(outcomes: Sequence[Outcome]) -> str:
    told = [outcome.verdict for outcome in outcomes if outcome.verdict in ("holds", "fails")]
    if not told:
        return "points nowhere"
    if len(set(told)) > 1:
        return f"points to no, in {told.count('fails')} of {len(told)}"
    return "points to yes" if told[0] == "holds" else "points to no"


def left_out(result: TableResult) -> str:
    """The rows of a table that weren't run, counted by what they wait for; nothing where all were."""
    missing = [row for row in result.rows if not row.cells]
    waiting = [row for row in missing if row.waits]
    parts = []
    if waiting:
        hours = sum(row.gpu_hours or 0.0 for row in waiting)
        about = f" (about {_roughly(hours)} hours of one)" if hours else ""
        parts.append(f"{_rows(len(waiting))} for a GPU{about}")
    if others := len(missing) - len(waiting):
        parts.append(f"{_rows(others)} to be trained here")
    return ", ".join(parts)


def _roughly(hours: float) -> str:
    return wording.number(float(f"{hours:.2g}"))


def _rows(count: int) -> str:
    return f"{count} row" + ("s" if count > 1 else "")
