"""`dprepro publish`: records into MLflow."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeline.params import Settings
    from pipeline.results.schema import Record
    from pipeline.tracking.publishing import Published


def publish(
    models: Annotated[
        bool, typer.Option(help="Also log the networks whose weights are here; seconds for each.")
    ] = False,
) -> None:
    """Bring MLflow up to date with the records; run twice, the second changes nothing.

    Several may publish to one server or database at once: one of each run is left.
    """
    recorded, settings, _ = bring_up_to_date()
    if not models:
        return
    from pipeline.tracking.models import publish_models, with_weights
    from stages.progress import counting

    here = with_weights(recorded)
    with counting("models", len(here)) as show:
        logged = publish_models(here, settings, show)
    print(f"{logged} networks logged; weights of {len(here)} of {len(recorded)} rows are here")


def bring_up_to_date() -> "tuple[list[Record], Settings, Published]":
    """Publish, showing how far it is; what was published, and what came of it."""
    from pipeline import params
    from pipeline.tracking import publishing
    from stages.progress import counting
    from stages.report import tell_left_out

    settings = params.load()
    tell_left_out(settings)
    recorded = publishing.declared(settings)
    with counting("publish", len(recorded)) as show:
        done = publishing.publish(recorded, settings, show=show)
    print(
        f"{done.address}: {len(done.written)} rows published, {len(done.unchanged)} already there; "
        f"{done.runs} runs"
    )
    return recorded, settings, done
