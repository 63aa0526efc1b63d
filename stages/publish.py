"""`dprepro publish`: MLflow's runs from the records."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dprepro.pipeline.tracking.publishing import Published


def publish() -> None:
    """Update MLflow from the records. Without new records, nothing changes.

    One publisher writes at a time; a second one waits.
    """
    bring_up_to_date()


def bring_up_to_date() -> "Published":
    """Publish with a progress bar; return the published rows."""
    from dprepro.pipeline import params
    from dprepro.pipeline.tracking import publishing
    from dprepro.stages.progress import counting
    from dprepro.stages.report import report_left_out

    settings = params.load()
    report_left_out(settings)
    recorded = publishing.declared(settings)
    with counting("publish", len(recorded)) as show:
        done = publishing.publish(recorded, settings, show=show)
    print(
        f"{done.address}: {len(done.written)} rows published, {len(done.unchanged)} already there; "
        f"{done.runs} runs"
    )
    return done
