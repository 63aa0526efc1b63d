"""`dprepro verify`: comparison of all records with their digests and sources."""

from typing import Annotated

import typer


def verify(
    rows: Annotated[
        list[str] | None,
        typer.Argument(help="Rows and accounts to check; default: the whole folder, which takes minutes."),
    ] = None,
) -> None:
    """Compare records, weights and data with their digests and sources; exit with 1 if something differs."""
    from dprepro.errors import printable
    from dprepro.pipeline.params import load
    from dprepro.pipeline.verification import verify as run

    wrong = count = 0
    for checked in run(load(), rows or ()):
        count += 1
        wrong += checked.wrong is not None
        # one line each, also for problems of several lines
        outcome = (
            "ok" if checked.wrong is None else "WRONG: " + printable("; ".join(checked.wrong.split("\n")))
        )
        if checked.unchecked:
            outcome += f" (not checked: {checked.unchecked})"
        print(f"{checked.subject}: {outcome}", flush=True)
    print(f"{count} compared, {wrong} wrong")
    if wrong:
        raise typer.Exit(1)
