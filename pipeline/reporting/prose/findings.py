"""Findings of a paper: sentences of its file, filled with numbers of the records.

A finding names the cells that it quotes and the conditions that it needs. It is left out if a cell has not
been run or a condition fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from dprepro.pipeline.reporting import caveats, wording
from dprepro.pipeline.reporting.facts import Fact, PaperResult
from dprepro.pipeline.reporting.judging.assess import ClaimResult
from dprepro.pipeline.reporting.judging.contrasts import PrintedContrast
from dprepro.pipeline.reporting.judging.guarantees import Guarantee
from dprepro.pipeline.reporting.judging.intervals import contrast
from dprepro.pipeline.reporting.judging.rule import FEWEST_SEEDS
from dprepro.pipeline.reporting.papers import Finding
from dprepro.pipeline.reporting.results import Cell, RowResult

FIRST = 8  # most findings on the first page, so that they fit on the first screen


@dataclass(frozen=True)
class Quote:
    """Numbers of a cell, in the form in which a sentence quotes them."""

    fact: Fact
    row: RowResult
    cell: Cell

    @property
    def ours(self) -> str:
        """Our number: ``97.65 ± 0.40 % (n = 3)``; a computed number has no interval."""
        table = self.fact.table.table
        text = wording.with_interval(self.cell.mean, table.decimals)
        return text.replace(" (n", " % (n") if table.unit == "percent" else text

    @property
    def paper(self) -> str:
        """The printed value."""
        printed = self.cell.printed
        return wording.printed(printed, self.fact.table.table.decimals) if printed else "no value"

    @property
    def verdict(self) -> str:
        """Verdict on the printed value."""
        value = self.fact.value
        return value.words if value and value.row is self.row else "a variant, which decides nothing"

    @property
    def proven(self) -> str:
        """Upper bound on epsilon, rounded up."""
        epsilon_upper = self.cell.guarantee.ledger.epsilon_upper
        return "no bound" if epsilon_upper is None else wording.upwards(epsilon_upper)

    @property
    def claimed(self) -> str:
        """Epsilon by the paper's accounting."""
        return wording.claim(self.cell.guarantee.ledger)

    @property
    def conditions(self) -> str:
        """Training budget, and whether the result is planned: ``own budget: 8 epochs, exploratory``."""
        if not self.row.trained:
            return "accounting, nothing trained"
        marks = caveats.caveats_at(self.row, self.cell.level)
        budget = next((caveat.words for caveat in marks if caveat.budget), "")
        own = self.fact.table.table.own
        budget = "our own experiment, not in the paper" if own else budget or "at the paper's settings"
        return f"{budget}, {'planned' if self.cell.planned else 'exploratory'}"


@dataclass(frozen=True)
class Differences:
    """Contrasts of two lines at several levels, in the form in which a sentence quotes them."""

    contrasts: tuple[PrintedContrast, ...]

    @property
    def differences(self) -> str:
        """Differences, level by level: ``+0.33 ± 0.54 (paper +0.34) at ε = 7, ...``."""
        return ", ".join(
            f"{wording.signed(made.ours.value, decimals)} ± {wording.fixed(made.half, decimals)} (paper "
            f"{wording.signed(made.theirs, decimals)}) at {wording.level_words(made.left.level)}"
            for made in self.contrasts
            for decimals in [made.result.table.decimals]
            if made.ours
        )


@dataclass(frozen=True)
class Sentence:
    """Sentence that states a finding, with the cell that it quotes first."""

    text: str
    quote: Quote | None  # of its first cell; None without cells
    result: PaperResult
    table: str  # name of the section with the evidence

    @property
    def guarantee(self) -> Guarantee | None:
        """Guarantee of the first quoted cell."""
        return self.quote.cell.guarantee if self.quote else None

    @property
    def privacy(self) -> str:
        """Verdict on the first quoted cell's guarantee; '' without cells."""
        found = self.guarantee
        if self.quote is None or found is None:
            return ""
        tested = self.quote.row.trained and found.state == "holds" and found.rests_on_trials
        return wording.guarantee_words(found) + (", independence tested" if tested else "")


def render_findings(result: PaperResult) -> list[Sentence]:
    """Sentences of a paper's findings, in the order of its file; unsupported findings are left out."""
    names = {table.key: table.name for table in result.tables}
    quotable = {
        (fact.row.key, fact.level): Quote(fact, fact.row, fact.cell)
        for fact in result.facts
        if fact.row and fact.cell
    }
    judged = {
        (*(f"{made.result.key}/{side.line.key}" for side in (made.left, made.right)), made.left.level): made
        for made in result.contrasts
        if made.ours and made.of_lines
    }
    sentences = []
    for finding in result.paper.findings:
        try:
            quotes = {name: quotable[place.row, place.at] for name, place in finding.cells.items()}
            differences = {
                name: Differences(tuple(judged[pair.left, pair.right, level] for level in pair.at))
                for name, pair in finding.contrasts.items()
            }
        except KeyError:  # a cell was not run, or a contrast is not judged
            continue
        if not supported(finding, quotes, result.claims):
            continue
        text = finding.says.format(**quotes, **differences)
        conditions: dict[str, list[str]] = {}
        for quote in quotes.values():
            conditions.setdefault(quote.conditions, []).append(quote.fact.line.label)
        for condition, labels in conditions.items():
            lines = wording.enumerated(list(dict.fromkeys(labels)))
            words = f"{lines}: {condition}" if len(conditions) > 1 else condition
            text += f" ({words[0].upper()}{words[1:]}.)"
        sentences.append(Sentence(text, next(iter(quotes.values()), None), result, names[finding.table]))
    return sentences


def first_findings(results: Sequence[PaperResult]) -> list[Sentence]:
    """The first finding of each paper, then the second ones, and so on, up to `FIRST` sentences."""
    in_turn = (found for place in zip_longest(*map(render_findings, results)) for found in place if found)
    return list(islice(in_turn, FIRST))


def supported(finding: Finding, quotes: Mapping[str, Quote], claims: Sequence[ClaimResult]) -> bool:
    """Return True if the quoted cells and the claims support a finding."""
    statuses = {claim.claim.key: claim.status for claim in claims}
    searched = {quote.row.searched is None for quote in quotes.values() if quote.row.trained}
    return (
        all(statuses.get(key) == status for key, status in finding.claims.items())
        and all(quote.row.counts and quote.row.comparable for quote in quotes.values())
        and all(quote.cell.mean.exact or quote.cell.mean.n >= FEWEST_SEEDS for quote in quotes.values())
        and len(searched) < 2  # no searched row with an unsearched one
        and all(
            contrast([(1.0, left.row, left), (-1.0, right.row, right)]).where(needs.above, needs.below)
            == "holds"
            for needs in finding.provided
            for left, right in [(quotes[needs.left].cell, quotes[needs.right].cell)]
        )
    )
