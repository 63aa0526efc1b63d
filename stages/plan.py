"""`dprepro plan`: missing training runs, the reasons, and estimates of their duration."""

from datetime import timedelta
from typing import Annotated

import typer

SOURCES = {
    "record": "by its recorded time",
    "history": "by its time in git's history",
    "similar": "by rows of the same network, method and data",
    None: "by its operations",
}


def plan(
    rows: Annotated[
        list[str] | None, typer.Argument(help="Keys of 'rows' in params.yaml; default: all.")
    ] = None,
) -> None:
    """List the missing training runs, the reasons, and estimates of their duration."""
    from dprepro.pipeline.cluster.costs import seconds as estimated
    from dprepro.pipeline.identity import plan as planning
    from dprepro.pipeline.params import load

    settings = load()
    wanted = {key: settings.row(key) for key in rows} if rows else settings.rows
    planned = [each for each in planning.plan(settings, planning.gpu_here()) if each.row in wanted]
    times = {each.row: None if each.waits else estimated(settings, each) for each in planned}
    hours = planning.gpu_hours()
    for each in planned:
        seconds = times[each.row]
        if each.waits:
            counted = f", about {hours[each.row]:g} GPU hours in all" if each.row in hours else ""
            time = f"waits for a GPU{counted}"
        elif seconds is None:
            time = "no estimate, as its network can't be built"
        else:
            time = f"about {_span(seconds)} {SOURCES[each.source]}"
        kept = f", {each.kept} stand" if each.kept else ""
        print(f"{each.row}: {each.replicas} replicas ({', '.join(each.reasons)}){kept}; {time}")
    for key in wanted if rows else ():
        if key not in times:
            print(f"{key}: {len(settings.rows[key].trainings)} replicas stand; nothing to train")
    here = [each for each in planned if not each.waits]
    parts: dict[tuple[str, str], list[float | None]] = {}
    for each in here:
        row = settings.rows[each.row]
        parts.setdefault((row.paper, row.budget), []).append(times[each.row])
    for (paper, budget), seconds_of_part in sorted(parts.items()):
        print(f"{paper}, {budget} budget: {_total(seconds_of_part)}")
    waiting = len(planned) - len(here)
    print(f"to train: {_total([times[each.row] for each in here])}; {waiting} rows wait for a GPU")


def _total(seconds: list[float | None]) -> str:
    """Number and duration of rows: ``3 rows, about 0:20:00 and 1 without an estimate``."""
    known = [each for each in seconds if each is not None]
    unknown = f" and {new} without an estimate" if (new := len(seconds) - len(known)) else ""
    return f"{len(seconds)} rows, about {_span(sum(known))}{unknown}"


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(min(seconds, 1e13))))  # a longer one overflows
