"""`dprepro plan`: what would be trained, and why."""

from typing import Annotated

import typer


def plan(
    rows: Annotated[
        list[str] | None, typer.Argument(help="Keys of 'rows' in params.yaml; none: all.")
    ] = None,
) -> None:
    """Say which rows would be trained here, why, and how long that took before."""
    from pipeline.identity import plan as planning
    from pipeline.params import load

    settings = load()
    wanted = {key: settings.row(key) for key in rows} if rows else settings.rows
    planned = [each for each in planning.plan(settings, planning.gpu_here()) if each.row in wanted]
    for each in planned:
        told = "nobody knows how long"
        if each.seconds is not None:
            told = f"about {_span(each.seconds)} by those that ran, on {each.device}"
        kept = f", {each.kept} stand" if each.kept else ""
        why = "waits for a GPU" if each.waits else told
        print(f"{each.row}: {each.replicas} replicas ({', '.join(each.reasons)}){kept}; {why}")
    for key in wanted.keys() - {each.row for each in planned} if rows else ():
        print(f"{key}: {len(settings.rows[key].trainings)} replicas stand; nothing to train")
    here = [each for each in planned if not each.waits]
    parts: dict[tuple[str, str], list[float | None]] = {}
    for each in here:
        row = settings.rows[each.row]
        parts.setdefault((row.paper, row.budget), []).append(each.seconds)
    for (paper, budget), seconds in sorted(parts.items()):
        print(f"{paper}, {budget} budget: {_total(seconds)}")
    waiting = len(planned) - len(here)
    print(f"to train: {_total([each.seconds for each in here])}; {waiting} rows wait for a GPU")


def _total(seconds: list[float | None]) -> str:
    """``3 rows, 0:20:00 by those that ran and 1 nobody can tell of``."""
    known = [each for each in seconds if each is not None]
    unknown = f" and {new} nobody can tell of" if (new := len(seconds) - len(known)) else ""
    return f"{len(seconds)} rows, {_span(sum(known))} by those that ran{unknown}"


def _span(seconds: float) -> str:
    from datetime import timedelta

    return str(timedelta(seconds=round(seconds)))
