"""`dprepro verify`: whether what is written down can be trusted."""

from typing import Annotated

import typer


def verify(
    rows: Annotated[
        list[str] | None,
        typer.Argument(
            help="Rows of params.yaml to compare; without any, all that is here, which takes minutes."
        ),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure weights that are here again; minutes.")
    ] = False,
) -> None:
    """Compare all that lies here with all that vouches for it; status 1 where something is wrong."""
    from pipeline import params
    from pipeline.errors import printable
    from pipeline.verification import verify as run

    wrong = count = 0
    for found in run(params.load(), measure, rows or ()):
        count += 1
        wrong += found.wrong is not None
        # one line each, however many a problem has
        told = "ok" if found.wrong is None else "WRONG: " + printable("; ".join(found.wrong.split("\n")))
        if found.unchecked:
            told += f" (not checked: {found.unchecked})"
        print(f"{found.subject}: {told}", flush=True)
    print(f"{count} compared, {wrong} wrong")
    if wrong:
        raise typer.Exit(1)
