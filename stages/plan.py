"""`dprepro plan`: what `dvc repro` would train, and why."""

from typing import Annotated

import typer


def plan(
    stages: Annotated[
        bool,
        typer.Option("--stages", help="Print DVC's stages instead, in the order that uses an hour best."),
    ] = False,
    data: Annotated[
        bool, typer.Option("--data", help="Print DVC's stages that prepare what these rows lack.")
    ] = False,
) -> None:
    """Say which rows would be trained here, why, and how long that took before."""
    from datetime import timedelta

    from pipeline.identity import plan as planning
    from pipeline.params import load

    settings = load()
    planned = planning.plan(settings, planning.gpu_here())
    if stages or data:
        wanted = planning.data_stages if data else planning.stages
        print("\n".join(wanted(settings, planned)))
        return
    for each in planned:
        told = "nobody knows how long"
        if each.seconds is not None:
            told = f"about {timedelta(seconds=round(each.seconds))} by those that ran, on {each.device}"
        kept = f", {each.kept} stand" if each.kept else ""
        why = "waits for a GPU" if each.waits else told
        print(f"{each.row}: {each.replicas} replicas ({', '.join(each.reasons)}){kept}; {why}")
    here = [each for each in planned if not each.waits]
    known = [each.seconds for each in here if each.seconds is not None]
    unknown = f" and {new} nobody can tell of" if (new := len(here) - len(known)) else ""
    print(
        f"to train: {len(here)} rows, {timedelta(seconds=round(sum(known)))} by those that ran{unknown}; "
        f"{len(planned) - len(here)} rows wait for a GPU"
    )
