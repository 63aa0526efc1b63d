"""A handful of counts for each paper, for `dvc metrics show` and `dvc metrics diff`."""

from pipeline.reporting.judging import values
from pipeline.reporting.results import PaperResult


def metrics(result: PaperResult) -> dict[str, int]:
    """How many values have which verdict, on what strength, and how many results keep their epsilon."""
    counts = values.counts([result])
    cells = [cell for table in result.tables for cell in table.cells]
    claiming = [cell.guarantee for cell in cells if cell.guarantee.ledger.claimed is not None]
    by_strength = {name: sum(counts.by_strength(name)) for name in values.STRENGTHS}
    return {
        "printed": counts.printed,
        "agree": counts.of("agrees"),
        "differ": counts.differ,
        "inconclusive": counts.of("inconclusive"),
        "not_judged": counts.of("not judged"),
        "wait_for_gpu": counts.of("waits for a GPU"),
        "not_run": counts.of("not run"),
        "not_counted": counts.of("not counted"),
        "decided_by_accounting": by_strength["accounting"],
        "decided_at_paper_settings": by_strength["the paper's settings"],
        "decided_at_own_budget": by_strength["a budget of our own"],
        "decided_as_planned": counts.planned,
        "results": len(cells),
        "claim_privacy": len(claiming),
        "proven_within_claim": sum(one.kept for one in claiming),
        "and_of_use": sum(one.state == "holds" for one in claiming),
    }
