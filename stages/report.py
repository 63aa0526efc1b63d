"""`dprepro report`: tables, figures and pages."""

from typing import Annotated

import typer


def report(
    mlflow: Annotated[bool, typer.Option(help="Also log the tables to MLflow.")] = True,
) -> None:
    """Write tables, figures and self-contained pages from the records; trains nothing."""
    from pipeline import params
    from pipeline.reporting import report as reporting
    from pipeline.results import records

    settings = params.load()
    for row in settings.rows:
        if left_out := records.unmeasured(row):
            print(
                f"{row}: left out: {'; '.join(left_out)}: not measured with the weights that it ran to; "
                f"`dprepro evaluate {row}`"
            )
    written = reporting.write(settings)
    count = sum(map(len, written.files.values()))
    print(
        f"{written.index}: written, beside it {len(written.pages)} papers' pages, {count} tables and figures"
    )
    if not mlflow:
        return
    from pipeline.tracking.publishing import publish_tables
    from pipeline.tracking.store import address

    fresh = [
        paper.key
        for paper in written.papers
        if paper.records and publish_tables(paper.key, written.files[paper.key], settings)
    ]
    print(f"{address()}: " + (f"tables of {', '.join(fresh)} logged" if fresh else "no new tables to log"))
