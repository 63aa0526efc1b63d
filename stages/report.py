"""`dprepro report`: tables, figures and pages."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeline.params import Settings


def report(
    mlflow: Annotated[bool, typer.Option(help="Also log the tables to MLflow.")] = True,
) -> None:
    """Write tables, figures and self-contained pages from the records; trains nothing."""
    from pipeline import params
    from pipeline.reporting import report as reporting

    settings = params.load()
    tell_left_out(settings)
    written = reporting.write(settings)
    count = sum(map(len, written.files.values()))
    print(f"{written.index}: written, beside it {len(written.pages)} pages, {count} tables and figures")
    if not mlflow:
        return
    from pipeline.tracking.publishing import publish_tables
    from pipeline.tracking.store import address_without_password

    fresh = [
        paper.key
        for paper in written.papers
        if paper.records and publish_tables(paper.key, written.files[paper.key], settings)
    ]
    print(
        f"{address_without_password()}: "
        + (f"tables of {', '.join(fresh)} logged" if fresh else "no new tables to log")
    )


def tell_left_out(settings: "Settings") -> None:
    """Print the training runs without accuracies of their final weights; the report omits them."""
    from pipeline.results import records

    for row in settings.rows:
        if left_out := records.unmeasured(row):
            print(
                f"{records.evaluation_path(row)}: left out: {'; '.join(left_out)}: not measured with "
                f"the weights that {records.run_path(row)} says; `dprepro evaluate {row}`"
            )
