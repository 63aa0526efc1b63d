"""A handful of counts for each paper, for `dvc metrics show` and `dvc metrics diff`."""

from pipeline.reporting.gather import PaperResult
from pipeline.reporting.judging import values


def metrics(result: PaperResult) -> dict[str, int]:
    """How many of its values have which verdict, and how many results keep the epsilon that they claim."""
    summary = values.summary(result)
    cells = [cell for table in result.tables for cell in table.cells]
    claiming = [cell.guarantee for cell in cells if cell.guarantee.ledger.claimed is not None]
    return {
        "printed": summary.total,
        "agree": summary.agree,
        "differ": summary.differ,
        "not_judged": summary.not_judged.total(),
        "wait_for_gpu": summary.waiting,
        "not_run": summary.not_run.total(),
        "results": len(cells),
        "claim_privacy": len(claiming),
        "keep_it": sum(one.state == "holds" for one in claiming),
    }
