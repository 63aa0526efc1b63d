"""`dprepro plan`: missing training runs, the reasons, and how long such runs took before."""

from datetime import timedelta
from typing import Annotated

import typer

from dprepro.errors import counted


def plan(
    rows: Annotated[
        list[str] | None, typer.Argument(help="Keys of 'rows' in params.yaml; default: all.")
    ] = None,
) -> None:
    """List the missing training runs and the reasons.

    Expected times are means of recorded trainings: of the same row, else of an epoch
    of the same network and method.
    """
    from dprepro.pipeline.identity import plan as planning
    from dprepro.pipeline.params import load

    settings = load()
    wanted = {key: settings.row(key) for key in rows} if rows else settings.rows
    planned = [each for each in planning.rows_to_train(settings, planning.gpu_here()) if each.row in wanted]
    for each in planned:
        time = "waits for a GPU" if each.waits else _span(each.seconds)
        kept = f", {each.kept} stand" if each.kept else ""
        print(f"{each.row}: {counted(each.trainings, 'training')} ({', '.join(each.reasons)}){kept}; {time}")
    missing = {each.row for each in planned}
    for key in wanted if rows else ():
        if key not in missing:
            print(f"{key}: nothing to train; {len(settings.rows[key].trainings)} stand")
    here = [each for each in planned if not each.waits]
    waiting = len(planned) - len(here)
    total = _total([each.seconds for each in here])
    print(f"to train: {total}; waiting for a GPU: {counted(waiting, 'row')}")


def _total(seconds: list[float | None]) -> str:
    """Number and duration of rows: ``3 rows, about 0:20:00, 1 not known``."""
    known = [each for each in seconds if each is not None]
    time = f", {_span(sum(known))}" if known else ""
    unknown = f", {new} not known" if (new := len(seconds) - len(known)) else ""
    return f"{counted(len(seconds), 'row')}{time}{unknown}"


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "not known"
    return f"about {timedelta(seconds=round(min(seconds, 1e13)))}"  # a longer one overflows
