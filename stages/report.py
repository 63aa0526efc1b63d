"""`dprepro report`: pages, CSV files and pictures."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dprepro.pipeline.params import Settings


def report() -> None:
    """Write self-contained pages, CSV files and pictures from the records; trains nothing."""
    from dprepro.pipeline.params import load
    from dprepro.pipeline.reporting.report import write

    settings = load()
    report_left_out(settings)
    print(f"{write(settings)}: written")


def report_left_out(settings: "Settings") -> None:
    """Print the training runs that the report omits: their final weights have no measured accuracies."""
    from dprepro.pipeline.results import records

    for row in settings.rows:
        if left_out := records.unmeasured(row):
            print(
                f"{records.evaluation_path(row)}: left out: {'; '.join(left_out)}: not measured with "
                f"the weights that {records.run_path(row)} says; `dprepro evaluate {row}`"
            )
