"""View models: typed contents of the pages and Markdown files."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pipeline.reporting import wording
from pipeline.reporting.drawing import forest, levels
from pipeline.reporting.facts import Fact, PaperResult
from pipeline.reporting.figures import Figure, table_figures
from pipeline.reporting.judging import severity, verdicts
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.judging.claim_test import Outcome
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.judging.severity import NotCovered
from pipeline.reporting.papers import short
from pipeline.reporting.prose import counts, findings, remarks
from pipeline.reporting.prose.findings import Sentence
from pipeline.reporting.results import Cell, LineResult, RowResult, TableResult, Value
from pipeline.reporting.vocabulary import CLAIMS, CONTRASTS, LEDGERS, PRIVACY, SEVERITIES, VALUES, Word

Count = tuple[str, str, str]  # words, number, reasons
LEDGER_HEAD = (
    "row",
    "level",
    "claimed ε",
    "proven ε ≤",
    "spends ε ≥",
    "verdict on what ε covers",
    "attack: shown ≥ (of ≤)",
    "floating point",
    "final model: shown ≥ (by a perfect attacker)",
    "special uses outside ε, the worst",
)


class Share(NamedTuple):
    """Part of a bar."""

    number: int
    word: Word


class Texts(NamedTuple):
    """Table of text."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]


class Reading(NamedTuple):
    """Cells of a line: the deciding ones of the paper's line, or a row's cells that decide nothing."""

    line: LineResult
    rows: tuple[RowResult, ...]  # that the cells are of
    cells: dict[str, Cell]  # by level
    decides: bool

    def value(self, level: str, metric: str = "") -> Value | None:
        """The judged value that is printed there; None of a variant, and where none is printed."""
        return self.line.value(level, metric) if self.decides else None

    def further(self, result: TableResult) -> Iterator[tuple[str, str, dict[str, Cell]]]:
        """(metric, words, cells) of the table's further metrics that its rows have."""
        for metric, words in result.table.also.items():
            by_key = {row.key: row for row in self.rows}
            cells = {
                level: by_key[cell.row].also[metric][level]
                for level, cell in self.cells.items()
                if level in by_key[cell.row].also[metric]
            }
            if cells:
                yield metric, words, cells


class LevelView(NamedTuple):
    """Level of a row: its result and its ledger."""

    cell: Cell
    verdict: str  # after the printed value
    attack: str  # that came closest to its bound
    uses: list[NotCovered]  # special uses of private data outside epsilon


class RowView(NamedTuple):
    """Row with its settings, levels and training curves."""

    row: RowResult
    common: dict[str, Any]  # settings of all levels
    special: dict[str, dict[str, Any]]  # further settings by level
    levels: list[LevelView]


class TableView(NamedTuple):
    """Section of a table."""

    result: TableResult
    notes: list[str]
    alarms: list[tuple[list[str], tuple[str, str]]]  # rows, (verdict, reason)
    deciding: list[Reading]
    variants: list[Reading]
    plot: str | None  # as SVG
    figures: list[Figure]
    tally: list[Share]  # of its printed values
    missing: str  # rows that have not been run
    rows: list[RowView]


class ClaimView(NamedTuple):
    """Claim with its verdict in plain words."""

    result: ClaimResult
    verdict: str
    tone: str


class PaperView(NamedTuple):
    """Page of a paper."""

    result: PaperResult
    name: str  # authors and year
    verdict: str  # in a sentence
    tables: list[TableView]
    claims: list[ClaimView]
    findings: list[Sentence]
    agreement: list[Share]  # of printed values
    privacy: list[Share]  # of cells run as in the paper
    claim_shares: list[Share]
    counts: list[Count]  # of printed values
    contrast_counts: list[Count]
    contrast_lines: Texts
    panels: list[forest.Panel]


class IndexView(NamedTuple):
    """First page."""

    papers: list[PaperView]
    sections: list[tuple[str, list[PaperView]]]  # under titles: papers, and rows of no paper
    published: int  # papers
    findings: list[tuple[str, Sentence]]  # with the paper's name
    counts: list[Count]  # of printed values
    contrast_counts: list[Count]
    claim_counts: list[Count]
    waiting: list[tuple[str, int]]  # status, number of printed values
    overview: list[tuple[str, ...]]  # heads, then contrasts, claims and printed values
    by_chance: str
    privacy: str
    panels: list[forest.Panel]
    picture: str | None  # as SVG
    digest: str  # of summary.csv


class LedgerLine(NamedTuple):
    """Line of the ledger."""

    paper: str
    cells: list[str]  # under `LEDGER_HEAD`
    verdict: str
    tone: str  # of the verdict
    use_tone: str  # of the worst special use; '' without one


class LedgerView(NamedTuple):
    """Page of the ledger."""

    lines: list[LedgerLine]
    verdicts: list[Share]  # of levels
    grades: list[Share]  # of each level's worst special use
    head: tuple[str, ...] = LEDGER_HEAD


def table_view(result: TableResult) -> TableView:
    """Build the section of a table."""
    printed = [values for line in result.lines for values in line.values.values()]
    return TableView(
        result=result,
        notes=remarks.notes(result),
        alarms=remarks.alarms(result),
        deciding=_deciding(result),
        variants=_variants(result),
        plot=levels.draw(result),
        figures=list(table_figures(result)),
        tally=_shares((value.status for values in printed for value in values.values()), VALUES),
        missing=_missing(result),
        rows=[_row_view(row, line, result) for line in result.lines for row in line.rows],
    )


def _deciding(result: TableResult) -> list[Reading]:
    """Lines of the paper with their deciding cells, printed values or not."""
    readings = []
    for line in result.lines:
        rows = {level: row for level in result.levels if (row := line.deciding(level)) and level in row.cells}
        cells = {level: row.cells[level] for level, row in rows.items()}
        by_key = {row.key: row for row in rows.values()}
        readings.append(Reading(line, tuple(by_key.values()), cells, decides=True))
    return readings


def _variants(result: TableResult) -> list[Reading]:
    """Cells of each row that decide nothing, in the order of lines."""
    readings = [
        Reading(line, (row,), cells, decides=False)
        for line in result.lines
        for row in line.rows
        for cells in [{level: cell for level, cell in row.cells.items() if not line.decides(row, level)}]
    ]
    return [reading for reading in readings if reading.cells]


def _row_view(row: RowResult, line: LineResult, result: TableResult) -> RowView:
    levels = [_level_view(cell, row, line, result.table.decimals) for cell in row.cells.values()]
    return RowView(row, *_settings(row), levels)


def _level_view(cell: Cell, row: RowResult, line: LineResult, decimals: int) -> LevelView:
    value, attacks, record = line.value(cell.level), cell.replicas[0].attacks, row.record
    verdict = "" if cell.difference is None else f" ({wording.signed(cell.difference, decimals)})"
    if value and value.verdict and line.decides(row, cell.level):
        verdict = f": {value.words}"
    attack = wording.attack_words(verdicts.closest(verdicts.on_mechanism(attacks))) if attacks else ""
    if final_model := wording.final_model_words(verdicts.on_final_model(attacks)):
        attack += f"; final model {final_model}"
    return LevelView(
        cell, verdict, attack, severity.specific(severity.cell_uses(cell, record)) if record else []
    )


def _settings(row: RowResult) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings that all levels of a row share, and further ones of each level; those that apply."""
    replicas = row.record.replicas if row.record else ()
    by_level = {replica.level: replica.settings for replica in replicas}
    first, *others = list(by_level.values()) or [{}]
    common = {
        name: value
        for name, value in first.items()
        if value is not None and all(level.get(name) == value for level in others)
    }
    special = {}
    for level, settings in by_level.items():
        known = {*common, level.partition("=")[0]}
        if further := {
            name: value for name, value in settings.items() if name not in known and value is not None
        }:
            special[level] = further
    return common, special


def _missing(result: TableResult) -> str:
    """Counts of the rows that have not been run, by the machine that they need."""
    missing = [row for row in result.rows if not row.cells]
    waiting = [row for row in missing if row.waits]
    parts = []
    if waiting:
        hours = sum(row.gpu_hours or 0.0 for row in waiting)
        about = f" (about {counts.roughly(hours)} hours of one)" if hours else ""
        parts.append(f"{counts.row_count(len(waiting))} for a GPU{about}")
    if others := len(missing) - len(waiting):
        parts.append(f"{counts.row_count(others)} to be trained here")
    return ", ".join(parts)


def paper_view(result: PaperResult) -> PaperView:
    """Build the page of a paper."""
    argued_first = sorted(result.contrasts, key=lambda contrast: not contrast.argued)
    head = ("contrast", "at", "paper", "ours", "verdict")
    return PaperView(
        result=result,
        name=short(result.paper),
        verdict=counts.verdict(result),
        tables=list(map(table_view, result.tables)),
        claims=[ClaimView(claim, *claim_verdict(claim)) for claim in result.claims],
        findings=findings.render_findings(result),
        agreement=_shares((value.status for value in result.values), VALUES),
        privacy=_shares(_states(result), PRIVACY),
        claim_shares=claim_shares(result.claims),
        counts=counts.values(result),
        contrast_counts=counts.contrasts(result),
        contrast_lines=Texts(
            "Differences that the tables print, beside ours", head, list(map(_contrast_line, argued_first))
        ),
        panels=forest.panels([result]),
    )


def claim_shares(claims: Sequence[ClaimResult]) -> list[Share]:
    """Statuses of a paper's claims; claims on experiments of our own don't count."""
    return _shares((claim.status for claim in claims if not claim.own), CLAIMS)


def _states(result: PaperResult) -> Iterable[str]:
    """Verdicts on the privacy of every cell that was run as in the paper, or that is of no paper."""
    tables = [table for table in result.tables if not (result.paper.published and table.table.own)]
    rows = [row for table in tables for row in table.rows if not row.variant]
    return [cell.guarantee.state for row in rows for cell in row.cells.values()]


def _shares(keys: Iterable[str], words: Mapping[str, Word]) -> list[Share]:
    numbers = Counter(keys)
    return [Share(numbers[key], word) for key, word in words.items() if numbers[key]]


def _contrast_line(contrast: PrintedContrast) -> list[str]:
    decimals, left, right = contrast.result.table.decimals, contrast.left, contrast.right
    at = wording.level_words(left.level)
    if contrast.of_lines:
        name = f"{left.line.label} − {right.line.label}"
    else:
        name, at = left.line.label, f"{at} − {wording.level_words(right.level)}"
    theirs = wording.signed(contrast.theirs, decimals)
    ours = ""
    if contrast.ours:
        ours = f"{wording.signed(contrast.ours.value, decimals)} ± {wording.fixed(contrast.half, decimals)}"
    verdict = CONTRASTS[contrast.status].text + (f": {contrast.why}" if contrast.why else "")
    return [f"{contrast.result.table.name}: {name}", at, theirs, ours, verdict]


def claim_verdict(result: ClaimResult) -> tuple[str, str]:
    """Verdict on a claim in plain words, and its tone."""
    word = CLAIMS[result.status]
    text = word.text
    if result.status == "not judged":
        as_in_paper = (assessment for assessment in result.assessments if not assessment.variant)
        small = next(assessment for assessment in as_in_paper if assessment.status == "not judged")
        text += f": {direction(small.outcomes)}"
    if result.status == "only differently":
        statuses = [assessment.status for assessment in result.assessments]
        held, failed = statuses.count("reproduced"), statuses.count("not reproduced")
        text += f": holds for {held} of {held + failed}"
    return text, word.tone


def direction(outcomes: Sequence[Outcome]) -> str:
    """``1 of 3 hold, 1 fails``: tally of outcomes that are not judged."""
    ran = [outcome.verdict for outcome in outcomes if outcome.verdict != "not run"]
    failed = ran.count("fails")
    fails = f", {failed} {'fails' if failed == 1 else 'fail'}" if failed else ""
    return f"{ran.count('holds')} of {len(ran)} hold{fails}"


def index_view(papers: Sequence[PaperView], picture: str | None, digest: str) -> IndexView:
    """Build the first page from the papers' pages."""
    # rows of no paper are none of a paper's
    published = [paper for paper in papers if paper.result.paper.published]
    own = [paper for paper in papers if not paper.result.paper.published]
    results = [paper.result for paper in published]
    metrics = counts.metrics(*(paper.result for paper in papers))
    waiting = {"waits for a GPU": metrics["wait_for_gpu"], "not run": metrics["not_run"]}
    names = {paper.result.key: paper.name for paper in papers}
    first = findings.first([paper.findings for paper in papers])
    return IndexView(
        papers=list(papers),
        sections=[named for named in (("The papers", published), ("Rows of our own", own)) if named[1]],
        published=len(published),
        findings=[(names[sentence.paper], sentence) for sentence in first],
        counts=counts.values(*results),
        contrast_counts=counts.contrasts(*results),
        claim_counts=counts.claims(*(paper.result for paper in papers)),
        waiting=[(status, number) for status, number in waiting.items() if number],
        overview=counts.overview(*results) if results else [],
        by_chance=counts.by_chance(*results),
        privacy=counts.privacy(*(results or [paper.result for paper in papers])),
        panels=forest.panels(results),
        picture=picture,
        digest=digest,
    )


def ledger_view(facts: Sequence[Fact]) -> LedgerView:
    """Build the page of the ledger from the facts of private levels."""
    special = (severity.specific(fact.not_covered) for fact in facts)
    return LedgerView(
        [ledger_line(fact) for fact in facts],
        _shares((fact.verdict.name for fact in facts if fact.verdict), LEDGERS),
        _shares((uses[0].severity for uses in special if uses), SEVERITIES),
    )


def ledger_line(fact: Fact) -> LedgerLine:
    """Line of a level that ran; an attack's bound has the epsilon of the attacked mechanism behind it."""
    assert fact.row is not None
    assert fact.cell is not None
    assert fact.verdict is not None
    ledger, verdict = fact.cell.guarantee.ledger, fact.verdict
    uses, word = severity.specific(fact.not_covered), LEDGERS[verdict.name]
    optimistic = ""
    if verdict.name == "optimistic" and ledger.epsilon_upper is not None and ledger.claimed is not None:
        optimistic = f" by {wording.upwards(ledger.epsilon_upper - ledger.claimed)}"
    vacuous = ", and no privacy to speak of" if fact.cell.guarantee.state == "vacuous" else ""
    cells = [
        fact.row.key,
        wording.level_words(fact.level),
        wording.claim(ledger),
        "none" if ledger.epsilon_upper is None else wording.upwards(ledger.epsilon_upper),
        "–" if ledger.epsilon_lower is None else wording.downwards(ledger.epsilon_lower),
        word.text + optimistic + vacuous,
        wording.attack_words(verdict.attack),
        verdict.floating_point,
        wording.final_model_words(verdicts.on_final_model(fact.cell.replicas[0].attacks)) or "–",
        severity.at_worst(uses),
    ]
    tone = SEVERITIES[uses[0].severity].tone if uses else ""
    return LedgerLine(fact.table.paper, cells, word.text, word.tone, tone)
