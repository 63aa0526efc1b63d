"""What a page says of a paper at a glance: counts of its verdicts, and a claim's verdict in plain words."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pipeline.reporting import tally, wording
from pipeline.reporting.judging import values
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.judging.claim_test import Outcome
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.papers import PaperResult
from pipeline.reporting.results import TableResult
from pipeline.reporting.vocabulary import CLAIMS, CONTRASTS, PRIVACY, VALUES, Word
from pipeline.results.schema import Record

MLFLOW = "http://127.0.0.1:5000"


@dataclass(frozen=True)
class Share:
    """A part of a bar: how many, and of what."""

    count: int
    word: Word


def agreement(result: PaperResult) -> list[Share]:
    """Every value that the paper prints, by what became of it."""
    return _shares(Counter(value.status for value in values.every(result)), VALUES)


def privacy_bought(result: PaperResult) -> list[Share]:
    """Every cell of a row as in the paper, or of no paper, by what its claim of an epsilon is worth."""
    counted = [table for table in result.tables if not (result.paper.published and table.table.own)]
    rows = [row for table in counted for row in table.rows if not row.variant]
    return _shares(Counter(cell.guarantee.state for row in rows for cell in row.cells.values()), PRIVACY)


def claims_met(claims: Sequence[ClaimResult]) -> list[Share]:
    """Every claim of the paper by its status; none that is tested on an experiment of our own."""
    return _shares(Counter(claim.status for claim in claims if not claim.own), CLAIMS)


def _shares(counts: Mapping[str, int], words: Mapping[str, Word]) -> list[Share]:
    return [Share(counts[key], word) for key, word in words.items() if counts.get(key)]


CONTRAST_HEAD = ("contrast", "at", "paper", "ours", "verdict")


def contrast_lines(contrasts: Sequence[PrintedContrast]) -> list[list[str]]:
    """Each contrast in words under `CONTRAST_HEAD`, those that the paper argues first."""
    return [_contrast(each) for each in sorted(contrasts, key=lambda each: not each.argued)]


def _contrast(each: PrintedContrast) -> list[str]:
    decimals, left, right = each.result.table.decimals, each.left, each.right
    at = wording.level_words(left.level)
    if each.of_lines:
        name = f"{left.line.label} − {right.line.label}"
    else:
        name, at = left.line.label, f"{at} − {wording.level_words(right.level)}"
    theirs = wording.signed(each.theirs, decimals)
    ours = ""
    if each.ours:
        ours = f"{wording.signed(each.ours.value, decimals)} ± {wording.fixed(each.half, decimals)}"
    verdict = CONTRASTS[each.status].text + (f": {each.why}" if each.why else "")
    return [f"{each.result.table.name}: {name}", at, theirs, ours, verdict]


def mlflow_link(row: str, experiments: int) -> str:
    """A row's runs in the MLflow page that `dprepro ui` opens, ready to compare.

    MLflow finds experiments by number alone, and numbers depend on the order they were made in. `publish`
    makes one for each of the laboratory's papers, so that all numbers together always hold the row.
    """
    wanted = "searchFilter=" + quote(f'tags.row = "{row}"')
    if experiments == 1:  # the page for several would show nothing of a single one's runs
        return f"{MLFLOW}/#/experiments/1/runs?{wanted}"
    numbers = json.dumps([str(number) for number in range(1, experiments + 1)])
    return f"{MLFLOW}/#/compare-experiments/s?experiments={quote(numbers)}&{wanted}"


def settings_of(record: Record) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The method's settings: those that all levels share, and what each level has beside its name."""
    by_level = {replica.level: replica.settings for replica in record.replicas}
    first, *others = by_level.values()
    common = {
        name: value for name, value in first.items() if all(level.get(name) == value for level in others)
    }
    special: dict[str, dict[str, Any]] = {}
    for level, settings in by_level.items():
        said = {*common, level.partition("=")[0]}
        if left := {name: value for name, value in settings.items() if name not in said}:
            special[level] = left
    return common, special


def plainly(result: ClaimResult) -> tuple[str, str]:
    """A claim's verdict in plain words, and its tone."""
    word = CLAIMS[result.status]
    text = word.text
    if result.status == "not judged":
        as_in_paper = (assessment for assessment in result.assessments if not assessment.variant)
        small = next(assessment for assessment in as_in_paper if assessment.status == "not judged")
        text += f": {_pointing(small.outcomes)}"
    if result.status == "only differently":
        statuses = [assessment.status for assessment in result.assessments]
        held, failed = statuses.count("reproduced"), statuses.count("not reproduced")
        text += f": holds for {held} of {held + failed}"
    return text, word.tone


def _pointing(outcomes: Sequence[Outcome]) -> str:
    ran = [outcome.verdict for outcome in outcomes if outcome.verdict != "not run"]
    answer, pointing = ("no", ran.count("fails")) if "fails" in ran else ("yes", ran.count("holds"))
    if not pointing:
        return "points nowhere"
    share = "" if pointing == len(ran) else f", in {pointing} of {len(ran)}"
    return f"points to {answer}{share}"


def left_out(result: TableResult) -> str:
    """The rows of a table that weren't run, counted by what they wait for; nothing where all were."""
    missing = [row for row in result.rows if not row.cells]
    waiting = [row for row in missing if row.waits]
    parts = []
    if waiting:
        hours = sum(row.gpu_hours or 0.0 for row in waiting)
        about = f" (about {tally.roughly(hours)} hours of one)" if hours else ""
        parts.append(f"{tally.of_rows(len(waiting))} for a GPU{about}")
    if others := len(missing) - len(waiting):
        parts.append(f"{tally.of_rows(others)} to be trained here")
    return ", ".join(parts)
