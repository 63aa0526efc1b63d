"""View models: typed contents of the pages and Markdown files."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from pipeline.reporting import figures, wording
from pipeline.reporting.drawing import forest
from pipeline.reporting.facts import Fact, PaperResult
from pipeline.reporting.judging import severity, slowdown, verdicts
from pipeline.reporting.judging.assess import ClaimResult
from pipeline.reporting.judging.claim_test import Outcome
from pipeline.reporting.judging.contrasts import PrintedContrast
from pipeline.reporting.judging.severity import NotCovered
from pipeline.reporting.papers import short
from pipeline.reporting.prose import counts, findings, remarks
from pipeline.reporting.prose.findings import Sentence
from pipeline.reporting.results import Cell, LineResult, RowResult, TableResult
from pipeline.reporting.tables import reading
from pipeline.reporting.tables.reading import Reading
from pipeline.reporting.vocabulary import CLAIMS, CONTRASTS, LEDGERS, PRIVACY, RULES, SEVERITIES, VALUES, Word

MLFLOW = "http://127.0.0.1:5000"
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
    rule: str = ""


class FigureView(NamedTuple):
    """Figure that a paper's file asks for; the caption is HTML."""

    name: str
    title: str
    caption: str
    svg: str


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
    curves: str | None  # as SVG
    mlflow: str  # address of its runs


class TableView(NamedTuple):
    """Section of a table."""

    result: TableResult
    notes: list[str]
    alarms: list[tuple[list[str], tuple[str, str]]]  # rows, (verdict, reason)
    protections: list[tuple[list[str], str]]  # rows, words
    deciding: list[Reading]
    variants: list[Reading]
    wide: list[Texts]  # the same for Markdown
    releases: Texts
    slowdowns: Texts
    plot: str | None  # as SVG
    figures: list[FigureView]
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
    by_chance: str
    privacy: str
    panels: list[forest.Panel]
    picture: str | None  # as SVG


class LedgerLine(NamedTuple):
    """Line of the ledger."""

    paper: str
    cells: list[str]  # under `LEDGER_HEAD`
    tone: str  # of the verdict
    use_tone: str  # of the worst special use; '' without one


class LedgerView(NamedTuple):
    """Page of the ledger."""

    lines: list[LedgerLine]
    verdicts: list[Share]  # of levels
    grades: list[Share]  # of each level's worst special use
    head: tuple[str, ...] = LEDGER_HEAD


def table_view(result: TableResult, files: Mapping[str, str], experiments: int) -> TableView:
    """Build the section of a table from its results and its ``files``, by their paths under `reports/`."""
    name = result.table.name
    svgs = {path.removeprefix("figures/").removesuffix(".svg"): text for path, text in files.items()}
    frames = reading.wide(result), reading.wide_variants(result)
    slowdown_rule = RULES["slowdown"].format(points=100 * slowdown.MARGIN)
    head = ["row", "quantity", *wording.column_heads(result)]
    return TableView(
        result=result,
        notes=remarks.notes(result),
        alarms=remarks.alarms(result),
        protections=remarks.protections(result),
        deciding=reading.deciding(result),
        variants=reading.variants(result),
        wide=[Texts("", list(frame.columns), frame.to_numpy().tolist()) for frame in frames],
        releases=Texts(
            f"What rows of {name} release once", head, remarks.releases(result), RULES["releases"]
        ),
        slowdowns=Texts(f"Slow-down in {name}", slowdown.HEAD, slowdown.lines(result), slowdown_rule),
        plot=svgs.get(result.name),
        figures=[
            FigureView(figure, kind.TITLE.format(name), kind.CAPTION, svgs[figure])
            for figure, kind in figures.table_figures(result).items()
            if figure in svgs
        ],
        missing=_missing(result),
        rows=[
            _row_view(row, line, result, svgs.get(f"{row.key}-curves"), experiments)
            for line in result.lines
            for row in line.rows
        ],
    )


def _row_view(
    row: RowResult, line: LineResult, result: TableResult, curves: str | None, experiments: int
) -> RowView:
    levels = [_level_view(cell, row, line, result.table.decimals) for cell in row.cells.values()]
    return RowView(row, *_settings(row), levels, curves, mlflow_link(row.key, experiments))


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
    """Settings that all levels of a row share, and the further settings of each level."""
    replicas = row.record.replicas if row.record else ()
    by_level = {replica.level: replica.settings for replica in replicas}
    first, *others = list(by_level.values()) or [{}]
    common = {
        name: value for name, value in first.items() if all(level.get(name) == value for level in others)
    }
    special = {}
    for level, settings in by_level.items():
        known = {*common, level.partition("=")[0]}
        if further := {name: value for name, value in settings.items() if name not in known}:
            special[level] = further
    return common, special


def mlflow_link(row: str, experiments: int) -> str:
    """Address of a row's runs in the MLflow page that `dprepro ui` opens.

    MLflow finds experiments by number alone, and numbers depend on the order of their creation. `publish`
    creates one for each of the laboratory's papers, so that all numbers together always hold the row.
    """
    wanted = "searchFilter=" + quote(f'tags.row = "{row}"')
    if experiments == 1:  # the page for several would show nothing of a single one's runs
        return f"{MLFLOW}/#/experiments/1/runs?{wanted}"
    numbers = json.dumps([str(number) for number in range(1, experiments + 1)])
    return f"{MLFLOW}/#/compare-experiments/s?experiments={quote(numbers)}&{wanted}"


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


def paper_view(result: PaperResult, files: Mapping[str, Mapping[str, str]], experiments: int) -> PaperView:
    """Build the page of a paper from its results and the ``files`` of its tables, by the tables' names."""
    argued_first = sorted(result.contrasts, key=lambda contrast: not contrast.argued)
    head = ("contrast", "at", "paper", "ours", "verdict")
    return PaperView(
        result=result,
        name=short(result.paper),
        tables=[table_view(table, files[table.name], experiments) for table in result.tables],
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
    """``points to no, in 1 of 3``: direction of outcomes that are not judged."""
    ran = [outcome.verdict for outcome in outcomes if outcome.verdict != "not run"]
    answer, pointing = ("no", ran.count("fails")) if "fails" in ran else ("yes", ran.count("holds"))
    if not pointing:
        return "points nowhere"
    share = "" if pointing == len(ran) else f", in {pointing} of {len(ran)}"
    return f"points to {answer}{share}"


def index_view(papers: Sequence[PaperView], picture: str | None) -> IndexView:
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
        by_chance=counts.by_chance(*results),
        privacy=counts.privacy(*(results or [paper.result for paper in papers])),
        panels=forest.panels(results),
        picture=picture,
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
    return LedgerLine(fact.table.paper, cells, word.tone, SEVERITIES[uses[0].severity].tone if uses else "")
